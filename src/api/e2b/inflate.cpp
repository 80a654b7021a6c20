#include "api/e2b/inflate.hpp"

#include <zlib.h>

#include <array>
#include <string>

namespace asr {

struct Inflater::State {
  z_stream stream{};
  std::string input;
  std::array<char, 64 * 1024> out{};
  bool ready = false;
  bool complete = false;
};

Inflater::Inflater() : state_(std::make_unique<State>()) {
  constexpr int kGzip = 16;  // on top of the window, as zlib wants it said
  state_->ready = ::inflateInit2(&state_->stream, kGzip + MAX_WBITS) == Z_OK;
}

Inflater::~Inflater() { ::inflateEnd(&state_->stream); }

void Inflater::feed(std::string_view bytes) {
  state_->input = bytes;
  state_->stream.next_in = reinterpret_cast<Bytef*>(state_->input.data());
  state_->stream.avail_in = static_cast<uInt>(state_->input.size());
}

Result<std::string_view> Inflater::next() {
  State& s = *state_;
  if (!s.ready) return fail(Errc::exhausted, "there is no memory to unpack with");
  while (!s.complete || s.stream.avail_in > 0) {
    // Several of them one after the other are one file.
    if (s.complete && ::inflateReset(&s.stream) != Z_OK) break;
    s.complete = false;
    s.stream.next_out = reinterpret_cast<Bytef*>(s.out.data());
    s.stream.avail_out = static_cast<uInt>(s.out.size());
    int code = ::inflate(&s.stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
      return fail(Errc::invalid, "the body is not gzip");
    s.complete = code == Z_STREAM_END;
    std::size_t made = s.out.size() - s.stream.avail_out;
    if (made > 0) return std::string_view(s.out.data(), made);
    if (code == Z_BUF_ERROR || (s.stream.avail_in == 0 && !s.complete)) break;
  }
  return std::string_view();
}

bool Inflater::is_complete() const noexcept { return state_->complete; }

}  // namespace asr
