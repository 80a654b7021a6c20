#include "net/http_client.hpp"

#include <curl/curl.h>

#include "net/curl_start.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostBody = 64 << 20;

struct Transfer {
  const ClientRequest& request;
  ClientResponse response;
  bool too_large = false;
};

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    transfer.response.headers = Headers();  // An answer such as 100 came before.
    std::size_t blank = line.find(' ');
    transfer.response.status =
        blank == std::string_view::npos
            ? 0
            : static_cast<unsigned>(std::strtoul(line.data() + blank, nullptr, 10));
  } else if (std::size_t colon = line.find(':'); colon != std::string_view::npos) {
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.back() == '\n' || value.back() == '\r' || value.back() == ' '))
      value.remove_suffix(1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    transfer.response.headers.add(std::string(line.substr(0, colon)), std::string(value));
  } else if (transfer.request.see_head && transfer.response.status >= 200) {
    transfer.request.see_head(transfer.response.status, transfer.response.headers);
  }
  return size * count;
}

std::size_t on_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  std::string_view part(data, size * count);
  if (transfer.request.write_body && transfer.response.status < 300)
    return transfer.request.write_body(part) ? part.size() : 0;
  if (transfer.response.body.size() + part.size() > kMostBody) {
    transfer.too_large = true;
    return 0;
  }
  transfer.response.body += part;
  return part.size();
}

std::size_t on_read(char* buffer, std::size_t size, std::size_t count, void* user) {
  return static_cast<Transfer*>(user)->request.read_body(buffer, size * count);
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(user)->request.go_on() ? 0 : 1;
}

Error explain(CURLcode code, const ClientRequest& request, const char* detail) {
  std::string what = *detail != '\0' ? detail : ::curl_easy_strerror(code);
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
      return Error(Errc::not_found, "no server answers at " + request.url,
                   "start one with: agent-sandbox serve; or name it in AGENT_SANDBOX_URL");
    case CURLE_OPERATION_TIMEDOUT:
      return Error(Errc::timeout, "the server did not answer in time");
    case CURLE_PEER_FAILED_VERIFICATION:
      return Error(Errc::denied, "the server's certificate is not trusted: " + what);
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return Error(Errc::invalid, "'" + request.url + "' is no address of a server");
    default:
      return Error(Errc::os, "the request failed: " + what);
  }
}

}  // namespace

struct HttpClient::Handle {
  Handle() {
    start_curl();
    curl = ::curl_easy_init();
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { ::curl_easy_cleanup(curl); }
  CURL* curl;
};

HttpClient::HttpClient() : handle_(std::make_unique<Handle>()) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&& other) noexcept = default;

Result<ClientResponse> HttpClient::send(const ClientRequest& request) {
  CURL* curl = handle_->curl;
  if (!curl) return fail(Errc::internal, "curl cannot be used");
  ::curl_easy_reset(curl);
  Transfer transfer{request, {}, false};
  char detail[CURL_ERROR_SIZE] = "";
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  ::curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  ::curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  ::curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                     static_cast<long>(request.connect_time.count()));
  ::curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(request.total_time.count()));
  ::curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
  ::curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  ::curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);  // Some answers are silent for long.
  if (request.go_on) {
    ::curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    ::curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    ::curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  }
  if (request.only_once) {
    ::curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
    ::curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
  }
  if (!request.ca_file.empty()) ::curl_easy_setopt(curl, CURLOPT_CAINFO, request.ca_file.c_str());
  if (request.method == "HEAD") ::curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
  if (request.read_body) {
    ::curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    ::curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
    ::curl_easy_setopt(curl, CURLOPT_READDATA, &transfer);
    ::curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE,
                       static_cast<curl_off_t>(request.body_length));
  } else if (!request.body.empty()) {
    ::curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
    ::curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.data());
  }
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> pinned(nullptr, ::curl_slist_free_all);
  if (request.pin) {
    bool six = request.pin->address.find(':') != std::string::npos;
    std::string entry = request.pin->host + ":" + std::to_string(request.pin->port) + ":" +
                        (six ? "[" + request.pin->address + "]" : request.pin->address);
    pinned.reset(::curl_slist_append(nullptr, entry.c_str()));
    ::curl_easy_setopt(curl, CURLOPT_RESOLVE, pinned.get());
    // A proxy of the environment's would look the name up by itself.
    ::curl_easy_setopt(curl, CURLOPT_PROXY, "");
  }
  curl_slist* raw = nullptr;
  for (const auto& [name, value] : request.headers.all())
    raw = ::curl_slist_append(raw, (name + ": " + value).c_str());
  std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(raw, ::curl_slist_free_all);
  ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  CURLcode code = ::curl_easy_perform(curl);
  if (transfer.too_large) return fail(Errc::exhausted, "the answer is too large");
  if (code != CURLE_OK) return fail(explain(code, request, detail));
  return std::move(transfer.response);
}

}  // namespace asr
