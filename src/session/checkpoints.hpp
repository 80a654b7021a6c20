// The states that one session has been in and can go back to, as a tree: after going back, what
// follows is another branch.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "session/saved_state.hpp"

namespace asr {

struct Checkpoint {
  std::uint64_t number = 0;
  std::string name;          // empty: made by itself, before something was run
  std::uint64_t parent = 0;  // zero: the beginning of the session
  std::string before;        // what was run then
  bool durable = false;      // It outlives the server.
  std::shared_ptr<const SavedState> state;
};
using CheckpointPtr = std::shared_ptr<const Checkpoint>;

json::object json_of(const Checkpoint& checkpoint);

// On one thread.
class Checkpoints {
 public:
  static constexpr std::size_t kMostNamed = 100;
  static constexpr std::size_t kMostAutomatic = 50;
  static constexpr std::uint64_t kMostAutomaticBytes = 512 << 20;

  // A name is what people write: letters, digits, - _ . and not too long.
  static Result<void> check_name(const std::string& name);
  Result<void> check_room(const std::string& name) const;

  // `name`: empty for one that is forgotten when there are too many.
  CheckpointPtr add(std::uint64_t number, std::string name, std::string before,
                    std::shared_ptr<const SavedState> state, bool durable);
  std::uint64_t next() noexcept { return ++last_; }  // a number that none has
  // One that an earlier server wrote down.
  void take_up(Checkpoint checkpoint);
  Result<CheckpointPtr> find(const std::string& name) const;
  // The last that was made by itself on the way to where the session is.
  Result<CheckpointPtr> last_automatic() const;
  // Something is run that nothing was saved before: nobody goes back over it step by step.
  void note_gap() { gaps_.insert(at_); }
  Result<CheckpointPtr> remove(const std::string& name);
  // Its memory was read from the disk.
  CheckpointPtr wake(std::uint64_t number, std::shared_ptr<const SavedState> state);
  // One that was made by itself: the session is where it was before.
  void drop(std::uint64_t number);
  std::vector<CheckpointPtr> all() const;  // The oldest first.

  // Where the session went on from.
  std::uint64_t at() const noexcept { return at_; }
  void set_at(std::uint64_t number);
  // The same as far as it outlives the server.
  std::uint64_t durable_at() const;

 private:
  void forget_old();
  // Those that came after it come after what was before it.
  void erase(std::uint64_t number);

  std::map<std::uint64_t, CheckpointPtr> checkpoints_;
  std::map<std::string, std::uint64_t> numbers_;
  std::set<std::uint64_t> gaps_;  // after these, or after the beginning
  std::uint64_t last_ = 0;
  std::uint64_t at_ = 0;
};

}  // namespace asr
