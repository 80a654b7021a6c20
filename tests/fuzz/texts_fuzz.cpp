// Texts that come from a sandbox, from an image or from the kernel with names a program chose. The
// first byte says which reader gets the rest.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/units.hpp"
#include "engine/environment.hpp"
#include "guest/identity.hpp"
#include "guest/process_table.hpp"
#include "os/cgroup.hpp"

namespace asr {
namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

// "wanted NUL passwd NUL group"
void read_accounts(std::string_view text) {
  std::string_view wanted = text.substr(0, text.find('\0'));
  text.remove_prefix(std::min(text.size(), wanted.size() + 1));
  std::string_view passwd = text.substr(0, text.find('\0'));
  text.remove_prefix(std::min(text.size(), passwd.size() + 1));
  auto user = find_user(wanted, passwd, text);
  if (!user) return;
  check(user->uid < kGuestId && user->gid < kGuestId && user->groups.size() <= 64 &&
        user->home.starts_with('/'));
  for (std::uint32_t group : user->groups) check(group < kGuestId);
}

void read_stat(std::string_view text) { (void)parse_stat(text); }

void read_mounts(std::string_view text) {
  for (const Hierarchy& hierarchy : parse_hierarchies(text))
    check(hierarchy.v2 || !hierarchy.controllers.empty());
}

// Added once, there for good; and root is root whatever the image says of others.
void add_accounts(std::string_view text) {
  std::string passwd = with_accounts(std::string(text));
  check(passwd.starts_with(text) && with_accounts(passwd) == passwd);
  std::string group = with_groups(std::string(text));
  check(with_groups(group) == group);
}

void read_words(std::string_view text) {
  if (auto bytes = parse_bytes(text)) check(*bytes < 9'000'000'000'000'000'001ULL);
  if (auto duration = parse_duration(text)) check(duration->count() >= 0);
  if (auto environment = parse_environment(text)) check(to_string(*environment) == text);
}

}  // namespace
}  // namespace asr

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr std::array kReaders{asr::read_accounts, asr::read_stat, asr::read_mounts,
                                       asr::add_accounts, asr::read_words};
  if (size == 0) return 0;
  kReaders[data[0] % kReaders.size()]({reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
