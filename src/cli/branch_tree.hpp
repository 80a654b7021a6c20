// How sessions came from each other and what was saved of them, drawn for people.
#pragma once

#include <string>

#include "net/json.hpp"

namespace asr {

// What lines and marks are made of.
enum class Letters { boxes, ascii };

// Boxes, if the user's locale has letters for them.
Letters letters_of_locale();

// Behind what a session is at now.
std::string now_arrow(Letters letters);

// `answer` is what GET …/tree says. Time goes down: what lies straight below a checkpoint was saved
// after it, what is drawn to its right is another way from there: a checkpoint that the session
// went back from, or a branch. Ends with a line feed.
std::string draw_tree(const json::value& answer, Letters letters);

}  // namespace asr
