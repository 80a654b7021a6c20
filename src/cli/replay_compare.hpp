// A step as it was, and as it is when it is done again. Compared are how it ended, what it wrote
// and what it was worth; times, use and numbers of things are not, nor where objects lie in memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "net/json.hpp"

namespace asr {

struct Difference {
  std::string what;  // "stdout", "exit_code", "result 1 text/plain"
  std::string before;
  std::string after;
};

// `before`: the step of the history. `after`: what the server answers, with all of the output.
std::vector<Difference> compare_command(const json::object& before, const json::object& after);
std::vector<Difference> compare_cell(const json::object& before, const json::object& after);

// Addresses of memory become 0x…, whatever they are.
std::string without_addresses(std::string_view text);

// As `diff -u` tells it, bounded, and without anything that could speak to a terminal.
std::string diff_of(const Difference& difference);

}  // namespace asr
