// Bytes from values and back. Each message lists its fields once, in fields(); writing and reading
// both walk that list. Reading never trusts: every length is checked against what is there, and a
// message with bytes left over is refused.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace asr {

class Writer {
 public:
  template <class T>
  void operator()(const T& value) {
    put(value);
  }
  std::string take() { return std::move(bytes_); }
  std::size_t size() const noexcept { return bytes_.size(); }

 private:
  template <class T>
    requires std::integral<T> || std::is_enum_v<T>
  void put(T value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof raw);
  }
  template <class Rep, class Period>
  void put(std::chrono::duration<Rep, Period> value) {
    put(static_cast<std::int64_t>(value.count()));
  }
  void put(const std::string& value) {
    put(static_cast<std::uint32_t>(value.size()));
    bytes_.append(value);
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) put(value);
  }
  template <class T>
    requires requires(T& t, Writer& w) { t.fields(w); }
  void put(const T& value) {
    const_cast<T&>(value).fields(*this);  // fields() reads only when given a Writer.
  }

  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) noexcept : left_(bytes) {}

  template <class T>
  void operator()(T& value) {
    get(value);
  }
  bool complete() const noexcept { return ok_ && left_.empty(); }
  bool ok() const noexcept { return ok_; }

 private:
  template <class T>
    requires(std::integral<T> || std::is_enum_v<T>) && (!std::same_as<T, bool>)
  void get(T& value) {
    if (!enough(sizeof value)) return;
    std::memcpy(&value, left_.data(), sizeof value);
    left_.remove_prefix(sizeof value);
  }
  void get(bool& value) {
    std::uint8_t raw = 0;
    get(raw);
    if (raw > 1) ok_ = false;
    value = raw == 1;
  }
  template <class Rep, class Period>
  void get(std::chrono::duration<Rep, Period>& value) {
    std::int64_t count = 0;
    get(count);
    value = std::chrono::duration<Rep, Period>(count);
  }
  void get(std::string& value) {
    std::uint32_t size = 0;
    get(size);
    if (!enough(size)) return;
    value.assign(left_.data(), size);
    left_.remove_prefix(size);
  }
  template <class T>
  void get(std::vector<T>& values) {
    std::uint32_t count = 0;
    get(count);
    // An element has at least one byte: a count beyond that is a lie, found before it costs memory.
    if (!enough(count)) return;
    values.clear();
    for (std::uint32_t i = 0; i < count && ok_; ++i) get(values.emplace_back());
  }
  template <class T>
    requires requires(T& t, Reader& r) { t.fields(r); }
  void get(T& value) {
    value.fields(*this);
  }

  bool enough(std::size_t size) noexcept {
    if (!ok_ || left_.size() < size) ok_ = false;
    return ok_;
  }

  std::string_view left_;
  bool ok_ = true;
};

}  // namespace asr
