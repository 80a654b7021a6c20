// What something did, as the API tells it.
#pragma once

#include <optional>

#include "engine/effects.hpp"
#include "net/json.hpp"
#include "session/session.hpp"

namespace asr {

// `counted`: connections as the session's proxy saw them, where there is one: inside, all of them
// lead to the proxy.
json::object json_of(const Effects& effects, const std::optional<Effects::Connections>& counted);

Effects::Connections difference(const Effects::Connections& before,
                                const Effects::Connections& now);
// What the session's proxy has seen; and since then.
Effects::Connections connections_of(const Session& session);
std::optional<Effects::Connections> sent_since(const std::optional<Effects::Connections>& before,
                                               const Session& session);

}  // namespace asr
