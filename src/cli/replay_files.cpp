#include "cli/replay_files.hpp"

#include <fstream>

#include "cli/remote.hpp"
#include "session/content_hash.hpp"

namespace asr {

namespace {

std::string hash_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  ContentHash hash;
  std::string block(1 << 20, '\0');
  while (hash.size() < ContentHash::kHashed && file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    hash.feed({block.data(), static_cast<std::size_t>(file.gcount())});
  }
  return hash.finish();
}

}  // namespace

Result<ReplayFiles> ReplayFiles::in(const std::filesystem::path& folder) {
  ReplayFiles files;
  std::error_code ec;
  if (!std::filesystem::is_directory(folder, ec))
    return fail(Errc::not_found, folder.native() + " is no folder");
  std::filesystem::recursive_directory_iterator entry(
      folder, std::filesystem::directory_options::skip_permission_denied, ec);
  for (; !ec && entry != std::filesystem::recursive_directory_iterator(); entry.increment(ec)) {
    std::error_code unknown;
    if (!entry->is_regular_file(unknown)) continue;
    auto size = entry->file_size(unknown);
    if (unknown) continue;
    if (files.by_size_.size() >= kMost)
      return fail(Errc::exhausted, folder.native() + " holds too many files",
                  "name one with only those that were uploaded");
    files.by_size_.emplace(size, entry->path());
  }
  return files;
}

std::optional<std::filesystem::path> ReplayFiles::find(const json::object& about) {
  const json::value* size = about.if_contains("size");
  boost::system::error_code ec;
  auto wanted = size && size->is_number() ? size->to_number<std::uint64_t>(ec) : 0;
  std::string hash = text_at(about, "sha256");
  auto [first, last] = by_size_.equal_range(wanted);
  for (auto it = first; it != last; ++it) {
    auto [known, is_new] = hashes_.try_emplace(it->second);
    if (is_new) known->second = hash_of(it->second);
    if (known->second == hash) return it->second;
  }
  return std::nullopt;
}

}  // namespace asr
