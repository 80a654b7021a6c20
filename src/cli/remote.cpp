#include "cli/remote.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace asr {

namespace {

Errc code_from(std::string_view word, unsigned status) {
  for (Errc code :
       {Errc::invalid, Errc::not_found, Errc::conflict, Errc::denied, Errc::exhausted,
        Errc::timeout, Errc::unsupported, Errc::gone, Errc::os, Errc::internal, Errc::provider})
    if (to_string(code) == word) return code;
  return status >= 500 ? Errc::internal : Errc::invalid;
}

ClientRequest json_request(const std::string& method, const json::value& body) {
  ClientRequest request;
  request.method = method;
  if (body.is_null()) return request;
  request.body = to_text(body);
  request.headers.add("Content-Type", "application/json");
  return request;
}

Result<json::value> body_of(const ClientResponse& response) {
  if (response.status >= 300) return fail(error_in(response));
  if (response.body.empty()) return json::value(nullptr);
  return parse_json(response.body);
}

}  // namespace

bool Patience::wait(const std::stop_token& unwanted) {
  auto now = std::chrono::steady_clock::now();
  if (end_ == std::chrono::steady_clock::time_point{}) end_ = now + most_;
  if (now >= end_) return false;
  std::mutex alone;
  std::condition_variable_any never;
  std::unique_lock lock(alone);
  never.wait_for(lock, unwanted, pause_, [] { return false; });
  pause_ = std::min<std::chrono::milliseconds>(2 * pause_, std::chrono::seconds(1));
  return !unwanted.stop_requested();
}

Error error_in(const ClientResponse& response) {
  auto body = parse_json(response.body);
  const json::object* outer = body ? body->if_object() : nullptr;
  const json::value* inner = outer ? outer->if_contains("error") : nullptr;
  if (!inner || !inner->is_object())
    return Error(code_from("", response.status),
                 "the server answered " + std::to_string(response.status));
  // It may tell of names that were given inside a sandbox.
  Error error(code_from(text_at(*inner, "code"), response.status),
              printable_lines(text_at(*inner, "message")),
              printable_lines(text_at(*inner, "hint")));
  if (response.status == 401)
    error.hint = "set AGENT_SANDBOX_API_KEY, or start the server as this user once";
  return error;
}

std::string session_path(const std::string& id, std::string_view rest) {
  return "/api/sessions/" + percent_encode(id) + std::string(rest);
}

Result<Remote> Remote::find() {
  Login login = TRY(find_login());
  while (login.url.ends_with('/')) login.url.pop_back();
  return Remote(std::move(login), {});
}

Remote Remote::another(std::stop_token unwanted) const {
  return Remote(login_, std::move(unwanted));
}

Result<ClientResponse> Remote::exchange(ClientRequest request, const std::string& path) {
  request.url = login_.url + path;
  if (!login_.key.empty()) request.headers.add("Authorization", "Bearer " + login_.key);
  if (unwanted_.stop_possible())
    request.go_on = [unwanted = unwanted_] { return !unwanted.stop_requested(); };
  auto response = client_.send(request);
  if (!response && response.error().code == Errc::not_found)
    return fail(Errc::not_found, "no server answers at " + login_.url,
                "start one with: agent-sandbox serve; or name it in AGENT_SANDBOX_URL");
  return response;
}

Result<ClientResponse> Remote::send(ClientRequest request, const std::string& path) {
  ClientResponse response = TRY(exchange(std::move(request), path));
  if (response.status >= 300) return fail(error_in(response));
  return response;
}

Result<json::value> Remote::call(const std::string& method, const std::string& path,
                                 const json::value& body, std::chrono::milliseconds within) {
  ClientRequest request = json_request(method, body);
  request.total_time = within;
  ClientResponse response = TRY(exchange(std::move(request), path));
  return body_of(response);
}

bool Remote::is_ready() {
  auto answer = exchange(ClientRequest(), "/ready");
  return answer && answer->status == 200;
}

Result<json::value> Remote::insist(const std::string& method, const std::string& path,
                                   const json::value& body, Patience patience, Repeat repeat) {
  bool knows_all = false;
  for (;;) {
    ClientRequest request = json_request(method, body);
    request.only_once = repeat == Repeat::never;
    auto answer = exchange(std::move(request), path);
    bool was_taken = !answer && answer.error().code != Errc::not_found;  // perhaps
    if (was_taken && repeat == Repeat::never) return fail(answer.error());
    // One that is only beginning does not know its sessions yet.
    bool is_unknown = answer && answer->status == 404 && !knows_all;
    bool is_later = !answer || answer->status == 429 || answer->status == 503;
    if (!is_unknown && !is_later) return body_of(*answer);
    knows_all = is_unknown && is_ready();
    if (knows_all) continue;
    if (!patience.wait(unwanted_)) {
      if (answer) return body_of(*answer);
      return fail(Errc::timeout, answer.error().what, answer.error().hint);
    }
  }
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i >= widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - row[i].size() + 2, ' ');
    }
    out += line + "\n";
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out = printable_lines(text);
  for (char& c : out)
    if (c == '\n' || c == '\t') c = '?';
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string whole = repair_utf8(text);
  std::string out;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    auto c = static_cast<unsigned char>(whole[i]);
    // U+0080 to U+009F: some terminals take them for escape sequences, too.
    bool is_long_control = c == 0xC2 && static_cast<unsigned char>(whole[i + 1]) < 0xA0;
    bool is_control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f || is_long_control;
    out += is_control ? '?' : whole[i];
    if (is_long_control) ++i;
  }
  return out;
}

std::string text_at(const json::value& object, std::string_view name) {
  const json::value* value = object.is_object() ? object.get_object().if_contains(name) : nullptr;
  if (!value || value->is_null()) return "";
  return value->is_string() ? std::string(value->get_string()) : to_text(*value);
}

Result<std::string> bytes_in(const json::value& chunk) {
  std::string coded = text_at(chunk, "data_base64");
  if (!coded.empty()) return from_base64(coded);
  return text_at(chunk, "data");
}

}  // namespace asr
