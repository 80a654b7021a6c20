#include "net/json.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace asr {
namespace {

TEST(Json, TakesNoMoreValuesThanItMay) {
  EXPECT_TRUE(parse_json("[1,true,null,\"x\"]", 5));
  auto over = parse_json("[1,true,null,\"x\"]", 4);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().what, "the JSON has more than 4 values");
  EXPECT_FALSE(parse_json("{\"a\":{\"b\":[]}}", 2));
  EXPECT_TRUE(parse_json("{\"a\":{\"b\":[]}}", 3));
}

TEST(Json, StrangersTextIsBounded) {
  EXPECT_TRUE(parse_json(R"({"a":[1,2.5,"x",null,true]})"));
  EXPECT_FALSE(parse_json(std::string(100'000, '[')));
  EXPECT_FALSE(parse_json(R"({"a":1,"a":2})"));
  EXPECT_FALSE(parse_json(R"({"b":{"a":1,"\u0061":2}})"));
  EXPECT_TRUE(parse_json(R"([{"a":1},{"a":2}])"));
  for (const char* bad : {"", "{", "{} x", "nul", "NaN", "'a'", "{\"a\":1,}", "\xEF\xBB\xBF{}",
                          "\"\xff\"", "\"\\ud800\"", "01", "+1", "1e", "\"\t\""})
    EXPECT_FALSE(parse_json(bad)) << bad;
}

TEST(Json, BytesThatAreNoTextGoAsBase64) {
  json::object object;
  put_bytes(object, "stdout", "caf\xc3\xa9");
  EXPECT_EQ(object.size(), 1U);
  put_bytes(object, "stderr", "a\xff\xc0\xafz");
  EXPECT_EQ(object["stderr_base64"].as_string(), "Yf/Ar3o=");
  EXPECT_EQ(from_base64("Yf/Ar3o=").value(), "a\xff\xc0\xafz");
  EXPECT_FALSE(from_base64("Yf/Ar3o"));
  EXPECT_FALSE(from_base64("####"));
}

class Schema : public testing::Test {
 protected:
  std::string verdict(std::string_view text) {
    auto result = check_schema(*parse_json(text), root_.at_pointer("/s"), root_);
    return result ? "" : result.error().what;
  }
  json::value root_ = json::parse(R"({
    "limit": {"type": "integer", "minimum": 1, "maximum": 10},
    "s": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"},
      "mode": {"enum": ["none", "allow"]},
      "limit": {"$ref": "#/limit"},
      "list": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
      "either": {"oneOf": [{"type": "string"}, {"type": "object", "required": ["x"]}]},
      "map": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2}
    }}})");
};

TEST_F(Schema, SaysWhereAndWhat) {
  EXPECT_EQ(verdict(R"({"name":"ab","mode":"allow","limit":10,"list":["x"],"map":{"a":"b"}})"), "");
  EXPECT_EQ(verdict("[]"), "the body must be of type object");
  EXPECT_EQ(verdict("{}"), "the body must have \"name\"");
  EXPECT_EQ(verdict(R"({"name":"A"})"), "/name must match ^[a-z]+$");
  EXPECT_EQ(verdict(R"({"name":"abcdef"})"), "/name must have at most 5 characters");
  EXPECT_EQ(verdict(R"({"name":"a","limit":0})"), "/limit must be at least 1");
  EXPECT_EQ(verdict(R"({"name":"a","limit":1.5})"), "/limit must be of type integer");
  EXPECT_EQ(verdict(R"({"name":"a","limit":18446744073709551615})"), "/limit must be at most 10");
  EXPECT_EQ(verdict(R"({"name":"a","mode":"x"})"), R"(/mode must be one of "none", "allow")");
  EXPECT_EQ(verdict(R"({"name":"a","list":["x",1]})"), "/list/1 must be of type string");
  EXPECT_EQ(verdict(R"({"name":"a","a/b":1})"), "/a~1b is not known here");
  EXPECT_EQ(verdict(R"({"name":"a","map":{"x":1}})"), "/map/x must be of type string");
  EXPECT_NE(verdict(R"({"name":"a","either":1})"), "");
  EXPECT_EQ(verdict(R"({"name":"a","either":{"x":1}})"), "");
}

}  // namespace
}  // namespace asr
