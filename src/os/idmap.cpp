#include "os/idmap.hpp"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/scope_exit.hpp"
#include "os/file.hpp"

namespace asr {

Result<UniqueFd> clone_of(const std::string& path) {
  UniqueFd tree(static_cast<int>(
      ::syscall(SYS_open_tree, AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!tree) return fail_errno("open_tree " + path);
  return tree;
}

Result<UniqueFd> idmapped_clone(const std::string& path, int userns, Access access) {
  UniqueFd tree = TRY(clone_of(path));
  TRY(idmap(tree.get(), userns, access));
  return tree;
}

Result<void> idmap(int mount, int userns, Access access) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                        (access == Access::read_only ? MOUNT_ATTR_RDONLY : 0);
  attributes.userns_fd = static_cast<std::uint64_t>(userns);
  if (::syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
    return fail_errno("mount_setattr");
  return {};
}

namespace {

std::string text_of(const std::vector<IdRange>& ranges) {
  std::string text;
  for (const IdRange& range : ranges)
    text += std::to_string(range.inside) + " " + std::to_string(range.outside) + " " +
            std::to_string(range.count) + "\n";
  return text;
}

}  // namespace

std::vector<IdRange> with_owner(std::uint32_t owner, std::uint32_t user, std::uint32_t outside,
                                std::uint32_t count) {
  std::vector<IdRange> ranges{{owner, outside + user, 1}};
  if (owner != user && owner < count) ranges.push_back({user, outside + owner, 1});
  std::uint32_t from = 0;
  for (std::uint32_t taken : {std::min(owner, user), std::max(owner, user), count}) {
    std::uint32_t to = std::min(taken, count);
    if (to > from) ranges.push_back({from, outside + from, to - from});
    from = to + 1;
  }
  return ranges;
}

Result<UniqueFd> make_userns(std::uint32_t inside, std::uint32_t outside, std::uint32_t count) {
  std::vector<IdRange> range{{inside, outside, count}};
  return make_userns(IdMaps{range, range});
}

Result<UniqueFd> make_userns(const IdMaps& maps) {
  // Only a process makes one: a child which lives just long enough.
  int gate[2];
  if (::pipe2(gate, O_CLOEXEC) != 0) return fail_errno("pipe");
  UniqueFd child_end(gate[0]);
  UniqueFd our_end(gate[1]);
  int pid = static_cast<int>(::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0));
  if (pid < 0) return fail_errno("clone");
  if (pid == 0) {
    our_end.reset();
    char byte = 0;
    (void)!::read(child_end.get(), &byte, 1);
    ::_exit(0);
  }
  ScopeExit end([&] {
    our_end.reset();
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  });
  std::string proc = "/proc/" + std::to_string(pid) + "/";
  TRY(write_value(AT_FDCWD, proc + "uid_map", text_of(maps.users)));
  TRY(write_value(AT_FDCWD, proc + "gid_map", text_of(maps.groups)));
  UniqueFd userns(::open((proc + "ns/user").c_str(), O_RDONLY | O_CLOEXEC));
  if (!userns) return fail_errno("open user namespace");
  return userns;
}

bool can_idmap(const std::string& path) {
  auto userns = make_userns(0, 100000, 65536);
  return userns && idmapped_clone(path, userns->get(), Access::read_only);
}

}  // namespace asr
