#include "store/key_records.hpp"

#include "store/record_testing.hpp"
#include "store/secret_box.hpp"

namespace asr {
namespace {

using test::must;

class Keys : public test::RecordTest {
 protected:
  KeyRecord add(const std::string& id, const std::string& key) {
    KeyRecord r{.id = id,
                .name = "for tests",
                .role = "user",
                .prefix = "asr_12",
                .hash = sha256(key),
                .created_ms = 5,
                .expires_ms = 10,
                .revoked_ms = std::nullopt,
                .last_used_ms = 0,
                .quotas = "{}"};
    must(insert_key(*db_, r));
    return r;
  }
};

TEST_F(Keys, AreFoundByIdAndByHash) {
  KeyRecord a = add("a", "key a");
  KeyRecord b = add("b", "key b");
  EXPECT_EQ(must(find_key(*db_, "a")), a);
  EXPECT_EQ(must(find_key_by_hash(*db_, sha256("key b"))), b);
  EXPECT_EQ(find_key(*db_, "c").error().code, Errc::not_found);
  EXPECT_EQ(find_key_by_hash(*db_, sha256("key c")).error().code, Errc::not_found);
  EXPECT_EQ(find_key_by_hash(*db_, "").error().code, Errc::not_found);
  EXPECT_EQ(must(list_keys(*db_)), (std::vector{a, b}));
}

TEST_F(Keys, NoTwoAreTheSame) {
  KeyRecord r = add("a", "key");
  EXPECT_EQ(insert_key(*db_, r).error().code, Errc::conflict);
  r.id = "b";
  EXPECT_EQ(insert_key(*db_, r).error().code, Errc::conflict);
}

TEST_F(Keys, RolesAndHashesAreChecked) {
  KeyRecord r = add("a", "key");
  r.id = "b";
  r.hash = sha256("other");
  r.role = "root";
  EXPECT_EQ(insert_key(*db_, r).error().code, Errc::conflict);
  r.role = "admin";
  r.hash = "short";
  EXPECT_EQ(insert_key(*db_, r).error().code, Errc::conflict);
}

TEST_F(Keys, ARevokedKeyStaysRevoked) {
  add("a", "key");
  must(revoke_key(*db_, "a", 70));
  must(revoke_key(*db_, "a", 90));
  must(touch_key(*db_, "a", 80));
  KeyRecord r = must(find_key_by_hash(*db_, sha256("key")));
  EXPECT_EQ(r.revoked_ms, 70);
  EXPECT_EQ(r.last_used_ms, 80);
  EXPECT_EQ(revoke_key(*db_, "b", 70).error().code, Errc::not_found);
  EXPECT_EQ(touch_key(*db_, "b", 70).error().code, Errc::not_found);
}

TEST_F(Keys, HostileNamesAreNames) {
  for (const char* hostile : test::kHostile) {
    KeyRecord r = add(hostile, hostile);
    EXPECT_EQ(must(find_key(*db_, hostile)), r);
  }
  EXPECT_EQ(must(list_keys(*db_)).size(), std::size(test::kHostile));
}

}  // namespace
}  // namespace asr
