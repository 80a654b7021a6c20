#include "os/detached_mount.hpp"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace asr {

namespace {

// What the kernel has to say about a failed mount, one message per read.
std::string complaint(int context) {
  std::array<char, 512> text{};
  ssize_t n = ::read(context, text.data(), text.size());
  return n > 2 ? ": " + std::string(text.data() + 2, static_cast<std::size_t>(n - 2)) : "";
}

}  // namespace

Result<UniqueFd> mount_ext4(const std::string& device) {
  UniqueFd context(static_cast<int>(::syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC)));
  if (!context)
    return fail(Errc::unsupported, errno_error(errno, "open ext4").what,
                "the kernel needs ext4, and the engine root's rights");
  auto configure = [&](unsigned command, const char* key, const char* value) -> Result<void> {
    if (::syscall(SYS_fsconfig, context.get(), command, key, value, 0) == 0) return {};
    Error error = errno_error(errno, "mount " + device);
    error.what += complaint(context.get());
    return fail(std::move(error));
  };
  TRY(configure(FSCONFIG_SET_STRING, "source", device.c_str()));
  TRY(configure(FSCONFIG_SET_STRING, "errors", "remount-ro"));
  TRY(configure(FSCONFIG_CMD_CREATE, nullptr, nullptr));
  UniqueFd mount(
      static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC,
                                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME)));
  if (!mount) return fail_errno("mount " + device);
  return mount;
}

Result<UniqueFd> clone_mount(int folder) {
  UniqueFd tree(static_cast<int>(
      ::syscall(SYS_open_tree, folder, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)));
  if (!tree) return fail_errno("open_tree");
  return tree;
}

}  // namespace asr
