// How many bytes of saved states everybody has, and may have: files on the disk, and memory that
// interpreters had.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.hpp"

namespace asr {

class SavedBudget {
 public:
  SavedBudget(std::uint64_t most_of_one, std::uint64_t most_of_all)
      : most_of_one_(most_of_one), most_of_all_(most_of_all) {}

  // What an owner may still save; Errc::exhausted if that is nothing.
  Result<std::uint64_t> room_of(const std::string& owner) const;

  // Counted for as long as what is given lives, on whichever thread that ends.
  using Charge = std::shared_ptr<void>;
  Charge charge(const std::string& owner, std::uint64_t bytes);

 private:
  struct Books {
    std::mutex mutex;  // for what follows
    std::map<std::string, std::uint64_t> of_owner;
    std::uint64_t of_all = 0;
  };

  std::uint64_t most_of_one_;
  std::uint64_t most_of_all_;
  std::shared_ptr<Books> books_ = std::make_shared<Books>();
};

}  // namespace asr
