#include "cli/dataset.hpp"

#include <istream>
#include <optional>
#include <set>

#include "cli/remote.hpp"

namespace asr {

namespace {

constexpr const char* kShapes =
    "a line is an item (id, code, …), a problem of HumanEval (task_id, prompt, test, entry_point, "
    "canonical_solution) or one of MBPP (task_id, code, test_list)";

// A line that is wrong, and what to do about it.
struct Place {
  const std::string& file;
  std::size_t line;

  tl::unexpected<Error> wrong(const std::string& what, std::string hint) const {
    return fail(Errc::invalid, file + ":" + std::to_string(line) + ": " + what, std::move(hint));
  }
};

// Calls `take` with each object. Blank lines are left out.
template <class Take>
Result<void> for_each_line(std::istream& from, const std::string& name, Take take) {
  std::size_t number = 0;
  for (std::string line; std::getline(from, line);) {
    Place place{name, ++number};
    if (number == 1 && line.starts_with("\x1f\x8b"))
      return fail(Errc::invalid, name + " is compressed", "gunzip it first");
    if (number == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    if (number == 1 && line[begin] == '[')
      return place.wrong("this is a list, not an object a line",
                         "jq -c '.[]' " + name + " makes such lines of it");
    auto parsed = parse_json(line);
    if (!parsed) return place.wrong(parsed.error().what, "each line is one JSON object, in UTF-8");
    if (!parsed->is_object()) return place.wrong("not a JSON object", kShapes);
    TRY(take(place, std::move(parsed->get_object())));
  }
  if (from.bad()) return fail(Errc::os, "cannot read " + name);
  return {};
}

Result<std::string> text_of(const Place& place, const json::object& object, const char* field) {
  const json::value* value = object.if_contains(field);
  if (!value) return place.wrong(std::string("\"") + field + "\" is missing", kShapes);
  if (!value->is_string())
    return place.wrong(std::string("\"") + field + "\" is not a text", kShapes);
  return std::string(value->get_string());
}

std::string text_or_nothing(const json::object& object, const char* field) {
  const json::value* value = object.if_contains(field);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

// MBPP numbers its tasks, others name them.
Result<std::string> name_of(const Place& place, const json::object& object, const char* field) {
  const json::value* value = object.if_contains(field);
  if (value && (value->is_int64() || value->is_uint64())) return to_text(*value);
  std::string text = TRY(text_of(place, object, field));
  if (text.empty()) return place.wrong(std::string("\"") + field + "\" is empty", "name each task");
  return text;
}

Result<std::string> lines_of(const Place& place, const json::object& object, const char* field) {
  const json::value* value = object.if_contains(field);
  std::string lines;
  if (!value || value->is_null()) return lines;
  if (!value->is_array())
    return place.wrong(std::string("\"") + field + "\" is not a list", kShapes);
  for (const json::value& line : value->get_array()) {
    if (!line.is_string())
      return place.wrong(std::string("\"") + field + "\" holds something that is no text", kShapes);
    lines += std::string(line.get_string()) + "\n";
  }
  return lines;
}

// A program in parts: what comes before the solution, the solution, what comes after it.
struct Problem {
  std::string task;
  std::string before;
  std::optional<std::string> own_solution;
  std::string after;
  json::object rest;  // of an item of ours
};

Result<Problem> human_eval_problem(const Place& place, const json::object& line) {
  Problem problem;
  problem.task = TRY(name_of(place, line, "task_id"));
  problem.before = TRY(text_of(place, line, "prompt"));
  if (line.contains("canonical_solution"))
    problem.own_solution = TRY(text_of(place, line, "canonical_solution"));
  std::string entry = TRY(text_of(place, line, "entry_point"));
  problem.after = "\n" + TRY(text_of(place, line, "test")) + "\ncheck(" + entry + ")\n";
  return problem;
}

Result<Problem> mbpp_problem(const Place& place, const json::object& line) {
  Problem problem;
  problem.task = TRY(name_of(place, line, "task_id"));
  problem.before = TRY(lines_of(place, line, "test_imports"));
  if (std::string setup = text_or_nothing(line, "test_setup_code"); !setup.empty())
    problem.before += setup + "\n";
  if (line.contains("code")) problem.own_solution = TRY(text_of(place, line, "code"));
  std::string tests = TRY(lines_of(place, line, "test_list"));
  if (tests.empty()) return place.wrong("\"test_list\" is empty", "nothing would be tested");
  problem.after = "\n" + tests;
  return problem;
}

Result<Problem> own_problem(const Place& place, json::object line) {
  Problem problem;
  problem.task = TRY(name_of(place, line, "id"));
  problem.own_solution = TRY(text_of(place, line, "code"));
  problem.rest = std::move(line);
  return problem;
}

Result<Problem> problem_of(const Place& place, json::object line) {
  if (line.contains("entry_point") && line.contains("test")) return human_eval_problem(place, line);
  if (line.contains("test_list")) return mbpp_problem(place, line);
  if (line.contains("id") && line.contains("code")) return own_problem(place, std::move(line));
  return place.wrong("nobody knows such a line", kShapes);
}

json::object body_of(const Problem& problem, const std::string& id, const std::string& solution,
                     const ItemDefaults& defaults) {
  json::object body = problem.rest;
  body["id"] = id;
  body["code"] = problem.before + solution + problem.after;
  if (!body.contains("language")) body["language"] = defaults.language;
  json::object limits;
  if (defaults.wall_s > 0) limits["wall_s"] = defaults.wall_s;
  if (defaults.memory_mb > 0) limits["memory_mb"] = defaults.memory_mb;
  // What is no object is sent as it is: the server says what is wrong with it.
  if (json::value* given = body.if_contains("limits"); given && given->is_object()) {
    for (const auto& [name, value] : limits)
      if (!given->get_object().contains(name)) given->get_object()[name] = value;
  } else if (!given && !limits.empty()) {
    body["limits"] = std::move(limits);
  }
  return body;
}

class DatasetReader {
 public:
  DatasetReader(const Solutions* solutions, const ItemDefaults& defaults)
      : solutions_(solutions), defaults_(defaults) {}

  Result<void> take(const Place& place, json::object line) {
    Problem problem = TRY(problem_of(place, std::move(line)));
    auto [known, is_new] = tasks_.emplace(problem.task, place.line);
    if (!is_new)
      return place.wrong(
          "\"" + printable(problem.task) + "\" is also in line " + std::to_string(known->second),
          "verdicts are told by name, so each task needs its own");
    ++dataset_.tasks;
    if (!solutions_) {
      if (!problem.own_solution)
        return place.wrong("there is no solution",
                           "give solutions with --solutions, or add canonical_solution or code");
      return add(place, problem, problem.task, *problem.own_solution);
    }
    auto found = solutions_->by_task.find(problem.task);
    if (found == solutions_->by_task.end()) {
      ++dataset_.unsolved;
      return {};
    }
    const auto& all = found->second;
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::string id = all.size() == 1 ? problem.task : problem.task + "#" + std::to_string(i + 1);
      TRY(add(place, problem, id, all[i].text));
    }
    return {};
  }

  Result<Dataset> finish(const std::string& name) {
    if (dataset_.tasks == 0) return fail(Errc::invalid, name + " holds no task", kShapes);
    if (solutions_)
      for (const auto& [task, all] : solutions_->by_task)
        if (!tasks_.contains(task))
          return Place{solutions_->file, all.front().line}.wrong(
              "there is no task \"" + printable(task) + "\" in " + name,
              "its task_id must be that of a task");
    return std::move(dataset_);
  }

 private:
  Result<void> add(const Place& place, const Problem& problem, const std::string& id,
                   const std::string& solution) {
    if (!ids_.insert(id).second)
      return place.wrong("another program is called \"" + printable(id) + "\" already",
                         "rename this task");
    dataset_.items.push_back(
        {id, problem.task, place.line, body_of(problem, id, solution, defaults_)});
    return {};
  }

  const Solutions* solutions_;
  const ItemDefaults& defaults_;
  Dataset dataset_;
  std::map<std::string, std::size_t> tasks_;  // and their lines
  std::set<std::string> ids_;
};

}  // namespace

Result<Solutions> read_solutions(std::istream& from, const std::string& name) {
  Solutions solutions;
  solutions.file = name;
  constexpr const char* kHint = "each line is {\"task_id\": …, \"completion\": …}";
  TRY(for_each_line(from, name, [&](const Place& place, const json::object& line) -> Result<void> {
    const json::value* text = line.if_contains("completion");
    if (!line.contains("task_id") || !text || !text->is_string())
      return place.wrong("this is no solution", kHint);
    std::string task = TRY(name_of(place, line, "task_id"));
    solutions.by_task[task].push_back({std::string(text->get_string()), place.line});
    return {};
  }));
  if (solutions.by_task.empty()) return fail(Errc::invalid, name + " holds no solution", kHint);
  return solutions;
}

Result<Dataset> read_dataset(std::istream& from, const std::string& name,
                             const Solutions* solutions, const ItemDefaults& defaults) {
  DatasetReader reader(solutions, defaults);
  TRY(for_each_line(from, name, [&](const Place& place, json::object line) {
    return reader.take(place, std::move(line));
  }));
  return reader.finish(name);
}

}  // namespace asr
