#include "api/e2b/multipart.hpp"

#include <gtest/gtest.h>

namespace asr {
namespace {

using Kind = MultipartReader::Event::Kind;

struct Part {
  std::string name, filename, data;
};

// All of a body that comes in pieces of `step` bytes; nothing if it is refused.
std::optional<std::vector<Part>> parts_of(std::string_view body, std::size_t step) {
  MultipartReader reader("XX");
  std::vector<Part> parts;
  for (std::size_t at = 0;;) {
    auto event = reader.next();
    if (!event) return std::nullopt;
    if (event->kind == Kind::end) return parts;
    if (event->kind == Kind::part) parts.push_back({event->name, event->filename, ""});
    if (event->kind == Kind::data) parts.back().data += event->data;
    if (event->kind != Kind::hungry) continue;
    if (at >= body.size()) return std::nullopt;
    reader.feed(body.substr(at, step));
    at += step;
  }
}

constexpr std::string_view kTwo =
    "--XX\r\n"
    "Content-Disposition: form-data; name=\"file\"; filename=\"/a/b c.txt\"\r\n"
    "Content-Type: text/plain\r\n\r\n"
    "one\r\n--X\r\n-\r\n--XX\r\n"
    "content-disposition: form-data; name=file; filename=\"q%22.txt\"\r\n\r\n"
    "\r\n--XX--\r\n";

TEST(Multipart, PartsAreTheSameHoweverTheyCome) {
  for (std::size_t step = 1; step < kTwo.size() + 1; ++step) {
    auto parts = parts_of(kTwo, step);
    ASSERT_TRUE(parts) << step;
    ASSERT_EQ(parts->size(), 2U);
    EXPECT_EQ((*parts)[0].name, "file");
    EXPECT_EQ((*parts)[0].filename, "/a/b c.txt");
    EXPECT_EQ((*parts)[0].data, "one\r\n--X\r\n-");
    EXPECT_EQ((*parts)[1].filename, "q\".txt");
    EXPECT_EQ((*parts)[1].data, "");
  }
}

TEST(Multipart, RefusesWhatIsMalformed) {
  EXPECT_FALSE(parts_of("", 10));
  EXPECT_FALSE(parts_of("--XX\r\n\r\nx\r\n--XX--", 10));                  // no disposition
  EXPECT_FALSE(parts_of("--XX\r\nnonsense\r\n\r\nx\r\n--XX--", 10));      // no header
  EXPECT_FALSE(parts_of("--XXY\r\nContent-Disposition: x\r\n\r\n", 10));  // another boundary
  EXPECT_FALSE(parts_of(kTwo.substr(0, kTwo.size() - 6), 10));            // breaks off
  std::string head = "--XX\r\nContent-Disposition: form-data; x=" + std::string(20000, 'y');
  EXPECT_FALSE(parts_of(head, 1000));
}

TEST(Multipart, Boundaries) {
  EXPECT_EQ(*multipart_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(*multipart_boundary("Multipart/Form-Data; charset=x; Boundary=\"a:b\""), "a:b");
  for (const char* bad :
       {"", "text/plain; boundary=a", "multipart/form-data",
        "multipart/form-data; boundary=", "multipart/form-data; boundary=\"a b\""})
    EXPECT_FALSE(multipart_boundary(bad)) << bad;
  EXPECT_FALSE(multipart_boundary("multipart/form-data; boundary=" + std::string(71, 'a')));
}

TEST(Multipart, Parameters) {
  EXPECT_EQ(*header_parameter("form-data; name=\"a\\\"b\"; filename=c", "name"), "a\"b");
  EXPECT_EQ(*header_parameter("form-data; name=\"a;b\"; filename=c ", "filename"), "c");
  EXPECT_FALSE(header_parameter("form-data; name=\"a", "name"));
  EXPECT_FALSE(header_parameter("form-data; names=a", "name"));
}

}  // namespace
}  // namespace asr
