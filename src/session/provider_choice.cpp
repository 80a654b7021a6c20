#include "session/provider_choice.hpp"

namespace asr {

namespace {

std::string words_of(std::chrono::seconds life) {
  return life.count() == 0 ? "a life without end"
                           : "a life of " + std::to_string(life.count()) + " s";
}

bool lives_long_enough(const Provider& provider, std::chrono::seconds life) {
  auto longest = provider.longest_life();
  return longest.count() == 0 || (life.count() > 0 && life <= longest);
}

std::string longest_of(const Provider& provider) {
  return std::to_string(provider.longest_life().count()) + " s";
}

// Empty if it can do all of it now.
std::string what_lacks(const Needs& needs, const Provider& provider) {
  if (std::string trouble = provider.trouble(); !trouble.empty()) return trouble;
  for (Ability need : needs.abilities)
    if (!provider.abilities().can(need))
      return std::string(to_string(need)) + ": " + provider.abilities().why_not(need);
  if (!lives_long_enough(provider, needs.life))
    return words_of(needs.life) + ": its sandboxes live for " + longest_of(provider) + " at most";
  return "";
}

}  // namespace

Needs needs_of(const SessionRequest& request, std::chrono::seconds life) {
  Needs needs{{}, life, request.ttl.has_value()};
  auto need = [&](Ability ability) { needs.abilities.push_back(ability); };
  if (request.persistent) need(Ability::disks);
  if (!request.volumes.empty()) need(Ability::volumes);
  if (!request.image.empty()) need(Ability::images);
  if (!request.snapshot.empty() || request.auto_checkpoint) need(Ability::checkpoints);
  if (request.spec.environment.kind != Environment::Kind::host) need(Ability::environments);
  if (request.spec.tier == SyscallTier::browser) need(Ability::browser);
  if (request.preview != PreviewRules() || request.wake_on_traffic) need(Ability::ports);
  if (request.at_expiry == AtExpiry::pause || request.wake_on_traffic) need(Ability::pause);
  if (request.network.needs_proxy())
    need(Ability::allow_list);
  else
    need(request.network.mode == NetworkMode::full ? Ability::internet : Ability::isolation);
  return needs;
}

Result<void> check(const Needs& needs, const Provider& provider) {
  for (Ability need : needs.abilities) TRY(provider.abilities().check(need, provider.name()));
  return check_life(needs.life, provider);
}

Result<void> check_life(std::chrono::seconds life, const Provider& provider) {
  if (lives_long_enough(provider, life)) return {};
  std::string name(provider.name());
  return fail(Errc::unsupported,
              "not supported by this provider: " + name + " cannot give " + words_of(life),
              "its sandboxes live for " + longest_of(provider) + " at most: ask for a ttl_s");
}

Result<ProviderChoice> choose_provider(const Needs& needs,
                                       const std::vector<const Provider*>& order) {
  std::string others;  // why not those before
  for (const Provider* provider : order) {
    std::string name(provider->name());
    if (std::string lack = what_lacks(needs, *provider); !lack.empty()) {
      others += (others.empty() ? "" : "; ") + std::string("not ") + name + " (" + lack + ")";
      continue;
    }
    std::string wanted;
    for (Ability need : needs.abilities)
      wanted += (wanted.empty() ? "" : ", ") + std::string(to_string(need));
    if (needs.asks_for_life) wanted += (wanted.empty() ? "" : ", ") + words_of(needs.life);
    std::string reason = "the first that can do what is asked for";
    if (!wanted.empty()) reason += ": " + wanted;
    if (!others.empty()) reason += "; " + others;
    return ProviderChoice{std::move(name), std::move(reason)};
  }
  return fail(Errc::unsupported, "no provider can do all that is asked for", others);
}

}  // namespace asr
