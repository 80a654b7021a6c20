#include "golden.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace asr::escape {

namespace {

std::string path_of(const std::string& name) { return std::string(ASR_ESCAPE_GOLDEN) + "/" + name; }

bool updating() { return std::getenv("ASR_UPDATE_GOLDEN") != nullptr; }

void write_golden(const std::string& name, const std::vector<std::string>& lines,
                  const std::string& comment) {
  std::ofstream out(path_of(name));
  for (const std::string& line : lines_of(comment)) out << "# " << line << "\n";
  for (const std::string& line : lines) out << line << "\n";
}

std::string how_to(const std::string& name) {
  return "\nIf this was decided, write it down: ASR_UPDATE_GOLDEN=1 ctest -L escape, then look at "
         "the difference of golden/" +
         name;
}

}  // namespace

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> read_golden(const std::string& name) {
  std::ifstream in(path_of(name));
  std::stringstream text;
  text << in.rdbuf();
  std::vector<std::string> lines = lines_of(text.str());
  std::erase_if(lines, [](const std::string& line) { return line.starts_with('#'); });
  return lines;
}

void expect_golden(const std::string& name, const std::vector<std::string>& actual,
                   const std::string& comment) {
  if (updating()) return write_golden(name, actual, comment);
  std::vector<std::string> golden = read_golden(name);
  if (golden == actual) return;
  std::multiset<std::string> missing(golden.begin(), golden.end()), added;
  for (const std::string& line : actual) {
    auto at = missing.find(line);
    if (at != missing.end())
      missing.erase(at);
    else
      added.insert(line);
  }
  std::ostringstream difference;
  for (const std::string& line : missing) difference << "\n- " << line;
  for (const std::string& line : added) difference << "\n+ " << line;
  if (missing.empty() && added.empty()) difference << "\n(the order has changed)";
  ADD_FAILURE() << "golden/" << name << " differs (- decided, + found):" << difference.str()
                << how_to(name);
}

void expect_within_golden(const std::string& name, const std::vector<std::string>& actual,
                          const std::string& comment) {
  std::vector<std::string> golden = read_golden(name);
  std::set<std::string> allowed(golden.begin(), golden.end());
  if (updating()) {
    allowed.insert(actual.begin(), actual.end());
    return write_golden(name, {allowed.begin(), allowed.end()}, comment);
  }
  for (const std::string& line : actual)
    if (!allowed.contains(line))
      ADD_FAILURE() << "not in golden/" << name << ": " << line << how_to(name);
}

}  // namespace asr::escape
