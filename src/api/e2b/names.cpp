#include "api/e2b/names.hpp"

#include <array>
#include <charconv>
#include <filesystem>

#include "base/clock.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostAccounts = 10000;

// The fields of a line; those it does not have are empty.
std::array<std::string_view, 7> fields_of(std::string_view line) {
  std::array<std::string_view, 7> fields{};
  for (std::string_view& field : fields) {
    std::size_t end = std::min(line.find(':'), line.size());
    field = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return fields;
}

template <class Use>
void each_line(std::string_view text, Use use) {
  for (std::size_t n = 0; !text.empty() && n < kMostAccounts; ++n) {
    std::size_t end = std::min(text.find('\n'), text.size());
    auto fields = fields_of(text.substr(0, end));
    std::uint32_t id = 0;
    auto [stop, ec] = std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), id);
    if (ec == std::errc() && stop == fields[2].data() + fields[2].size() && !fields[0].empty())
      use(fields, id);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::string_view type_name(FileType type) {
  switch (type) {
    case FileType::file:
      return "FILE_TYPE_FILE";
    case FileType::directory:
      return "FILE_TYPE_DIRECTORY";
    default:
      return "FILE_TYPE_UNSPECIFIED";
  }
}

}  // namespace

AccountNames AccountNames::parse(std::string_view passwd, std::string_view group) {
  AccountNames names;
  each_line(passwd, [&](const auto& fields, std::uint32_t id) {
    std::string name = repair_utf8(fields[0]);
    names.user_names.emplace(id, name);
    std::string home(fields[5].starts_with('/') ? fields[5] : "/");
    names.users.emplace(std::move(name), Account{id, std::move(home)});
  });
  each_line(group, [&](const auto& fields, std::uint32_t id) {
    names.group_names.emplace(id, repair_utf8(fields[0]));
  });
  return names;
}

std::string AccountNames::user(std::uint32_t uid) const {
  auto found = user_names.find(uid);
  return found == user_names.end() ? std::to_string(uid) : found->second;
}

std::string AccountNames::group(std::uint32_t gid) const {
  auto found = group_names.find(gid);
  return found == group_names.end() ? std::to_string(gid) : found->second;
}

std::string resolve_path(std::string_view path, std::string_view home) {
  std::string full;
  if (path == "~" || path.starts_with("~/"))
    full = std::string(home) + std::string(path.substr(1));
  else if (path.starts_with('/'))
    full = path;
  else
    full = std::string(home) + "/" + std::string(path);
  std::string clean = std::filesystem::path(full).lexically_normal().native();
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  return clean;
}

Result<FileAttributes> metadata_in(const Headers& headers) {
  constexpr std::string_view kHeader = "x-metadata-";
  constexpr std::size_t kLongestName = 246;
  constexpr std::size_t kMost = 4096;
  FileAttributes found{std::string(kMetadataPrefix), {}};
  std::size_t bytes = 0;
  for (const auto& [header, value] : headers.all()) {
    if (header.size() < kHeader.size() ||
        !equal_ignoring_case(std::string_view(header).substr(0, kHeader.size()), kHeader))
      continue;
    std::string name = header.substr(kHeader.size());
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (name.empty() || name.size() > kLongestName)
      return fail(Errc::invalid, "metadata must have names of 1 to 246 letters");
    for (unsigned char c : value)
      if (c < 32 || c > 126) return fail(Errc::invalid, "metadata must be printable ASCII");
    bytes += name.size() + value.size();
    if (bytes > kMost) return fail(Errc::invalid, "there are more than 4096 bytes of metadata");
    found.values[std::string(kMetadataPrefix) + name] = value;
  }
  return found;
}

json::object metadata_of(const std::map<std::string, std::string>& attributes) {
  json::object metadata;
  for (const auto& [name, value] : attributes)
    if (name.starts_with(kMetadataPrefix))
      metadata[repair_utf8(name.substr(kMetadataPrefix.size()))] = repair_utf8(value);
  return metadata;
}

std::string permission_text(FileType type, std::uint32_t mode) {
  std::string text(1, type == FileType::directory ? 'd' : type == FileType::symlink ? 'L' : '-');
  constexpr std::string_view kLetters = "rwxrwxrwx";
  for (std::size_t i = 0; i < kLetters.size(); ++i)
    text += (mode >> (8 - i) & 1U) != 0 ? kLetters[i] : '-';
  return text;
}

json::object entry_info(const FileInfo& info, const std::string& path, const AccountNames& names,
                        const LinkTarget* target) {
  bool is_link = info.type == FileType::symlink;
  FileType type = !is_link ? info.type : target ? target->info.type : FileType::other;
  std::uint32_t mode = (is_link && target ? target->info.mode : info.mode) & 0777U;
  auto modified =
      std::chrono::duration_cast<std::chrono::milliseconds>(info.modified.time_since_epoch());
  std::string name = path.substr(path.rfind('/') + 1);
  json::object out{{"name", repair_utf8(name.empty() ? "/" : name)},
                   {"type", type_name(type)},
                   {"path", repair_utf8(path)},
                   {"size", std::to_string(info.size)},
                   {"mode", mode},
                   {"permissions", permission_text(is_link ? FileType::symlink : type, info.mode)},
                   {"owner", names.user(info.uid)},
                   {"group", names.group(info.gid)},
                   {"modifiedTime", iso_time(modified.count())}};
  if (is_link && target) out["symlinkTarget"] = repair_utf8(target->path);
  json::object metadata =
      metadata_of(is_link && target ? target->info.attributes : info.attributes);
  if (!metadata.empty()) out["metadata"] = std::move(metadata);
  return out;
}

}  // namespace asr
