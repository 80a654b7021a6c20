#include "base/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace asr {

namespace {

struct Quantity {
  double number;
  std::string_view suffix;
};

Result<Quantity> split(std::string_view text, std::string_view kind) {
  double number = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || !(number >= 0) || !std::isfinite(number))
    return fail(Errc::invalid, std::string(text) + " is not a " + std::string(kind));
  return Quantity{number, std::string_view(end, text.data() + text.size())};
}

std::string printed(const char* format, double value, const char* unit) {
  std::array<char, 48> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value, unit);
  return buffer.data();
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  auto [number, suffix] = TRY(split(text, "size"));
  if (suffix.ends_with("iB"))
    suffix.remove_suffix(2);
  else if (suffix.ends_with("B") || suffix.ends_with("b"))
    suffix.remove_suffix(1);
  double factor = 1;
  if (suffix.empty())
    factor = 1;
  else if (suffix == "K" || suffix == "k")
    factor = 1024.0;
  else if (suffix == "M" || suffix == "m")
    factor = 1024.0 * 1024;
  else if (suffix == "G" || suffix == "g")
    factor = 1024.0 * 1024 * 1024;
  else if (suffix == "T" || suffix == "t")
    factor = 1024.0 * 1024 * 1024 * 1024;
  else
    return fail(Errc::invalid, std::string(text) + " is not a size", "write it as 512M or 2G");
  double bytes = number * factor;
  if (bytes >= 9e18) return fail(Errc::invalid, std::string(text) + " is too large");
  return static_cast<std::uint64_t>(bytes);
}

Result<std::chrono::milliseconds> parse_duration(std::string_view text) {
  auto [number, suffix] = TRY(split(text, "duration"));
  double factor = 1000;
  if (suffix == "ms")
    factor = 1;
  else if (suffix.empty() || suffix == "s")
    factor = 1000;
  else if (suffix == "m")
    factor = 60'000;
  else if (suffix == "h")
    factor = 3'600'000;
  else
    return fail(Errc::invalid, std::string(text) + " is not a duration",
                "write it as 500ms, 5s, 2m or 1h");
  double ms = number * factor;
  if (ms >= 9e15) return fail(Errc::invalid, std::string(text) + " is too long");
  return std::chrono::milliseconds(static_cast<std::int64_t>(ms));
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return printed(value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, kUnits[unit]);
}

std::string format_duration(std::chrono::nanoseconds duration) {
  double us = static_cast<double>(duration.count()) / 1e3;
  if (us < 1000) return printed("%.0f %s", us, "µs");
  if (us < 1e6) return printed("%.1f %s", us / 1e3, "ms");
  if (us < 120e6) return printed("%.1f %s", us / 1e6, "s");
  return printed("%.0f %s", us / 60e6, "min");
}

}  // namespace asr
