// Names to complete a line with, as they come from inside a sandbox.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace asr {

// Those that go on where `text` ends and hold nothing that could speak to a terminal.
std::vector<std::string> usable_matches(std::vector<std::string> matches, std::string_view text);

// What all of them begin with; whole letters of UTF-8.
std::string common_start(const std::vector<std::string>& matches);

// The names alone, without what stands before them in `text`, in columns of a screen so wide.
std::string name_list(const std::vector<std::string>& matches, std::string_view text,
                      std::size_t width);

}  // namespace asr
