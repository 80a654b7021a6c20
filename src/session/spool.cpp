#include "session/spool.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <vector>

#include "os/file.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

// In front of each record: the name of the file, and what is appended to it. Nothing: it has moved.
struct Header {
  std::uint64_t number = 0;  // Records of one file may lie in both parts.
  std::uint32_t name_size = 0;
  std::uint32_t size = 0;
};
static_assert(sizeof(Header) == 16);

constexpr std::uint64_t kLargePart = 4 << 20;  // Time to use the other.
constexpr std::uint64_t kMostRead = 1 << 30;   // A larger one is not ours.

// What is in a part, file by file; a record that was not written to its end is the last one.
using Records = std::map<std::string, std::map<std::uint64_t, std::string>>;
void take_records(std::string_view text, Records& records) {
  Header header;
  while (text.size() >= sizeof header) {
    std::copy_n(text.data(), sizeof header, reinterpret_cast<char*>(&header));
    text.remove_prefix(sizeof header);
    if (text.size() < std::size_t{header.name_size} + header.size) return;
    std::string name(text.substr(0, header.name_size));
    records[name][header.number] = text.substr(header.name_size, header.size);
    text.remove_prefix(std::size_t{header.name_size} + header.size);
  }
}

// Whoever finds it finds all of it.
Result<void> make_whole(const fs::path& path, std::string_view text) {
  std::error_code ec;
  fs::create_directories(path.parent_path(), ec);
  fs::path beside = path.native() + ".new";
  UniqueFd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return fail_errno("make " + beside.native());
  ssize_t n = ::write(file.get(), text.data(), text.size());
  Result<void> made;
  if (n < 0)
    made = fail_errno("write " + beside.native());
  else if (static_cast<std::size_t>(n) != text.size())
    made = fail(Errc::exhausted, beside.native() + ": the disk is full");
  else if (::rename(beside.c_str(), path.c_str()) != 0)
    made = fail_errno("rename " + beside.native());
  if (!made) ::unlink(beside.c_str());
  return made;
}

}  // namespace

fs::path Spool::path_of(unsigned part) const {
  return storage_ / ("young." + std::to_string(part));
}

Result<void> Spool::open(unsigned number) {
  Part& part = parts_[number];
  if (part.file) return {};
  part.file =
      UniqueFd(::open(path_of(number).c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!part.file) return fail_errno("open " + path_of(number).native());
  struct stat info {};
  if (::fstat(part.file.get(), &info) == 0) part.size = static_cast<std::uint64_t>(info.st_size);
  return {};
}

Result<void> Spool::recover(const std::function<bool(const fs::path&)>& wanted) {
  Records records;
  for (unsigned number = 0; number < kParts; ++number) {
    if (::access(path_of(number).c_str(), F_OK) != 0) continue;
    take_records(TRY(read_bytes(AT_FDCWD, path_of(number).native(), kMostRead)), records);
  }
  for (const auto& [name, pieces] : records) {
    fs::path path = storage_ / name;
    if (!wanted(path) || ::access(path.c_str(), F_OK) == 0) continue;
    std::string text;
    for (const auto& [number, piece] : pieces) text = piece.empty() ? "" : text + piece;
    if (!text.empty()) TRY(make_whole(path, text));
  }
  for (unsigned number = 0; number < kParts; ++number) {
    if (::access(path_of(number).c_str(), F_OK) != 0) continue;
    TRY(open(number));
    empty(parts_[number]);
  }
  return {};
}

void Spool::empty(Part& part) {
  if (part.users > 0 || part.size == 0) return;
  if (::ftruncate(part.file.get(), 0) == 0) part.size = 0;
}

void Spool::turn() {
  unsigned other = (current_ + 1) % kParts;
  if (parts_[current_].size > 0 && parts_[other].users == 0) current_ = other;
}

Result<unsigned> Spool::append(std::string_view name, std::string_view first,
                               std::string_view second) {
  if (parts_[current_].size > kLargePart) turn();
  TRY(open(current_));
  Part& part = parts_[current_];
  Header header{++records_, static_cast<std::uint32_t>(name.size()),
                static_cast<std::uint32_t>(first.size() + second.size())};
  std::array<iovec, 4> pieces{{{&header, sizeof header},
                               {const_cast<char*>(name.data()), name.size()},
                               {const_cast<char*>(first.data()), first.size()},
                               {const_cast<char*>(second.data()), second.size()}}};
  std::uint64_t size = sizeof header + name.size() + first.size() + second.size();
  ssize_t written = ::writev(part.file.get(), pieces.data(), static_cast<int>(pieces.size()));
  if (written == static_cast<ssize_t>(size)) {
    part.size += size;
    return current_;
  }
  Error error = written < 0 ? errno_error(errno, "write " + path_of(current_).native())
                            : Error(Errc::exhausted, storage_.native() + ": the disk is full");
  // Half a record would hide those that follow.
  if (::ftruncate(part.file.get(), static_cast<off_t>(part.size)) != 0) part.file.reset();
  return fail(std::move(error));
}

SpooledFile::SpooledFile(std::shared_ptr<Spool> spool, fs::path file)
    : spool_(std::move(spool)),
      path_(std::move(file)),
      name_(path_.lexically_relative(spool_->storage_).native()) {}

SpooledFile::~SpooledFile() {
  for (unsigned number = 0; number < Spool::kParts; ++number) {
    if (!uses_[number]) continue;
    Spool::Part& part = spool_->parts_[number];
    if (--part.users == 0) spool_->empty(part);
  }
}

Result<void> SpooledFile::append(std::string_view first, std::string_view second) {
  unsigned part = TRY(spool_->append(name_, first, second));
  if (!std::exchange(uses_[part], true)) ++spool_->parts_[part].users;
  text_ += first;
  text_ += second;
  return {};
}

Result<void> SpooledFile::move_out() {
  if (text_.empty()) return {};
  TRY(make_whole(path_, text_));
  // What becomes of it from here on is not for us to say. If this fails, it is there at least.
  (void)append({});
  return {};
}

}  // namespace asr
