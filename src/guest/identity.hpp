// Who a program or a worker runs as, and how it becomes that: no way back to the guest's powers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "guest/guest.hpp"

namespace asr {

struct User {
  std::uint32_t uid = kUserId;
  std::uint32_t gid = kUserId;
  std::vector<std::uint32_t> groups;
  std::string name;
  std::string home = "/";
  std::string shell = "/bin/sh";
};

// Parses one account out of passwd(5) and group(5) texts. `wanted` is a name or a number; a number
// needs no account. Ids outside of the sandbox's range are refused.
Result<User> find_user(std::string_view wanted, std::string_view passwd, std::string_view group);

// The sandbox's accounts as its own files tell them, re-read when they change.
class Accounts {
 public:
  explicit Accounts(bool rootless) : rootless_(rootless) {}
  Result<User> find(const std::string& wanted);

 private:
  bool rootless_;
  std::string wanted_;
  std::string stamp_;
  std::optional<User> found_;
};

// After fork(), in the child: enters the inner user namespace as `user` and gives up every
// capability the workload must not have. -1 and errno on failure; the caller then leaves.
int become(const GuestConfig& config, const User& user) noexcept;

// The same for whoever works on the files of all users: root of the workload, or where there is
// none the one user there is, with what root could do to files and nothing else.
int become_keeper_of_files(const GuestConfig& config) noexcept;

}  // namespace asr
