// The languages of one environment: those that come with this program, and those it brings itself.
#pragma once

#include <memory>
#include <string>

#include "engine/sandbox.hpp"
#include "interpreter/language.hpp"

namespace asr {

// Errc::invalid if there is no such language there. For one of ours the sandbox is not asked, and
// may be paused or gone.
asio::awaitable<Result<LanguagePtr>> language_in(Result<std::shared_ptr<Sandbox>> sandbox,
                                                 std::string name);

}  // namespace asr
