#include "session/batch.hpp"

#include "base/clock.hpp"
#include "session/command.hpp"

namespace asr {

namespace {

constexpr std::size_t kMostOfChecker = 4 << 10;

// Gives whether something was left out.
bool put_beginning(json::object& out, const char* name, std::string_view text, std::size_t most) {
  put_bytes(out, name, beginning_of(text, most));
  return text.size() > most;
}

json::object json_of(const RunResult& checker, std::size_t most) {
  json::object out;
  out["exit_code"] = checker.status.exit_code;
  put_beginning(out, "stdout", checker.out, std::min(most, kMostOfChecker));
  put_beginning(out, "stderr", checker.err, std::min(most, kMostOfChecker));
  return out;
}

}  // namespace

std::string_view to_string(BatchState state) noexcept {
  switch (state) {
    case BatchState::running:
      return "running";
    case BatchState::done:
      return "done";
    case BatchState::cancelled:
      return "cancelled";
  }
  return "running";
}

json::object json_of(const VerdictCounts& counts) {
  json::object out;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) out[to_string(static_cast<Verdict>(i))] = counts[i];
  return out;
}

Batch::Batch(asio::any_io_executor executor, std::string id, std::string owner,
             BatchRequest request)
    : id_(std::move(id)),
      owner_(std::move(owner)),
      created_ms_(now_ms()),
      total_(request.items.size()),
      changed_(std::move(executor)) {
  for (BatchItem& item : request.items)
    items_.push_back(std::make_shared<const BatchItem>(std::move(item)));
}

std::shared_ptr<const BatchItem> Batch::take_item() {
  auto item = std::move(items_.front());
  items_.pop_front();
  return item;
}

void Batch::add(Verdict verdict, std::string line) {
  ++counts_[static_cast<std::size_t>(verdict)];
  verdicts_.push_back(std::move(line));
  changed_.ring();
}

void Batch::end(BatchState state) {
  state_ = state;
  ended_ms_ = now_ms();
  items_.clear();
  changed_.ring();
}

json::object Batch::describe() const {
  json::object out;
  out["batch_id"] = id_;
  out["owner"] = owner_;
  out["state"] = to_string(state_);
  out["total"] = total_;
  out["done"] = verdicts_.size();
  out["waiting"] = items_.size();
  out["in_work"] = under_way_.size();
  out["verdicts"] = json_of(counts_);
  out["created_at"] = iso_time(created_ms_);
  out["ended_at"] = ended_ms_ == 0 ? json::value(nullptr) : json::value(iso_time(ended_ms_));
  return out;
}

std::string verdict_line(std::size_t number, const BatchItem& item, const Judgement& judgement,
                         std::size_t most) {
  json::object out;
  out["number"] = number;
  out["id"] = item.id;
  out["verdict"] = to_string(judgement.verdict);
  if (!judgement.reason.empty()) out["reason"] = repair_utf8(judgement.reason);
  bool cut = put_beginning(out, "stdout", judgement.out, most);
  cut = put_beginning(out, "stderr", judgement.err, most) || cut;
  if (cut) out["truncated"] = true;
  if (judgement.status) {
    out["exit_code"] = judgement.status->exit_code;
    if (judgement.status->signal != 0) out["signal"] = judgement.status->signal;
    out["usage"] = usage_of(*judgement.status);
  } else {
    out["exit_code"] = nullptr;
    out["usage"] = nullptr;
  }
  if (judgement.checker) out["checker"] = json_of(*judgement.checker, most);
  if (judgement.attempts > 1) out["attempts"] = judgement.attempts;
  return to_text(out) + "\n";
}

}  // namespace asr
