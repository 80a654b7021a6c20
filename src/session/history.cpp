#include "session/history.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "session/history_file.hpp"

namespace asr {

namespace {

// What is said of a step whose line would be too long.
json::object in_brief(const json::object& step) {
  json::object brief;
  for (const char* name : {"kind", "command_id", "context_id", "operation", "started_at",
                           "started_us", "duration_ms", "status", "exit_code"})
    if (const json::value* value = step.if_contains(name)) brief[name] = *value;
  brief["left_out"] = "it was too large";
  return brief;
}

UniqueFd open_to_read(const std::filesystem::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

}  // namespace

History::History(std::filesystem::path folder, std::uint64_t most_bytes,
                 std::function<json::object()> about, std::function<void(const Error&)> complain,
                 std::shared_ptr<Spool> spool)
    : folder_(std::move(folder)),
      most_bytes_(std::max(most_bytes, kLeastBytes)),
      about_(std::move(about)),
      complain_(std::move(complain)) {
  if (spool) young_.emplace(std::move(spool), folder_ / kHistoryFile);
}

void History::move_out() {
  if (!young_ || sealed_) return;
  if (auto moved = young_->move_out(); !moved) {
    complain_(moved.error());
    size_ = 0;
  }
  young_.reset();
  known_ = true;
}

// Opens what it is written to.
Result<void> History::open() {
  if (file_ || young_) return {};
  std::error_code ec;
  std::filesystem::create_directories(folder_, ec);
  std::filesystem::path path = folder_ / kHistoryFile;
  file_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file_) return fail_errno("open " + path.native());
  if (known_) return {};
  auto found = find_out();
  if (!found) seal();  // Whatever it is, it is not to become worse.
  return found;
}

Result<void> History::find_out() {
  HistoryLines lines = TRY(HistoryLines::of(file_.get()));
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0) return fail_errno("look at a history");
  // A line that was not written to its end would spoil the next. Others are not cut: file systems
  // hurry to write down what was.
  auto end = static_cast<off_t>(lines.end());
  if (info.st_size != end && ::ftruncate(file_.get(), end) != 0) return fail_errno("cut a history");
  size_ = lines.end();
  if (!lines.empty()) {
    heading_ = TRY(lines.line(0)) + '\n';
    last_ = TRY(lines.last_number()).value_or(0);
  } else if (UniqueFd older = open_to_read(folder_ / kOldHistoryFile)) {
    // Killed between making room and writing.
    HistoryLines earlier = TRY(HistoryLines::of(older.get()));
    if (!earlier.empty()) heading_ = TRY(earlier.line(0)) + '\n';
    last_ = TRY(earlier.last_number()).value_or(0);
  }
  known_ = true;
  return {};
}

const std::string& History::heading() {
  if (!heading_.empty()) return heading_;
  json::object about = about_();
  heading_ = history_line(0, to_text(about));
  if (heading_.size() > most_bytes_ / 8) {
    const json::value* files = about.if_contains("files");
    std::size_t count = files && files->is_array() ? files->get_array().size() : 0;
    about.erase("files");
    about["files_left_out"] = count;
    heading_ = history_line(0, to_text(about));
  }
  return heading_;
}

void History::make_room(std::size_t size) {
  if (size_ == 0 || size_ + size <= most_bytes_ / 2) return;
  std::filesystem::path path = folder_ / kHistoryFile;
  if (::rename(path.c_str(), (folder_ / kOldHistoryFile).c_str()) != 0)
    return complain_(errno_error(errno, "rename " + path.native()));
  file_.reset();
  size_ = 0;
}

// At once, or not at all.
Result<void> History::write(std::string text) {
  if (young_) return write_young(text);
  ssize_t written = ::write(file_.get(), text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) {
    size_ += text.size();
    return {};
  }
  std::string path = (folder_ / kHistoryFile).native();
  Error error = written < 0 ? errno_error(errno, "write " + path)
                            : Error(Errc::exhausted, path + ": the disk is full");
  if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
    file_.reset();
    known_ = false;  // Half a line is cut off by whoever looks next.
  }
  return fail(std::move(error));
}

Result<void> History::write_young(const std::string& text) {
  TRY(young_->append(text));
  size_ += text.size();
  return {};
}

void History::add(const json::object& step) {
  if (sealed_) return;
  if (auto opened = open(); !opened) return complain_(opened.error());
  std::uint64_t number = ++last_;
  std::string line = history_line(number, to_text(step));
  if (line.size() > most_bytes_ / 4) line = history_line(number, to_text(in_brief(step)));
  if (young_ && !young_->has_room(line.size() + heading().size())) {
    move_out();
    if (auto opened = open(); !opened) return complain_(opened.error());
  }
  make_room(line.size());
  if (auto opened = open(); !opened) return complain_(opened.error());
  if (size_ == 0) line.insert(0, heading());
  if (auto written = write(std::move(line)); !written) complain_(written.error());
}

void History::begin() {
  if (sealed_) return;
  if (auto opened = open(); !opened) return complain_(opened.error());
  if (size_ > 0) return;
  if (young_ && !young_->has_room(heading().size())) move_out();
  if (auto opened = open(); !opened) return complain_(opened.error());
  if (auto written = write(heading()); !written) complain_(written.error());
}

}  // namespace asr
