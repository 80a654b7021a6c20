// By what a content is known again without being kept: its size, and a hash of its beginning.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "net/json.hpp"

struct evp_md_ctx_st;

namespace asr {

class ContentHash {
 public:
  // What comes later is only counted: hashing all of a large upload would slow it down.
  static constexpr std::uint64_t kHashed = 16 << 20;

  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void feed(std::string_view data);
  std::uint64_t size() const noexcept { return size_; }
  std::string finish();  // as hexadecimal digits; once

  // "size" and "sha256", and with a long one "sha256_bytes": how much of it was hashed.
  void describe(json::object& out);

 private:
  evp_md_ctx_st* context_;
  std::uint64_t size_ = 0;
};

}  // namespace asr
