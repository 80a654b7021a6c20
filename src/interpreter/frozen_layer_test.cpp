#include "interpreter/frozen_layer.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace asr {
namespace {

constexpr std::uint64_t kPages = 4;

// What a program has written that says its image is `size` bytes long.
Result<SealedLayer> sealed(std::uint64_t size, std::uint64_t written, std::uint64_t layers = 1) {
  NewLayer layer = TRY(make_layer());
  frozen::Header header;
  header.size = size;
  header.layers[0] = layer.number;
  header.layer_count = layers;
  std::string bytes(written, 'x');
  bytes.replace(0, sizeof header, reinterpret_cast<const char*>(&header), sizeof header);
  TRY(layer.file.append(bytes));
  UniqueFd shared = TRY(layer.file.share());
  if (::ftruncate(shared.get(), static_cast<off_t>(size)) != 0) return fail_errno("truncate");
  return seal_layer(std::move(layer));
}

TEST(FrozenLayers, AreAsLargeAsWhatWasWritten) {
  auto layer = sealed(kPages * frozen::kPage, kPages * frozen::kPage);
  ASSERT_TRUE(layer) << layer.error().what;
  EXPECT_EQ(layer->layer->bytes, kPages * frozen::kPage);
}

TEST(FrozenLayers, MemoryThatNobodyPaidForIsNoImage) {
  for (std::uint64_t size : {(kPages + 1) * frozen::kPage, 1UL << 30, 1UL << 40}) {
    auto layer = sealed(size, kPages * frozen::kPage);
    ASSERT_FALSE(layer) << size;
    EXPECT_EQ(layer.error().code, Errc::unsupported);
  }
}

TEST(FrozenLayers, NonsenseIsNoImage) {
  for (std::uint64_t layers : {std::uint64_t{0}, std::uint64_t{frozen::kMostLayers} + 1})
    EXPECT_FALSE(sealed(kPages * frozen::kPage, kPages * frozen::kPage, layers));
  auto empty = make_layer();
  ASSERT_TRUE(empty);
  EXPECT_FALSE(seal_layer(std::move(*empty)));
}

}  // namespace
}  // namespace asr
