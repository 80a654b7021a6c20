// What somebody wants judged in one request. Values, and how they are read from JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/json.hpp"
#include "session/program.hpp"
#include "session/verdict.hpp"

namespace asr {

struct BatchItem {
  std::string id;  // chosen by the caller, once in a batch
  Program program;
  std::string input;
  Limits limits;
  std::optional<std::string> expected;  // on stdout
  Compare compare = Compare::lines;
  std::optional<Program> checker;  // decides instead

  std::size_t bytes() const noexcept;
};

struct BatchRequest {
  std::vector<BatchItem> items;
  bool background = false;

  std::size_t bytes() const noexcept;
};

// `body` fits the schema BatchCreate. Errors name the place as a JSON pointer.
Result<BatchRequest> batch_request_from(const json::object& body, std::size_t most_items);

}  // namespace asr
