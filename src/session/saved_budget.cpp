#include "session/saved_budget.hpp"

#include <algorithm>

#include "base/units.hpp"

namespace asr {

Result<std::uint64_t> SavedBudget::room_of(const std::string& owner) const {
  std::lock_guard lock(books_->mutex);
  auto found = books_->of_owner.find(owner);
  std::uint64_t own = found == books_->of_owner.end() ? 0 : found->second;
  if (own >= most_of_one_)
    return fail(Errc::exhausted, "this key has saved " + format_bytes(own) + ", as much as it may",
                "remove checkpoints, snapshots and branches, or raise saved.max_per_key");
  if (books_->of_all >= most_of_all_)
    return fail(Errc::exhausted, "the server holds as many saved states as it may",
                "try again later, or raise saved.max_bytes");
  return std::min(most_of_one_ - own, most_of_all_ - books_->of_all);
}

SavedBudget::Charge SavedBudget::charge(const std::string& owner, std::uint64_t bytes) {
  std::lock_guard lock(books_->mutex);
  books_->of_owner[owner] += bytes;
  books_->of_all += bytes;
  auto give_back = [books = books_, owner, bytes](void*) {
    std::lock_guard ending(books->mutex);
    books->of_all -= bytes;
    auto found = books->of_owner.find(owner);
    found->second -= bytes;
    if (found->second == 0) books->of_owner.erase(found);
  };
  return Charge(books_.get(), give_back);
}

}  // namespace asr
