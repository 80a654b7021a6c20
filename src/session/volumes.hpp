// Named volumes: files that sessions of one owner share, and that outlive them.
#pragma once

#include <string>
#include <vector>

#include "provider/provider.hpp"
#include "session/caller.hpp"
#include "session/request.hpp"
#include "session/volume_files.hpp"
#include "store/store.hpp"
#include "store/volume_records.hpp"

namespace asr {

struct VolumeSettings {
  std::uint64_t most_bytes = 64ULL << 30;  // of one
  std::uint32_t most_per_key = 100;
};

// On one thread. Outlived by the store and the provider.
class Volumes {
 public:
  Volumes(asio::any_io_executor executor, Store& store, Provider& provider, VolumeSettings settings)
      : store_(store),
        provider_(provider),
        settings_(settings),
        files_(std::move(executor), provider) {}

  VolumeFiles& files() noexcept { return files_; }

  asio::awaitable<Result<VolumeRecord>> create(Caller caller, std::string name,
                                               std::uint64_t bytes);
  asio::awaitable<Result<std::vector<VolumeRecord>>> list(Caller caller);
  struct Details {
    VolumeRecord record;
    std::vector<VolumeUse> uses;
  };
  asio::awaitable<Result<Details>> find(Caller caller, std::string name);
  // Errc::conflict while a session has it, a stopped one included.
  asio::awaitable<Result<void>> remove(Caller caller, std::string name);

  // What a session of `owner` asks for by name. Errors say which of them is meant.
  struct Placed {
    std::vector<Volume> mounts;
    std::vector<VolumeUse> uses;  // without the session
  };
  asio::awaitable<Result<Placed>> place(std::string owner, std::vector<VolumeMount> wanted);

  // By its id, whoever asks: for who has a token for it.
  asio::awaitable<Result<VolumeRecord>> find_by_id(std::string id);
  static std::string source_of(std::string_view id);

  // Removes files of volumes that nobody has a record of: a creation that was cut short.
  asio::awaitable<void> sweep(std::filesystem::path storage);

 private:
  Store& store_;
  Provider& provider_;
  VolumeSettings settings_;
  VolumeFiles files_;
};

}  // namespace asr
