// Templates: environments that were built step by step in a session and kept, with what programs
// in them begin with. They have names, tags and builds; each build that succeeded is a snapshot.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.hpp"
#include "session/sessions.hpp"
#include "store/template_records.hpp"

namespace asr {

// What a session of a template begins with, beside its files.
struct TemplateStart {
  std::string snapshot;  // empty: none yet
  std::map<std::string, std::string> env;
  std::string cwd;
  std::string user = "user";
  std::string start_command;     // run in every session, in the background
  std::string ready_command;     // succeeds once that is ready
  std::uint32_t milli_cpus = 0;  // 0: as the server says
  std::uint64_t memory_bytes = 0;
  std::vector<std::string> tags;  // that a build gets when it is ready
};
json::object json_of(const TemplateStart& start);
TemplateStart template_start_from(const std::string& spec);

struct TemplateStep {
  enum class Kind { env, workdir, user, run, copy } kind = Kind::run;
  std::vector<std::string> args;
  std::string files;  // of a copy: by what they were uploaded
};

struct TemplateRecipe {
  SessionRequest base;  // what it is built in: environment or snapshot, limits, network
  TemplateStart start;  // what the base brings along, and the commands of this one
  std::vector<TemplateStep> steps;
};

struct TemplateLogLine {
  std::int64_t at_ms = 0;
  std::string level;
  std::string message;
  std::string step;
};

// On one thread. Outlived by the sessions.
class Templates {
 public:
  // Whether a snapshot has a name as only builds have.
  static bool is_snapshot_of_build(std::string_view name) noexcept;

  static constexpr std::uint64_t kMostFileBytes = 512ULL << 20;  // of one upload
  // By this a start command is found among the others of a session.
  static constexpr std::string_view kStartTag = "startCmd";

  Templates(asio::any_io_executor executor, Store& store, Sessions& sessions, const Log& log,
            std::filesystem::path folder);
  ~Templates();

  // Once, at the start: what an earlier life was building has failed.
  asio::awaitable<Result<void>> begin();

  // A build to come, of a template that is made if there is none of that name.
  struct Requested {
    TemplateRecord record;
    TemplateBuild build;
  };
  asio::awaitable<Result<Requested>> request(Caller caller, std::string name, TemplateStart start);
  // Returns when it has begun. Errc::conflict: it has been started before.
  asio::awaitable<Result<void>> start(Caller caller, std::string id, std::string build,
                                      TemplateRecipe recipe);

  struct Status {
    TemplateBuild build;
    std::vector<TemplateLogLine> log;
  };
  asio::awaitable<Result<Status>> status(Caller caller, std::string id, std::string build);
  asio::awaitable<Result<TemplateRecord>> find(Caller caller, std::string id_or_name);
  asio::awaitable<Result<std::vector<TemplateRecord>>> list(Caller caller);
  asio::awaitable<Result<std::vector<TemplateBuild>>> builds(Caller caller, std::string id);
  asio::awaitable<Result<void>> set_public(Caller caller, std::string id, bool is_public);
  asio::awaitable<Result<void>> remove(Caller caller, std::string id_or_name);

  asio::awaitable<Result<std::vector<TemplateTag>>> tags(Caller caller, std::string id_or_name);
  // The build that `from` points to gets these, too; gives its id.
  asio::awaitable<Result<std::string>> add_tags(Caller caller, std::string name, std::string from,
                                                std::vector<std::string> tags);
  asio::awaitable<Result<void>> remove_tags(Caller caller, std::string name,
                                            std::vector<std::string> tags);

  // What a session of this template and tag begins with.
  struct Found {
    TemplateRecord record;
    TemplateStart start;
  };
  asio::awaitable<Result<Found>> find_start(Caller caller, std::string name, std::string tag);

  // A session made from it, its command started and, within reason, ready.
  asio::awaitable<Result<std::shared_ptr<Session>>> create(Caller caller, SessionRequest request,
                                                           TemplateStart start);

  // Files that steps copy, uploaded beforehand: a tar archive each.
  Result<std::filesystem::path> file(const std::string& owner, const std::string& hash) const;
  bool has_file(const std::string& owner, const std::string& hash) const;
  // Whether there is room for more.
  Result<void> check_room(const std::string& owner) const;

 private:
  struct Job;
  asio::awaitable<void> run(std::shared_ptr<Job> job);
  asio::awaitable<Result<void>> build(std::shared_ptr<Job> job);
  asio::awaitable<Result<void>> do_step(std::shared_ptr<Job> job, TemplateStep step);
  asio::awaitable<Result<void>> copy(std::shared_ptr<Job> job, TemplateStep step);
  asio::awaitable<Result<void>> command(std::shared_ptr<Job> job, std::string text,
                                        std::string user, std::string cwd);
  asio::awaitable<Result<void>> become_ready(Caller caller, std::shared_ptr<Session> session,
                                             TemplateStart start, std::chrono::seconds most);
  asio::awaitable<Result<void>> finish(std::shared_ptr<Job> job, Result<void> built);

  asio::any_io_executor executor_;
  Store& store_;
  Sessions& sessions_;
  const Log& log_;
  std::filesystem::path folder_;
  std::map<std::string, std::shared_ptr<Job>> jobs_;  // by build
  std::shared_ptr<bool> stopped_ = std::make_shared<bool>(false);
};

}  // namespace asr
