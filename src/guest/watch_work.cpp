// Changes below a directory, told as they happen. Bounded: too many directories or too many events
// are reported as an overflow, after which the listener looks for itself.

#include <dirent.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <map>
#include <memory>

#include "guest/paths.hpp"
#include "guest/work.hpp"
#include "os/file.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostFolders = 8192;
constexpr std::uint32_t kMask = IN_CREATE | IN_CLOSE_WRITE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM |
                                IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR | IN_DONT_FOLLOW |
                                IN_EXCL_UNLINK;

class Tree {
 public:
  Tree(int inotify, std::string top) : inotify_(inotify), top_(std::move(top)) {}

  // Watches `relative` and what is below it; what was already in a directory that just appeared is
  // reported as created, or it would be missed.
  void add(const std::string& relative, std::vector<wire::Event>* found) {
    if (folders_.size() >= kMostFolders) {
      overflowed_ = true;
      return;
    }
    std::string path = relative.empty() ? top_ : top_ + "/" + relative;
    int wd = ::inotify_add_watch(inotify_, path.c_str(), kMask);
    if (wd < 0) {
      if (errno == ENOSPC) overflowed_ = true;
      return;
    }
    folders_[wd] = relative;
    std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(path.c_str()), ::closedir);
    if (!stream) return;
    while (dirent* entry = ::readdir(stream.get())) {
      std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      std::string below = relative.empty() ? name : relative + "/" + name;
      bool directory = entry->d_type == DT_DIR;
      if (found != nullptr) found->push_back({wire::Change::created, directory, below});
      if (directory) add(below, found);
    }
  }

  void forget(int wd) { folders_.erase(wd); }
  const std::string* name_of(int wd) const {
    auto found = folders_.find(wd);
    return found == folders_.end() ? nullptr : &found->second;
  }
  bool take_overflow() { return std::exchange(overflowed_, false); }

 private:
  int inotify_;
  std::string top_;
  std::map<int, std::string> folders_;
  bool overflowed_ = false;
};

wire::Change change_of(std::uint32_t mask) {
  if ((mask & IN_CREATE) != 0) return wire::Change::created;
  if ((mask & IN_DELETE) != 0) return wire::Change::removed;
  if ((mask & IN_MOVED_FROM) != 0) return wire::Change::moved_from;
  if ((mask & IN_MOVED_TO) != 0) return wire::Change::moved_to;
  if ((mask & IN_ATTRIB) != 0) return wire::Change::attributes;
  return wire::Change::modified;
}

void translate(Tree& tree, const inotify_event& raw, std::vector<wire::Event>& events) {
  if ((raw.mask & IN_Q_OVERFLOW) != 0) {
    events.push_back({wire::Change::overflow, false, ""});
    return;
  }
  if ((raw.mask & IN_IGNORED) != 0) return tree.forget(raw.wd);
  const std::string* folder = tree.name_of(raw.wd);
  if (folder == nullptr || raw.len == 0) return;
  std::string path = folder->empty() ? std::string(raw.name) : *folder + "/" + raw.name;
  bool directory = (raw.mask & IN_ISDIR) != 0;
  events.push_back({change_of(raw.mask), directory, path});
  if (directory && (raw.mask & (IN_CREATE | IN_MOVED_TO)) != 0) tree.add(path, &events);
}

Result<void> send_all(const Work& work, std::vector<wire::Event> events) {
  wire::Events frame;
  std::size_t bytes = 0;
  for (wire::Event& event : events) {
    bytes += 16 + event.path.size();
    frame.events.push_back(std::move(event));
    if (bytes < 64 * 1024) continue;
    TRY(work.answer(frame));
    frame.events.clear();
    bytes = 0;
  }
  if (!frame.events.empty()) TRY(work.answer(frame));
  return {};
}

}  // namespace

Result<void> work_on_watch(const Work& work, const wire::File& request) {
  UniqueFd root = TRY(sandbox_root());
  UniqueFd top =
      TRY(open_resolved(root.get(), request.path, O_PATH | O_DIRECTORY, Resolve::in_root));
  if (::fchdir(top.get()) != 0) return fail_errno(request.path);
  UniqueFd inotify(::inotify_init1(IN_CLOEXEC));
  if (!inotify) return fail_errno("inotify");
  Tree tree(inotify.get(), ".");
  tree.add("", nullptr);
  TRY(work.answer(wire::Done{}));
  alignas(inotify_event) std::array<char, 16384> raw{};
  for (;;) {
    std::vector<wire::Event> events;
    if (tree.take_overflow()) events.push_back({wire::Change::overflow, false, ""});
    ssize_t n = ::read(inotify.get(), raw.data(), raw.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno("read inotify");
    for (ssize_t at = 0; at < n;) {
      auto* event = reinterpret_cast<inotify_event*>(raw.data() + at);
      translate(tree, *event, events);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    TRY(send_all(work, std::move(events)));
  }
}

}  // namespace asr
