// How a template is built: a session, one step after the other, and what is kept of it.
#include <fcntl.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/json/parse.hpp>

#include "base/clock.hpp"
#include "os/file.hpp"
#include "session/template_job.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostJobs = 4;
constexpr std::size_t kMostJobsOfOne = 2;
constexpr std::size_t kMostLines = 5000;
constexpr std::size_t kMostLogBytes = 1 << 20;
constexpr std::chrono::minutes kMostStep{30};
constexpr std::chrono::minutes kMostLife{90};
constexpr std::chrono::seconds kMostReady{300};     // while it is built
constexpr std::chrono::seconds kMostReadyHere{60};  // when a session is made
constexpr std::chrono::milliseconds kLookReady{300};

std::string shell_word(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

CommandRequest shell(const std::string& text, const TemplateStart& start) {
  CommandRequest request;
  request.command.argv = {"/bin/bash", "-l", "-c", text};
  request.command.env = start.env;
  request.command.cwd = start.cwd;
  request.command.user = start.user;
  request.command.overflow = OutputOverflow::truncate;
  return request;
}

// Where a place named in a step is.
std::string placed(const TemplateStart& start, const std::string& path) {
  if (path.starts_with('/')) return path;
  return start.cwd + (start.cwd.ends_with('/') ? "" : "/") + path;
}

// What a template asks for. Its disk lies in memory, and may have half of it.
void give(Limits& limits, const TemplateStart& start) {
  if (start.milli_cpus != 0) limits.milli_cpus = start.milli_cpus;
  if (start.memory_bytes == 0) return;
  limits.memory_bytes = start.memory_bytes;
  limits.disk_bytes = std::min(limits.disk_bytes, start.memory_bytes / 2);
}

}  // namespace

std::vector<TemplateLogLine> template_log_from(const std::string& text) {
  std::vector<TemplateLogLine> lines;
  boost::system::error_code ec;
  json::value all = json::parse(text.empty() ? "[]" : text, ec);
  if (ec || !all.is_array()) return lines;
  for (const json::value& line : all.get_array())
    lines.push_back(
        {line.at("at").to_number<std::int64_t>(), std::string(line.at("level").as_string()),
         std::string(line.at("message").as_string()), std::string(line.at("step").as_string())});
  return lines;
}

std::string text_of(const std::vector<TemplateLogLine>& log) {
  json::array all;
  for (const TemplateLogLine& line : log)
    all.push_back({{"at", line.at_ms},
                   {"level", line.level},
                   {"message", line.message},
                   {"step", line.step}});
  return to_text(all);
}

void Templates::Job::say(std::string level, std::string message) {
  message = repair_utf8(message);
  if (log.size() >= kMostLines || log_bytes + message.size() > kMostLogBytes) return;
  log_bytes += message.size();
  log.push_back({now_ms(), std::move(level), std::move(message), step});
}

asio::awaitable<Result<void>> Templates::start(Caller caller, std::string id, std::string build,
                                               TemplateRecipe recipe) {
  auto asking = status(caller, std::move(id), build);
  Status now = CO_TRY(co_await std::move(asking));
  if (now.build.state != "waiting" || jobs_.contains(build))
    co_return fail(Errc::conflict, "the build has been started already");
  std::size_t own = 0;
  for (const auto& [name, job] : jobs_)
    if (job->caller.id == caller.id) ++own;
  if (jobs_.size() >= kMostJobs || own >= kMostJobsOfOne)
    co_return fail(Errc::exhausted, "as many templates are built as may be at once",
                   "try again when one of them is done");
  auto job = std::make_shared<Job>();
  job->caller = std::move(caller);
  job->build = std::move(now.build);
  job->build.state = "building";
  TemplateStart wished = template_start_from(job->build.spec);
  recipe.start.tags = wished.tags;
  if (wished.milli_cpus != 0) recipe.start.milli_cpus = wished.milli_cpus;
  if (wished.memory_bytes != 0) recipe.start.memory_bytes = wished.memory_bytes;
  job->recipe = std::move(recipe);
  jobs_.emplace(job->build.id, job);
  auto change = [record = job->build](Database& database) {
    return update_build(database, record);
  };
  if (auto stored = co_await store_.write(std::move(change)); !stored) {
    jobs_.erase(job->build.id);
    co_return stored;
  }
  asio::co_spawn(executor_, run(job), asio::detached);
  co_return Result<void>();
}

asio::awaitable<void> Templates::run(std::shared_ptr<Job> job) {
  auto stopped = stopped_;
  auto building = build(job);
  auto built = co_await std::move(building);
  if (*stopped) co_return;
  auto finishing = finish(job, std::move(built));
  auto finished = co_await std::move(finishing);
  if (*stopped) co_return;
  if (!finished)
    log_.error("a build of a template could not be written down",
               {{"build", job->build.id}, {"why", finished.error().what}});
  jobs_.erase(job->build.id);
}

asio::awaitable<Result<void>> Templates::build(std::shared_ptr<Job> job) {
  SessionRequest request = job->recipe.base;
  constexpr std::string_view kImage = "image:";
  if (request.environment.starts_with(kImage))
    co_return fail(
        Errc::unsupported,
        "this server does not have the image " + request.environment.substr(kImage.size()),
        "start from the image e2bdev/base, or from a template");
  TemplateStart& start = job->recipe.start;
  give(request.spec.limits, start);
  request.ttl = std::chrono::duration_cast<std::chrono::seconds>(kMostLife);
  request.history = false;
  request.labels["template.build"] = job->build.id;
  auto creating = sessions_.create(job->caller, std::move(request));
  job->session = CO_TRY(co_await std::move(creating));
  for (std::size_t i = 0; i < job->recipe.steps.size(); ++i) {
    job->step = std::to_string(i + 1);
    auto doing = do_step(job, job->recipe.steps[i]);
    CO_TRY(co_await std::move(doing));
  }
  job->step = "start";
  if (!start.start_command.empty() || !start.ready_command.empty()) {
    job->say("info", "start: " + start.start_command);
    auto starting = become_ready(job->caller, job->session, start, kMostReady);
    CO_TRY(co_await std::move(starting));
  }
  job->step = "keep";
  start.snapshot = std::string(kBuildPrefix) + job->build.id;
  auto saving = sessions_.snapshot(job->caller, job->session, start.snapshot);
  if (auto saved = co_await std::move(saving); !saved) {
    start.snapshot.clear();
    co_return fail(saved.error());
  }
  job->say("info", "kept as " + start.snapshot);
  co_return Result<void>();
}

asio::awaitable<Result<void>> Templates::finish(std::shared_ptr<Job> job, Result<void> built) {
  TemplateBuild& build = job->build;
  if (!built) {
    std::string why = built.error().what;
    if (!built.error().hint.empty()) why += " (" + built.error().hint + ")";
    build.reason = repair_utf8(why);
    job->say("error", build.reason);
  }
  if (job->session) {
    auto removing = sessions_.remove(job->caller, job->session);
    (void)co_await std::move(removing);
  }
  build.ended_ms = now_ms();
  build.spec = to_text(json_of(job->recipe.start));
  build.log = text_of(job->log);
  TemplateBuild stored = build;
  stored.state = built ? "ready" : "error";
  auto change = [stored, tags = job->recipe.start.tags](Database& database) -> Result<void> {
    TRY(update_build(database, stored));
    if (stored.state == "ready")
      for (const std::string& tag : tags)
        TRY(set_template_tag(database, {stored.template_id, tag, stored.id, now_ms()}));
    return {};
  };
  CO_TRY(co_await store_.write(std::move(change)));
  build.state = stored.state;  // Told when it can be used.
  co_return Result<void>();
}

asio::awaitable<Result<void>> Templates::command(std::shared_ptr<Job> job, std::string text,
                                                 std::string user, std::string cwd) {
  CommandRequest request = shell(text, job->recipe.start);
  request.command.user = std::move(user);
  request.command.cwd = std::move(cwd);
  request.command.wall_time = kMostStep;
  auto starting = sessions_.start_command(job->caller, job->session, std::move(request));
  auto running = CO_TRY(co_await std::move(starting));
  std::uint64_t seen = 0;
  std::string line;
  auto hear = [&] {
    for (const auto& piece : running->output().read(seen, SIZE_MAX)) {
      if (piece.offset + piece.data.size() <= seen) continue;
      seen = piece.offset + piece.data.size();
      line += piece.data;
    }
    for (std::size_t end; (end = line.find('\n')) != std::string::npos; line.erase(0, end + 1))
      job->say("info", line.substr(0, end));
  };
  while (!running->status()) {
    co_await running->wait_for_end(std::chrono::steady_clock::now() + kLookReady);
    hear();
  }
  hear();
  if (!line.empty()) job->say("info", line);
  const ExitStatus& status = *running->status();
  if (status.reason != EndReason::exited || status.exit_code != 0)
    co_return fail(Errc::invalid, "step " + job->step +
                                      " failed: " + std::string(to_string(status.reason)) +
                                      ", exit code " + std::to_string(status.exit_code));
  co_return Result<void>();
}

asio::awaitable<Result<void>> Templates::do_step(std::shared_ptr<Job> job, TemplateStep step) {
  TemplateStart& start = job->recipe.start;
  std::string words;
  for (const std::string& arg : step.args) words += " " + arg;
  auto missing = [&] { return fail(Errc::invalid, "step " + job->step + " has too few words"); };
  if (step.args.empty()) co_return missing();
  switch (step.kind) {
    case TemplateStep::Kind::env:
      job->say("info", "ENV " + step.args[0]);
      for (std::size_t i = 0; i + 1 < step.args.size(); i += 2)
        start.env[step.args[i]] = step.args[i + 1];
      co_return Result<void>();
    case TemplateStep::Kind::user:
      job->say("info", "USER" + words);
      start.user = step.args[0];
      co_return Result<void>();
    case TemplateStep::Kind::workdir: {
      job->say("info", "WORKDIR" + words);
      start.cwd = placed(start, step.args[0]);
      std::string place = shell_word(start.cwd);
      auto making = command(job,
                            "test -d " + place + " || { mkdir -p " + place + " && chown " +
                                shell_word(start.user) + " " + place + "; }",
                            "root", "/");
      co_return co_await std::move(making);
    }
    case TemplateStep::Kind::run: {
      job->say("info", "RUN " + step.args[0]);
      std::string user = step.args.size() > 1 && !step.args[1].empty() ? step.args[1] : start.user;
      auto running = command(job, step.args[0], std::move(user), start.cwd);
      co_return co_await std::move(running);
    }
    case TemplateStep::Kind::copy: {
      job->say("info", "COPY" + words);
      if (step.args.size() < 2) co_return missing();
      auto copying = copy(job, std::move(step));
      co_return co_await std::move(copying);
    }
  }
  co_return missing();
}

// Unpacked inside, where nothing in the archive can lead out, then put in its place.
asio::awaitable<Result<void>> Templates::copy(std::shared_ptr<Job> job, TemplateStep step) {
  auto path = CO_TRY(file(job->caller.id, step.files));
  UniqueFd tar(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!tar)
    co_return fail(Errc::not_found, "the files of step " + job->step + " were not uploaded");
  auto sandbox = CO_TRY(job->session->sandbox());
  std::string staged = "/tmp/.template-copy-" + std::to_string(++job->copies);
  auto making = sandbox->make_directory(staged, 0755, "root");
  CO_TRY(co_await std::move(making));
  auto unpacking = sandbox->archive_in(staged, std::move(tar), "root");
  CO_TRY(co_await std::move(unpacking));
  const TemplateStart& start = job->recipe.start;
  std::string to = placed(start, step.args[1]);
  std::string user = step.args.size() > 2 && !step.args[2].empty() ? step.args[2] : start.user;
  std::string mode = step.args.size() > 3 ? step.args[3] : "";
  if (mode.find_first_not_of("01234567") != std::string::npos || mode.size() > 4)
    co_return fail(Errc::invalid, "step " + job->step + ": the mode is no octal number");
  std::string owns = "chown -R " + shell_word(user) + " \"$f\"; ";
  if (!mode.empty()) owns += "chmod -R " + mode + " \"$f\"; ";
  // The source may be a pattern; a folder gives its contents.
  std::string script =
      "set -e; shopt -s dotglob; cd " + staged + "; to=" + shell_word(to) +
      "; IFS=; src=" + shell_word(step.args[0]) +
      "; src=${src#/}; src=${src#./}; [ -n \"$src\" ] || src=.; n=0; "
      "for f in $src; do [ -e \"$f\" ] || continue; n=$((n+1)); " +
      owns +
      "if [ -d \"$f\" ]; then mkdir -p \"$to\"; cp -a \"$f/.\" \"$to/\"; "
      "else case $to in */) mkdir -p \"$to\";; *) mkdir -p \"$(dirname \"$to\")\";; "
      "esac; cp -a \"$f\" \"$to\"; fi; done; cd /; rm -rf " +
      staged + "; [ $n -gt 0 ] || { echo nothing to copy >&2; exit 1; }";
  auto running = command(job, std::move(script), "root", "/");
  co_return co_await std::move(running);
}

asio::awaitable<Result<void>> Templates::become_ready(Caller caller,
                                                      std::shared_ptr<Session> session,
                                                      TemplateStart start,
                                                      std::chrono::seconds most) {
  auto until = std::chrono::steady_clock::now() + most;
  std::shared_ptr<SessionCommand> program;
  if (!start.start_command.empty()) {
    CommandRequest request = shell(start.start_command, start);
    request.background = true;
    request.tag = kStartTag;
    auto starting = sessions_.start_command(caller, session, std::move(request));
    program = CO_TRY(co_await std::move(starting));
  }
  if (start.ready_command.empty()) co_return Result<void>();
  for (;;) {
    CommandRequest request = shell(start.ready_command, start);
    request.command.wall_time = std::chrono::seconds(30);
    request.history = false;
    auto starting = sessions_.start_command(caller, session, std::move(request));
    auto asked = CO_TRY(co_await std::move(starting));
    co_await asked->wait_for_end();
    if (asked->status()->reason == EndReason::exited && asked->status()->exit_code == 0)
      co_return Result<void>();
    if (std::chrono::steady_clock::now() >= until)
      co_return fail(Errc::timeout, "the command that is to say that it is ready does not");
    asio::steady_timer pause(executor_, kLookReady);
    boost::system::error_code ignored;
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

asio::awaitable<Result<std::shared_ptr<Session>>> Templates::create(Caller caller,
                                                                    SessionRequest request,
                                                                    TemplateStart start) {
  request.environment = std::string(Snapshots::kPrefix) + start.snapshot;
  request.snapshot = start.snapshot;
  request.env.merge(std::map<std::string, std::string>(start.env));
  request.cwd = start.cwd;
  request.user = start.user;
  give(request.spec.limits, start);
  auto creating = sessions_.create(caller, std::move(request));
  auto session = CO_TRY(co_await std::move(creating));
  if (start.start_command.empty() && start.ready_command.empty()) co_return session;
  auto starting = become_ready(caller, session, std::move(start), kMostReadyHere);
  if (auto ready = co_await std::move(starting); !ready) {
    auto removing = sessions_.remove(caller, session);
    (void)co_await std::move(removing);
    co_return fail(ready.error());
  }
  co_return session;
}

}  // namespace asr
