// What happened to files between two moments, from what each moment differs from the beginning by.
// Both sides of a sandbox's wall compare this way.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace asr::wire {

// Nothing about the file has changed: for two moments of one sandbox.
struct SameStamp {
  template <class Entry>
  bool operator()(const Entry& then, const Entry& now) const {
    return then.stamp == now.stamp;
  }
};

// Both lists are by path. What lies in a folder that is gone is not told; a folder that is back is
// one entry.
template <class Entry, class Same = SameStamp>
class ChangesBetween {
 public:
  using List = std::vector<Entry>;
  using Kind = decltype(Entry::kind);

  ChangesBetween(const List& before, const List& after, Same same = {})
      : before_(before), after_(after), same_(same) {}

  List find() {
    for (const Entry& now : after_) {
      if (const Entry* then = entry_at(before_, now.path))
        add_differing(*then, now);
      else
        add_new(now);
    }
    for (const Entry& then : before_)
      if (!entry_at(after_, then.path)) add_old(then);
    std::sort(told_.begin(), told_.end(), is_before);
    return std::move(told_);
  }

 private:
  static bool is_before(const Entry& a, const Entry& b) { return a.path < b.path; }

  static const Entry* entry_at(const List& all, std::string_view path) {
    auto found = std::lower_bound(
        all.begin(), all.end(), path,
        [](const Entry& entry, std::string_view text) { return entry.path < text; });
    return found != all.end() && found->path == path ? &*found : nullptr;
  }

  // Whether nothing can lie there, because what it would lie in is gone or no folder.
  static bool is_cut_off(const List& all, std::string_view path) {
    for (std::size_t slash = path.rfind('/'); slash != std::string_view::npos && slash > 0;
         slash = path.rfind('/', slash - 1)) {
      const Entry* above = entry_at(all, path.substr(0, slash));
      if (above &&
          (above->kind == Kind::removed || above->type != decltype(Entry::type)::directory))
        return true;
    }
    return false;
  }

  void add(Entry entry, Kind kind, std::uint64_t size, std::uint64_t size_before) {
    entry.kind = kind;
    entry.size = size;
    entry.size_before = size_before;
    told_.push_back(std::move(entry));
  }

  // It differs from the beginning now and did not then, or was not there then.
  void add_new(const Entry& now) {
    if (!is_cut_off(before_, now.path))
      told_.push_back(now);
    else if (now.kind != Kind::removed)
      add(now, Kind::added, now.size, 0);
  }

  void add_differing(const Entry& then, const Entry& now) {
    bool was = then.kind != Kind::removed;
    bool is = now.kind != Kind::removed;
    if (was && is && !same_(then, now)) add(now, Kind::changed, now.size, then.size);
    if (!was && is) add(now, Kind::added, now.size, 0);
    if (was && !is) add(then, Kind::removed, 0, then.size);
  }

  // It differed from the beginning, and does so no more.
  void add_old(const Entry& then) {
    if (is_cut_off(after_, then.path)) return;
    switch (then.kind) {
      case Kind::added:
        return add(then, Kind::removed, 0, then.size);
      case Kind::changed:
        return add(then, Kind::changed, then.size_before, then.size);
      case Kind::removed:
        return add(then, Kind::added, then.size_before, 0);
    }
  }

  const List& before_;
  const List& after_;
  Same same_;
  List told_;
};

}  // namespace asr::wire
