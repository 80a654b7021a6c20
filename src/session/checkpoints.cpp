#include "session/checkpoints.hpp"

#include <algorithm>

#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::size_t kLongestName = 64;

bool may_be_in_a_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

}  // namespace

json::object json_of(const Checkpoint& checkpoint) {
  json::object out = json_of(*checkpoint.state);
  out["number"] = checkpoint.number;
  out["name"] = checkpoint.name.empty() ? json::value(nullptr) : json::value(checkpoint.name);
  out["parent"] = checkpoint.parent == 0 ? json::value(nullptr) : json::value(checkpoint.parent);
  out["created_at"] = iso_time(checkpoint.state->at_ms);
  out["automatic"] = checkpoint.name.empty();
  if (!checkpoint.before.empty()) out["before"] = checkpoint.before;
  out["survives_server"] = checkpoint.durable;
  return out;
}

Result<void> Checkpoints::check_name(const std::string& name) {
  bool fits = !name.empty() && name.size() <= kLongestName && name[0] != '.' && name[0] != '-' &&
              std::all_of(name.begin(), name.end(), may_be_in_a_name);
  if (fits) return {};
  return fail(Errc::invalid, "/name: not a name",
              "use letters, digits, - _ and . , at most 64 of them");
}

Result<void> Checkpoints::check_room(const std::string& name) const {
  if (numbers_.contains(name))
    return fail(Errc::conflict, "there is a checkpoint called \"" + name + "\" already",
                "choose another name, or remove that one");
  if (numbers_.size() >= kMostNamed)
    return fail(Errc::exhausted, "the session has as many checkpoints as it may",
                "remove some of them");
  return {};
}

CheckpointPtr Checkpoints::add(std::uint64_t number, std::string name, std::string before,
                               std::shared_ptr<const SavedState> state, bool durable) {
  auto checkpoint = std::make_shared<const Checkpoint>(
      Checkpoint{number, std::move(name), at_, std::move(before), durable, std::move(state)});
  if (!checkpoint->name.empty()) numbers_[checkpoint->name] = checkpoint->number;
  checkpoints_[checkpoint->number] = checkpoint;
  at_ = checkpoint->number;
  forget_old();
  return checkpoint;
}

void Checkpoints::take_up(Checkpoint checkpoint) {
  std::uint64_t number = checkpoint.number;
  last_ = std::max(last_, number);
  numbers_[checkpoint.name] = number;
  checkpoints_[number] = std::make_shared<const Checkpoint>(std::move(checkpoint));
}

void Checkpoints::forget_old() {
  std::vector<std::uint64_t> automatic;
  std::uint64_t bytes = 0;
  for (const auto& [number, checkpoint] : checkpoints_) {
    if (!checkpoint->name.empty()) continue;
    automatic.push_back(number);
    bytes += checkpoint->state->bytes();
  }
  // The newest stays, however large it is.
  for (std::size_t i = 0; i + 1 < automatic.size(); ++i) {
    if (automatic.size() - i <= kMostAutomatic && bytes <= kMostAutomaticBytes) break;
    bytes -= checkpoints_.at(automatic[i])->state->bytes();
    erase(automatic[i]);
  }
}

void Checkpoints::erase(std::uint64_t number) {
  auto found = checkpoints_.find(number);
  if (found == checkpoints_.end()) return;
  std::uint64_t parent = found->second->parent;
  checkpoints_.erase(found);
  if (at_ == number) at_ = parent;
  if (gaps_.erase(number) > 0) gaps_.insert(parent);
  for (auto& [other, checkpoint] : checkpoints_) {
    if (checkpoint->parent != number) continue;
    Checkpoint moved = *checkpoint;
    moved.parent = parent;
    checkpoint = std::make_shared<const Checkpoint>(std::move(moved));
  }
}

CheckpointPtr Checkpoints::wake(std::uint64_t number, std::shared_ptr<const SavedState> state) {
  auto found = checkpoints_.find(number);
  if (found == checkpoints_.end()) return nullptr;
  Checkpoint awake = *found->second;
  awake.state = std::move(state);
  found->second = std::make_shared<const Checkpoint>(std::move(awake));
  return found->second;
}

void Checkpoints::set_at(std::uint64_t number) {
  at_ = number;
  gaps_.erase(number);  // What was run after it never was.
}

std::uint64_t Checkpoints::durable_at() const {
  std::uint64_t number = at_;
  for (auto found = checkpoints_.find(number); found != checkpoints_.end();
       found = checkpoints_.find(number)) {
    if (found->second->durable) return number;
    number = found->second->parent;
  }
  return 0;
}

Result<CheckpointPtr> Checkpoints::find(const std::string& name) const {
  auto found = numbers_.find(name);
  if (found == numbers_.end())
    return fail(Errc::not_found, "there is no checkpoint called \"" + name + "\"",
                "GET /api/sessions/{id}/checkpoints lists them");
  return checkpoints_.at(found->second);
}

Result<CheckpointPtr> Checkpoints::last_automatic() const {
  for (std::uint64_t number = at_;;) {
    if (gaps_.contains(number))
      return fail(Errc::conflict, "something was run after that which could not be saved before it",
                  "roll back to a checkpoint with a name");
    auto found = checkpoints_.find(number);
    if (found == checkpoints_.end()) break;
    if (found->second->name.empty()) return found->second;
    number = found->second->parent;
  }
  return fail(Errc::conflict, "there is nothing to undo",
              "sessions that were made with auto_checkpoint can undo what they ran");
}

Result<CheckpointPtr> Checkpoints::remove(const std::string& name) {
  CheckpointPtr checkpoint = TRY(find(name));
  numbers_.erase(name);
  erase(checkpoint->number);
  return checkpoint;
}

void Checkpoints::drop(std::uint64_t number) {
  auto found = checkpoints_.find(number);
  if (found == checkpoints_.end()) return;
  at_ = found->second->parent;
  erase(number);
}

std::vector<CheckpointPtr> Checkpoints::all() const {
  std::vector<CheckpointPtr> all;
  for (const auto& [number, checkpoint] : checkpoints_) all.push_back(checkpoint);
  return all;
}

}  // namespace asr
