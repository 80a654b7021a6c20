#include "store/volume_records.hpp"

#include "store/record_testing.hpp"
#include "store/session_records.hpp"

namespace asr {
namespace {

using test::must;

class Volumes : public test::RecordTest {
 protected:
  VolumeRecord add(const std::string& id, const std::string& owner, const std::string& name) {
    VolumeRecord r{id, owner, name, 1 << 20, 5};
    must(insert_volume(*db_, r));
    return r;
  }
  void add_session(const std::string& id) {
    SessionRecord r;
    r.id = id;
    r.labels = "{}";
    must(insert_session(*db_, r));
  }
};

TEST_F(Volumes, AreFoundByIdAndByName) {
  VolumeRecord a = add("v1", "alice", "data");
  VolumeRecord b = add("v2", "alice", "cache");
  VolumeRecord c = add("v3", "bob", "data");
  EXPECT_EQ(must(find_volume(*db_, "v1")), a);
  EXPECT_EQ(must(find_volume_by_name(*db_, "bob", "data")), c);
  EXPECT_EQ(must(list_volumes(*db_, "alice")), (std::vector{b, a}));
  EXPECT_EQ(find_volume(*db_, "v4").error().code, Errc::not_found);
  EXPECT_EQ(find_volume_by_name(*db_, "bob", "cache").error().code, Errc::not_found);
  EXPECT_EQ(insert_volume(*db_, {"v4", "alice", "data", 0, 0}).error().code, Errc::conflict);
  for (const char* hostile : test::kHostile)
    EXPECT_EQ(find_volume_by_name(*db_, hostile, hostile).error().code, Errc::not_found);
}

TEST_F(Volumes, OneInUseIsNotRemoved) {
  add("v1", "alice", "data");
  add_session("s1");
  add_session("s2");
  VolumeUse one{"v1", "s1", "/data", true};
  VolumeUse two{"v1", "s2", "/data", false};
  must(add_volume_use(*db_, one));
  must(add_volume_use(*db_, two));
  EXPECT_EQ(must(uses_of_volume(*db_, "v1")), (std::vector{one, two}));
  EXPECT_EQ(must(volumes_of_session(*db_, "s1")), (std::vector{one}));
  EXPECT_EQ(add_volume_use(*db_, one).error().code, Errc::conflict);
  EXPECT_EQ(add_volume_use(*db_, {"v9", "s1", "/x", false}).error().code, Errc::conflict);

  EXPECT_EQ(remove_volume(*db_, "v1").error().code, Errc::conflict);
  EXPECT_EQ(must(remove_volume_uses(*db_, "s1")), 1);
  EXPECT_EQ(remove_volume(*db_, "v1").error().code, Errc::conflict);
  must(remove_session(*db_, "s2"));
  EXPECT_TRUE(must(remove_volume(*db_, "v1")));
  EXPECT_FALSE(must(remove_volume(*db_, "v1")));
}

}  // namespace
}  // namespace asr
