#include "engine/full_network_rules.hpp"

#include <array>
#include <cstdio>

namespace asr {

std::string table_of(const InstanceId& instance) { return "agent-sandbox-" + instance.text; }

// Fifteen characters are all a link's name may have: ten for the instance, the rest for the slot.
std::string link_prefix_of(const InstanceId& instance) {
  std::uint32_t hash = 0x811c9dc5;  // FNV-1a
  for (char c : instance.text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
  std::array<char, kLinkPrefix + 1> text{};
  std::snprintf(text.data(), text.size(), "as%08x", hash);
  return text.data();
}

const std::vector<Ipv4Network>& private_networks() {
  // RFC 6890 and its relatives.
  static const std::vector<Ipv4Network> kAll = [] {
    std::vector<Ipv4Network> all;
    for (const char* text :
         {"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
          "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24",
          "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24",
          "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"})
      all.push_back(*parse_ipv4_network(text));
    return all;
  }();
  return kAll;
}

namespace {

template <class Values>
std::string set(const std::string& name, const std::string& flags, const Values& values) {
  std::string text = "  set " + name + " { type ipv4_addr; " + flags;
  std::string elements;
  for (const auto& value : values) elements += (elements.empty() ? "" : ", ") + to_string(value);
  if (!elements.empty()) text += "elements = { " + elements + " } ";
  return text + "}\n";
}

// The order of rules is their meaning. Destinations are looked at twice: before any other table of
// this machine could send a packet elsewhere, and again when it is known where it goes.
//
// Refusals are answered, so that programs learn of them at once.
constexpr std::string_view kChains = R"(
  chain refuse {
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
  chain destination {
    ip daddr @resolvers meta l4proto { tcp, udp } th dport 53 accept
    fib daddr type != unicast goto refuse
    meta l4proto { tcp, udp } th dport 53 goto refuse
    ip daddr @allowed accept
    ip daddr @refused goto refuse
  }
  chain from_sandbox {
    meta nfproto != ipv4 drop
    fib saddr . iif oif 0 drop
    ct state invalid drop
    jump destination
  }
  chain from_sandbox_to_world {
    ct state new add @connections { ip saddr ct count over MOST } goto refuse
    jump destination
  }
  chain from_sandbox_to_host {
    ip daddr @resolvers meta l4proto { tcp, udp } th dport 53 accept
    drop
  }
  chain to_sandbox {
    meta nfproto != ipv4 drop
    ct state established,related accept
    drop
  }
  chain prerouting {
    type filter hook prerouting priority mangle; policy accept;
    iifname LINKS jump from_sandbox
  }
  chain forward {
    type filter hook forward priority filter - 5; policy accept;
    iifname LINKS oifname LINKS goto refuse
    oifname LINKS jump to_sandbox
    iifname LINKS jump from_sandbox_to_world
  }
  chain input {
    type filter hook input priority filter - 5; policy accept;
    iifname LINKS jump from_sandbox_to_host
  }
  chain output {
    type filter hook output priority filter - 5; policy accept;
    oifname LINKS jump to_sandbox
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    iifname LINKS oifname != LINKS masquerade
  }
)";

std::string filled_in(std::string_view text, std::string_view word, const std::string& value) {
  std::string result;
  for (;;) {
    std::size_t at = text.find(word);
    result += text.substr(0, at);
    if (at == std::string_view::npos) return result;
    result += value;
    text.remove_prefix(at + word.size());
  }
}

}  // namespace

std::string removal_of(const std::string& table) {
  return "table inet " + table + " {}\ndelete table inet " + table + "\n";
}

std::string to_nft(const NetworkRules& rules) {
  std::string chains = filled_in(kChains, "LINKS", "\"" + rules.links + "*\"");
  chains = filled_in(chains, "MOST", std::to_string(rules.connections));
  return removal_of(rules.table) + "table inet " + rules.table + " {\n" +
         set("resolvers", "", rules.resolvers) +
         set("allowed", "flags interval; auto-merge; ", rules.allowed) +
         set("refused", "flags interval; ", private_networks()) +
         "  set connections { type ipv4_addr; size 65536; flags dynamic; }" + chains + "}\n";
}

}  // namespace asr
