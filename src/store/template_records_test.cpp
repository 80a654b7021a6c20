#include "store/template_records.hpp"

#include "store/record_testing.hpp"

namespace asr {
namespace {

using test::must;

class TemplateRecords : public test::RecordTest {};

TEST_F(TemplateRecords, AreFoundByIdAndNameOfTheirOwner) {
  TemplateRecord record{"t1", "alice", "mine", false, 5, 6};
  must(insert_template(*db_, record));
  EXPECT_EQ(must(find_template(*db_, "alice", "t1")), record);
  EXPECT_EQ(must(find_template(*db_, "alice", "mine")), record);
  EXPECT_FALSE(find_template(*db_, "bob", "t1"));
  EXPECT_FALSE(insert_template(*db_, {"t2", "alice", "mine", false, 5, 6}))
      << "a name is taken once";
}

TEST_F(TemplateRecords, BuildsAndTagsGoWithThem) {
  must(insert_template(*db_, {"t1", "alice", "mine", false, 5, 6}));
  TemplateBuild build{"b1", "t1", "building", "", 7, 0, "{}", ""};
  must(insert_build(*db_, build));
  must(set_template_tag(*db_, {"t1", "default", "b1", 8}));
  must(set_template_tag(*db_, {"t1", "default", "b1", 9}));
  EXPECT_EQ(must(list_template_tags(*db_, "t1")).size(), 1U);
  EXPECT_EQ(must(fail_unfinished_builds(*db_, "ended", 10)), 1);
  EXPECT_EQ(must(find_build(*db_, "t1", "b1")).state, "error");
  EXPECT_TRUE(must(remove_template(*db_, "t1")));
  EXPECT_FALSE(find_build(*db_, "t1", "b1"));
  EXPECT_TRUE(must(list_template_tags(*db_, "t1")).empty());
}

}  // namespace
}  // namespace asr
