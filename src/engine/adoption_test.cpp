// What an engine takes over from another, with a guest played by the test.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_future.hpp>

#include "engine/native_sandbox.hpp"
#include "engine/records.hpp"
#include "wire/guest_messages.hpp"

namespace asr {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;

SandboxRecord some_record() {
  SandboxRecord record;
  record.id = "abc";
  record.label = "the caller's\0own"s;
  record.spec = spec_of(Preset::strict);
  record.spec.environment = {Environment::Kind::folder, "/some/where"};
  record.isolation.facts = {{"network", Guarantee::partial, "a", "b"},
                            {"x", Guarantee::none, "", ""}};
  record.host_pid = 4711;
  record.group.name = "s12";
  record.group.oom_kills_before = 3;
  record.group.used_before.cpu = 17us;
  record.first_id = IdRanges::kFirst + IdRanges::kRangeSize;
  record.step_micros = {1, 2, 3};
  record.paused.before = 5s;
  record.paused.since = PausedTime::Clock::now();
  record.spec.disk = PersistentDisk{"disks/a"};
  record.spec.volumes = {{"v", "/data", true}, {"w", "/more", false}};
  record.storage = {{StorageRecord::Kind::disk, 3}, {StorageRecord::Kind::folder, 0}};
  return record;
}

TEST(Records, OfASandboxComeBack) {
  SandboxRecord record = some_record();
  auto read = sandbox_record(to_blob(record));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->id, record.id);
  EXPECT_EQ(read->label, record.label);
  EXPECT_EQ(read->spec, record.spec);
  EXPECT_EQ(read->isolation.facts, record.isolation.facts);
  EXPECT_EQ(read->host_pid, record.host_pid);
  EXPECT_EQ(read->group.name, record.group.name);
  EXPECT_EQ(read->group.oom_kills_before, record.group.oom_kills_before);
  EXPECT_EQ(read->group.used_before.cpu, record.group.used_before.cpu);
  EXPECT_EQ(read->first_id, record.first_id);
  EXPECT_EQ(read->step_micros, record.step_micros);
  EXPECT_EQ(read->paused.before, record.paused.before);
  EXPECT_EQ(read->paused.since, record.paused.since);
  ASSERT_EQ(read->storage.size(), 2U);
  EXPECT_EQ(read->storage[0].loop, 3U);
  EXPECT_EQ(read->storage[1].kind, StorageRecord::Kind::folder);
}

TEST(Records, OfAProgramComeBack) {
  ExecutionRecord record;
  record.id = 9;
  record.label = "p";
  record.started = std::chrono::steady_clock::now();
  EXPECT_FALSE(execution_record(to_blob(record))->ended);
  record.has_err = true;
  record.overflow = OutputOverflow::truncate;
  record.ended.emplace();
  record.ended->reason = EndReason::wall_time;
  record.ended->exit_code = 137;
  auto read = execution_record(to_blob(record));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->id, 9U);
  EXPECT_EQ(read->started, record.started);
  EXPECT_TRUE(read->has_err && !read->has_in);
  EXPECT_EQ(read->overflow, OutputOverflow::truncate);
  ASSERT_TRUE(read->ended);
  EXPECT_EQ(read->ended->reason, EndReason::wall_time);
}

TEST(Records, OfAnotherReleaseOrCutAreRefused) {
  std::string blob = to_blob(some_record());
  EXPECT_FALSE(sandbox_record(blob.substr(0, blob.size() - 1)));
  EXPECT_FALSE(sandbox_record(blob + "x"));
  EXPECT_FALSE(sandbox_record(""));
  std::string other = blob;
  other[2] = static_cast<char>(other[2] + 1);
  auto refused = sandbox_record(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
}

class Adopted : public testing::Test {
 protected:
  static constexpr std::uint32_t kProgram = 5;

  Adopted() {
    auto pair = *seqpacket_pair();
    guest_ = std::move(pair.second);
    Birth birth;
    birth.id = SandboxId("abc");
    birth.channel =
        std::make_shared<Channel>(asio::make_strand(context_), std::move(pair.first), 3);
    birth.cgroups = Cgroups::none();
    sandbox_ = std::make_shared<NativeSandbox>(std::move(birth), [](Remains) {});
    NativeSandbox::KeptExecution program;
    program.record.id = kProgram;
    program.record.label = "program";
    program.record.has_out = true;
    program.record.started = std::chrono::steady_clock::now() - 1h;
    program.record.wall_time = 1s;  // Long over: the guest may have said so while nobody listened.
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    program.fds.emplace_back(ends[0]);
    writer_ = UniqueFd(ends[1]);
    std::vector<NativeSandbox::KeptExecution> programs;
    programs.push_back(std::move(program));
    SandboxRecord record;
    record.id = "abc";
    record.label = "box";
    sandbox_->resume_life(record, std::move(programs));
    auto executions = sandbox_->adopted_executions();
    execution_ = std::move(executions.at(0));
  }
  ~Adopted() override {
    execution_.reset();
    sandbox_.reset();
    guest_.reset();
    context_.restart();
    context_.run_for(1s);
  }

  // The question that every adopted guest is asked.
  std::uint32_t question() {
    run();
    std::vector<char> buffer(kMaxPacket);
    auto received = receive_packet(guest_.get(), buffer, Wait::dont_block);
    auto frame = received ? parse_frame(received->bytes) : std::nullopt;
    EXPECT_TRUE(frame && decode<wire::KnownExecutions>(*frame));
    return frame ? frame->id : 0;
  }
  template <class Message>
  void say(std::uint32_t id, const Message& message) {
    ASSERT_TRUE(send_message(guest_.get(), id, message));
    run();
  }
  void known(std::uint32_t question, std::vector<std::uint32_t> ids) {
    wire::Executions executions;
    executions.ids = std::move(ids);
    say(question, executions);
  }
  void run() {
    context_.restart();
    context_.run_for(20ms);
  }
  Result<ExitStatus> end_of_program() {
    auto waiting = asio::co_spawn(context_, execution_->wait(), asio::use_future);
    run();
    if (waiting.wait_for(0s) != std::future_status::ready) return fail(Errc::timeout, "it runs");
    return waiting.get();
  }

  asio::io_context context_;
  UniqueFd guest_;
  UniqueFd writer_;
  std::shared_ptr<NativeSandbox> sandbox_;
  std::unique_ptr<Execution> execution_;
};

TEST_F(Adopted, HaveTheirLabels) {
  EXPECT_EQ(sandbox_->label(), "box");
  EXPECT_EQ(execution_->label(), "program");
  EXPECT_TRUE(sandbox_->adopted_executions().empty());
}

TEST_F(Adopted, RequestsAreOfANewEpoch) { EXPECT_EQ(question() >> 22, 3U); }

TEST_F(Adopted, AnEndThatAnotherDaemonHeardIsLost) {
  known(question(), {});
  auto status = end_of_program();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->reason, EndReason::lost);
  EXPECT_FALSE(status->ok());
  EXPECT_EQ(sandbox_->state(), SandboxState::ready) << "the sandbox is none the worse for it";
}

TEST_F(Adopted, AnEndThatWaitedIsHeard) {
  std::uint32_t asked = question();
  wire::Ended ended;
  ended.exit_code = 4;
  ended.wall = 2s;
  say(kProgram, ended);
  known(asked, {});
  auto status = end_of_program();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->reason, EndReason::exited);
  EXPECT_EQ(status->exit_code, 4);
  EXPECT_EQ(status->wall, 2s) << "not the hour that nobody listened";
}

TEST_F(Adopted, WhatTheGuestKnowsRunsOn) {
  known(question(), {kProgram});
  EXPECT_FALSE(end_of_program());
  wire::Ended ended;
  ended.exit_code = 1;
  say(kProgram, ended);
  auto status = end_of_program();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->exit_code, 1);
}

TEST_F(Adopted, LateAnswersAreDroppedAndTheirDescriptorsClosed) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  UniqueFd reader(ends[0]);
  std::array<int, 1> sent{ends[1]};
  ASSERT_TRUE(send_message(guest_.get(), 77, wire::Opened{}, sent));
  ::close(ends[1]);
  known(question(), {kProgram});
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 0);
  EXPECT_EQ(sandbox_->state(), SandboxState::ready);
}

// Nothing is taken from the pipe before somebody asks for it.
TEST_F(Adopted, OutputStaysWhereItIsUntilItIsAskedFor) {
  ASSERT_EQ(::write(writer_.get(), "text", 4), 4);
  run();
  std::string path = "/proc/self/fd/" + std::to_string(writer_.get());
  UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  char text[8];
  ASSERT_EQ(::read(reader.get(), text, sizeof text), 4) << "somebody has read it";
  ASSERT_EQ(::write(writer_.get(), "more", 4), 4);
  auto reading = asio::co_spawn(context_, execution_->read(), asio::use_future);
  run();
  ASSERT_EQ(reading.wait_for(0s), std::future_status::ready);
  EXPECT_EQ(reading.get().value()->data, "more");
}

TEST_F(Adopted, AGuestThatIsGoneIsGone) {
  guest_.reset();
  auto status = end_of_program();
  ASSERT_TRUE(status);
  EXPECT_EQ(status->reason, EndReason::sandbox_gone);
  EXPECT_EQ(sandbox_->state(), SandboxState::gone);
}

}  // namespace
}  // namespace asr
