#include "session/command_journal.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

namespace asr {

namespace {

// In front of each record. The file is this machine's own: its order of bytes is.
struct Header {
  std::uint64_t number = 0;
  std::uint32_t size = 0;  // of what follows
  char kind = 0;
  char padding[3] = {};
};
static_assert(sizeof(Header) == 16);

constexpr std::size_t kLargestRecord = 64U << 20;
constexpr std::size_t kNotWorthIt = 4U << 20;  // A smaller file is left alone.

json::object json_of(const ExitStatus& status) {
  return {{"reason", static_cast<int>(status.reason)},
          {"exit_code", status.exit_code},
          {"signal", status.signal},
          {"start_errno", status.start_errno},
          {"oom_kills", status.oom_kills},
          {"wall_ns", status.wall.count()},
          {"cpu_user_us", status.cpu_user.count()},
          {"cpu_system_us", status.cpu_system.count()},
          {"max_rss", status.max_rss_bytes},
          {"truncated", status.truncated_bytes}};
}

std::int64_t number_in(const json::object& object, std::string_view name) {
  const json::value* value = object.if_contains(name);
  return value && value->is_number() ? value->to_number<std::int64_t>() : 0;
}

ExitStatus status_from(const json::object& object) {
  ExitStatus status;
  std::int64_t reason = number_in(object, "reason");
  bool known = reason >= 0 && reason <= static_cast<std::int64_t>(EndReason::lost);
  status.reason = known ? static_cast<EndReason>(reason) : EndReason::lost;
  status.exit_code = static_cast<int>(number_in(object, "exit_code"));
  status.signal = static_cast<int>(number_in(object, "signal"));
  status.start_errno = static_cast<int>(number_in(object, "start_errno"));
  status.oom_kills = static_cast<std::uint32_t>(number_in(object, "oom_kills"));
  status.wall = std::chrono::nanoseconds(number_in(object, "wall_ns"));
  status.cpu_user = std::chrono::microseconds(number_in(object, "cpu_user_us"));
  status.cpu_system = std::chrono::microseconds(number_in(object, "cpu_system_us"));
  status.max_rss_bytes = static_cast<std::uint64_t>(number_in(object, "max_rss"));
  status.truncated_bytes = static_cast<std::uint64_t>(number_in(object, "truncated"));
  return status;
}

// Exactly so many bytes, or false at the end of the file.
Result<bool> read_whole(int file, char* to, std::size_t size) {
  while (size > 0) {
    ssize_t got = ::read(file, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno("read the journal of commands");
    if (got == 0) return false;
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

CommandJournal::CommandJournal(std::filesystem::path file,
                               std::function<void(const Error&)> complain,
                               std::shared_ptr<Spool> spool)
    : path_(std::move(file)), complain_(std::move(complain)), look_at_(kNotWorthIt) {
  if (spool) young_.emplace(std::move(spool), path_);
}

void CommandJournal::move_out() {
  if (!young_ || sealed_) return;
  if (auto moved = young_->move_out(); !moved) complain_(moved.error());
  young_.reset();
}

Result<void> CommandJournal::open() {
  if (file_) return {};
  std::error_code ec;
  std::filesystem::create_directories(path_.parent_path(), ec);
  file_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file_) return fail_errno("open " + path_.native());
  struct stat info {};
  if (::fstat(file_.get(), &info) == 0) size_ = static_cast<std::size_t>(info.st_size);
  return {};
}

void CommandJournal::append(Kind kind, std::uint64_t number, std::string_view data) {
  Header header{number, static_cast<std::uint32_t>(data.size()), static_cast<char>(kind), {}};
  std::string_view head(reinterpret_cast<const char*>(&header), sizeof header);
  if (!gathering_) return write(head, data);
  gathered_ += head;
  gathered_ += data;
}

void CommandJournal::flush() {
  gathering_ = false;
  if (!gathered_.empty()) write(gathered_, "");
  gathered_ = std::string();
}

void CommandJournal::write(std::string_view first, std::string_view second) {
  if (sealed_) return;
  if (young_ && young_->has_room(first.size() + second.size())) {
    if (auto kept = young_->append(first, second); !kept) complain_(kept.error());
    return;
  }
  move_out();
  if (auto opened = open(); !opened) return complain_(opened.error());
  std::array<iovec, 2> parts{{{const_cast<char*>(first.data()), first.size()},
                              {const_cast<char*>(second.data()), second.size()}}};
  std::size_t size = first.size() + second.size();
  ssize_t written = ::writev(file_.get(), parts.data(), static_cast<int>(parts.size()));
  if (written == static_cast<ssize_t>(size)) {
    size_ += size;
    return;
  }
  Error error = written < 0 ? errno_error(errno, "write " + path_.native())
                            : Error(Errc::exhausted, path_.native() + ": the disk is full");
  // Half a record would hide those that follow.
  if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) file_.reset();
  complain_(error);
}

void CommandJournal::began(std::uint64_t number, const json::object& about,
                           std::uint64_t first_offset) {
  json::object record = about;
  record["first_offset"] = first_offset;
  append(Kind::began, number, to_text(record));
}

void CommandJournal::wrote(std::uint64_t number, OutputChunk::Stream stream,
                           std::string_view data) {
  append(stream == OutputChunk::Stream::out ? Kind::out : Kind::err, number, data);
}

void CommandJournal::ended(std::uint64_t number, const ExitStatus& status) {
  append(Kind::ended, number, to_text(json_of(status)));
}

void CommandJournal::settle() {
  if (size_ > look_at_ && tidy_) tidy_();
}

void CommandJournal::save_room(std::size_t wanted_bytes,
                               const std::function<void(CommandJournal&)>& everything) {
  look_at_ = std::max(kNotWorthIt, 2 * size_);
  if (sealed_ || size_ <= kNotWorthIt || size_ <= 2 * wanted_bytes) return;
  std::filesystem::path beside = path_.native() + ".new";
  ::unlink(beside.c_str());
  bool well = true;
  CommandJournal fresh(beside, [&](const Error& error) {
    well = false;
    complain_(error);
  });
  everything(fresh);
  if (auto opened = fresh.open(); !opened || !well) {
    ::unlink(beside.c_str());
    return;
  }
  if (::rename(beside.c_str(), path_.c_str()) != 0)
    return complain_(errno_error(errno, "rename " + beside.native()));
  file_ = std::move(fresh.file_);
  size_ = fresh.size_;
  look_at_ = std::max(kNotWorthIt, 2 * size_);
}

Result<std::vector<JournaledCommand>> CommandJournal::read(const std::filesystem::path& path,
                                                           std::size_t most_output) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file && errno == ENOENT) return std::vector<JournaledCommand>();
  if (!file) return fail_errno("open " + path.native());
  std::map<std::uint64_t, JournaledCommand> commands;
  std::string data;
  off_t whole = 0;  // up to here records are complete
  for (;;) {
    Header header;
    if (!TRY(read_whole(file.get(), reinterpret_cast<char*>(&header), sizeof header))) break;
    if (header.size > kLargestRecord) return fail(Errc::internal, path.native() + " is damaged");
    data.resize(header.size);
    if (!TRY(read_whole(file.get(), data.data(), data.size()))) break;
    whole += static_cast<off_t>(sizeof header + data.size());
    auto kind = static_cast<Kind>(header.kind);
    if (kind == Kind::began) {
      auto about = parse_json(data);
      if (!about || !about->is_object()) return fail(Errc::internal, path.native() + " is damaged");
      auto first = static_cast<std::uint64_t>(number_in(about->get_object(), "first_offset"));
      JournaledCommand command{header.number, std::move(about->get_object()),
                               OutputLog(most_output, first), std::nullopt};
      commands.insert_or_assign(header.number, std::move(command));
      continue;
    }
    auto found = commands.find(header.number);
    if (found == commands.end()) continue;
    if (kind == Kind::out || kind == Kind::err) {
      found->second.output.append(
          kind == Kind::out ? OutputChunk::Stream::out : OutputChunk::Stream::err, data);
    } else if (auto end = parse_json(data); kind == Kind::ended && end && end->is_object()) {
      found->second.status = status_from(end->get_object());
    }
  }
  if (::ftruncate(file.get(), whole) != 0) return fail_errno("cut " + path.native());
  std::vector<JournaledCommand> all;
  for (auto& [number, command] : commands) all.push_back(std::move(command));
  return all;
}

}  // namespace asr
