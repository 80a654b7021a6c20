#include "cli/remote.hpp"

#include <algorithm>

namespace asr {

namespace {

Errc code_from(std::string_view word, unsigned status) {
  for (Errc code : {Errc::invalid, Errc::not_found, Errc::conflict, Errc::denied, Errc::exhausted,
                    Errc::timeout, Errc::unsupported, Errc::gone, Errc::os, Errc::internal})
    if (to_string(code) == word) return code;
  return status >= 500 ? Errc::internal : Errc::invalid;
}

Error error_in(const ClientResponse& response) {
  auto body = parse_json(response.body);
  const json::object* outer = body ? body->if_object() : nullptr;
  const json::value* inner = outer ? outer->if_contains("error") : nullptr;
  if (!inner || !inner->is_object())
    return Error(code_from("", response.status),
                 "the server answered " + std::to_string(response.status));
  Error error(code_from(text_at(*inner, "code"), response.status), text_at(*inner, "message"),
              text_at(*inner, "hint"));
  if (response.status == 401)
    error.hint = "set AGENT_SANDBOX_API_KEY, or start the server as this user once";
  return error;
}

}  // namespace

Result<Remote> Remote::find() {
  Login login = TRY(find_login());
  while (login.url.ends_with('/')) login.url.pop_back();
  return Remote(std::move(login));
}

Result<ClientResponse> Remote::send(ClientRequest request, const std::string& path) {
  request.url = login_.url + path;
  if (!login_.key.empty()) request.headers.add("Authorization", "Bearer " + login_.key);
  ClientResponse response = TRY(client_.send(request));
  if (response.status >= 300) return fail(error_in(response));
  return response;
}

Result<json::value> Remote::call(const std::string& method, const std::string& path,
                                 const json::value& body) {
  ClientRequest request;
  request.method = method;
  if (!body.is_null()) {
    request.body = to_text(body);
    request.headers.add("Content-Type", "application/json");
  }
  ClientResponse response = TRY(send(std::move(request), path));
  if (response.body.empty()) return json::value(nullptr);
  return parse_json(response.body);
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
  std::string out = repair_utf8(text);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return out;
}

std::string text_at(const json::value& object, std::string_view name) {
  const json::value* value = object.is_object() ? object.get_object().if_contains(name) : nullptr;
  if (!value || value->is_null()) return "";
  return value->is_string() ? std::string(value->get_string()) : to_text(*value);
}

}  // namespace asr
