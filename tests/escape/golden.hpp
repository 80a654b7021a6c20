// Files that say what was decided, compared with what is: a difference is a decision to take, not a
// number to adjust.
#pragma once

#include <string>
#include <vector>

namespace asr::escape {

std::vector<std::string> lines_of(const std::string& text);

// Lines beginning with # are for the reader and left out.
std::vector<std::string> read_golden(const std::string& name);

// Compares with tests/escape/golden/<name>, or writes it where ASR_UPDATE_GOLDEN is set. Fails the
// test with both sides of the difference.
void expect_golden(const std::string& name, const std::vector<std::string>& actual,
                   const std::string& comment);

// Every line must be one of the golden ones; the other way round nothing is asked, because other
// kernels have less. With ASR_UPDATE_GOLDEN the lines are added to those that are there.
void expect_within_golden(const std::string& name, const std::vector<std::string>& actual,
                          const std::string& comment);

}  // namespace asr::escape
