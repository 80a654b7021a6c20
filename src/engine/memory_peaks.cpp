#include "engine/memory_peaks.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace asr {

namespace {

std::uint64_t number_in(int fd) {
  std::array<char, 32> text{};
  ssize_t n = ::pread(fd, text.data(), text.size(), 0);
  std::uint64_t value = 0;
  if (n > 0) std::from_chars(text.data(), text.data() + n, value);
  return value;
}

}  // namespace

std::uint64_t MemoryPeaks::look() {
  std::uint64_t now = number_in(shared_.get());
  highest_ = std::max(highest_, now);
  for (Watch* watch : watches_) watch->most_ = std::max(watch->most_, now);
  return now;
}

std::unique_ptr<MemoryPeaks::Watch> MemoryPeaks::watch() {
  Cgroups::Peak kind = cgroups_->peak_kind();
  if (kind == Cgroups::Peak::none) return nullptr;
  std::unique_ptr<Watch> watch(new Watch(shared_from_this()));
  if (kind == Cgroups::Peak::own) {
    auto opened = cgroups_->open_peak(group_);
    if (!opened) return nullptr;
    watch->own_ = *std::move(opened);
    watch->before_ = number_in(watch->own_.get());
    watch->own_begins_ = ::write(watch->own_.get(), "1", 1) == 1;
    return watch;
  }
  std::lock_guard lock(mutex_);
  if (!shared_) {
    auto opened = cgroups_->open_peak(group_);
    if (!opened) return nullptr;
    shared_ = *std::move(opened);
  }
  look();
  if (::pwrite(shared_.get(), "0", 1, 0) != 1) return nullptr;
  watches_.push_back(watch.get());
  return watch;
}

std::optional<std::uint64_t> MemoryPeaks::Watch::peak() {
  if (own_) {
    std::uint64_t now = number_in(own_.get());
    if (now == 0 || (!own_begins_ && now <= before_)) return std::nullopt;
    return now;
  }
  std::lock_guard lock(peaks_->mutex_);
  std::uint64_t now = peaks_->look();
  if (now == 0) return std::nullopt;
  return std::max(most_, now);
}

MemoryPeaks::Watch::~Watch() {
  std::lock_guard lock(peaks_->mutex_);
  peaks_->watches_.remove(this);
}

std::uint64_t MemoryPeaks::highest() const {
  std::lock_guard lock(mutex_);
  return highest_;
}

}  // namespace asr
