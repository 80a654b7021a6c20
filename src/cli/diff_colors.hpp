// What became of files, as people read it: diffs in colour, a line for everything else. Names and
// contents come from inside a sandbox: none of their bytes commands a terminal.
#pragma once

#include <string>
#include <string_view>

#include "session/file_diff.hpp"

namespace asr {

enum class Color { yes, no };

// `wanted` is auto, always or never; auto: if `fd` is a terminal that shows colours to somebody who
// wants them.
Result<Color> color_for(const std::string& wanted, int fd);

// As the server tells one; what is missing is left empty.
FileDiff file_diff_from(const json::value& told);

// `from` is left out at the beginning of names.
std::string text_of(const FileDiff& diff, std::string_view from, Color color);

// "changed src/main.c"
std::string title_of(const FileChange& change, std::string_view from);

}  // namespace asr
