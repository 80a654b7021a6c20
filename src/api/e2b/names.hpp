// Names of users, and paths as users write them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "engine/files.hpp"
#include "net/http.hpp"
#include "net/json.hpp"

namespace asr {

// passwd(5) and group(5) of a sandbox, as far as they are of use.
struct AccountNames {
  struct Account {
    std::uint32_t uid = 0;
    std::string home;
  };
  std::map<std::string, Account, std::less<>> users;
  std::map<std::uint32_t, std::string> user_names;
  std::map<std::uint32_t, std::string> group_names;

  static AccountNames parse(std::string_view passwd, std::string_view group);
  std::string user(std::uint32_t uid) const;  // the number where there is no name
  std::string group(std::uint32_t gid) const;
};

// "~", "~/x" and what is relative belong to `home`; the result is absolute and has no "..".
std::string resolve_path(std::string_view path, std::string_view home);

// EntryInfo of a file at `path`. Of a link: `target` is what it leads to in the end, none if that
// is nowhere.
struct LinkTarget {
  std::string path;
  FileInfo info;
};
json::object entry_info(const FileInfo& info, const std::string& path, const AccountNames& names,
                        const LinkTarget* target);

// What clients say of a file in headers "X-Metadata-…", kept as attributes of it.
inline constexpr std::string_view kMetadataPrefix = "user.e2b.";
// Errc::invalid for what E2B does not take: other than printable ASCII, too long, too much.
Result<FileAttributes> metadata_in(const Headers& headers);
json::object metadata_of(const std::map<std::string, std::string>& attributes);

// "-rw-r--r--", as ls and Go say it.
std::string permission_text(FileType type, std::uint32_t mode);

}  // namespace asr
