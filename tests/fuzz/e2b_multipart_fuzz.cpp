// Bodies of many files. The first byte says how large the pieces are in which they come.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "api/e2b/multipart.hpp"

namespace {

using asr::MultipartReader;
using Kind = MultipartReader::Event::Kind;

void check(bool holds) {
  if (!holds) std::abort();
}

// All that a reader says, as one text.
std::string told(std::string_view bytes, std::size_t piece) {
  MultipartReader reader("XX");
  std::string text;
  std::size_t parts = 0;
  for (std::size_t at = 0;;) {
    auto event = reader.next();
    if (!event) return text + "refused";
    if (event->kind == Kind::end) return text + "end";
    if (event->kind == Kind::part) {
      check(++parts <= MultipartReader::kMostParts);
      text += "[" + event->name + "|" + event->filename + "]";
    }
    if (event->kind == Kind::data) {
      check(!event->data.empty());
      text += event->data;
    }
    if (event->kind == Kind::done) text += "<done>";
    if (event->kind != Kind::hungry) continue;
    if (at >= bytes.size()) return text + "hungry";
    reader.feed(bytes.substr(at, piece));
    at += piece;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string whole = told(bytes, bytes.size() + 1);
  std::string parts = told(bytes, data[0] + 1U);
  // However it comes, it means the same; only what breaks off may have told more or less of its
  // end.
  if (whole.ends_with("end")) check(whole == parts);
  if (auto boundary = asr::multipart_boundary(bytes)) check(boundary->size() <= 70);
  return 0;
}
