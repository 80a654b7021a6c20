#include "guest/attributes.hpp"

#include <sys/xattr.h>

#include <array>
#include <cstring>

namespace asr {

namespace {

constexpr std::string_view kOfUsers = "user.";
constexpr std::size_t kMostBytes = 8192;  // of one file

// Calls `use` with each name of a list that the kernel gave.
template <class Use>
void each_name(const char* list, ssize_t size, Use use) {
  for (const char* at = list; at < list + size; at += std::strlen(at) + 1) use(std::string(at));
}

}  // namespace

std::vector<std::string> attributes_of(int dir, const std::string& name) {
  std::vector<std::string> found;
  std::string path = "/proc/self/fd/" + std::to_string(dir) + "/" + name;
  std::array<char, kMostBytes> names{};
  ssize_t size = ::llistxattr(path.c_str(), names.data(), names.size() - 1);
  std::size_t bytes = 0;
  each_name(names.data(), size, [&](std::string attribute) {
    if (!std::string_view(attribute).starts_with(kOfUsers)) return;
    std::array<char, kMostBytes> value{};
    ssize_t length = ::lgetxattr(path.c_str(), attribute.c_str(), value.data(), value.size());
    if (length < 0) return;
    bytes += attribute.size() + static_cast<std::size_t>(length);
    if (bytes > kMostBytes) return;
    found.push_back(std::move(attribute));
    found.emplace_back(value.data(), static_cast<std::size_t>(length));
  });
  return found;
}

Result<void> replace_attributes(int file, std::string_view prefix,
                                const std::vector<std::string>& wanted) {
  std::array<char, 65536> names{};
  ssize_t size = ::flistxattr(file, names.data(), names.size() - 1);
  each_name(names.data(), size, [&](const std::string& attribute) {
    if (std::string_view(attribute).starts_with(prefix)) ::fremovexattr(file, attribute.c_str());
  });
  for (std::size_t i = 0; i + 1 < wanted.size(); i += 2) {
    if (!std::string_view(wanted[i]).starts_with(kOfUsers))
      return fail(Errc::invalid, "the attribute " + wanted[i] + " is none of users");
    if (::fsetxattr(file, wanted[i].c_str(), wanted[i + 1].data(), wanted[i + 1].size(), 0) == 0)
      continue;
    if (errno == ENOSPC || errno == EDQUOT || errno == E2BIG || errno == ERANGE)
      return fail(Errc::exhausted, "there is no room for the file's attributes");
    return fail_errno("attributes");
  }
  return {};
}

}  // namespace asr
