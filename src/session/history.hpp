// What was done in one session, step by step, in files: a JSON object a line, the newest last.
//
// Survives the death of the process, not of the machine. It holds neither values of variables nor
// what was written to a program's input: there may be secrets in them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "net/json.hpp"
#include "session/spool.hpp"

namespace asr {

class History {
 public:
  static constexpr std::uint64_t kLeastBytes = 64 << 10;  // Less is not worth it.

  // Nothing is made before something is added. `about` tells what the session was made from: it
  // stands in front of the steps. `complain` hears of what cannot be written; it is missing then,
  // and nothing else. `spool`: where it begins if it is new.
  History(std::filesystem::path folder, std::uint64_t most_bytes,
          std::function<json::object()> about, std::function<void(const Error&)> complain,
          std::shared_ptr<Spool> spool = nullptr);

  // A step that is over. It gets the next number; a number that is missing could not be written.
  // What is too large is told in brief; the oldest steps make room.
  void add(const json::object& step);
  // As above, with nothing but what the session was made from.
  void begin();

  void move_out();                          // From now on it has files of its own.
  void close() noexcept { file_.reset(); }  // Until the next step.
  // From now on it belongs to somebody else: nothing more is written.
  void seal() noexcept { sealed_ = true; }
  // Nobody wants what is in the spool, and nothing more is written.
  void drop() noexcept {
    sealed_ = true;
    young_.reset();
  }
  const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  Result<void> open();
  Result<void> find_out();  // what an earlier life of the server has written
  void make_room(std::size_t size);
  Result<void> write(std::string text);
  Result<void> write_young(const std::string& text);
  const std::string& heading();

  std::filesystem::path folder_;
  std::uint64_t most_bytes_;
  std::function<json::object()> about_;
  std::function<void(const Error&)> complain_;
  std::optional<SpooledFile> young_;  // until it is worth a file
  UniqueFd file_;
  bool known_ = false;
  bool sealed_ = false;
  std::string heading_;     // what stands in front
  std::uint64_t last_ = 0;  // number
  std::uint64_t size_ = 0;  // of the newer file
};

}  // namespace asr
