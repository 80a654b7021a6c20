#include "zygote/zygote.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "guest/guest.hpp"
#include "launch/plan.hpp"
#include "os/file.hpp"
#include "os/idmap.hpp"
#include "os/seqpacket.hpp"
#include "wire/send.hpp"
#include "wire/zygote_messages.hpp"
#include "zygote/stage.hpp"

namespace asr {

namespace {

using wire::Configure;
using wire::Create;

std::vector<sock_filter> to_filter(const std::string& bytes) {
  std::vector<sock_filter> filter(bytes.size() / sizeof(sock_filter));
  std::memcpy(filter.data(), bytes.data(), filter.size() * sizeof(sock_filter));
  return filter;
}

sock_fprog program_of(std::vector<sock_filter>& filter) {
  return sock_fprog{static_cast<unsigned short>(filter.size()), filter.data()};
}

struct Gate {
  std::vector<sock_filter> telling;
  std::vector<sock_filter> quiet;
};

Gate to_gate(const wire::Gate& gate) { return {to_filter(gate.telling), to_filter(gate.quiet)}; }

class Zygote {
 public:
  explicit Zygote(int control) : control_(control), buffer_(kMaxPacket) {}

  int serve();

 private:
  Result<void> configure(const Configure& configure);
  Result<int> launch(const Create& create, std::vector<UniqueFd>& fds, UniqueFd& pidfd);
  Result<void> map_ids(int pid, const Create& create) const;
  Result<void> release(int pid, int sync, const Create& create, std::span<UniqueFd> extra) const;
  Result<void> map_extra(const Create& create, int userns, std::span<UniqueFd> extra) const;
  Result<std::vector<UniqueFd>> map_layers(const Create& create, int userns) const;
  bool maps_layers() const;
  LaunchPlan plan_for(const Create& create, const std::vector<UniqueFd>& fds, int sync,
                      const std::string& scratch_options);
  void handle(const Frame& frame, std::vector<UniqueFd> fds);
  void reap();
  void refuse(std::uint32_t id, const Error& error);

  int control_;
  std::vector<char> buffer_;
  Configure configure_;
  Stage stage_;
  std::vector<std::string> layer_paths_;
  std::vector<const char*> masked_files_;
  std::vector<const char*> masked_folders_;
  Gate strict_gate_;
  Gate browser_gate_;
  bool configured_ = false;
};

// What the rest of its life needs: id maps, id-mapped mounts, entering cgroups it does not own.
Result<void> keep_few_capabilities() {
  constexpr std::uint64_t kKept = 1ULL << CAP_SYS_ADMIN | 1ULL << CAP_SETUID | 1ULL << CAP_SETGID |
                                  1ULL << CAP_DAC_OVERRIDE |
                                  1ULL << CAP_SYS_PTRACE;  // to open a child's namespace
  for (int cap = 0; cap <= 63; ++cap)
    if ((kKept >> cap & 1) == 0 && ::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0 && errno == EPERM)
      return fail_errno("drop capability");
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  data[0].effective = data[0].permitted = static_cast<std::uint32_t>(kKept);
  data[1].effective = data[1].permitted = static_cast<std::uint32_t>(kKept >> 32);
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  return {};
}

Result<void> enter_own_user_namespace() {
  uid_t uid = ::geteuid();
  gid_t gid = ::getegid();
  if (::unshare(CLONE_NEWUSER) != 0) return fail_errno("unshare user namespace");
  TRY(write_value(AT_FDCWD, "/proc/self/setgroups", "deny"));
  TRY(write_value(AT_FDCWD, "/proc/self/uid_map", "0 " + std::to_string(uid) + " 1"));
  TRY(write_value(AT_FDCWD, "/proc/self/gid_map", "0 " + std::to_string(gid) + " 1"));
  return {};
}

Result<void> Zygote::configure(const Configure& configure) {
  if (configured_) return fail(Errc::conflict, "already configured");
  if (configure.layers.size() > kMaxLayers) return fail(Errc::invalid, "too many layers");
  configure_ = configure;
  if (configure.rootless) TRY(enter_own_user_namespace());
  stage_ = TRY(enter_stage(configure));

  for (std::size_t i = 0; i < configure.layers.size(); ++i)
    layer_paths_.push_back("/layers/" + std::to_string(i));
  for (const std::string& name : stage_.masked_files) masked_files_.push_back(name.c_str());
  for (const std::string& name : stage_.masked_folders) masked_folders_.push_back(name.c_str());
  strict_gate_ = to_gate(configure.strict_gate);
  browser_gate_ = to_gate(configure.browser_gate);

  // Under memory pressure sandboxes go before anything else of this machine; they inherit this.
  (void)write_value(AT_FDCWD, "/proc/self/oom_score_adj", "500");
  if (!configure.rootless) {
    // Keeps capabilities while launch() borrows a sandbox's uid.
    if (::prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) != 0)
      return fail_errno("set securebits");
    TRY(keep_few_capabilities());
    if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno("set dumpable");
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("no_new_privs");
  std::vector<sock_filter> fence = to_filter(configure.fence);
  sock_fprog program = program_of(fence);
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
    return fail_errno("install system call fence");
  configured_ = true;
  return {};
}

LaunchPlan Zygote::plan_for(const Create& create, const std::vector<UniqueFd>& fds, int sync,
                            const std::string& scratch_options) {
  LaunchPlan plan;
  plan.guest_socket = fds[0].get();
  plan.sync_socket = sync;
  plan.join_count = create.join_count;
  for (std::size_t i = 0; i < create.join_count; ++i)
    plan.joins[i] = fds[1 + (create.into_cgroup ? 1 : 0) + i].get();
  if (create.cpu_join_last && plan.join_count > 0) plan.cpu_join = plan.joins[--plan.join_count];
  plan.rootless = configure_.rootless;
  plan.read_only = create.read_only;
  plan.loopback = create.loopback;
  plan.nested_namespaces = create.browser;
  plan.import_root = configure_.import;
  plan.landlock_abi = configure_.landlock_abi;
  plan.piped_cores = configure_.piped_cores;
  plan.scratch_options = scratch_options.c_str();
  plan.layer_count = configure_.layers.size();
  for (std::size_t i = 0; i < plan.layer_count; ++i)
    plan.layers[i] = {layer_paths_[i].c_str(), configure_.layers[i].target.c_str(),
                      configure_.layers[i].users};
  plan.idmapped = stage_.idmaps;
  plan.masked_files = masked_files_;
  plan.masked_folders = masked_folders_;
  if (!create.resolv_conf.empty()) plan.resolv_conf = create.resolv_conf.c_str();
  plan.disk = create.disk;
  plan.volume_count = create.volumes.size();
  for (std::size_t i = 0; i < plan.volume_count; ++i)
    plan.volume_targets[i] = create.volumes[i].target.c_str();
  plan.pids = create.pids;
  plan.file_bytes = configure_.import ? 0 : create.file_bytes;
  Gate& gate = create.browser ? browser_gate_ : strict_gate_;
  plan.telling_gate = program_of(gate.telling);
  plan.quiet_gate = program_of(gate.quiet);
  return plan;
}

Result<void> Zygote::map_ids(int pid, const Create& create) const {
  std::string proc = "/proc/" + std::to_string(pid) + "/";
  if (configure_.rootless) {
    TRY(write_value(AT_FDCWD, proc + "setgroups", "deny"));
    TRY(write_value(AT_FDCWD, proc + "uid_map", "0 0 1"));
    return write_value(AT_FDCWD, proc + "gid_map", "0 0 1");
  }
  std::string map = "0 " + std::to_string(create.first_id) + " " + std::to_string(kIdsPerSandbox);
  TRY(write_value(AT_FDCWD, proc + "uid_map", map));
  return write_value(AT_FDCWD, proc + "gid_map", map);
}

// The disk's files belong to the same ids inside, whatever range this sandbox has; so do a
// volume's, whose ids on the host may be others.
Result<void> Zygote::map_extra(const Create& create, int userns, std::span<UniqueFd> extra) const {
  if (create.disk) TRY(idmap(extra[0].get(), userns, Access::writable));
  std::span<UniqueFd> volumes = extra.subspan(create.disk ? 1 : 0);
  UniqueFd shifted;
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    const wire::VolumeMount& volume = create.volumes[i];
    if (volume.shifted && !shifted)
      shifted = TRY(make_userns(kVolumeIds, create.first_id, kIdsPerSandbox));
    Access access = volume.read_only ? Access::read_only : Access::writable;
    TRY(idmap(volumes[i].get(), volume.shifted ? shifted.get() : userns, access));
  }
  return {};
}

// Those that are the user's, or all.
bool Zygote::maps_layers() const {
  auto is_users = [](const wire::Layer& layer) { return layer.users; };
  return stage_.idmaps || (!configure_.rootless && std::any_of(configure_.layers.begin(),
                                                               configure_.layers.end(), is_users));
}

// One mount for each layer, or none at all.
Result<std::vector<UniqueFd>> Zygote::map_layers(const Create& create, int userns) const {
  std::vector<UniqueFd> mounts;
  if (!maps_layers()) return mounts;
  Access access = configure_.import ? Access::writable : Access::read_only;
  for (std::size_t i = 0; i < layer_paths_.size(); ++i) {
    const std::string& path = layer_paths_[i];
    if (configure_.layers[i].users) {
      struct stat info {};
      if (::stat(path.c_str(), &info) != 0) return fail_errno("stat " + path);
      UniqueFd users =
          TRY(make_userns(IdMaps{with_owner(info.st_uid, kUserId, create.first_id, kGuestId),
                                 with_owner(info.st_gid, kUserId, create.first_id, kGuestId)}));
      mounts.push_back(TRY(idmapped_clone(path, users.get(), access)));
    } else {
      mounts.push_back(TRY(stage_.idmaps ? idmapped_clone(path, userns, access) : clone_of(path)));
    }
  }
  return mounts;
}

// Lets the child go on, with the environment's layers under its own ids where that can be had.
Result<void> Zygote::release(int pid, int sync, const Create& create,
                             std::span<UniqueFd> extra) const {
  auto send = [&](std::string_view byte, std::span<const UniqueFd> fds) {
    std::vector<int> borrowed;
    for (const UniqueFd& fd : fds) borrowed.push_back(fd.get());
    return send_packet(sync, byte, borrowed);
  };
  std::vector<UniqueFd> mounts;
  if (maps_layers() || !extra.empty()) {
    UniqueFd userns(
        ::open(("/proc/" + std::to_string(pid) + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
    if (!userns) return fail_errno("open user namespace");
    TRY(map_extra(create, userns.get(), extra));
    if (!extra.empty()) TRY(send("m", extra));
    mounts = TRY(map_layers(create, userns.get()));
  }
  return send("g", mounts);
}

// Borrows a uid for the time of clone3(): the kernel charges a user namespace's quotas to its
// creator's uid, so a creator of its own gives each sandbox quotas of its own.
class BorrowedUid {
 public:
  BorrowedUid(bool wanted, std::uint32_t id) : wanted_(wanted) {
    if (!wanted_) return;
    ok_ = ::syscall(SYS_setresgid, -1, id, -1) == 0 && ::syscall(SYS_setresuid, -1, id, -1) == 0;
  }
  BorrowedUid(const BorrowedUid&) = delete;
  BorrowedUid& operator=(const BorrowedUid&) = delete;
  ~BorrowedUid() { give_back(); }
  bool ok() const { return ok_; }
  void give_back() {
    if (!wanted_) return;
    wanted_ = false;
    if (::syscall(SYS_setresuid, -1, 0, -1) != 0 || ::syscall(SYS_setresgid, -1, 0, -1) != 0)
      ::_exit(1);
  }

 private:
  bool wanted_;
  bool ok_ = true;
};

Result<int> Zygote::launch(const Create& create, std::vector<UniqueFd>& fds, UniqueFd& pidfd) {
  if (create.join_count > kMaxJoins || create.volumes.size() > kMaxVolumes)
    return fail(Errc::invalid, "too many groups or volumes");
  std::size_t joined = 1 + (create.into_cgroup ? 1 : 0) + create.join_count;
  std::size_t extra = (create.disk ? 1 : 0) + create.volumes.size();
  if (fds.size() != joined + extra) return fail(Errc::invalid, "wrong number of descriptors");
  SocketPair sync = TRY(seqpacket_pair());
  std::string scratch_options = "mode=0755,size=" + std::to_string(create.scratch_bytes) +
                                ",nr_inodes=" + std::to_string(create.inodes);
  LaunchPlan plan = plan_for(create, fds, sync.second.get(), scratch_options);

  int raw_pidfd = -1;
  clone_args args{};
  args.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
               CLONE_NEWUTS | CLONE_PIDFD;
  args.exit_signal = SIGCHLD;
  args.pidfd = reinterpret_cast<std::uintptr_t>(&raw_pidfd);
  if (create.into_cgroup) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<std::uint64_t>(fds[1].get());
  }
  BorrowedUid borrowed(!configure_.rootless, create.first_id + kGuestId);
  if (!borrowed.ok()) return fail_errno("borrow uid");
  long pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0) {
    LaunchOutcome outcome;
    sync.first.reset();
    set_up_sandbox(plan, outcome);
    GuestConfig config;
    config.socket = plan.guest_socket;
    config.inner_userns = outcome.inner_userns;
    config.refusals = outcome.refusals;
    config.own_io = outcome.own_io;
    config.tier = create.browser ? SyscallTier::browser : SyscallTier::strict;
    config.gate_secret = configure_.gate_secret;
    config.rootless = configure_.rootless;
    config.watched_memory_bytes = create.sample_memory ? create.memory_bytes : 0;
    config.disk = create.disk;
    config.proxy_port = create.proxy_port;
    run_guest(std::move(config), plan, outcome);
  }
  int clone_errno = errno;
  borrowed.give_back();
  if (pid < 0) return fail(errno_error(clone_errno, "clone3"));
  pidfd = UniqueFd(raw_pidfd);

  auto mapped = map_ids(static_cast<int>(pid), create);
  if (mapped)
    mapped =
        release(static_cast<int>(pid), sync.first.get(), create, std::span(fds).subspan(joined));
  if (!mapped) {
    // Closing its socket ends a child that waits; killing it ends one that does not.
    (void)::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    return fail(std::move(mapped).error());
  }
  return static_cast<int>(pid);
}

void Zygote::refuse(std::uint32_t id, const Error& error) {
  wire::LaunchRefused refused;
  refused.code = static_cast<std::uint8_t>(error.code);
  refused.what = error.what;
  (void)send_message(control_, id, refused);
}

void Zygote::handle(const Frame& frame, std::vector<UniqueFd> fds) {
  if (auto request = decode<Configure>(frame)) {
    auto done = configure(*request);
    if (!done) return refuse(frame.id, done.error());
    wire::Configured answer;
    answer.idmaps = stage_.idmaps;
    answer.masks = static_cast<std::uint32_t>(masked_files_.size() + masked_folders_.size());
    (void)send_message(control_, frame.id, answer);
    return;
  }
  auto request = decode<Create>(frame);
  if (!request || !configured_)
    return refuse(frame.id, Error(Errc::internal, "unexpected message"));
  UniqueFd pidfd;
  auto pid = launch(*request, fds, pidfd);
  if (!pid) return refuse(frame.id, pid.error());
  wire::Launched launched;
  launched.pid = *pid;
  std::array<int, 1> sent{pidfd.get()};
  (void)send_message(control_, frame.id, launched, sent);
}

void Zygote::reap() {
  int status = 0;
  int pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
    wire::Reaped reaped;
    reaped.pid = pid;
    reaped.status = status;
    (void)send_message(control_, 0, reaped);
  }
}

int Zygote::serve() {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  UniqueFd signals(::signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return 1;
  for (;;) {
    std::array<pollfd, 2> ready{{{control_, POLLIN, 0}, {signals.get(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return 1;
    }
    if (ready[1].revents != 0) {
      signalfd_siginfo info;
      while (::read(signals.get(), &info, sizeof info) > 0) {
      }
      reap();
    }
    if (ready[0].revents == 0) continue;
    auto received = receive_packet(control_, buffer_);
    if (!received || received->kind == Received::Kind::closed) return 0;
    auto frame = parse_frame(received->bytes);
    if (!frame) return 1;
    handle(*frame, std::move(received->fds));
  }
}

}  // namespace

int run_zygote(int control_socket) {
  Zygote zygote(control_socket);
  return zygote.serve();
}

}  // namespace asr
