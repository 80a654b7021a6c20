// Programs to judge, one JSON object a line, in three shapes that are told apart line by line:
// items as POST /api/batch takes them, HumanEval's problems, MBPP's problems. Errors name file and
// line.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "net/json.hpp"

namespace asr {

// One program, as the server is asked to judge it.
struct JudgeItem {
  std::string id;    // the task's, or task#2 for its second solution
  std::string task;  // what counts as one problem
  std::size_t line = 0;
  json::object body;
};

// Solutions by task, from lines such as {"task_id": …, "completion": …}.
struct Solutions {
  struct One {
    std::string text;
    std::size_t line = 0;
  };
  std::map<std::string, std::vector<One>> by_task;
  std::string file;
};

// Where a line says nothing else.
struct ItemDefaults {
  std::string language = "python";
  double wall_s = 0;            // 0: as the server says
  std::uint64_t memory_mb = 0;  // likewise
};

struct Dataset {
  std::vector<JudgeItem> items;
  std::size_t tasks = 0;
  std::size_t unsolved = 0;  // tasks without a solution, where solutions were given
};

// `name` is the file's, for errors.
Result<Solutions> read_solutions(std::istream& from, const std::string& name);
// `solutions` null: those the problems bring themselves.
Result<Dataset> read_dataset(std::istream& from, const std::string& name,
                             const Solutions* solutions, const ItemDefaults& defaults);

}  // namespace asr
