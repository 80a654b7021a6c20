#include "cli/folder_view.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <filesystem>

#include "cli/remote.hpp"
#include "session/change_list.hpp"

namespace asr {

namespace {

constexpr const char* kPlace = "/workspace";
constexpr std::chrono::seconds kEndWithin{30};

std::string count_of(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " change" : " changes");
}

// A new folder comes with what is kept in it; nobody need be asked for it.
bool is_only_around_others(const std::vector<FileDiff>& all, std::size_t i) {
  const FileChange& change = all[i].change;
  if (change.type != FileType::directory || change.kind != FileChange::Kind::added) return false;
  for (std::size_t j = i + 1; j < all.size() && all[j].change.path.starts_with(change.path); ++j)
    if (is_within(all[j].change.path, change.path)) return true;
  return false;
}

// Whatever still runs: from here on nobody changes what is shown, or what is taken after that.
asio::awaitable<Result<void>> end_programs(std::shared_ptr<Sandbox> sandbox) {
  auto killing = sandbox->kill_all();
  CO_TRY(co_await std::move(killing));
  // They were only told to. One that writes meanwhile does so until it is gone.
  asio::steady_timer timer(co_await asio::this_coro::executor);
  auto deadline = std::chrono::steady_clock::now() + kEndWithin;
  for (;;) {
    auto listing = sandbox->processes();
    auto left = CO_TRY(co_await std::move(listing));
    if (left.empty()) co_return Result<void>();
    if (std::chrono::steady_clock::now() > deadline)
      co_return fail(Errc::timeout, "a program in the sandbox does not end: nothing is kept");
    timer.expires_after(std::chrono::milliseconds(2));
    co_await timer.async_wait(asio::use_awaitable);
  }
}

}  // namespace

void FolderOptions::declare(CLI::App& command) {
  const char* group = "Folder";
  auto option = [&](const char* names, std::string& value, const char* type, const char* what) {
    return command.add_option(names, value, what)->type_name(type)->group(group)->take_last();
  };
  option("--on", folder, "PATH", "work on this folder, at /workspace, without changing it");
  option("--keep", keep, "all|none|ask", "of its changes; at a terminal it asks, otherwise none");
  option("--color", color, "auto|always|never", "of the changes it shows")->capture_default_str();
}

Result<std::shared_ptr<FolderView>> FolderView::open(const FolderOptions& options, Words words) {
  auto view = std::make_shared<FolderView>();
  std::error_code ec;
  view->given_ = options.folder;
  view->folder_ = std::filesystem::canonical(options.folder, ec).native();
  if (ec) return fail(Errc::not_found, options.folder + ": " + ec.message());
  view->fd_ = UniqueFd(::open(view->folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!view->fd_) return fail_errno(options.folder);
  bool is_terminal = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
  bool can_ask = is_terminal && words == Words::spoken;
  if (options.keep == "all")
    view->keep_ = Keep::all;
  else if (options.keep.empty() || options.keep == "ask")
    view->keep_ = can_ask ? Keep::ask : Keep::none;
  else if (options.keep != "none")
    return fail(Errc::invalid, "unknown --keep " + options.keep, "use all, none or ask");
  if (options.keep == "ask" && !can_ask)
    return fail(Errc::invalid, "there is no terminal to ask at", "use --keep all or --keep none");
  view->words_ = words;
  view->color_ = TRY(color_for(options.color, STDERR_FILENO));
  view->begun_ = std::chrono::system_clock::now();
  return view;
}

asio::awaitable<void> FolderView::say(std::shared_ptr<Run> run, std::string text) const {
  auto writing = run->err.write(std::move(text));
  (void)co_await std::move(writing);
}

// A line without its blanks; "q" when nobody is there any more.
asio::awaitable<std::string> FolderView::ask(std::shared_ptr<Run> run, std::string question) {
  auto asking = say(run, std::move(question));
  co_await std::move(asking);
  std::size_t end = 0;
  while ((end = heard_.find('\n')) == std::string::npos) {
    auto reading = run->in.read();
    auto more = co_await std::move(reading);
    if (!more) {
      auto ending = say(run, "\n");
      co_await std::move(ending);
      co_return "q";
    }
    heard_ += *more;
  }
  std::string line = heard_.substr(0, end);
  heard_.erase(0, end + 1);
  std::erase_if(line, [](char c) { return c == ' ' || c == '\t' || c == '\r'; });
  co_return line;
}

asio::awaitable<void> FolderView::show(std::shared_ptr<Run> run) {
  std::string text;
  for (const FileDiff& diff : changes_) text += text_of(diff, kPlace, color_);
  if (changes_.empty()) text = "agent-sandbox: nothing changed in " + given_ + "\n";
  if (!complete_) text += "agent-sandbox: there are more changes than can be shown\n";
  auto saying = say(run, std::move(text));
  co_await std::move(saying);
}

asio::awaitable<void> FolderView::choose(std::shared_ptr<Run> run) {
  keeps_.assign(changes_.size(), keep_ == Keep::all);
  if (keep_ != Keep::ask || changes_.empty()) co_return;
  std::string question = "Keep " + count_of(changes_.size()) + " in " + given_ +
                         "? [a]ll, [n]one, or [f]ile by file: ";
  for (;;) {
    auto asking = ask(run, question);
    std::string answer = co_await std::move(asking);
    if (answer == "a" || answer == "all") keeps_.assign(changes_.size(), true);
    if (answer == "a" || answer == "all" || answer == "n" || answer == "none" || answer == "q")
      co_return;
    if (answer != "f") continue;
    auto choosing = choose_one_by_one(run);
    co_await std::move(choosing);
    co_return;
  }
}

asio::awaitable<void> FolderView::choose_one_by_one(std::shared_ptr<Run> run) {
  bool all_others = false;
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    if (is_only_around_others(changes_, i)) continue;
    std::string question = text_of(changes_[i], kPlace, color_) +
                           "Keep this: " + title_of(changes_[i].change, kPlace) + " [y,n,a,q,?]? ";
    while (!all_others) {
      auto asking = ask(run, std::exchange(question, "[y,n,a,q,?]? "));
      std::string answer = co_await std::move(asking);
      if (answer == "q") co_return;
      if (answer == "n") break;
      if (answer == "a") all_others = true;
      if (answer == "y" || answer == "a") {
        keeps_[i] = true;
        break;
      }
      auto helping = say(run,
                         "y: keep it; n: leave it; a: keep it and all that follow; q: leave it and "
                         "all that follow\n");
      co_await std::move(helping);
    }
    if (all_others) keeps_[i] = true;
  }
}

// And the new folders that they lie in.
std::vector<FileChange> FolderView::wanted() const {
  std::vector<FileChange> chosen;
  for (std::size_t i = 0; i < changes_.size(); ++i) {
    const std::string& path = changes_[i].change.path;
    bool take = keeps_[i];
    if (!take && is_only_around_others(changes_, i))
      for (std::size_t j = i + 1;
           !take && j < changes_.size() && changes_[j].change.path.starts_with(path); ++j)
        take = keeps_[j] && is_within(changes_[j].change.path, path);
    if (take) chosen.push_back(changes_[i].change);
  }
  return chosen;
}

asio::awaitable<Result<void>> FolderView::take(std::shared_ptr<Sandbox> sandbox) {
  std::vector<FileChange> chosen = wanted();
  if (chosen.empty()) co_return Result<void>();
  UniqueFd folder(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 3));
  if (!folder) co_return fail_errno("dup");
  ApplyRequest request;
  request.from = kPlace;
  request.partial = true;
  request.rules.remove = true;
  request.rules.unchanged_since = begun_;
  auto applying =
      apply_changes(std::move(chosen), changes_of(sandbox), std::move(folder), std::move(request));
  auto applied = co_await std::move(applying);
  // It may tell of names that were given inside.
  if (!applied)
    co_return fail(applied.error().code, printable(applied.error().what), applied.error().hint);
  applied_ = *std::move(applied);
  co_return Result<void>();
}

asio::awaitable<void> FolderView::report(std::shared_ptr<Run> run) const {
  std::string text;
  if (words_ == Words::json) co_return;
  for (const Applied::Left& left : applied_.left)
    text += "agent-sandbox: not kept: " + printable(left.why) + "\n";
  if (!changes_.empty() && words_ == Words::spoken)
    text += "agent-sandbox: kept " + std::to_string(applied_.files.size()) + " of " +
            count_of(changes_.size()) + " in " + given_ + "\n";
  auto saying = say(run, std::move(text));
  co_await std::move(saying);
}

asio::awaitable<Result<void>> FolderView::settle(std::shared_ptr<Run> run,
                                                 std::shared_ptr<Sandbox> sandbox) {
  auto self = shared_from_this();
  auto ending = end_programs(sandbox);
  CO_TRY(co_await std::move(ending));
  auto looking = sandbox->changes();
  Changes all = CO_TRY(co_await std::move(looking));
  complete_ = all.complete;
  FileDiffOptions options;
  options.names_from = kPlace;
  options.text = words_ != Words::none;
  auto comparing = diff_files(CO_TRY(choose_changes(all, kPlace, {})), files_at_start(sandbox),
                              files_now(sandbox), options);
  changes_ = co_await std::move(comparing);
  if (words_ == Words::spoken) {
    auto showing = show(run);
    co_await std::move(showing);
  }
  auto choosing = choose(run);
  co_await std::move(choosing);
  auto taking = take(sandbox);
  CO_TRY(co_await std::move(taking));
  auto reporting = report(run);
  co_await std::move(reporting);
  co_return Result<void>();
}

json::object FolderView::told() const {
  json::array files;
  for (const FileDiff& diff : changes_) files.push_back(json_of(diff));
  json::object applied = json_of(applied_);
  return {{"folder", repair_utf8(folder_)},
          {"files", std::move(files)},
          {"complete", complete_},
          {"kept", std::move(applied["files"])},
          {"left", std::move(applied["left"])}};
}

}  // namespace asr
