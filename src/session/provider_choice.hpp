// Who holds a session, where that is left to the server: by what the request needs.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "provider/provider.hpp"
#include "session/request.hpp"

namespace asr {

// What a provider must be able to do for a session, beside what every session has.
struct Needs {
  std::vector<Ability> abilities;
  std::chrono::seconds life{0};  // zero: without end
  bool asks_for_life = false;    // It is the request's own word, not this server's habit.
};
// `life`: how long it will live, after all that this server has to say about it.
Needs needs_of(const SessionRequest& request, std::chrono::seconds life);

// Errc::unsupported or Errc::denied, which says what of it the provider cannot do, and why.
Result<void> check(const Needs& needs, const Provider& provider);
// Likewise, of one that is already there. `life`: from its beginning to its end; zero: no end.
Result<void> check_life(std::chrono::seconds life, const Provider& provider);

struct ProviderChoice {
  std::string name;
  std::string reason;
};
// The first that can do all of it and is not in trouble. Errc::unsupported tells what each lacks.
Result<ProviderChoice> choose_provider(const Needs& needs,
                                       const std::vector<const Provider*>& order);

}  // namespace asr
