#include "api/e2b/tokens.hpp"

namespace asr {

std::string E2bTokens::envd(std::string_view session) const {
  return to_hex(secrets_.mac("e2b envd " + std::string(session)));
}

std::string E2bTokens::traffic(std::string_view session) const {
  return to_hex(secrets_.mac("e2b traffic " + std::string(session)));
}

bool E2bTokens::is_envd(std::string_view session, std::string_view token) const {
  return constant_time_equal(envd(session), token);
}

bool E2bTokens::is_traffic(std::string_view session, std::string_view token) const {
  return constant_time_equal(traffic(session), token);
}

}  // namespace asr
