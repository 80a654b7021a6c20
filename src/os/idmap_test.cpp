#include "os/idmap.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace asr {
namespace {

// What an id on disk is inside, or -1.
long inside(const std::vector<IdRange>& ranges, std::uint32_t on_disk, std::uint32_t outside) {
  for (const IdRange& range : ranges)
    if (on_disk >= range.inside && on_disk - range.inside < range.count)
      return static_cast<long>(range.outside - outside) + (on_disk - range.inside);
  return -1;
}

TEST(IdMaps, TheOwnerTakesTheUsersPlace) {
  constexpr std::uint32_t kFirst = 700000;
  for (std::uint32_t owner : {0U, 1U, 999U, 1000U, 1001U, 65534U, 65535U, 4000000000U}) {
    auto ranges = with_owner(owner, 1000, kFirst, 65535);
    EXPECT_EQ(inside(ranges, owner, kFirst), 1000) << owner;
    // Everybody else stays who they are, and no two are one.
    std::vector<int> seen(65535);
    for (std::uint32_t id = 0; id < 65535; ++id) {
      long there = inside(ranges, id, kFirst);
      if (id != owner && id != 1000) EXPECT_EQ(there, id) << owner;
      if (there >= 0) ++seen.at(static_cast<std::size_t>(there));
    }
    long user = inside(ranges, 1000, kFirst);
    if (owner == 1000)
      EXPECT_EQ(user, 1000);
    else
      EXPECT_EQ(user, owner < 65535 ? static_cast<long>(owner) : -1) << owner;
    EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](int count) { return count > 1; }), 0);
  }
}

}  // namespace
}  // namespace asr
