// The part of a program's life that outlives the daemon: given to the keeper by one, taken up by
// the next.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/native_execution.hpp"

namespace asr {

namespace {

UniqueFd copy_of(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

Result<void> check_pipe(const UniqueFd& fd) {
  struct stat info {};
  if (::fstat(fd.get(), &info) == 0 && S_ISFIFO(info.st_mode)) return {};
  return fail(Errc::internal, "what was kept is not a pipe");
}

}  // namespace

std::string NativeExecution::kept_name() const {
  return context_.sandbox + "/" + std::to_string(id_);
}

Result<Keepsake> NativeExecution::keepsake() const {
  ExecutionRecord record;
  record.id = id_;
  record.pid = pid_;
  record.label = label_.get();
  record.terminal = terminal_;
  record.both_ways = both_ways_;
  record.most_bytes = most_bytes_;
  record.seen_bytes = seen_bytes_;
  record.overflow = overflow_;
  record.started = started_;
  record.wall_time = wall_time_;
  record.paused_before = paused_before_;
  record.oom_before = oom_before_;
  record.ended = ended_;
  Keepsake thing;
  thing.name = kept_name();
  auto add = [&](const std::unique_ptr<Stream>& stream, bool& there) {
    there = stream != nullptr && !stream->unwanted;
    if (there) thing.fds.push_back(copy_of(stream->descriptor.native_handle()));
    return !there || static_cast<bool>(thing.fds.back());
  };
  // A terminal's two halves are one socket.
  bool copied = terminal_ || add(in_, record.has_in);
  copied = copied && add(out_, record.has_out) && add(err_, record.has_err);
  if (!copied) return fail(out_of_descriptors());
  thing.blob = to_blob(record);
  return thing;
}

asio::awaitable<Result<void>> NativeExecution::keep(std::string label) {
  auto self = shared_from_this();
  CO_TRY(check_label(label));
  if (left_) co_return fail(Errc::gone, "the sandbox was left to the next engine");
  auto keeper = CO_TRY(context_.keeper(weak_from_this()));
  label_.set(std::move(label));
  context_.read_ahead = false;
  keeper_ = keeper;  // From now on changes are told: one that comes while we wait is not lost.
  Keepsake thing = CO_TRY(keepsake());
  auto keeping = keeper->keep(std::move(thing));
  co_return co_await std::move(keeping);
}

void NativeExecution::save() {
  if (!keeper_) return;
  // Without a descriptor to spare, the next daemon finds what the keeper knew before.
  if (auto thing = keepsake()) keeper_->save(*std::move(thing));
}

Result<void> NativeExecution::take_kept_ends(const ExecutionRecord& record,
                                             std::vector<UniqueFd> fds) {
  std::size_t expected = 0;
  for (bool there : {record.has_in, record.has_out, record.has_err}) expected += there ? 1 : 0;
  if (fds.size() != expected) return fail(Errc::internal, "wrong number of descriptors");
  if (record.terminal) return expected == 1 ? take_terminal(std::move(fds[0])) : Result<void>();
  std::size_t next = 0;
  auto take = [&](bool there, std::unique_ptr<Stream>& stream) -> Result<void> {
    if (!there) return {};
    UniqueFd fd = std::move(fds[next++]);
    bool is_socket = record.both_ways && &stream == &in_;
    if (!is_socket) TRY(check_pipe(fd));
    stream = std::make_unique<Stream>(channel_->executor(), fd.release(),
                                      is_socket ? Source::socket : Source::pipe);
    return {};
  };
  TRY(take(record.has_in, in_));
  TRY(take(record.has_out, out_));
  return take(record.has_err, err_);
}

Result<std::shared_ptr<NativeExecution>> NativeExecution::adopt(std::shared_ptr<Channel> channel,
                                                                ExecutionContext context,
                                                                ExecutionRecord record,
                                                                std::vector<UniqueFd> fds) {
  std::shared_ptr<NativeExecution> execution(new NativeExecution(channel, std::move(context)));
  execution->id_ = record.id;
  execution->pid_ = record.pid;
  execution->label_.set(record.label);
  execution->terminal_ = record.terminal;
  execution->both_ways_ = record.both_ways;
  execution->most_bytes_ = record.most_bytes;
  execution->seen_bytes_ = record.seen_bytes;
  execution->overflow_ = record.overflow;
  execution->started_ = record.started;
  execution->wall_time_ = record.wall_time;
  execution->paused_before_ = record.paused_before;
  execution->oom_before_ = record.oom_before;
  execution->ended_ = record.ended;
  execution->adopted_ = Clock::now();
  execution->paused_at_adoption_ = execution->context_.paused();
  execution->context_.read_ahead = false;
  TRY(execution->take_kept_ends(record, std::move(fds)));
  execution->keeper_ = TRY(execution->context_.keeper(execution));
  execution->begin(channel->box_for(record.id));
  return execution;
}

void NativeExecution::lose() {
  if (auto box = end_.lock()) box->give_up();
}

void NativeExecution::leave() {
  left_ = true;
  keeper_.reset();
  boost::system::error_code ignored;
  for (auto* stream : {&in_, &out_, &err_})
    if (*stream) (*stream)->descriptor.cancel(ignored);
  changed_.cancel();
}

}  // namespace asr
