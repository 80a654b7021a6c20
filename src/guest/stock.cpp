#include "guest/stock.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "guest/process_table.hpp"
#include "os/file.hpp"
#include "wire/changes_between.hpp"

namespace asr {

namespace {

// Some milliseconds of looking; a program must not wait longer for being looked at.
constexpr std::uint64_t kMostLooked = 2000;
// Copies that nobody changed are told apart up to this size.
constexpr std::uint64_t kMostCompared = 64 << 10;
// What is told, in one frame.
constexpr std::size_t kMostTold = 1000;
constexpr std::size_t kMostToldBytes = 64 << 10;
constexpr std::size_t kMostToldCalls = 512;
// What pid 1 holds of paths, which programs make as long as they like.
constexpr std::size_t kLongestPath = 4096;
constexpr std::size_t kMostPathBytes = 1 << 20;

constexpr std::string_view kWritten = "wchar:";  // in a process's io

class Lister final : public ChangeWalk::Visitor {
 public:
  explicit Lister(std::vector<wire::FileChange>& files) : files_(files) {}

  bool visit(const Written& written) override {
    if (written.verdict == Written::Verdict::same) return true;
    // Left out of every list alike: others can be compared all the same.
    if (written.path.size() > kLongestPath) {
      left_out_ = true;
      return true;
    }
    bytes_ += written.path.size();
    if (bytes_ > kMostPathBytes) return false;
    files_.push_back(describe(written));
    return true;
  }

  bool has_left_out() const noexcept { return left_out_; }

 private:
  std::vector<wire::FileChange>& files_;
  std::size_t bytes_ = 0;
  bool left_out_ = false;
};

std::optional<std::uint64_t> number_at(std::string_view text) {
  std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::string_view line_from(std::string_view text, std::size_t at) {
  return text.substr(at, text.find('\n', at) - at);
}

// Its processor time to the microsecond; the kernel counts that of others in hundredths.
std::optional<std::chrono::microseconds> cpu_clock_of(std::int32_t process) {
  clockid_t clock = 0;
  timespec time{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &time) != 0)
    return std::nullopt;
  return std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

bool is_before(const wire::FileChange& a, const wire::FileChange& b) { return a.path < b.path; }

// In a list by path.
bool is_listed(const std::vector<wire::FileChange>& files, const std::string& path) {
  wire::FileChange wanted;
  wanted.path = path;
  return std::binary_search(files.begin(), files.end(), wanted, is_before);
}

std::int64_t as_told(const std::optional<std::uint64_t>& before,
                     const std::optional<std::uint64_t>& after) {
  if (!before || !after || *after < *before) return -1;
  return static_cast<std::int64_t>(*after - *before);
}

void compare_files(const Stock& before, const Stock& after, wire::Measured& told) {
  if (!before.files_known || !after.files_known) return;
  // What was not listed before may have been there.
  told.files_too_many = before.files_cut;
  told.files_known = !before.files_cut;
  if (before.files_cut) return;
  told.files_complete = before.files_complete && after.files_complete;
  wire::ChangesBetween<wire::FileChange> comparing(before.files, after.files);
  std::size_t bytes = 0;
  for (wire::FileChange& file : comparing.find()) {
    // And what is not listed now may be as it was.
    if (after.files_cut && !is_listed(after.files, file.path)) continue;
    bytes += file.path.size() + 64;
    if (told.files.size() >= kMostTold || bytes > kMostToldBytes) {
      told.files_complete = false;
      break;
    }
    told.files.push_back(std::move(file));
  }
}

}  // namespace

std::optional<std::uint64_t> counter_in(std::string_view table, std::string_view group,
                                        std::string_view name) {
  std::string head = std::string(group) + ": ";
  std::size_t names_at = table.starts_with(head) ? 0 : table.find("\n" + head);
  if (names_at == std::string_view::npos) return std::nullopt;
  if (names_at > 0) ++names_at;
  std::string_view names = line_from(table, names_at);
  std::string_view values = line_from(table, std::min(table.size(), names_at + names.size() + 1));
  if (!values.starts_with(head)) return std::nullopt;
  for (;;) {
    std::size_t name_end = names.find(' ');
    std::size_t value_end = values.find(' ');
    if (name_end == std::string_view::npos || value_end == std::string_view::npos)
      return std::nullopt;
    names.remove_prefix(name_end + 1);
    values.remove_prefix(value_end + 1);
    if (names.substr(0, names.find(' ')) == name) return number_at(values);
  }
}

std::optional<std::uint64_t> value_in(std::string_view lines, std::string_view name) {
  for (std::size_t at = 0; at < lines.size();) {
    std::string_view line = line_from(lines, at);
    at += line.size() + 1;
    if (line.starts_with(name) && line.size() > name.size() &&
        (line[name.size()] == ' ' || line[name.size()] == '\t'))
      return number_at(line.substr(name.size()));
  }
  return std::nullopt;
}

Stocktaker::Stocktaker(const Scratch& scratch, const RefusalListener& refusals, UniqueFd own_io)
    : scratch_(scratch),
      refusals_(refusals),
      walk_(scratch, {.entries = kMostLooked, .compared_bytes = kMostCompared}),
      processes_{"/proc/loadavg"},
      ipv4_{"/proc/net/snmp"},
      ipv6_{"/proc/net/snmp6"},
      own_io_{"/proc/self/io", std::move(own_io)} {}

std::string_view Stocktaker::read(Source& source) {
  if (!source.fd) source.fd = UniqueFd(::open(source.path, O_RDONLY | O_CLOEXEC));
  ssize_t n = source.fd ? ::pread(source.fd.get(), text_.data(), text_.size(), 0) : -1;
  return {text_.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))};
}

// The kernel numbers processes and threads one after the other, and tells the last.
void Stocktaker::count_processes() {
  std::string_view text = read(processes_);
  std::size_t last = text.rfind(' ');
  auto pid = last == std::string_view::npos ? std::nullopt : number_at(text.substr(last));
  if (last_pid_ && pid && *pid >= *last_pid_) {
    started_ += *pid - *last_pid_;
  } else {
    if (last_pid_) ++rounds_;
    started_ = own_ = 0;
  }
  last_pid_ = pid;
}

// TCP connections that were begun, and what failed before that for want of a way.
std::optional<Connections> Stocktaker::connections() {
  std::string_view four = read(ipv4_);
  auto opened = counter_in(four, "Tcp", "ActiveOpens");
  auto failed = counter_in(four, "Tcp", "AttemptFails");
  auto no_way = counter_in(four, "Ip", "OutNoRoutes");
  if (!opened || !failed || !no_way) return std::nullopt;
  // Absent where the kernel has no IPv6.
  std::uint64_t no_way_6 = value_in(read(ipv6_), "Ip6OutNoRoutes").value_or(0);
  return Connections{*opened + *no_way + no_way_6, *failed + *no_way + no_way_6};
}

void Stocktaker::take_files(Stock& stock) {
  if (scratch_.trees.empty()) return;
  Lister lister(stock.files);
  auto end = walk_.run(lister);
  stock.files_known = end.has_value();
  stock.files_cut = end && *end != WalkEnd::complete;
  stock.files_complete = end && !stock.files_cut && !lister.has_left_out();
  std::sort(stock.files.begin(), stock.files.end(), is_before);
}

std::optional<std::uint64_t> Stocktaker::written_by_reaped() {
  return value_in(read(own_io_), kWritten);
}

std::optional<ProcessUse> Stocktaker::use_of(std::int32_t process) {
  std::string folder = "/proc/" + std::to_string(process);
  auto io = read_small_file(AT_FDCWD, folder + "/io");
  auto written = io ? value_in(*io, kWritten) : std::nullopt;
  auto line = read_small_file(AT_FDCWD, folder + "/stat");
  auto own = cpu_clock_of(process);
  if (!written || !line || !own) return std::nullopt;
  auto stat = parse_stat(*line);
  if (!stat) return std::nullopt;
  return ProcessUse{*written, *own + stat->children_cpu};
}

Stock Stocktaker::take(std::int32_t process) {
  Stock stock;
  take_files(stock);
  count_processes();
  if (last_pid_) stock.processes = started_ - own_;
  stock.rounds = rounds_;
  stock.connections = connections();
  if (process > 0) stock.used = use_of(process);
  stock.refused_calls = refusals_.counts();
  return stock;
}

wire::Measured Stocktaker::since(const Stock& before, const std::optional<ProcessUse>& used) {
  // Counts first: taking them and looking at files starts nothing, but takes time.
  count_processes();
  std::optional<std::uint64_t> processes;
  if (last_pid_ && rounds_ == before.rounds) processes = started_ - own_;
  auto now = connections();
  Stock after;
  take_files(after);

  wire::Measured told;
  told.processes = as_told(before.processes, processes);
  if (before.connections && now) {
    told.attempted = as_told(before.connections->attempted, now->attempted);
    told.refused = as_told(before.connections->refused, now->refused);
  }
  if (used) {
    ProcessUse then = before.used.value_or(ProcessUse());
    told.written_bytes = as_told(then.written_bytes, used->written_bytes);
    told.cpu_us = (used->cpu - then.cpu).count();
  }
  if (auto calls = refusals_.counts(); calls && before.refused_calls) {
    told.refused_calls_known = true;
    for (const auto& [number, count] : more_than(*before.refused_calls, *calls))
      if (told.refused_calls.size() < kMostToldCalls) told.refused_calls.push_back({number, count});
  }
  compare_files(before, after, told);
  return told;
}

}  // namespace asr
