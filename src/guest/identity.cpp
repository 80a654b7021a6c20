#include "guest/identity.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "os/file.hpp"

namespace asr {

namespace {

constexpr std::size_t kMaxAccountFile = 1 << 20;

std::optional<std::uint32_t> to_id(std::string_view text) {
  std::uint32_t id = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

// Calls `use` with the colon-separated fields of each line that has at least `least` of them, until
// it says true.
template <std::size_t N, class Use>
void each_account(std::string_view text, std::size_t least, Use use) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::array<std::string_view, N> fields{};
    std::size_t count = 0;
    for (; count < N; ++count) {
      std::size_t colon = count + 1 < N ? line.find(':') : std::string_view::npos;
      fields[count] = line.substr(0, colon);
      if (colon == std::string_view::npos) {
        ++count;
        break;
      }
      line.remove_prefix(colon + 1);
    }
    if (count >= least && use(fields)) return;
  }
}

bool lists_member(std::string_view members, std::string_view name) {
  while (!members.empty()) {
    std::string_view member = members.substr(0, members.find(','));
    if (member == name) return true;
    members.remove_prefix(std::min(members.size(), member.size() + 1));
  }
  return false;
}

}  // namespace

Result<User> find_user(std::string_view wanted, std::string_view passwd, std::string_view group) {
  std::optional<std::uint32_t> number = to_id(wanted);
  std::optional<User> found;
  each_account<7>(passwd, 6, [&](const std::array<std::string_view, 7>& fields) {
    auto uid = to_id(fields[2]);
    auto gid = to_id(fields[3]);
    if (!uid || !gid || (number ? *uid != *number : fields[0] != wanted)) return false;
    found = User{
        *uid, *gid, {}, std::string(fields[0]), std::string(fields[5]), std::string(fields[6])};
    return true;
  });
  if (!found && number) found = User{*number, *number, {}, std::string(wanted), "/", "/bin/sh"};
  // Images without these accounts still have both.
  if (!found && wanted == "user")
    found = User{kUserId, kUserId, {}, "user", "/home/user", "/bin/sh"};
  if (!found && wanted == "root") found = User{0, 0, {}, "root", "/root", "/bin/sh"};
  if (!found) return fail(Errc::invalid, "no user " + std::string(wanted) + " in the sandbox");
  if (found->uid >= kGuestId || found->gid >= kGuestId)
    return fail(Errc::invalid, "user " + std::string(wanted) + " has an id outside of the sandbox");
  if (found->home.empty() || !found->home.starts_with('/')) found->home = "/";
  each_account<4>(group, 4, [&](const std::array<std::string_view, 4>& fields) {
    auto gid = to_id(fields[2]);
    if (gid && *gid < kGuestId && found->groups.size() < 64 && lists_member(fields[3], found->name))
      found->groups.push_back(*gid);
    return false;
  });
  return *std::move(found);
}

namespace {

// A regular file of bounded size, wherever links inside the sandbox lead; "" if there is none.
std::string account_file(const char* path) {
  UniqueFd root(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  auto fd = open_resolved(root.get(), path, O_RDONLY | O_NONBLOCK, Resolve::in_root);
  struct stat info {};
  if (!fd || ::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  if (static_cast<std::size_t>(info.st_size) > kMaxAccountFile) return {};
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  ssize_t n = ::read(fd->get(), text.data(), text.size());
  text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return text;
}

// Changes when either file does.
std::string account_stamp() {
  std::string stamp;
  for (const char* path : {"/etc/passwd", "/etc/group"}) {
    struct stat info {};
    if (::stat(path, &info) != 0) continue;
    for (long part : {static_cast<long>(info.st_ino), static_cast<long>(info.st_size),
                      info.st_mtim.tv_sec, info.st_mtim.tv_nsec})
      stamp += std::to_string(part) + ",";
  }
  return stamp;
}

}  // namespace

Result<User> Accounts::find(const std::string& wanted) {
  std::string stamp = account_stamp();
  if (found_ && wanted == wanted_ && stamp == stamp_) return *found_;
  User user = TRY(find_user(wanted, account_file("/etc/passwd"), account_file("/etc/group")));
  if (rootless_ && user.uid != kUserId)
    return fail(Errc::unsupported, "an ordinary user's sandbox has only the user with id 1000",
                "run agent-sandbox as root for more");
  wanted_ = wanted;
  stamp_ = std::move(stamp);
  found_ = user;
  return user;
}

namespace {

// Harmless in a user namespace of one's own, and what apt, su and servers expect of root.
constexpr std::uint64_t kRootCapabilities =
    1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID |
    1ULL << CAP_KILL | 1ULL << CAP_SETGID | 1ULL << CAP_SETUID | 1ULL << CAP_NET_BIND_SERVICE |
    1ULL << CAP_SYS_PTRACE;

constexpr std::uint64_t kFileCapabilities =
    1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID;

int become_with(const GuestConfig& config, const User& user, std::uint64_t kept) noexcept {
  if (!config.rootless) {
    // Ids first, the namespace second: changing ids inside a namespace that is full of processes
    // would mark us for refusal at execve(), and a full sandbox could not be looked at any more.
    // The maps are one-to-one, so an id means the same before and after.
    if (::syscall(SYS_setgroups, user.groups.size(), user.groups.data()) != 0) return -1;
    if (::syscall(SYS_setresgid, user.gid, user.gid, user.gid) != 0) return -1;
    if (::syscall(SYS_setresuid, user.uid, user.uid, user.uid) != 0) return -1;
  }
  // The sixth argument is not the kernel's but the gate's: it lets nobody else call this.
  if (::syscall(SYS_setns, config.inner_userns, CLONE_NEWUSER, 0, 0, 0, config.gate_secret) != 0)
    return -1;
  for (int cap = 0; cap <= CAP_LAST_CAP; ++cap)
    if ((kept >> cap & 1) == 0 && ::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0 && errno == EPERM)
      return -1;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].effective = data[0].permitted = static_cast<std::uint32_t>(kept);
  data[1].effective = data[1].permitted = static_cast<std::uint32_t>(kept >> 32);
  return static_cast<int>(::syscall(SYS_capset, &header, data));
}

}  // namespace

int become(const GuestConfig& config, const User& user) noexcept {
  return become_with(config, user, user.uid == 0 ? kRootCapabilities : 0);
}

int become_keeper_of_files(const GuestConfig& config) noexcept {
  User keeper;
  keeper.uid = keeper.gid = config.rootless ? kUserId : 0;
  return become_with(config, keeper, kFileCapabilities);
}

}  // namespace asr
