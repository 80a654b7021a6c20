// Files of a folder here, found by what is in them: a history says no more of an upload than its
// size and its hash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr {

class ReplayFiles {
 public:
  ReplayFiles() = default;  // none
  static Result<ReplayFiles> in(const std::filesystem::path& folder);

  // One with the content that "size", "sha256" and "sha256_bytes" tell of.
  std::optional<std::filesystem::path> find(const json::object& about);

 private:
  static constexpr std::size_t kMost = 100'000;

  std::multimap<std::uint64_t, std::filesystem::path> by_size_;
  std::map<std::filesystem::path, std::string> hashes_;
};

}  // namespace asr
