// Envelopes of a stream, and the fields of their messages. The first byte says how large the pieces
// are in which they come.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "api/e2b/connect.hpp"

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

struct Read {
  std::vector<asr::Envelope> envelopes;
  bool refused = false;
};

constexpr std::size_t kMost = 4096;

Read read_in_pieces(std::string_view bytes, std::size_t piece) {
  Read read;
  asr::EnvelopeReader reader(kMost);
  for (std::size_t at = 0; at < bytes.size() && !read.refused; at += piece) {
    reader.feed(bytes.substr(at, piece));
    for (;;) {
      auto envelope = reader.next();
      read.refused = !envelope;
      if (!envelope || !*envelope) break;
      check((*envelope)->payload.size() <= kMost);
      read.envelopes.push_back(**std::move(envelope));
    }
  }
  return read;
}

void read_fields(const asr::Envelope& envelope) {
  auto value = asr::parse_json(envelope.payload, 1000);
  if (!value || !value->is_object()) return;
  const auto& message = value->get_object();
  for (const char* name : {"process", "watcherId", "includeEntry", "pid", "stdin"}) {
    (void)asr::text_field(message, name);
    (void)asr::bool_field(message, name, false);
    (void)asr::int_field(message, name, 0);
    (void)asr::bytes_field(message, name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Read whole = read_in_pieces(bytes, bytes.size() + 1);
  Read parts = read_in_pieces(bytes, data[0] + 1U);
  // However they come, they mean the same.
  check(whole.refused == parts.refused && whole.envelopes.size() == parts.envelopes.size());
  for (std::size_t i = 0; i < whole.envelopes.size(); ++i) {
    check(whole.envelopes[i].payload == parts.envelopes[i].payload);
    read_fields(whole.envelopes[i]);
  }
  auto time = asr::connect_timeout(bytes);
  check(!time || time->count() >= 0);
  check(asr::keepalive_interval(bytes).count() > 0);
  return 0;
}
