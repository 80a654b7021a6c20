// Whether code that is typed line by line is all there, or more must come before it can be run. A
// rule of thumb: it knows brackets, quotes and blocks, and no grammar. What is wrong counts as
// complete: the interpreter says better than we could what is wrong with it.
#pragma once

#include <string_view>

namespace asr {

enum class Tongue { python, javascript, bash };

// `code`: the lines so far, with '\n' between them.
bool is_unfinished(Tongue tongue, std::string_view code);

// Each in a file of its own.
bool is_unfinished_python(std::string_view code);
bool is_unfinished_javascript(std::string_view code);
bool is_unfinished_bash(std::string_view code);

}  // namespace asr
