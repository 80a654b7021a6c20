#include "interpreter/frozen_layer.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "frozen/programs.hpp"

namespace asr {

namespace {

// More than any sandbox's interpreter is worth keeping, whatever its memory limit allows.
constexpr std::uint64_t kMostBytes = 4ULL << 30;
constexpr std::uint64_t kBlock = 512;  // what st_blocks counts

}  // namespace

Result<NewLayer> make_layer() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) return fail_errno("getrandom");
  number = (number >> 1) | 1;  // JSON's numbers have a sign, and zero is none.
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), "%s%lx", frozen::kLayerName, number);
  MemoryFile file = TRY(MemoryFile::make(name.data()));
  return NewLayer{number, std::move(file)};
}

Result<SealedLayer> seal_layer(NewLayer layer) {
  UniqueFd file = TRY(layer.file.seal());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return fail_errno("stat");
  SealedLayer sealed;
  frozen::Header& header = sealed.header;
  if (::pread(file.get(), &header, sizeof header, 0) != sizeof header ||
      header.magic != frozen::kMagic)
    return fail(Errc::unsupported, "it wrote no image");
  auto size = static_cast<std::uint64_t>(info.st_size);
  bool whole = header.size == size && header.layers[0] == layer.number && header.layer_count >= 1 &&
               header.layer_count <= frozen::kMostLayers;
  if (!whole) return fail(Errc::unsupported, "it wrote only a part of its image");
  // Whoever copies it needs the memory that it claims to have: it must have been paid for inside,
  // where it is limited. Honest images have no holes.
  if (size > kMostBytes || static_cast<std::uint64_t>(info.st_blocks) * kBlock < size)
    return fail(Errc::unsupported, "its image is too large, or has holes");
  sealed.layer = std::make_shared<FrozenLayer>(FrozenLayer{layer.number, size, std::move(file)});
  return sealed;
}

Result<std::shared_ptr<const FrozenProgram>> program_of(
    const SealedLayer& image, std::shared_ptr<const UniqueFd> thaw,
    const std::vector<std::shared_ptr<const FrozenLayer>>& below) {
  auto program = std::make_shared<FrozenProgram>();
  program->thaw = std::move(thaw);
  program->layers.push_back(image.layer);
  for (std::uint64_t i = 1; i < image.header.layer_count; ++i) {
    auto found = std::find_if(below.begin(), below.end(), [&](const auto& layer) {
      return layer->number == image.header.layers[i];
    });
    if (found == below.end()) return fail(Errc::unsupported, "its image needs another's");
    program->layers.push_back(*found);
  }
  return std::shared_ptr<const FrozenProgram>(std::move(program));
}

Result<std::shared_ptr<const UniqueFd>> thaw_file() {
  if (frozen::thaw_program().empty())
    return fail(Errc::unsupported, "programs of this machine's kind cannot be frozen");
  // What /proc shows as the program.
  return std::make_shared<const UniqueFd>(TRY(sealed_copy("python3", frozen::thaw_program())));
}

}  // namespace asr
