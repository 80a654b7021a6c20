// Tells the daemon how what was written differs from what the sandbox began with.
#include <unistd.h>

#include "guest/changes.hpp"
#include "guest/work.hpp"

namespace asr {

namespace {

// What the daemon is willing to hold; beyond it the answer says that there is more.
constexpr std::uint64_t kMostEntries = 200'000;
constexpr std::size_t kMostBytes = 48 << 20;
constexpr std::size_t kPageBytes = 48 * 1024;
constexpr std::size_t kLongestPath = 4096;
// Files that were copied up but not changed are as long as this at most, or count as changed.
constexpr std::uint64_t kComparedBytes = 1 << 20;

class Teller final : public ChangeWalk::Visitor {
 public:
  explicit Teller(const Work& work) : work_(work) {}

  bool visit(const Written& written) override {
    if (written.verdict == Written::Verdict::same) return true;
    if (written.path.size() > kLongestPath) {
      page_.complete = false;
      return true;
    }
    if (entries_ >= kMostEntries || bytes_ > kMostBytes) return false;
    wire::FileChange change = describe(written);
    if (written.now != nullptr && S_ISLNK(written.now->st_mode)) read_target(written, change);
    std::size_t size = change.path.size() + change.target.size() + 64;
    ++entries_;
    bytes_ += size;
    page_bytes_ += size;
    page_.entries.push_back(std::move(change));
    return page_bytes_ < kPageBytes || send_page();
  }

  Result<void> finish(WalkEnd end) {
    TRY(std::move(sent_));
    if (end != WalkEnd::complete) page_.complete = false;
    page_.more = false;
    return work_.answer(page_);
  }

 private:
  bool send_page() {
    page_.more = true;
    sent_ = work_.answer(page_);
    page_.entries.clear();
    page_bytes_ = 0;
    return sent_.has_value();
  }

  static void read_target(const Written& written, wire::FileChange& change) {
    change.target.resize(kLongestPath);
    ssize_t n = ::readlinkat(written.dir, written.name, change.target.data(), change.target.size());
    change.target.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  }

  const Work& work_;
  wire::ChangeList page_;
  std::size_t page_bytes_ = 0;
  std::uint64_t entries_ = 0;
  std::size_t bytes_ = 0;
  Result<void> sent_;
};

}  // namespace

Result<void> work_on_changes(const Work& work, const Scratch& scratch) {
  Teller teller(work);
  ChangeWalk walk(scratch, {.compared_bytes = kComparedBytes});
  WalkEnd end = TRY(walk.run(teller));
  return teller.finish(end);
}

}  // namespace asr
