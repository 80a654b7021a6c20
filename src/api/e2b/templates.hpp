// From a template's name to a session made from it.
#pragma once

#include "api/e2b/control_plane.hpp"
#include "api/e2b/sandbox_request.hpp"

namespace asr {

asio::awaitable<Result<std::shared_ptr<Session>>> e2b_make(E2bParts parts, Caller caller,
                                                           E2bCreate create);

}  // namespace asr
