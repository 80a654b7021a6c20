// The first that sessions write of themselves, of all sessions in one place. Most sessions end
// soon, and to make and to remove files for each of them costs more than everything that is written
// there.
//
// Survives the death of the process, not of the machine, as the files do that it stands for.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

class Spool : public std::enable_shared_from_this<Spool> {
 public:
  // `storage`: where it lies, and those files, too.
  explicit Spool(std::filesystem::path storage) : storage_(std::move(storage)) {}

  // Makes the files that an earlier life had no time to make, of those that are `wanted`, and is
  // empty then. A file that is there has everything. Before anything else.
  Result<void> recover(const std::function<bool(const std::filesystem::path&)>& wanted);

  // From time to time: what is written from now on lies elsewhere, so that what ended sessions have
  // written goes when those have moved out that were young with them.
  void turn();

 private:
  friend class SpooledFile;
  static constexpr unsigned kParts = 2;  // One is used while the other empties.
  struct Part {
    UniqueFd file = {};
    std::uint64_t size = 0;
    std::uint64_t users = 0;  // files that have something in it
  };
  std::filesystem::path path_of(unsigned part) const;
  Result<void> open(unsigned part);
  void empty(Part& part);
  // The part that has it now.
  Result<unsigned> append(std::string_view name, std::string_view first, std::string_view second);

  std::filesystem::path storage_;
  std::array<Part, kParts> parts_;
  unsigned current_ = 0;
  std::uint64_t records_ = 0;
};

// One file that is only appended to, as long as it lies in the spool. Whoever drops it does not
// want what was in it any more.
class SpooledFile {
 public:
  static constexpr std::size_t kMost = 16 << 10;  // Larger ones are worth a file.

  SpooledFile(std::shared_ptr<Spool> spool, std::filesystem::path file);
  ~SpooledFile();
  SpooledFile(const SpooledFile&) = delete;
  SpooledFile& operator=(const SpooledFile&) = delete;

  bool has_room(std::size_t size) const noexcept { return text_.size() + size <= kMost; }
  // All of it, or nothing.
  Result<void> append(std::string_view first, std::string_view second = {});
  // Makes the file with everything; nothing if there is nothing.
  Result<void> move_out();

 private:
  std::shared_ptr<Spool> spool_;
  std::filesystem::path path_;
  std::string name_;  // of the file, in the storage
  std::string text_;
  std::array<bool, Spool::kParts> uses_{};
};

}  // namespace asr
