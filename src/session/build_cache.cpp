#include "session/build_cache.hpp"

#include <algorithm>

namespace asr {

namespace {

constexpr std::size_t kEntryCost = 256;  // beside its texts

}  // namespace

BuiltPtr BuildCache::find(const std::string& owner, const std::string& name) {
  auto shelf = shelves_.find(owner);
  if (shelf == shelves_.end()) return nullptr;
  auto found = shelf->second.by_name.find(name);
  if (found == shelf->second.by_name.end()) return nullptr;
  auto& entries = shelf->second.entries;
  entries.splice(entries.begin(), entries, found->second);
  return found->second->built;
}

void BuildCache::put(const std::string& owner, const std::string& name, BuiltPtr built) {
  Shelf& shelf = shelves_[owner];
  if (shelf.by_name.contains(name)) return;
  std::size_t bytes = kEntryCost + name.size() + built->executable.size() + built->complaint.size();
  shelf.entries.push_front({name, std::move(built), bytes});
  shelf.by_name.emplace(name, shelf.entries.begin());
  shelf.bytes += bytes;
  bytes_ += bytes;
  make_room();
}

void BuildCache::make_room() {
  while (bytes_ > most_bytes_) {
    auto largest = std::max_element(
        shelves_.begin(), shelves_.end(),
        [](const auto& a, const auto& b) { return a.second.bytes < b.second.bytes; });
    Shelf& shelf = largest->second;
    const Entry& oldest = shelf.entries.back();
    shelf.bytes -= oldest.bytes;
    bytes_ -= oldest.bytes;
    shelf.by_name.erase(oldest.name);
    shelf.entries.pop_back();
    if (shelf.entries.empty()) shelves_.erase(largest);
  }
}

}  // namespace asr
