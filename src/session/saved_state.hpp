// What a session had at one moment: its files and the memory of its interpreters. Others go on from
// it; it never changes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/sandbox.hpp"
#include "session/change_list.hpp"
#include "session/saved_budget.hpp"
#include "session/saved_context.hpp"

namespace asr {

// A tar stream as Sandbox::restore_files() wants it. The file has no name, or belongs to a
// checkpoint that was written down.
struct SavedFiles {
  UniqueFd file;
  std::uint64_t bytes = 0;
};

struct SavedState {
  std::int64_t at_ms = 0;
  std::shared_ptr<const SavedFiles> files;
  std::shared_ptr<const Changes> changes;  // what the files were, for comparing
  std::string sandbox;                     // in which they were that
  std::vector<SavedContext> contexts;
  std::uint64_t programs = 0;  // that ran meanwhile and do not come along
  bool asleep = false;         // The memory is on the disk alone: SavedStore::read() has it.
  SavedBudget::Charge charge;  // Somebody pays for it.

  std::uint64_t bytes() const noexcept;  // that were written for it
};

// How the state compares with what is in a sandbox now.
Moments moments_of(const SavedState& state, const Sandbox& now);

// `folder`: where files without a name may be made. `most`: bytes, or Errc::exhausted.
asio::awaitable<Result<std::shared_ptr<const SavedFiles>>> save_files(
    std::shared_ptr<Sandbox> sandbox, std::filesystem::path folder, std::uint64_t most,
    std::vector<std::string> only = {});
// Into a sandbox in which nothing has run yet.
asio::awaitable<Result<void>> restore_files(std::shared_ptr<Sandbox> sandbox,
                                            std::shared_ptr<const SavedFiles> files);

// What of it does not come along, told before anybody relies on it.
json::object json_of(const SavedState& state);

}  // namespace asr
