// A caller's own word for something it keeps: never looked at, given back as it was.
#pragma once

#include <mutex>
#include <string>

#include "base/result.hpp"

namespace asr {

inline Result<void> check_label(const std::string& label) {
  constexpr std::size_t kMost = 16 * 1024;
  if (label.size() > kMost)
    return fail(Errc::invalid, "the label is longer than " + std::to_string(kMost) + " bytes",
                "store it elsewhere and keep its name");
  return {};
}

// Set on a strand, asked for from anywhere.
class Label {
 public:
  void set(std::string text) {
    std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }
  std::string get() const {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

}  // namespace asr
