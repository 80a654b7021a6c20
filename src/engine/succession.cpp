#include "engine/succession.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <map>
#include <set>
#include <thread>

#include "engine/cgroups.hpp"
#include "engine/full_network.hpp"
#include "engine/keeper_link.hpp"
#include "os/file.hpp"
#include "os/pidfd.hpp"

namespace asr {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

// A keeper that is just ending, or an instance that is just being removed, is gone within this.
constexpr int kTries = 250;
constexpr auto kTryAgain = 20ms;

bool is_guest_socket(int fd) {
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof(int);
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
         ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

// The record with its descriptors, or why it cannot be taken up.
Result<Legacy> take_up(Keepsake thing) {
  Legacy legacy;
  legacy.record = TRY(sandbox_record(thing.blob));
  std::size_t expected = legacy.record.first_id != 0 ? 3 : 2;
  if (thing.fds.size() < expected || !is_guest_socket(thing.fds[0].get()))
    return fail(Errc::internal, "its descriptors are not what they should be");
  legacy.socket = std::move(thing.fds[0]);
  legacy.pidfd = std::move(thing.fds[1]);
  if (expected == 3) legacy.id_lock = std::move(thing.fds[2]);
  for (std::size_t i = expected; i < thing.fds.size(); ++i)
    legacy.storage.push_back(std::move(thing.fds[i]));
  if (wait_for_end(legacy.pidfd.get(), 0ms)) return fail(Errc::gone, "it has ended meanwhile");
  return legacy;
}

void sort_out(std::vector<Keepsake> things, Succession& succession, RecoveryReport& report) {
  std::map<std::string, Legacy> living;
  for (Keepsake& thing : things) {
    if (thing.name.find('/') != std::string::npos) continue;
    std::string name = thing.name;
    std::string label;
    if (auto record = sandbox_record(thing.blob)) label = record->label;
    if (auto legacy = take_up(std::move(thing))) {
      report.adopted.push_back({name, label, ""});
      living.emplace(name, *std::move(legacy));
    } else {
      report.lost.push_back({name, label, legacy.error().what});
      succession.forgotten.push_back(name);
    }
  }
  for (Keepsake& thing : things) {
    std::size_t slash = thing.name.find('/');
    if (slash == std::string::npos) continue;
    auto owner = living.find(thing.name.substr(0, slash));
    auto record = execution_record(thing.blob);
    if (owner == living.end()) continue;  // Forgotten with its sandbox.
    if (record)
      owner->second.executions.push_back({*std::move(record), std::move(thing.fds)});
    else
      succession.forgotten.push_back(thing.name);
  }
  for (auto& [name, legacy] : living) succession.living.push_back(std::move(legacy));
}

// The mount points of zygotes that died. Layers made for an environment stay: a sandbox that lives
// may have them below it.
void tidy(const fs::path& dir, RecoveryReport& report) {
  std::error_code ec;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, ec)) {
    std::string name = entry.path().filename().native();
    if (!name.starts_with("stage-") && !name.starts_with("making-")) continue;
    if (auto removed = remove_tree(AT_FDCWD, entry.path().native()); !removed)
      report.problems.push_back(removed.error().what);
  }
}

void sweep(const Succession& succession, RecoveryReport& report) {
  const Instance& instance = succession.instance;
  std::set<std::string> spared;
  std::set<std::string> links;
  for (const Legacy& legacy : succession.living) {
    spared.insert(legacy.record.group.name);
    if (legacy.record.spec.network == Network::full)
      links.insert(link_of(instance.id(), legacy.record.first_id));
  }
  CgroupSweep found = sweep_cgroups(instance.id(), spared);
  for (std::string& problem : sweep_network(instance.dir(), instance.id(), links))
    report.problems.push_back(std::move(problem));
  report.sandboxes += found.sandboxes;
  report.processes += found.processes;
  for (std::string& problem : found.problems) report.problems.push_back(std::move(problem));
}

}  // namespace

Result<Succession> succeed(const EngineOptions& options, RecoveryReport& report) {
  for (int tries = 0; tries < kTries; ++tries) {
    Succession succession{
        TRY(Instance::become(options.runtime_dir, *options.instance)), {}, 1, {}, {}};
    if (!succession.instance.needs_lock()) return succession;  // Nobody was there.
    UniqueFd dir = TRY(open_dir(AT_FDCWD, succession.instance.dir().native()));
    if (auto keeper = reach_keeper(dir.get())) {
      auto taken = take_all(keeper->get(), options.keep_for);
      if (taken) {
        succession.instance.hold(std::move(taken->lock));
        succession.keeper = *std::move(keeper);
        succession.epoch = taken->epoch;
        sort_out(std::move(taken->things), succession, report);
        sweep(succession, report);
        tidy(succession.instance.dir(), report);
        return succession;
      }
      // Ours to repair, and no reason to end what lives.
      if (taken.error().code == Errc::exhausted) return fail(std::move(taken).error());
      if (taken.error().code != Errc::gone) {
        report.problems.push_back("the sandboxes of the last engine were given up: " +
                                  taken.error().what);
        end_keeper(keeper->get());
      }
    }
    std::this_thread::sleep_for(kTryAgain);
  }
  return fail(Errc::timeout, "instance " + *options.instance + " is neither alive nor dead",
              "look for a process asr-keeper that does not answer");
}

}  // namespace asr
