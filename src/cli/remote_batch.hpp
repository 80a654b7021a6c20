// Programs judged by the server, in as many batches as it takes. Verdicts are taken as they come; a
// lost connection is taken up where it ended, and what a server forgot is sent again.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cli/dataset.hpp"
#include "cli/remote.hpp"

namespace asr {

class RemoteBatch {
 public:
  static constexpr std::size_t kMostItems = 10'000;    // of one batch
  static constexpr std::size_t kMostBytes = 48 << 20;  // likewise

  struct Listener {
    std::function<void(const JudgeItem& item, json::object verdict)> take;
    // Asked about once a second and after each verdict; false cancels.
    std::function<bool()> go_on;
  };

  RemoteBatch(Remote remote, std::string file, Listener listener)
      : remote_(std::move(remote)), file_(std::move(file)), listener_(std::move(listener)) {}
  RemoteBatch(const RemoteBatch&) = delete;
  RemoteBatch& operator=(const RemoteBatch&) = delete;

  // Until each has its verdict, or `go_on` says no: then the batch is cancelled on the server, too.
  // `at_once`: as many are sent at a time.
  Result<void> judge(const std::vector<JudgeItem>& items, std::size_t at_once);

 private:
  using Items = std::vector<const JudgeItem*>;
  // How one batch went, as far as the way there is concerned.
  enum class Course { complete, cut_off, forgotten, too_large, unwanted };

  Result<void> judge_all(const std::vector<JudgeItem>& items);
  Items next_batch(const std::vector<JudgeItem>& items, std::string& body) const;
  Result<Course> send(const Items& batch, std::string body);
  Result<Course> follow();
  Result<Course> listen(ClientRequest request, const std::string& path, const Items* sent);
  Result<void> take_bytes(std::string_view bytes);
  Result<void> take_line(std::string_view line);
  Error located(Error error, const Items& sent) const;
  bool is_wanted();
  void cancel();

  Remote remote_;
  std::string file_;  // the dataset's, for errors
  Listener listener_;
  Patience patience_{std::chrono::seconds(60)};  // with a server that is away or busy
  Patience ended_patience_{std::chrono::seconds(5)};
  std::unordered_map<std::string, const JudgeItem*> awaited_;  // no verdict yet, by id
  std::string id_;                                             // of the batch
  std::size_t heard_ = 0;                                      // verdicts of it
  std::size_t awaited_after_ = 0;  // so many are left when it is complete
  std::string half_line_;
  std::size_t most_ = kMostItems;
  bool wanted_ = true;
  bool has_answered_ = false;
};

}  // namespace asr
