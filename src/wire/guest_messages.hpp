// What daemon and guest say to each other. A request has an id; its answers carry the same one.
//
//   Start          → Started + descriptors, later Ended       SignalProcess, Resize, KillAll, Ping
//   → Done FileRequest    → Done | Info | Page | Opened + descriptor | ArchiveDone | Events…
//   (watch) Connect        → Opened + descriptor                      ListProcesses → Processes…
//   any of them    → Failure                                  StopWork ends a watch or an archive
//   KnownExecutions → Executions                              AcceptMore: later Accepted +
//   descriptor
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "wire/frame.hpp"

namespace asr::wire {

enum class GuestType : std::uint16_t {
  // guest → daemon
  hello = 1,
  launch_failed,
  done,
  failure,
  started,
  ended,
  opened,
  info,
  page,
  events,
  processes,
  archive_done,
  disk,
  executions,
  accepted,
  change_list,
  measured,
  // daemon → guest
  start = 64,
  signal_execution,
  signal_process,
  resize,
  kill_all,
  ping,
  file,
  connect,
  list_processes,
  disk_usage,
  stop_work,
  skip_time,
  known_executions,
  accept_more,
  take_stock,
  tell_effects,
};

// ---- guest → daemon
// ------------------------------------------------------------------------------

// The sandbox is complete and its pid 1 answers.
struct Hello {
  static constexpr auto kType = GuestType::hello;
  std::vector<std::uint32_t> step_micros;  // One per launch step.
  bool idmapped = false;                   // Files of the environment keep their owners.
  std::int32_t landlock_abi = 0;
  template <class V>
  void fields(V& v) {
    v(step_micros), v(idmapped), v(landlock_abi);
  }
};

// A launch step failed; the process is gone after this.
struct LaunchFailed {
  static constexpr auto kType = GuestType::launch_failed;
  std::uint32_t step = 0;
  std::int32_t err = 0;
  template <class V>
  void fields(V& v) {
    v(step), v(err);
  }
};

struct Done {
  static constexpr auto kType = GuestType::done;
  template <class V>
  void fields(V&) {}
};

struct Failure {
  static constexpr auto kType = GuestType::failure;
  std::uint8_t code = 0;  // an Errc
  std::string what;
  std::string hint;
  template <class V>
  void fields(V& v) {
    v(code), v(what), v(hint);
  }
};

// Descriptors, in this order: stdin (if asked for), stdout, stderr; with a terminal one socket for
// all.
struct Started {
  static constexpr auto kType = GuestType::started;
  std::int32_t pid = 0;
  template <class V>
  void fields(V& v) {
    v(pid);
  }
};

enum class Stopped : std::uint8_t { by_itself, wall_time, cpu_time, memory };

struct Ended {
  static constexpr auto kType = GuestType::ended;
  std::int32_t exit_code = 0;
  std::int32_t signal = 0;
  std::int32_t start_errno = 0;  // Not zero: it was never executed.
  Stopped stopped = Stopped::by_itself;
  std::chrono::microseconds cpu_user{0};
  std::chrono::microseconds cpu_system{0};
  std::uint64_t max_rss_bytes = 0;
  std::chrono::microseconds wall{0};
  template <class V>
  void fields(V& v) {
    v(exit_code), v(signal), v(start_errno), v(stopped), v(cpu_user), v(cpu_system),
        v(max_rss_bytes), v(wall);
  }
};

struct Opened {
  static constexpr auto kType = GuestType::opened;
  template <class V>
  void fields(V&) {}
};

enum class EntryType : std::uint8_t { file, directory, symlink, other };

struct Entry {
  std::string name;
  EntryType type = EntryType::file;
  std::uint64_t size = 0;
  std::uint32_t mode = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::chrono::nanoseconds modified{0};  // since 1970
  std::string target;
  std::vector<std::string> attributes;  // a name, its value, the next name …
  template <class V>
  void fields(V& v) {
    v(name), v(type), v(size), v(mode), v(uid), v(gid), v(modified), v(target), v(attributes);
  }
};

struct Info {
  static constexpr auto kType = GuestType::info;
  Entry entry;
  template <class V>
  void fields(V& v) {
    v(entry);
  }
};

struct Page {
  static constexpr auto kType = GuestType::page;
  std::vector<Entry> entries;
  std::uint64_t next = 0;
  template <class V>
  void fields(V& v) {
    v(entries), v(next);
  }
};

enum class Change : std::uint8_t {
  created,
  modified,
  removed,
  moved_from,
  moved_to,
  attributes,
  overflow
};

struct Event {
  Change change = Change::modified;
  bool directory = false;
  std::string path;
  template <class V>
  void fields(V& v) {
    v(change), v(directory), v(path);
  }
};

struct Events {
  static constexpr auto kType = GuestType::events;
  std::vector<Event> events;
  template <class V>
  void fields(V& v) {
    v(events);
  }
};

struct Process {
  std::int32_t pid = 0;
  std::int32_t parent = 0;
  std::uint32_t uid = 0;
  std::uint8_t state = '?';
  std::chrono::milliseconds cpu{0};
  std::uint64_t rss_bytes = 0;
  std::vector<std::string> argv;
  template <class V>
  void fields(V& v) {
    v(pid), v(parent), v(uid), v(state), v(cpu), v(rss_bytes), v(argv);
  }
};

struct Processes {
  static constexpr auto kType = GuestType::processes;
  std::vector<Process> processes;
  bool more = false;  // Another frame follows.
  template <class V>
  void fields(V& v) {
    v(processes), v(more);
  }
};

struct ArchiveDone {
  static constexpr auto kType = GuestType::archive_done;
  std::uint64_t entries = 0;
  std::uint64_t skipped = 0;
  std::vector<std::string> reasons;
  template <class V>
  void fields(V& v) {
    v(entries), v(skipped), v(reasons);
  }
};

struct Disk {
  static constexpr auto kType = GuestType::disk;
  std::uint64_t used_bytes = 0;
  std::uint64_t limit_bytes = 0;
  std::uint64_t used_inodes = 0;
  template <class V>
  void fields(V& v) {
    v(used_bytes), v(limit_bytes), v(used_inodes);
  }
};

enum class ChangeKind : std::uint8_t { added, changed, removed };

// One file that is not what the sandbox began with.
struct FileChange {
  std::string path;  // absolute
  ChangeKind kind = ChangeKind::added;
  EntryType type = EntryType::file;  // now; of a removed one: before
  std::uint64_t size = 0;
  std::uint64_t size_before = 0;
  std::uint32_t mode = 0;
  std::uint64_t stamp = 0;
  std::int64_t modified_ns = 0;
  std::string target;
  template <class V>
  void fields(V& v) {
    v(path), v(kind), v(type), v(size), v(size_before), v(mode), v(stamp), v(modified_ns),
        v(target);
  }
};

struct ChangeList {
  static constexpr auto kType = GuestType::change_list;
  std::vector<FileChange> entries;
  bool more = false;     // Another frame follows.
  bool complete = true;  // In the last frame: these were all.
  template <class V>
  void fields(V& v) {
    v(entries), v(more), v(complete);
  }
};

// Calls with one number that the gate refused.
struct RefusedCalls {
  std::uint32_t number = 0;
  std::uint64_t count = 0;
  template <class V>
  void fields(V& v) {
    v(number), v(count);
  }
};

// What happened in the sandbox while something ran: comes before the Ended of a program that was
// started with `effects`, and answers TellEffects. Where a count is not known it is -1.
struct Measured {
  static constexpr auto kType = GuestType::measured;
  std::vector<FileChange> files;
  bool files_known = false;
  bool files_complete = false;  // These were all.
  bool files_too_many = false;  // Why they are not known: there are too many to compare.
  std::int64_t processes = -1;  // and threads
  std::int64_t written_bytes = -1;
  std::int64_t attempted = -1;  // connections
  std::int64_t refused = -1;    // of these
  std::int64_t cpu_us = -1;
  std::vector<RefusedCalls> refused_calls;  // each number once
  bool refused_calls_known = false;
  template <class V>
  void fields(V& v) {
    v(files), v(files_known), v(files_complete), v(files_too_many), v(processes), v(written_bytes),
        v(attempted), v(refused), v(cpu_us), v(refused_calls), v(refused_calls_known);
  }
};

// Programs that run and whose end was not told yet.
struct Executions {
  static constexpr auto kType = GuestType::executions;
  std::vector<std::uint32_t> ids;  // the requests that started them
  template <class V>
  void fields(V& v) {
    v(ids);
  }
};

// A connection to the proxy's port inside, with its descriptor. Answers nothing: its id is 0.
struct Accepted {
  static constexpr auto kType = GuestType::accepted;
  template <class V>
  void fields(V&) {}
};

// ---- daemon → guest
// ------------------------------------------------------------------------------

struct Start {
  static constexpr auto kType = GuestType::start;
  std::vector<std::string> argv;
  std::vector<std::string> env;  // NAME=value, on top of the guest's own
  std::string cwd;
  std::string user;
  bool want_stdin = false;
  bool both_ways = false;  // stdin is a socket that carries answers, too
  bool terminal = false;
  std::uint16_t rows = 0;
  std::uint16_t columns = 0;
  std::chrono::milliseconds wall_time{0};
  std::chrono::milliseconds cpu_time{0};
  std::uint32_t open_files = 1024;
  // Zero: an ordinary program. Otherwise it comes with descriptors: what to execute, and so many
  // layers of the image that it wants.
  std::uint8_t layers = 0;
  bool effects = false;  // What happens until its end is measured.
  template <class V>
  void fields(V& v) {
    v(argv), v(env), v(cwd), v(user), v(want_stdin), v(both_ways), v(terminal), v(rows), v(columns),
        v(wall_time), v(cpu_time), v(open_files), v(layers), v(effects);
  }
};

// To the program started by request `execution`, and all it started.
struct SignalExecution {
  static constexpr auto kType = GuestType::signal_execution;
  std::uint32_t execution = 0;
  std::int32_t signal = 0;
  template <class V>
  void fields(V& v) {
    v(execution), v(signal);
  }
};

struct SignalProcess {
  static constexpr auto kType = GuestType::signal_process;
  std::int32_t pid = 0;
  std::int32_t signal = 0;
  template <class V>
  void fields(V& v) {
    v(pid), v(signal);
  }
};

struct Resize {
  static constexpr auto kType = GuestType::resize;
  std::uint32_t execution = 0;
  std::uint16_t rows = 0;
  std::uint16_t columns = 0;
  template <class V>
  void fields(V& v) {
    v(execution), v(rows), v(columns);
  }
};

struct KillAll {
  static constexpr auto kType = GuestType::kill_all;
  template <class V>
  void fields(V&) {}
};

struct Ping {
  static constexpr auto kType = GuestType::ping;
  template <class V>
  void fields(V&) {}
};

enum class FileOp : std::uint8_t {
  stat,
  list,
  open_read,
  write,  // comes with a pipe to read from, answers twice; mode_flags: 0 replace, 1 append, 2
          // create new, 3 replace and keep the mode
  make_directory,
  move,
  copy,
  remove,
  change_mode,
  symlink,  // `other` is what it points to
  watch,
  archive_out,
  archive_in,  // comes with a descriptor to read the archive from
  // Of everything that was written, whatever `path` and `user` say:
  changes,       // answers with ChangeList…
  save,          // a tar stream for `restore` of another sandbox
  restore,       // comes with a descriptor to read it from
  open_before,   // what `path` was when the sandbox began
  change_owner,  // `other` is whose it will be
};

struct File {
  static constexpr auto kType = GuestType::file;
  FileOp op = FileOp::stat;
  std::string user;
  std::string path;
  std::string other;
  std::uint32_t mode = 0;
  std::uint32_t mode_flags = 0;
  std::uint64_t cursor = 0;
  std::uint32_t most = 0;
  // Of a file that is written, instead of all whose names begin with `other`.
  std::vector<std::string> attributes;
  template <class V>
  void fields(V& v) {
    v(op), v(user), v(path), v(other), v(mode), v(mode_flags), v(cursor), v(most), v(attributes);
  }
};

struct Connect {
  static constexpr auto kType = GuestType::connect;
  std::uint16_t port = 0;
  template <class V>
  void fields(V& v) {
    v(port);
  }
};

struct ListProcesses {
  static constexpr auto kType = GuestType::list_processes;
  template <class V>
  void fields(V&) {}
};

struct DiskUsage {
  static constexpr auto kType = GuestType::disk_usage;
  template <class V>
  void fields(V&) {}
};

// The sandbox stood still for so long: no program's time runs meanwhile. No answer; it is sent
// before the sandbox goes on, so that the guest reads it first of all.
struct SkipTime {
  static constexpr auto kType = GuestType::skip_time;
  std::chrono::milliseconds time{0};
  template <class V>
  void fields(V& v) {
    v(time);
  }
};

// Asked by a daemon that did not start them. Whatever the last one was watching is nobody's now,
// and ends.
struct KnownExecutions {
  static constexpr auto kType = GuestType::known_executions;
  template <class V>
  void fields(V&) {}
};

// So many connections more may be handed out. No answer. A new daemon begins at none.
struct AcceptMore {
  static constexpr auto kType = GuestType::accept_more;
  std::uint32_t count = 0;
  template <class V>
  void fields(V& v) {
    v(count);
  }
};

// From now on what happens is measured, until TellEffects names this request. `process`: whose use
// of time and bytes is told.
struct TakeStock {
  static constexpr auto kType = GuestType::take_stock;
  std::int32_t process = 0;
  template <class V>
  void fields(V& v) {
    v(process);
  }
};

struct TellEffects {
  static constexpr auto kType = GuestType::tell_effects;
  std::uint32_t since = 0;
  std::int32_t process = 0;
  template <class V>
  void fields(V& v) {
    v(since), v(process);
  }
};

struct StopWork {
  static constexpr auto kType = GuestType::stop_work;
  std::uint32_t work = 0;
  template <class V>
  void fields(V& v) {
    v(work);
  }
};

}  // namespace asr::wire
