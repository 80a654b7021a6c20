#include "cli/answer.hpp"

#include <cstdio>

#include "cli/report.hpp"

namespace asr {

int Output::failed(const Error& error) const {
  return json ? print_json_error(error) : complain(error);
}

int Output::show(const Result<json::value>& answer,
                 const std::function<std::string()>& text) const {
  if (!answer) return failed(answer.error());
  std::fputs(json ? (to_text(*answer) + "\n").c_str() : text().c_str(), stdout);
  return 0;
}

Result<json::value> call(const std::string& method, const std::string& path,
                         const json::value& body) {
  Remote remote = TRY(Remote::find());
  return remote.call(method, path, body);
}

}  // namespace asr
