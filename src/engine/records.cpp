#include "engine/records.hpp"

#include "wire/frame.hpp"

namespace asr {

namespace {

// Changes with the fields below; the guest's messages have a version of their own.
constexpr std::uint16_t kRecordVersion = 1;

using Clock = PausedTime::Clock;

// The same list of fields writes and reads, as in wire/codec.hpp; times that are points become
// durations, optional things a flag and a value. The clock is the machine's: it runs on between
// two lives of an instance.
template <class V>
void visit(V& v, Clock::time_point& time) {
  Clock::duration since = time.time_since_epoch();
  v(since);
  time = Clock::time_point(since);
}

template <class V, class T, class Fields>
void visit(V& v, std::optional<T>& value, Fields fields) {
  bool there = value.has_value();
  v(there);
  if (!there) return;
  if (!value) value.emplace();
  fields(*value);
}

template <class V, class T, class Fields>
void visit(V& v, std::vector<T>& values, Fields fields) {
  auto count = static_cast<std::uint32_t>(values.size());
  v(count);
  constexpr std::uint32_t kMost = 100;
  values.resize(std::min(count, kMost));
  for (T& value : values) fields(value);
}

template <class V>
void visit(V& v, SandboxSpec& spec) {
  Limits& limits = spec.limits;
  v(spec.environment.kind), v(spec.environment.path), v(spec.root), v(spec.network),
      v(spec.proxy_port), v(spec.tier);
  v(limits.memory_bytes), v(limits.milli_cpus), v(limits.pids), v(limits.disk_bytes);
  v(limits.inodes), v(limits.open_files), v(limits.wall_time), v(limits.cpu_time);
  v(limits.output_bytes);
  visit(v, spec.disk, [&](PersistentDisk& disk) { v(disk.path); });
  visit(v, spec.volumes,
        [&](Volume& volume) { v(volume.source), v(volume.target), v(volume.read_only); });
}

template <class V>
void visit(V& v, Isolation& isolation) {
  visit(v, isolation.facts, [&](IsolationFact& fact) {
    v(fact.name), v(fact.guarantee), v(fact.mechanism), v(fact.note);
  });
}

template <class V>
void visit(V& v, Group& group) {
  v(group.name), v(group.oom_kills_before), v(group.used_before.cpu);
  v(group.used_before.io_read_bytes), v(group.used_before.io_write_bytes);
}

template <class V>
void visit(V& v, ExitStatus& status) {
  v(status.reason), v(status.exit_code), v(status.signal), v(status.start_errno);
  v(status.oom_kills), v(status.wall), v(status.cpu_user), v(status.cpu_system);
  v(status.max_rss_bytes), v(status.truncated_bytes);
}

template <class V>
void visit(V& v, SandboxRecord& record) {
  v(record.id), v(record.label);
  visit(v, record.spec);
  visit(v, record.isolation);
  v(record.host_pid);
  visit(v, record.group);
  v(record.first_id), v(record.step_micros), v(record.paused.before);
  visit(v, record.paused.since, [&](Clock::time_point& since) { visit(v, since); });
  visit(v, record.storage, [&](StorageRecord& used) { v(used.kind), v(used.loop); });
}

template <class V>
void visit(V& v, ExecutionRecord& record) {
  v(record.id), v(record.pid), v(record.label), v(record.terminal);
  v(record.both_ways), v(record.has_in), v(record.has_out), v(record.has_err);
  v(record.most_bytes), v(record.seen_bytes), v(record.overflow);
  visit(v, record.started);
  v(record.wall_time), v(record.paused_before), v(record.oom_before);
  visit(v, record.ended, [&](ExitStatus& status) { visit(v, status); });
}

template <class Record>
std::string write(Record record) {
  Writer writer;
  writer(kRecordVersion);
  writer(kWireVersion);
  visit(writer, record);
  return writer.take();
}

template <class Record>
Result<Record> read(std::string_view blob) {
  Reader reader(blob);
  std::uint16_t record_version = 0;
  std::uint16_t wire_version = 0;
  reader(record_version);
  reader(wire_version);
  if (record_version != kRecordVersion || wire_version != kWireVersion)
    return fail(Errc::unsupported, "it was made by another release");
  Record record;
  visit(reader, record);
  if (!reader.complete()) return fail(Errc::internal, "its record cannot be read");
  return record;
}

}  // namespace

std::string to_blob(const SandboxRecord& record) { return write(record); }
std::string to_blob(const ExecutionRecord& record) { return write(record); }
Result<SandboxRecord> sandbox_record(std::string_view blob) { return read<SandboxRecord>(blob); }
Result<ExecutionRecord> execution_record(std::string_view blob) {
  return read<ExecutionRecord>(blob);
}

}  // namespace asr
