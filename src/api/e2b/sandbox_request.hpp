// What E2B's clients ask for when they make a sandbox or look for some, as sessions know it. Values
// only; what a template is, is found out elsewhere.
#pragma once

#include <chrono>
#include <string>

#include "api/e2b/options.hpp"
#include "base/result.hpp"
#include "net/http.hpp"
#include "net/json.hpp"
#include "session/request.hpp"
#include "store/session_records.hpp"

namespace asr {

// The label under which a session remembers the template it was asked by; hidden from metadata.
inline constexpr std::string_view kE2bTemplateLabel = "e2b.template";

struct E2bCreate {
  std::string template_name;  // as it was written
  SessionRequest request;     // with the environment "host", until the template is known
};
enum class E2bGeneration { first, second };
// `body` is any object.
Result<E2bCreate> e2b_create_from(const json::object& body, E2bGeneration generation,
                                  const E2bOptions& options);

// A timeout in seconds that may be given, or the standard.
Result<std::chrono::seconds> e2b_timeout_from(const json::object& body, std::int64_t standard,
                                              const E2bOptions& options);

// GET /v2/sandboxes, or the older one, which knows running ones only.
Result<SessionFilter> e2b_filter_from(const RequestHead& head, E2bGeneration generation);

// "key=value&…", each percent-encoded twice; once of it is gone when the parameter was read.
Result<std::map<std::string, std::string>> e2b_metadata_from(std::string_view parameter);

// An id, with or without what some clients append to it.
std::string e2b_sandbox_id(std::string_view text);

// RFC 3339; milliseconds since 1970.
Result<std::int64_t> e2b_time_from(std::string_view text);

}  // namespace asr
