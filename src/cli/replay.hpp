// The steps of a history, done again in a session, one after the other in the order they began.
// Commands that others overlapped run beside those; cells wait for each other.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "cli/remote.hpp"
#include "cli/replay_compare.hpp"
#include "cli/replay_files.hpp"
#include "cli/replay_history.hpp"

namespace asr {

// What a history does not hold, as far as somebody has brought it.
struct ReplayMaterial {
  std::map<std::string, std::string> env;                // values of variables
  std::map<std::uint64_t, std::filesystem::path> input;  // of commands, by number
  ReplayFiles files;
};

struct ReplayOutcome {
  const ReplayStep* step = nullptr;
  // begun: it ran on when the history ended, and does so again.
  enum class Kind { same, differs, lacks, begun } kind = Kind::same;
  std::vector<std::string> lacks;  // what could not be as it was
  std::vector<Difference> differences;
};
std::string_view to_string(ReplayOutcome::Kind kind) noexcept;

class Replay {
 public:
  // Sees each step when it is over; false: it is enough.
  using See = std::function<bool(const ReplayOutcome&)>;

  Replay(Remote remote, std::string session, ReplayMaterial material)
      : remote_(std::move(remote)), session_(std::move(session)), material_(std::move(material)) {}

  // A session like the one the history is of; gives its id.
  static Result<std::string> make_session(Remote& remote, const json::object& about,
                                          const std::string& environment,
                                          const ReplayMaterial& material);
  // Puts in what it came with; tells what is missing.
  Result<std::vector<std::string>> furnish(const json::object& about);
  // An error: the server cannot be reached. That it refuses something is a difference.
  Result<void> run(const ReplayHistory& history, std::uint64_t until, const See& see);

 private:
  struct Answer {
    json::value body;
    std::vector<Difference> refused;  // one, if it was
  };
  struct Pending {
    const ReplayStep* step;
    std::string command;
    std::vector<std::string> lacks;
  };
  using Lacks = std::vector<std::string>;

  Result<Answer> ask(const std::string& method, const std::string& rest,
                     const json::value& body = nullptr);
  Result<Answer> upload(const std::filesystem::path& file, const std::string& rest);
  Result<ReplayOutcome> redo(const ReplayStep& step);
  Result<ReplayOutcome> redo_command(const ReplayStep& step);
  Result<void> begin_command(const ReplayStep& step, ReplayOutcome& outcome);
  Result<ReplayOutcome> settle(const Pending& pending);
  Result<ReplayOutcome> redo_cell(const ReplayStep& step);
  Result<ReplayOutcome> redo_file(const ReplayStep& step);
  Result<ReplayOutcome> redo_context(const ReplayStep& step);
  Result<ReplayOutcome> redo_other(const ReplayStep& step);
  Result<json::object> command_body(const ReplayStep& step, Lacks& lacks);
  Result<Answer> put_file(const json::object& about, const std::string& user, Lacks& lacks);
  void put_env(const ReplayStep& step, json::object& body, Lacks& lacks) const;

  Remote remote_;
  std::string session_;
  ReplayMaterial material_;
  double most_seconds_ = 0;  // of a command, by the session's own limits; 0: any
  std::map<std::string, std::string> commands_;  // as they were called, and are
  std::map<std::string, std::string> contexts_;
  std::list<Pending> pending_;
};

}  // namespace asr
