// gzip, undone as it comes.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.hpp"

namespace asr {

class Inflater {
 public:
  Inflater();
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Only when the last was used up.
  void feed(std::string_view bytes);
  // Some of what it was; empty when more must be fed, or all has been said. Valid until the next
  // call.
  Result<std::string_view> next();
  bool is_complete() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace asr
