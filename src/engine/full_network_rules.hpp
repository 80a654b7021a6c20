// What may pass between sandboxes with a network of their own and the rest of the world, as text
// for the packet filter. Made from values alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id.hpp"
#include "base/ipv4.hpp"

namespace asr {

struct NetworkRules {
  std::string table;                 // of this instance alone
  std::string links;                 // how the names of its sandboxes' links begin
  std::vector<Ipv4> resolvers;       // reached at port 53, whatever their addresses are
  std::vector<Ipv4Network> allowed;  // reached although they are not public
  std::uint32_t connections = 4096;  // of one sandbox at a time
};

std::string table_of(const InstanceId& instance);
std::string link_prefix_of(const InstanceId& instance);
inline constexpr std::size_t kLinkPrefix = 10;  // characters

// Puts the table into the place of an older one of its name, in one transaction: there is no moment
// without rules.
std::string to_nft(const NetworkRules& rules);
// Succeeds whether or not it is there.
std::string removal_of(const std::string& table);

// Networks that are not the public internet's.
const std::vector<Ipv4Network>& private_networks();

}  // namespace asr
