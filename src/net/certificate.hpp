// A certificate of one's own, for a server that has no other.
#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "net/http_server.hpp"

namespace asr {

// Kept in `folder`, made where it is missing or has less than a week to live: for localhost and
// this machine's name, valid a year, its key readable by its owner only.
Result<TlsFiles> own_certificate(const std::filesystem::path& folder);

}  // namespace asr
