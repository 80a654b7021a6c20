#include "engine/full_network.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdio>
#include <sstream>

#include "base/scope_exit.hpp"
#include "engine/id_ranges.hpp"
#include "os/conntrack.hpp"
#include "os/file.hpp"
#include "os/netns.hpp"
#include "os/nftables.hpp"
#include "os/rtnetlink.hpp"

namespace asr {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t kUsualMtu = 1500;
constexpr std::size_t kMostResolvers = 3;  // More are never asked by any C library.
constexpr const char* kMarker = "network";
constexpr const char* kInnerName = "eth0";
// The same in every pair: each is a wire of its own.
constexpr MacAddress kOuterMac{0x02, 0, 0, 0, 0, 0x01};
constexpr MacAddress kInnerMac{0x02, 0, 0, 0, 0, 0x02};

std::uint32_t slot_of(std::uint32_t first_id) {
  return (first_id - IdRanges::kFirst) / IdRanges::kRangeSize;
}

// Resolvers named in a text like /etc/resolv.conf, as far as a sandbox could reach them.
std::vector<Ipv4> resolvers_in(const std::string& path) {
  std::vector<Ipv4> found;
  auto text = read_small_file(AT_FDCWD, path);
  std::istringstream lines(text ? *text : std::string());
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    std::string value;
    words >> key >> value;
    if (key != "nameserver") continue;
    auto address = parse_ipv4(value);
    bool useful = address && address->value >> 24 != 127 && address->value != 0;
    if (useful && found.size() < kMostResolvers) found.push_back(*address);
  }
  return found;
}

// systemd's own resolver listens on loopback only, and writes down whom it asks.
std::vector<Ipv4> resolvers_of_host() {
  for (const char* path : {"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"})
    if (auto found = resolvers_in(path); !found.empty()) return found;
  return {};
}

Result<void> check_range(const Ipv4Network& range) {
  constexpr std::array kPlaces{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
                               "198.18.0.0/15"};
  bool is_private = std::any_of(kPlaces.begin(), kPlaces.end(), [&](const char* place) {
    return parse_ipv4_network(place)->contains(range);
  });
  if (is_private && range.prefix <= 28) return {};
  return fail(Errc::invalid, to_string(range) + " cannot be the range of sandboxes' addresses",
              "use a private network of at least 16 addresses, such as 10.233.0.0/16");
}

Result<void> check_machine() {
  if (::geteuid() != 0)
    return fail(Errc::unsupported,
                "a sandbox with a network needs root: an ordinary user cannot "
                "make network devices",
                "run agent-sandbox as root, or use a proxy");
  auto forwarding = read_small_file(AT_FDCWD, "/proc/sys/net/ipv4/ip_forward");
  if (!forwarding || *forwarding != "1")
    return fail(Errc::unsupported, "this machine does not forward packets",
                "if it may, sysctl -w net.ipv4.ip_forward=1 and start the engine again");
  return {};
}

bool is_sandbox_link(const std::string& name) {
  constexpr std::size_t kLength = kLinkPrefix + 4;
  return name.size() == kLength && name.starts_with("as") &&
         name.find_first_not_of("0123456789abcdef", 2) == std::string::npos;
}

// Whoever has addresses in that range could not be reached from here any more, one by one.
Result<void> check_unused(const Ipv4Network& range) {
  RouteSocket socket = TRY(RouteSocket::open());
  for (const NetworkRoute& route : TRY(socket.routes())) {
    if (route.to.prefix == 0 || !(range.contains(route.to) || route.to.contains(range))) continue;
    auto link = socket.link(route.link);
    if (link && is_sandbox_link(link->name)) continue;
    bool gone = !link && route.link != 0;  // meanwhile
    if (gone) continue;
    return fail(Errc::unsupported,
                "the range " + to_string(range) + " is in use: this machine has a route to " +
                    to_string(route.to),
                "give full_network another private range");
  }
  return {};
}

}  // namespace

std::string link_of(const InstanceId& instance, std::uint32_t first_id) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "%04x", slot_of(first_id));
  return link_prefix_of(instance) + text.data();
}

FullNetwork::FullNetwork(InstanceId instance, fs::path dir)
    : instance_(std::move(instance)), dir_(std::move(dir)) {
  rules_.table = table_of(instance_);
  rules_.links = link_prefix_of(instance_);
  why_not_ = Error(Errc::denied, "no sandbox of this engine may have a network",
                   "its operator can switch it on: full_network");
}

FullNetwork::~FullNetwork() {
  stop_guard();
  if (thread_) thread_->join();
}

Result<void> check(const FullNetworkOptions& options) {
  return FullNetwork(InstanceId(), {}).read(options);
}

Result<void> FullNetwork::read(const FullNetworkOptions& options) {
  range_ = TRY(parse_ipv4_network(options.range));
  TRY(check_range(range_));
  for (const std::string& text : options.allow)
    rules_.allowed.push_back(TRY(parse_ipv4_network(text)));
  rules_.connections = options.connections;
  if (!options.resolvers) {
    rules_.resolvers = resolvers_of_host();
    return {};
  }
  if (options.resolvers->size() > kMostResolvers)
    return fail(Errc::invalid, "more than three resolvers", "programs ask the first three only");
  for (const std::string& text : *options.resolvers)
    rules_.resolvers.push_back(TRY(parse_ipv4(text)));
  return {};
}

void FullNetwork::open(const FullNetworkOptions& options) {
  auto ready = read(options);
  if (ready) ready = check_machine();
  if (ready) ready = check_unused(range_);
  if (ready) ready = install();
  why_not_.reset();
  if (!ready) {
    why_not_ = std::move(ready).error();
    return;
  }
  start_guard();
}

Result<void> FullNetwork::install() const {
  // First of all, so that whoever finds this folder after our death knows what to look for.
  UniqueFd marker(::open((dir_ / kMarker).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!marker) return fail_errno("create " + (dir_ / kMarker).native());
  auto installed = run_nft(to_nft(rules_));
  if (installed) return {};
  return fail(Errc::unsupported, installed.error().what,
              "the kernel needs nf_tables with NAT, fib, reject and connlimit");
}

Result<void> FullNetwork::check() const {
  if (why_not_) return fail(*why_not_);
  if (rules_lost_)
    return fail(Errc::unsupported, "the rules for sandboxes' networks were removed",
                "see who changes this machine's packet filter, and start the engine anew");
  return {};
}

// "nft flush ruleset", with which many a firewall's script begins, takes our table, too.
void FullNetwork::start_guard() {
  auto watch = watch_nft();
  guard_end_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!watch || !guard_end_) return;
  guard_ = std::thread([this, events = *std::move(watch)] {
    for (;;) {
      std::array<pollfd, 2> ready{{{events.get(), POLLIN, 0}, {guard_end_.get(), POLLIN, 0}}};
      if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
      if (ready[1].revents != 0) return;
      if (ready[0].revents != 0 && saw_deleted_table(events.get())) restore_rules();
    }
  });
}

void FullNetwork::stop_guard() {
  if (!guard_.joinable()) return;
  std::uint64_t one = 1;
  (void)!::write(guard_end_.get(), &one, sizeof one);
  guard_.join();
}

void FullNetwork::restore_rules() {
  if (run_nft("list table inet " + rules_.table)) return;  // It was somebody else's.
  if (install()) return;
  rules_lost_ = true;
  // Without rules there is no network.
  auto outside = RouteSocket::open();
  auto links = outside ? outside->links() : Result<std::vector<NetworkLink>>();
  for (std::size_t i = 0; links && i < links->size(); ++i)
    if ((*links)[i].name.starts_with(rules_.links))
      (void)outside->set_state((*links)[i].index, LinkState::down);
}

void FullNetwork::close() {
  stop_guard();
  (void)sweep_network(dir_, instance_);
}

asio::awaitable<Result<void>> FullNetwork::attach(UniqueFd pidfd, std::uint32_t first_id) {
  std::call_once(thread_made_, [this] { thread_ = std::make_unique<asio::thread_pool>(1); });
  auto job = [](const FullNetwork* self, UniqueFd process,
                std::uint32_t id) -> asio::awaitable<Result<void>> {
    co_return self->attach_now(process.get(), id);
  };
  auto running =
      asio::co_spawn(*thread_, job(this, std::move(pidfd), first_id), asio::use_awaitable);
  co_return co_await std::move(running);
}

namespace {

std::uint32_t uplink_mtu(RouteSocket& routes) {
  // Any public address does: nothing is sent.
  auto way = routes.way_to(Ipv4{0x01010101});
  if (!way) return kUsualMtu;
  auto link = routes.link(*way);
  return link && link->mtu >= 576 ? link->mtu : kUsualMtu;
}

Result<void> configure_inside(RouteSocket& inside, Ipv4 address, Ipv4 gateway) {
  NetworkLink link = TRY(inside.link(kInnerName));
  TRY(inside.set_state(link.index, LinkState::up));
  TRY(inside.add_address(link.index, address));
  TRY(inside.add_neighbour(link.index, gateway, kOuterMac));
  return inside.add_default_route(link.index, gateway);
}

}  // namespace

Ipv4 FullNetwork::address_of(std::uint32_t first_id) const {
  return Ipv4{range_.first.value + 2 + slot_of(first_id)};
}

// Rules for all links of this prefix are there already: none is ever up without them.
Result<void> FullNetwork::attach_now(int pidfd, std::uint32_t first_id) const {
  TRY(check());
  std::uint32_t slot = slot_of(first_id);
  if (slot + 3 >= range_.size())
    return fail(Errc::exhausted, "no address is left in " + to_string(range_),
                "end some sandboxes, or give the engine a larger range");
  Ipv4 gateway{range_.first.value + 1};
  Ipv4 address = address_of(first_id);
  std::string name = link_of(instance_, first_id);

  UniqueFd namespace_fd;
  std::optional<RouteSocket> inside;
  TRY(in_network_of(pidfd, [&]() -> Result<void> {
    namespace_fd = TRY(own_network());
    inside.emplace(TRY(RouteSocket::open()));
    // Of links to come. Where it cannot be said, the rules drop all of it.
    (void)write_value(AT_FDCWD, "/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    return {};
  }));
  RouteSocket outside = TRY(RouteSocket::open());
  (void)outside.remove_link(name);  // Of a namespace that is still going down.
  TRY(outside.make_veth({name, kOuterMac}, {kInnerName, kInnerMac}, namespace_fd.get(),
                        uplink_mtu(outside)));
  ScopeExit undo([&] { (void)outside.remove_link(name); });
  (void)write_value(AT_FDCWD, "/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6", "1");
  NetworkLink link = TRY(outside.link(name));
  TRY(outside.set_state(link.index, LinkState::up));
  TRY(outside.add_address(link.index, gateway));
  TRY(outside.add_neighbour(link.index, address, kInnerMac));
  TRY(outside.add_host_route(link.index, address, gateway));
  TRY(configure_inside(*inside, address, gateway));
  undo.dismiss();
  return {};
}

void FullNetwork::detach(std::uint32_t first_id) {
  if (auto outside = RouteSocket::open()) (void)outside->remove_link(link_of(instance_, first_id));
  // Or peers of this sandbox would go on with the next one that has its address.
  if (!why_not_) (void)forget_connections_from(address_of(first_id));
}

std::string FullNetwork::resolv_conf() const {
  std::string text = rules_.resolvers.empty() ? "# No name server is known that could be reached.\n"
                                              : "# Those this sandbox may ask.\n";
  for (Ipv4 resolver : rules_.resolvers) text += "nameserver " + to_string(resolver) + "\n";
  return text;
}

std::vector<IsolationFact> FullNetwork::facts() const {
  std::string reach =
      "a network namespace with a device; nftables lets it reach public IPv4 "
      "addresses";
  for (const Ipv4Network& network : rules_.allowed) reach += ", " + to_string(network);
  std::vector<IsolationFact> facts;
  facts.push_back({"network", Guarantee::partial, std::move(reach),
                   "programs can send what they know to anybody on the internet; there is no IPv6, "
                   "and no way to this machine, to private addresses and to other sandboxes"});
  facts.push_back(
      {"network_bandwidth", Guarantee::none, "",
       "not limited, but for " + std::to_string(rules_.connections) + " connections at a time"});
  if (rules_.resolvers.empty()) {
    facts.push_back({"name_servers", Guarantee::none, "",
                     "the host names none that a sandbox could reach: set full_network.resolvers"});
  } else {
    std::string names;
    for (Ipv4 resolver : rules_.resolvers)
      names += (names.empty() ? "" : ", ") + to_string(resolver);
    facts.push_back({"name_servers", Guarantee::full, "port 53 leads to " + names + " only", ""});
  }
  return facts;
}

// ---- after a death
// -------------------------------------------------------------------------------

std::vector<std::string> sweep_network(const fs::path& dir, const InstanceId& instance,
                                       const std::set<std::string>& spared) {
  std::vector<std::string> problems;
  std::error_code ec;
  if (!fs::exists(dir / kMarker, ec)) return problems;
  auto note = [&](const Error& error) { problems.push_back(error.what); };
  auto routes = RouteSocket::open();
  if (!routes) return {routes.error().what};
  auto links = routes->links();
  if (!links) return {links.error().what};
  // Links before rules: what has no rules must not be up.
  for (const NetworkLink& link : *links) {
    if (!link.name.starts_with(link_prefix_of(instance)) || spared.contains(link.name)) continue;
    auto removed = routes->remove_link(link.name);
    if (!removed && removed.error().code != Errc::not_found) note(removed.error());
  }
  if (!spared.empty() || !problems.empty()) return problems;
  if (auto removed = run_nft(removal_of(table_of(instance))); !removed) note(removed.error());
  if (problems.empty()) ::unlink((dir / kMarker).c_str());
  return problems;
}

Result<void> try_full_network() {
  TRY(check_machine());
  return in_new_network([]() -> Result<void> {
    NetworkRules rules;
    rules.table = "agent-sandbox-trial";
    rules.links = "astrial";
    TRY(run_nft(to_nft(rules)));
    RouteSocket routes = TRY(RouteSocket::open());
    UniqueFd here = TRY(own_network());
    return routes.make_veth({"astrial0", kOuterMac}, {"astrial1", kInnerMac}, here.get(),
                            kUsualMtu);
  });
}

}  // namespace asr
