// An interpreter of a session that keeps its variables: its process, its cells one after the other,
// and what they gave.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/sandbox.hpp"
#include "interpreter/kernel_process.hpp"
#include "session/bell.hpp"
#include "session/saved_context.hpp"
#include "session/warm_interpreters.hpp"

namespace asr {

// A piece of code for an interpreter.
struct Cell {
  std::string code;
  std::chrono::milliseconds timeout{0};    // zero: as long as it takes
  std::map<std::string, std::string> env;  // set from now on
  bool env_for_it_alone = false;           // and taken back when it is over
  bool somebody_answers = false;           // to input(); otherwise it fails at once
  bool effects = false;                    // are to be told
  std::function<bool()> admit;             // asked when its turn has come; false: it is not run
};

struct CellAnswer {
  static constexpr std::size_t kMostFiles = 200;

  std::string out;
  std::string err;
  std::uint64_t dropped = 0;  // bytes of output, and results, that were too many
  json::array results;        // MIME type to value, and is_main
  std::optional<json::object> error;
  std::uint64_t count = 0;  // how many this interpreter has run
  std::chrono::microseconds duration{0};
  bool restarted = false;  // variables of before are lost
  bool interrupted = false;
  bool timed_out = false;
  bool out_of_memory = false;
  std::vector<std::string> files;  // of the workspace that it made or changed, by its own account
  std::shared_ptr<const Effects> effects;  // if they were wanted

  std::string_view status() const noexcept;
};

// On one thread. Cells wait for each other.
class Context : public std::enable_shared_from_this<Context> {
 public:
  using Clock = std::chrono::steady_clock;
  // Hears what a cell gives while it runs: "stdout", "stderr", "result", "error" or "input".
  using Listen = std::function<void(std::string_view kind, const json::object& what)>;

  // What every one of a session is made with.
  struct Home {
    asio::any_io_executor executor;
    std::shared_ptr<WarmInterpreters> interpreters;
  };

  Context(Home home, std::string id, LanguagePtr language, std::string cwd,
          std::map<std::string, std::string> env);
  // One that is to go on from what another had.
  Context(Home home, LanguagePtr language, const SavedContext& saved);
  // One that lives on from before this server.
  Context(Home home, std::string id, LanguagePtr language, std::shared_ptr<Execution> process);

  const std::string& id() const noexcept { return id_; }
  const Language& language() const noexcept { return *language_; }
  bool is_busy() const noexcept { return running_ != 0; }

  // An error only if there is no interpreter to be had; what is wrong with the code is in the
  // answer.
  asio::awaitable<Result<CellAnswer>> execute(std::shared_ptr<Sandbox> sandbox, Cell cell,
                                              Listen listen = {});
  asio::awaitable<Result<std::vector<std::string>>> complete(std::shared_ptr<Sandbox> sandbox,
                                                             std::string text);
  // Ends the cell that runs and keeps the variables, if the interpreter lets us.
  Result<void> interrupt();
  // Answers input() of the cell that runs.
  asio::awaitable<Result<void>> answer(std::string text);
  // Nobody runs anything in it for as long as what is given lives. Errc::conflict while a cell
  // runs.
  Result<std::shared_ptr<void>> hold_still();
  // As it stands, by whoever holds it still; it goes on. What cannot be saved is told in the value
  // (context_branch.cpp).
  asio::awaitable<Result<SavedContext>> save();
  // Returns when it has a process that outlives this server, if its sandbox does. It comes to life
  // from the image while whoever asked for it goes on; cells wait for that. If it does not, they
  // say so, until it is started again.
  asio::awaitable<Result<void>> revive(std::shared_ptr<Sandbox> sandbox,
                                       std::shared_ptr<const FrozenProgram> program);
  // When that is over: how it went.
  asio::awaitable<Result<void>> revived();
  // Forgets everything; the next cell has a new interpreter.
  asio::awaitable<void> restart();
  // For good.
  void close();

  json::object describe() const;

 private:
  enum class Heard { more, done };
  // A cell, what it has given so far, and who hears of it.
  struct Turn {
    Cell cell;
    CellAnswer answer;
    Listen listen;
    std::unique_ptr<EffectsWatch> effects = {};
  };
  using TurnPtr = std::shared_ptr<Turn>;

  asio::awaitable<Result<void>> start(std::shared_ptr<Sandbox> sandbox);
  asio::awaitable<void> take_over(KernelProcess kernel);
  asio::awaitable<Result<void>> send_cell(std::shared_ptr<Sandbox> sandbox, TurnPtr turn);
  asio::awaitable<void> attend(TurnPtr turn);
  asio::awaitable<void> take_back_env(TurnPtr turn);
  static asio::awaitable<void> tell_effects(TurnPtr turn);
  asio::awaitable<Heard> hear(TurnPtr turn, KernelEvent event);
  asio::awaitable<void> mourn(TurnPtr turn);
  void lose_variables(CellAnswer& answer);
  static asio::awaitable<void> watch_time(std::shared_ptr<Context> self,
                                          std::shared_ptr<Sandbox> sandbox, std::uint64_t cell,
                                          std::chrono::milliseconds time);
  static asio::awaitable<void> stop_cell(std::shared_ptr<Context> self, std::uint64_t cell);
  static asio::awaitable<void> kill(std::shared_ptr<Execution> process);
  asio::awaitable<void> take_turn();
  asio::awaitable<void> keep(std::shared_ptr<Execution> process);
  static asio::awaitable<void> go_on(std::shared_ptr<Context> self, KernelProcess begun,
                                     std::shared_ptr<Sandbox> sandbox, KernelStart how);

  asio::any_io_executor executor_;
  std::shared_ptr<WarmInterpreters> interpreters_;
  std::string id_;
  LanguagePtr language_;
  std::string cwd_;
  std::map<std::string, std::string> env_;
  std::string version_;
  std::shared_ptr<Execution> process_;
  std::shared_ptr<const FrozenProgram> frozen_;  // what it was made from, or has become
  KernelEvents events_;
  Bell changed_;
  bool taken_ = false;  // Somebody has the interpreter to himself.
  bool closed_ = false;
  bool reviving_ = false;
  std::optional<Error> not_revived_;  // Its image did not come to life.
  bool had_one_ = false;       // There was an interpreter before, and its variables are lost.
  std::uint64_t running_ = 0;  // the cell; zero: none
  bool asks_ = false;          // It waits for an answer to input().
  bool interrupted_ = false;
  bool timed_out_ = false;
  std::uint64_t last_cell_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace asr
