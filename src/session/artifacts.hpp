// What cells made and is worth keeping: figures, and files of the workspace. In a folder of the
// session's own, bounded, gone with the session unless somebody wants to keep it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "engine/sandbox.hpp"
#include "net/json.hpp"

namespace asr {

struct Artifact {
  std::string id;
  std::string name;
  std::string path;  // inside; empty: it never was a file there
  std::string mime;
  std::uint64_t size = 0;
  std::int64_t created_ms = 0;
};

class Artifacts {
 public:
  static constexpr std::uint64_t kLargest = 64 << 20;
  static constexpr std::uint64_t kMostBytes = 256 << 20;  // of one session
  static constexpr std::size_t kMost = 500;               // likewise
  // Of all sessions of one owner that are gone.
  static constexpr std::int64_t kMostKeptBytes = std::int64_t{2} << 30;

  // Nothing is made before something is kept.
  explicit Artifacts(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Copies a file out of the sandbox. One of the same path takes the place of the earlier one.
  asio::awaitable<Result<Artifact>> keep_file(std::shared_ptr<Sandbox> sandbox, std::string path);
  Result<Artifact> keep_bytes(std::string name, std::string mime, std::string_view data);

  Result<std::vector<Artifact>> list();
  std::uint64_t bytes();  // of all of them
  Result<Artifact> find(const std::string& id);
  Result<UniqueFd> open(const std::string& id);
  Result<void> remove(const std::string& id);

 private:
  Result<void> load();
  Result<void> make_room(std::uint64_t size);
  Result<Artifact> put(Artifact artifact, UniqueFd file);
  Result<UniqueFd> new_file();

  std::filesystem::path folder_;
  bool loaded_ = false;
  std::uint64_t last_ = 0;
  std::uint64_t bytes_ = 0;
  std::map<std::string, Artifact> all_;  // by id
};

json::object json_of(const Artifact& artifact);
// By the name's ending; application/octet-stream for what is not known.
std::string mime_of(std::string_view name);

}  // namespace asr
