#include "cli/replay_compare.hpp"

#include <algorithm>

#include "cli/remote.hpp"
#include "session/content_hash.hpp"
#include "session/text_diff.hpp"

namespace asr {

namespace {

constexpr std::size_t kLeastDigits = 6;      // 0x10 is a number, 0x7f12345678 an address
constexpr std::size_t kMostShown = 8 << 10;  // of a difference

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

std::uint64_t count_at(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  boost::system::error_code ec;
  auto count = value && value->is_number() ? value->to_number<std::uint64_t>(ec) : 0;
  return ec ? 0 : count;
}

// What is told as text, or as base64 where it is none.
std::string bytes_at(const json::object& object, const std::string& name) {
  if (object.contains(name + "_base64"))
    if (auto bytes = from_base64(text_at(object, name + "_base64"))) return *bytes;
  return text_at(object, name);
}

void compare_text(std::vector<Difference>& all, std::string what, const std::string& before,
                  const std::string& after) {
  if (before == after || without_addresses(before) == without_addresses(after)) return;
  all.push_back({std::move(what), before, after});
}

void compare_field(std::vector<Difference>& all, const json::object& before,
                   const json::object& after, const std::string& name) {
  compare_text(all, name, text_at(before, name), text_at(after, name));
}

// Of a long output the history has the end.
void compare_output(std::vector<Difference>& all, const json::object& before,
                    const json::object& after, const std::string& name) {
  std::string was = bytes_at(before, name);
  std::string is = bytes_at(after, name);
  bool is_cut = before.contains(name + "_cut") || before.contains("forgotten_bytes");
  if (is_cut && is.size() > was.size()) is.erase(0, is.size() - was.size());
  compare_text(all, name, was, is);
}

bool is_same_long_value(const json::value& before, const json::value& after) {
  const json::object* outer = before.if_object();
  const json::value* about = outer ? outer->if_contains("left_out") : nullptr;
  if (!about || !about->is_object()) return false;
  ContentHash hash;
  hash.feed(after.is_string() ? std::string(after.get_string()) : to_text(after));
  json::object now;
  hash.describe(now);
  return text_at(*about, "sha256") == text_at(now, "sha256") &&
         count_at(about->get_object(), "size") == hash.size();
}

void compare_result(std::vector<Difference>& all, std::size_t number, const json::object& before,
                    const json::object& after) {
  std::string place = "result " + std::to_string(number) + " ";
  for (const auto& [mime, value] : before) {
    const json::value* now = after.if_contains(mime);
    if (now && is_same_long_value(value, *now)) continue;
    compare_text(all, place + std::string(mime), text_at(before, mime), text_at(after, mime));
  }
  for (const auto& [mime, value] : after)
    if (!before.contains(mime))
      all.push_back({place + std::string(mime), "", text_at(after, mime)});
}

const json::array& array_at(const json::object& object, std::string_view name) {
  static const json::array kNone;
  const json::value* value = object.if_contains(name);
  return value && value->is_array() ? value->get_array() : kNone;
}

void compare_results(std::vector<Difference>& all, const json::object& before,
                     const json::object& after) {
  const json::array& was = array_at(before, "results");
  const json::array& is = array_at(after, "results");
  static const json::object kNone;
  for (std::size_t i = 0; i < std::max(was.size(), is.size()); ++i) {
    const json::object* old = i < was.size() ? was[i].if_object() : nullptr;
    const json::object* now = i < is.size() ? is[i].if_object() : nullptr;
    compare_result(all, i + 1, old ? *old : kNone, now ? *now : kNone);
  }
}

void compare_error(std::vector<Difference>& all, const json::object& before,
                   const json::object& after) {
  const json::value* was = before.if_contains("error");
  const json::value* is = after.if_contains("error");
  for (const char* name : {"name", "value", "traceback"})
    compare_text(all, std::string("error ") + name, was ? text_at(*was, name) : "",
                 is ? text_at(*is, name) : "");
}

std::string status_of(const json::object& told) {
  std::string status = text_at(told, "status");
  // It is stopped by its time when it is done again.
  return status == "interrupted" ? "timeout" : status;
}

std::string shortened(std::string text) {
  if (text.size() <= kMostShown) return text;
  text.resize(kMostShown);
  return text + "\n[…]\n";
}

}  // namespace

std::string without_addresses(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t digits = 0;
    if (text.substr(at).starts_with("0x"))
      while (at + 2 + digits < text.size() && is_hex(text[at + 2 + digits])) ++digits;
    if (digits >= kLeastDigits) {
      out += "0x…";
      at += 2 + digits;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::vector<Difference> compare_command(const json::object& before, const json::object& after) {
  std::vector<Difference> all;
  for (const char* name : {"status", "exit_code", "signal"})
    compare_field(all, before, after, name);
  for (const char* name : {"stdout", "stderr"}) compare_output(all, before, after, name);
  bool is_cut = before.contains("stdout_cut") || before.contains("stderr_cut") ||
                before.contains("forgotten_bytes");
  if (all.empty() && is_cut) compare_field(all, before, after, "output_bytes");
  return all;
}

std::vector<Difference> compare_cell(const json::object& before, const json::object& after) {
  std::vector<Difference> all;
  compare_text(all, "status", status_of(before), status_of(after));
  for (const char* name : {"stdout", "stderr"}) {
    compare_output(all, before, after, name);
    std::string cut = std::string(name) + "_cut";
    if (!before.contains(cut)) continue;
    std::uint64_t was = count_at(before, cut) + bytes_at(before, name).size();
    compare_text(all, std::string(name) + " bytes", std::to_string(was),
                 std::to_string(bytes_at(after, name).size()));
  }
  compare_results(all, before, after);
  // The words for an interrupt and for a timeout are not the same.
  if (text_at(before, "status") != "interrupted") compare_error(all, before, after);
  return all;
}

std::string diff_of(const Difference& difference) {
  std::string before = printable_lines(without_addresses(difference.before));
  std::string after = printable_lines(without_addresses(difference.after));
  return shortened(unified(diff_texts(before, after),
                           {"/before/" + difference.what, "/now/" + difference.what}));
}

}  // namespace asr
