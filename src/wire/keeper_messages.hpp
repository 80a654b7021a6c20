// What daemon and keeper say to each other. The keeper stores; it understands none of the names and
// blobs it is given.
//
//   TakeAll → Kept + descriptors, any number of them; then Taken + the instance's lock
//   Keep + descriptors → Stored | NotStored          Forget, Quit: no answer
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "wire/frame.hpp"

namespace asr::wire {

enum class KeeperType : std::uint16_t {
  // daemon → keeper
  take_all = 256,
  keep,
  forget,
  quit,
  // keeper → daemon
  kept = 320,
  taken,
  stored,
  not_stored,
};

// The first message of every daemon. The keeper goes on holding what it hands out.
struct TakeAll {
  static constexpr auto kType = KeeperType::take_all;
  std::chrono::milliseconds patience{0};  // How long to wait for the next daemon when this one ends
  std::uint32_t least_epoch = 0;          // The keeper may be younger than the daemon.
  template <class V>
  void fields(V& v) {
    v(patience), v(least_epoch);
  }
};

// Replaces what had the same name.
struct Keep {
  static constexpr auto kType = KeeperType::keep;
  std::string name;
  std::string blob;
  template <class V>
  void fields(V& v) {
    v(name), v(blob);
  }
};

// And everything whose name goes on with a slash.
struct Forget {
  static constexpr auto kType = KeeperType::forget;
  std::string name;
  template <class V>
  void fields(V& v) {
    v(name);
  }
};

struct Quit {
  static constexpr auto kType = KeeperType::quit;
  template <class V>
  void fields(V&) {}
};

struct Kept {
  static constexpr auto kType = KeeperType::kept;
  std::string name;
  std::string blob;
  template <class V>
  void fields(V& v) {
    v(name), v(blob);
  }
};

struct Taken {
  static constexpr auto kType = KeeperType::taken;
  std::uint32_t epoch = 0;  // Each daemon's is larger than that of the one before.
  template <class V>
  void fields(V& v) {
    v(epoch);
  }
};

struct Stored {
  static constexpr auto kType = KeeperType::stored;
  template <class V>
  void fields(V&) {}
};

struct NotStored {
  static constexpr auto kType = KeeperType::not_stored;
  std::string what;
  template <class V>
  void fields(V& v) {
    v(what);
  }
};

}  // namespace asr::wire
