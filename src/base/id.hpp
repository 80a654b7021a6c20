// Names of things that must not be mixed up, and where they get their randomness.
#pragma once

#include <compare>
#include <string>

namespace asr {

template <class Tag>
struct Id {
  Id() = default;
  explicit Id(std::string t) : text(std::move(t)) {}
  friend auto operator<=>(const Id&, const Id&) = default;
  std::string text;
};

using SandboxId = Id<struct SandboxTag>;
using InstanceId = Id<struct InstanceTag>;

// `length` characters of [a-z0-9], each worth five random bits, from the kernel's generator.
std::string random_name(std::size_t length);

}  // namespace asr
