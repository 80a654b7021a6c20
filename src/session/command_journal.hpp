// What the commands of one session wrote and how they ended, in a file: the next life of the server
// finds it again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "engine/command.hpp"
#include "net/json.hpp"
#include "session/output_log.hpp"
#include "session/spool.hpp"

namespace asr {

constexpr std::size_t kMostCommandOutput = 1 << 20;  // so much of one command's is kept

// One command as the journal knows it.
struct JournaledCommand {
  std::uint64_t number = 0;
  json::object about;
  OutputLog output;
  std::optional<ExitStatus> status;  // none: it was running
};

// Records are appended as things happen. What was forgotten since is dropped when the file is
// written anew. Survives the death of the process, not of the machine.
class CommandJournal {
 public:
  // Nothing is made before something is written. `complain` hears of what cannot be written: it
  // is lost with the process then, and nothing else. `spool`: where it begins if it is new.
  CommandJournal(std::filesystem::path file, std::function<void(const Error&)> complain,
                 std::shared_ptr<Spool> spool = nullptr);

  void began(std::uint64_t number, const json::object& about, std::uint64_t first_offset = 0);
  void wrote(std::uint64_t number, OutputChunk::Stream stream, std::string_view data);
  void ended(std::uint64_t number, const ExitStatus& status);

  // Something of a command will not survive this process.
  void regret(const Error& error) const { complain_(error); }

  // Between these, what is written waits and then goes at once.
  void gather() noexcept { gathering_ = true; }
  void flush();

  // `tidy` is called by settle() when the file has grown: it tells how much of it is still wanted.
  void when_large(std::function<void()> tidy) { tidy_ = std::move(tidy); }
  void settle();
  // Writes into a file beside it and puts that in its place, if that saves half of it.
  void save_room(std::size_t wanted_bytes, const std::function<void(CommandJournal&)>& everything);

  void move_out();                          // From now on it has a file of its own.
  void close() noexcept { file_.reset(); }  // Until the next write.
  // From now on it belongs to the next life of the server: nothing more is written.
  void seal() noexcept { sealed_ = true; }
  // Nobody wants what is in the spool, and nothing more is written.
  void drop() noexcept {
    sealed_ = true;
    young_.reset();
  }

  // A record that was not written to its end is the last one, and cut off. No file: nothing.
  static Result<std::vector<JournaledCommand>> read(const std::filesystem::path& file,
                                                    std::size_t most_output);

 private:
  enum class Kind : char { began = 'B', out = 'O', err = 'E', ended = 'X' };
  void append(Kind kind, std::uint64_t number, std::string_view data);
  void write(std::string_view first, std::string_view second);
  Result<void> open();

  std::filesystem::path path_;
  std::function<void(const Error&)> complain_;
  std::function<void()> tidy_;
  std::optional<SpooledFile> young_;  // until it is worth a file
  UniqueFd file_;
  std::size_t size_ = 0;
  std::size_t look_at_;  // this size
  bool sealed_ = false;
  bool gathering_ = false;
  std::string gathered_;
};

}  // namespace asr
