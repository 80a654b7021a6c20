// Layers of frozen programs, as files in memory.
#pragma once

#include <memory>

#include "base/result.hpp"
#include "engine/command.hpp"
#include "frozen/image.hpp"
#include "os/memory_file.hpp"

namespace asr {

// One that is being written.
struct NewLayer {
  std::uint64_t number = 0;
  MemoryFile file;
};
Result<NewLayer> make_layer();

// Seals it. Its header comes from inside a sandbox: it is looked at only so far that we know which
// layers belong to it. Errc::unsupported if it is no image, or one that claims more than was
// written.
struct SealedLayer {
  std::shared_ptr<const FrozenLayer> layer;
  frozen::Header header;
};
Result<SealedLayer> seal_layer(NewLayer layer);

// The program whose image this is, above some of `below`.
Result<std::shared_ptr<const FrozenProgram>> program_of(
    const SealedLayer& image, std::shared_ptr<const UniqueFd> thaw,
    const std::vector<std::shared_ptr<const FrozenLayer>>& below);

// What brings images to life; Errc::unsupported on machines for which it is not written.
Result<std::shared_ptr<const UniqueFd>> thaw_file();

}  // namespace asr
