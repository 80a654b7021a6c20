#include "session/change_apply.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "session/change_list.hpp"

namespace asr {

namespace {

constexpr std::uint64_t kMostBytes = 1ULL << 30;  // at once
constexpr std::size_t kNamed = 3;                 // in an error

std::string relative_to(const std::string& from, const std::string& path) {
  std::size_t begin = from.size();
  while (begin < path.size() && path[begin] == '/') ++begin;
  return path.substr(begin);
}

Result<FolderStep> step_for(const FileChange& change, const std::string& from) {
  FolderStep step;
  step.path = relative_to(from, change.path);
  step.mode = change.mode;
  step.size = change.size;
  step.target = change.target;
  if (change.kind == FileChange::Kind::removed) {
    step.kind = FolderStep::Kind::removal;
    return step;
  }
  switch (change.type) {
    case FileType::file:
      step.kind = FolderStep::Kind::file;
      return step;
    case FileType::directory:
      step.kind = FolderStep::Kind::folder;
      return step;
    case FileType::symlink:
      step.kind = FolderStep::Kind::link;
      return step;
    case FileType::other:
      break;
  }
  return fail(Errc::invalid, change.path + " is no file, folder or link");
}

struct Plan {
  std::vector<FileChange> changes;
  std::vector<FolderStep> steps;  // one for each
  std::vector<Applied::Left> left;
};

Error refusal(const std::vector<Applied::Left>& refused) {
  std::string what = "nothing was done, because some of it cannot be: ";
  for (std::size_t i = 0; i < std::min(refused.size(), kNamed); ++i)
    what += (i > 0 ? "; " : "") + refused[i].why;
  if (refused.size() > kNamed) what += "; and " + std::to_string(refused.size() - kNamed) + " more";
  return Error(Errc::conflict, what, "choose paths, or take what can be had with \"partial\"");
}

Result<Plan> look_at(std::vector<FileChange> changes, FolderWriter& writer,
                     const ApplyRequest& request) {
  Plan plan;
  std::vector<Applied::Left> refused;
  std::uint64_t bytes = 0;
  for (FileChange& change : changes) {
    if (change.kind == FileChange::Kind::removed && !request.rules.remove) {
      plan.left.push_back({change.path, "it was removed, and nothing is to be"});
      continue;
    }
    auto step = step_for(change, request.from);
    Result<void> checked;
    if (step) checked = writer.check(*step);
    if (!step || !checked) {
      refused.push_back({change.path, step ? checked.error().what : step.error().what});
      continue;
    }
    // A sparse file can be so long that a few of them add up to nothing.
    if (step->kind == FolderStep::Kind::file) bytes += std::min(step->size, kMostBytes + 1);
    plan.steps.push_back(*std::move(step));
    plan.changes.push_back(std::move(change));
  }
  if (!refused.empty() && !request.partial) return fail(refusal(refused));
  if (bytes > kMostBytes)
    return fail(Errc::exhausted, "that is more than " + format_bytes(kMostBytes) + " at once",
                "choose fewer paths at a time");
  plan.left.insert(plan.left.end(), refused.begin(), refused.end());
  return plan;
}

bool comes_before(const FileChange& a, const FileChange& b) { return a.path < b.path; }

// What was copied is what was chosen if nothing has happened to it since it was listed.
Result<void> check_unchanged(const std::vector<FileChange>& chosen, const Changes& now) {
  auto at = now.entries.begin();
  for (const FileChange& change : chosen) {
    at = std::lower_bound(at, now.entries.end(), change, comes_before);
    if (at == now.entries.end() || at->path != change.path ||
        !is_same(change, *at, Moments::of_one_sandbox))
      return fail(Errc::conflict, change.path + " changed while it was copied",
                  "let the programs in the session come to rest first");
  }
  return {};
}

}  // namespace

ChangeSource changes_of(const std::shared_ptr<Sandbox>& sandbox) {
  return {[sandbox] { return sandbox->changes(); }, files_now(sandbox)};
}

json::object json_of(const Applied& applied) {
  json::array files, left;
  for (const FolderWriter::Done& done : applied.files) {
    json::object entry;
    put_bytes(entry, "path", done.path);
    entry["action"] = to_string(done.deed);
    files.push_back(std::move(entry));
  }
  for (const Applied::Left& each : applied.left) {
    json::object entry;
    put_bytes(entry, "path", each.path);
    entry["why"] = repair_utf8(each.why);
    left.push_back(std::move(entry));
  }
  return {{"files", std::move(files)}, {"left", std::move(left)}};
}

Result<std::vector<FileChange>> choose_changes(const Changes& changes, const std::string& from,
                                               const std::vector<std::string>& paths) {
  std::vector<std::string> wanted;
  for (const std::string& path : paths)
    wanted.push_back(path.starts_with('/') ? path : from + "/" + path);
  std::vector<bool> found(wanted.size());
  std::vector<FileChange> chosen;
  for (const FileChange& change : changes.entries) {
    if (!is_within(change.path, from) || relative_to(from, change.path).empty()) continue;
    bool take = wanted.empty();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!is_within(change.path, wanted[i])) continue;
      take = found[i] = true;
    }
    if (take) chosen.push_back(change);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (!found[i])
      return fail(Errc::not_found, "nothing changed at " + wanted[i],
                  "GET …/diff lists what has changed");
  return chosen;
}

asio::awaitable<Result<Applied>> apply_changes(std::vector<FileChange> changes, ChangeSource source,
                                               UniqueFd folder, ApplyRequest request) {
  // Folders before what lies in them.
  std::sort(changes.begin(), changes.end(), comes_before);
  FolderWriter writer = CO_TRY(FolderWriter::open(std::move(folder), request.rules));
  Plan plan = CO_TRY(look_at(std::move(changes), writer, request));
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    UniqueFd file;
    if (plan.steps[i].kind == FolderStep::Kind::file) {
      auto opening = source.contents(plan.changes[i].path);
      file = CO_TRY(co_await std::move(opening));
    }
    CO_TRY(writer.prepare(std::move(plan.steps[i]), file.get()));
  }
  Applied applied;
  applied.left = std::move(plan.left);
  if (plan.changes.empty()) co_return applied;
  auto listing = source.list();
  Changes now = CO_TRY(co_await std::move(listing));
  CO_TRY(check_unchanged(plan.changes, now));
  applied.files = CO_TRY(writer.commit());
  co_return applied;
}

}  // namespace asr
