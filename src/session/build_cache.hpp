// Executables that were built before, and compilers' complaints. Each caller has its own: nobody
// can put something there for another, or learn what another has built.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <string>

namespace asr {

// What came of a build. The executable comes from a sandbox and is only ever run in one.
struct Built {
  bool ok = false;
  std::string executable;
  std::string complaint;  // what the compiler wrote
  std::string reason;     // why there is no executable, where the compiler does not say
  bool missing = false;   // there is no compiler
};
using BuiltPtr = std::shared_ptr<const Built>;

// Bounded. Whoever has the most in it makes room, beginning with what was not used for longest.
class BuildCache {
 public:
  explicit BuildCache(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  BuiltPtr find(const std::string& owner, const std::string& name);  // none: nullptr
  void put(const std::string& owner, const std::string& name, BuiltPtr built);
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Entry {
    std::string name;
    BuiltPtr built;
    std::size_t bytes = 0;
  };
  struct Shelf {
    std::list<Entry> entries;  // the one used last in front
    std::map<std::string, std::list<Entry>::iterator, std::less<>> by_name;
    std::size_t bytes = 0;
  };
  void make_room();

  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::map<std::string, Shelf> shelves_;  // by owner
};

}  // namespace asr
