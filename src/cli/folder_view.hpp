// exec --on FOLDER: a program sees the folder at /workspace and writes beside it. Afterwards its
// changes are shown, and those that are wanted come into the folder; until then it is as it was,
// whatever happens.
#pragma once

#include <CLI/App.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/attend.hpp"
#include "cli/diff_colors.hpp"
#include "session/change_apply.hpp"

namespace asr {

struct FolderOptions {
  std::string folder;  // Empty: none.
  std::string keep;    // all, none or ask; empty: ask whoever sits at a terminal
  std::string color = "auto";

  void declare(CLI::App& command);
};

class FolderView : public std::enable_shared_from_this<FolderView> {
 public:
  enum class Words { spoken, json, none };  // How changes are told.
  static Result<std::shared_ptr<FolderView>> open(const FolderOptions& options, Words words);

  void put_into(SandboxSpec& spec) const { spec.environment.workspace = folder_; }
  // Once the program has ended: ends what it left running, tells, asks, and takes what is wanted.
  // `run` has the terminal.
  asio::awaitable<Result<void>> settle(std::shared_ptr<Run> run, std::shared_ptr<Sandbox> sandbox);
  // What settle() found and did.
  json::object told() const;

 private:
  enum class Keep { all, none, ask };

  asio::awaitable<void> say(std::shared_ptr<Run> run, std::string text) const;
  asio::awaitable<std::string> ask(std::shared_ptr<Run> run, std::string question);
  asio::awaitable<void> show(std::shared_ptr<Run> run);
  asio::awaitable<void> choose(std::shared_ptr<Run> run);
  asio::awaitable<void> choose_one_by_one(std::shared_ptr<Run> run);
  std::vector<FileChange> wanted() const;
  asio::awaitable<Result<void>> take(std::shared_ptr<Sandbox> sandbox);
  asio::awaitable<void> report(std::shared_ptr<Run> run) const;

  std::string folder_;
  std::string given_;  // as it was named
  UniqueFd fd_;
  Keep keep_ = Keep::none;
  Words words_ = Words::spoken;
  Color color_ = Color::no;
  std::chrono::system_clock::time_point begun_;

  std::vector<FileDiff> changes_;
  std::vector<bool> keeps_;  // of each
  bool complete_ = true;
  Applied applied_;
  std::string heard_;  // what was typed and not used yet
};

}  // namespace asr
