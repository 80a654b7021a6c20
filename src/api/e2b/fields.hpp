// Reading JSON that E2B's clients send: fields nobody knows are passed over, null is absent, and
// what is wrong is named.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr {

class E2bFields {
 public:
  explicit E2bFields(const json::object& body, std::string place = {})
      : body_(body), place_(std::move(place)) {}

  bool has(std::string_view name) const { return find(name) != nullptr; }
  Result<std::string> text(std::string_view name) const;  // must be there
  Result<std::optional<std::string>> text_if(std::string_view name) const;
  Result<std::optional<bool>> flag(std::string_view name) const;
  Result<std::int64_t> number(std::string_view name, std::int64_t standard, std::int64_t least,
                              std::int64_t most) const;
  Result<std::optional<std::int64_t>> number_if(std::string_view name, std::int64_t least,
                                                std::int64_t most) const;
  // At most so many; values of another kind than text are refused.
  Result<std::map<std::string, std::string>> texts(std::string_view name, std::size_t most) const;
  Result<std::vector<std::string>> list(std::string_view name, std::size_t most) const;
  Result<const json::object*> object(std::string_view name) const;  // none: absent
  Result<const json::array*> array(std::string_view name, std::size_t most) const;

  std::string place_of(std::string_view name) const;

 private:
  const json::value* find(std::string_view name) const;

  const json::object& body_;
  std::string place_;
};

}  // namespace asr
