#include "session/change_apply.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

#include "session/folder_fixture.hpp"

namespace asr {
namespace {

class ChangeApplyTest : public FolderWriterTest {
 protected:
  static FileChange change(const std::string& path, std::string_view text, std::uint64_t stamp) {
    FileChange change;
    change.path = "/workspace/" + path;
    change.size = text.size();
    change.mode = 0644;
    change.stamp = stamp;
    return change;
  }
  static FileChange removed(const std::string& path) {
    FileChange gone = change(path, "", 0);
    gone.kind = FileChange::Kind::removed;
    return gone;
  }

  // What was chosen, from a sandbox whose files all hold "four" and which tells `now` afterwards.
  Result<Applied> apply(std::vector<FileChange> chosen, const std::vector<FileChange>& now) const {
    ChangeSource source;
    source.list = [now]() -> asio::awaitable<Result<Changes>> { co_return Changes{now, true}; };
    source.contents = [](std::string) -> asio::awaitable<Result<UniqueFd>> {
      UniqueFd file = file_with("four");
      co_return file;
    };
    ApplyRequest request;
    request.partial = true;
    request.rules.remove = true;
    UniqueFd folder(::open(in().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    asio::io_context context;
    Result<Applied> result = fail(Errc::internal, "it did not end");
    asio::co_spawn(
        context, apply_changes(std::move(chosen), source, std::move(folder), request),
        [&](const std::exception_ptr&, Result<Applied> applied) { result = std::move(applied); });
    context.run();
    return result;
  }
};

TEST_F(ChangeApplyTest, WhatIsStillAsItWasListed) {
  write(in() / "gone", "before");
  std::vector<FileChange> chosen{removed("gone"), change("b", "four", 2), change("a", "four", 1)};
  std::vector<FileChange> now{change("a", "four", 1), change("b", "four", 2),
                              change("elsewhere", "other", 9), removed("gone")};
  auto applied = apply(chosen, now);
  ASSERT_TRUE(applied) << applied.error().what;
  EXPECT_EQ(all(), (std::map<std::string, std::string>{{"a", "four"}, {"b", "four"}}));
}

TEST_F(ChangeApplyTest, WhatChangedWhileItWasCopiedIsRefusedWithAllElse) {
  write(in() / "gone", "before");
  std::vector<FileChange> chosen{change("a", "four", 1), change("b", "four", 2), removed("gone")};
  const std::vector<std::vector<FileChange>> later{
      {change("a", "four", 1), change("b", "four", 3), removed("gone")},
      {change("a", "four", 1), change("b/c", "four", 2), removed("gone")},
      {change("a", "four", 1), removed("b"), removed("gone")},
      {change("a", "four", 1), change("b", "four", 2), change("gone", "back", 4)},
      {change("a", "four", 1), change("b", "four", 2)},
      {}};
  for (std::size_t i = 0; i < later.size(); ++i) {
    SCOPED_TRACE(i);
    auto applied = apply(chosen, later[i]);
    ASSERT_FALSE(applied);
    EXPECT_EQ(applied.error().code, Errc::conflict);
    EXPECT_EQ(all(), (std::map<std::string, std::string>{{"gone", "before"}}));
  }
}

// A sparse file may be as long as it likes.
TEST_F(ChangeApplyTest, LengthsThatAddUpToLittleAreTooMuch) {
  std::vector<FileChange> chosen{change("a", "four", 1), change("b", "", 2), change("c", "", 3),
                                 change("d", "", 4)};
  chosen[1].size = chosen[2].size = INT64_MAX;
  chosen[3].size = 2;
  auto applied = apply(chosen, chosen);
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.error().code, Errc::exhausted);
  EXPECT_TRUE(all().empty());
}

}  // namespace
}  // namespace asr
