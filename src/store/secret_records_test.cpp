#include "store/secret_records.hpp"

#include "store/record_testing.hpp"

namespace asr {
namespace {

using test::must;

class SecretRecords : public test::RecordTest {};

TEST_F(SecretRecords, BelongToTheirOwner) {
  SecretRecord record{"s1", "alice", "token", 1, std::string("\0\x01x", 3), "{}", 5, 5};
  must(insert_secret(*db_, record));
  EXPECT_EQ(must(find_secret(*db_, "alice", "token")), record);
  EXPECT_EQ(must(find_secret(*db_, "alice", "s1")), record);
  EXPECT_FALSE(find_secret(*db_, "bob", "token"));
  EXPECT_FALSE(insert_secret(*db_, record)) << "a name is taken once";
  record.version = 2;
  record.sealed = "y";
  must(update_secret(*db_, record));
  EXPECT_EQ(must(list_secrets(*db_, "alice")), std::vector<SecretRecord>{record});
  EXPECT_TRUE(must(remove_secret(*db_, "s1")));
  EXPECT_FALSE(must(remove_secret(*db_, "s1")));
}

}  // namespace
}  // namespace asr
