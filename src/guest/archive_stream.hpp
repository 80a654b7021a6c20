// What all who read or write tar streams share.
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <string>

#include "base/result.hpp"

namespace asr {

struct FreeWriter {
  void operator()(archive* a) const noexcept { ::archive_write_free(a); }
};
struct FreeReader {
  void operator()(archive* a) const noexcept { ::archive_read_free(a); }
};
struct FreeEntry {
  void operator()(archive_entry* e) const noexcept { ::archive_entry_free(e); }
};
using ArchiveWriter = std::unique_ptr<archive, FreeWriter>;
using ArchiveReader = std::unique_ptr<archive, FreeReader>;
using ArchiveEntry = std::unique_ptr<archive_entry, FreeEntry>;

Error archive_error(archive* a, const std::string& what);

// Whether a name in an archive climbs out of where it is unpacked.
bool leads_outside(const std::string& name);

// The contents of the entry that was read last, into an empty file. Holes stay holes.
Result<void> read_contents(archive* in, archive_entry* entry, int fd, const std::string& name);

}  // namespace asr
