// A file that lies in memory only and that, once it is sealed, nobody can change.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace asr {

class MemoryFile {
 public:
  // `name` is what /proc shows. What lies in it may be executed.
  static Result<MemoryFile> make(const char* name);

  Result<void> append(std::string_view bytes);
  std::uint64_t size() const noexcept { return size_; }  // as far as it was appended here
  // For somebody else to write to, until it is sealed.
  Result<UniqueFd> share() const;
  // Through it the file can only be read.
  Result<UniqueFd> seal();

 private:
  explicit MemoryFile(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  std::uint64_t size_ = 0;
};

Result<UniqueFd> sealed_copy(const char* name, std::string_view bytes);

}  // namespace asr
