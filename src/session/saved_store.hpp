// States of sessions on the disk, where they outlive the server. A state is a folder: its files as
// a tar stream, the layers of its interpreters' memory, and `about`, which is written last: without
// it there is no state. Layers are kept once, under their numbers, however many states have them.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "session/saved_state.hpp"
#include "store/secret_box.hpp"

namespace asr {

class SavedStore {
 public:
  // `folder`: for the layers.
  SavedStore(std::filesystem::path folder, const SecretBox& secrets);

  // Writes it down, with `about` beside what belongs to it anyway. Errc::conflict if there is a
  // state in that folder, or a part of one. The work is done by a thread of its own; all or
  // nothing.
  asio::awaitable<Result<void>> write(std::filesystem::path folder,
                                      std::shared_ptr<const SavedState> state, json::object about);

  struct Stored {
    std::shared_ptr<const SavedState> state;
    json::object about;
  };
  // With its memory, which takes a while: by the same thread.
  asio::awaitable<Result<Stored>> read(std::filesystem::path folder);
  // Asleep.
  Result<Stored> look_at(const std::filesystem::path& folder) const;
  // Whether there is one, and not the beginning of one.
  static bool is_state(const std::filesystem::path& folder);
  void remove(const std::filesystem::path& folder);
  void remove_all(const std::filesystem::path& folder);  // the states in it
  // Layers that no state has any more. Before anything is written.
  void sweep();

 private:
  Result<void> write_now(const std::filesystem::path& folder, const SavedState& state,
                         const json::object& about);
  Result<void> keep_layers(const std::vector<std::shared_ptr<const FrozenLayer>>& layers,
                           const std::filesystem::path& folder);
  Result<void> keep_layer(const FrozenLayer& layer, const std::filesystem::path& folder);
  Result<std::shared_ptr<const FrozenLayer>> layer_of(const std::filesystem::path& file,
                                                      std::uint64_t number);
  Result<Stored> wake(const std::filesystem::path& folder);
  Result<void> wake(SavedContext& context, const json::object& about,
                    const std::filesystem::path& folder);

  void remove_if_unused(const std::filesystem::path& layer);

  std::filesystem::path layers_;
  const SecretBox& secrets_;
  // The lowest layers, as long as somebody has them in memory: the next state will have them, too,
  // and they are the largest. Used by both threads.
  std::mutex spared_mutex_;
  std::map<std::filesystem::path, std::weak_ptr<const FrozenLayer>> spared_;
  std::map<std::uint64_t, std::weak_ptr<const FrozenLayer>> known_;  // by the thread, as is thaw_
  std::shared_ptr<const UniqueFd> thaw_;
  asio::thread_pool thread_{1};
};

}  // namespace asr
