// A machine with one uplink and a world behind it, in network namespaces that end with the test:
// nothing of the real machine's network is touched.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.hpp"
#include "os/rtnetlink.hpp"

namespace asr::test {

inline constexpr const char* kMachine = "198.51.100.1";    // its address on the uplink
inline constexpr const char* kMachineToo = "172.31.0.1";   // and one that is private
inline constexpr const char* kWeb = "93.184.216.34";       // of the world, and public
inline constexpr const char* kPublicResolver = "8.8.4.4";  // so is this
inline constexpr const char* kPrivateResolver = "10.9.9.9";

// Tells everybody the address it sees him come from.
class Server {
 public:
  enum class Kind { tcp, udp };
  Server(Kind kind, UniqueFd socket);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  int visitors() const { return visitors_; }

 private:
  void serve(Kind kind);

  UniqueFd socket_;
  std::atomic<int> visitors_{0};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

class SmallInternet {
 public:
  // The calling thread is on the machine from now on, and whatever it starts.
  SmallInternet();
  ~SmallInternet();
  SmallInternet(const SmallInternet&) = delete;
  SmallInternet& operator=(const SmallInternet&) = delete;

  // In the world, which has the address from then on.
  std::unique_ptr<Server> world(Server::Kind kind, const std::string& address, int port);
  std::unique_ptr<Server> machine(Server::Kind kind, int port,
                                  const std::string& address = "0.0.0.0");
  // How the world finds an address that is behind the machine.
  void world_route(const std::string& address);

  // Runs in the world, on a thread of its own.
  void in_world(const std::function<void()>& work);
  RouteSocket& routes() { return *machine_; }

 private:
  UniqueFd before_;
  UniqueFd world_;
  std::optional<RouteSocket> machine_;
  std::optional<RouteSocket> outside_;
  int outside_link_ = 0;
  std::vector<std::string> addresses_;  // of the world
};

// What the tool's "reach" says on the calling thread's own machine: without any sandbox.
std::string reach_outside(const std::string& tool, const std::string& arguments);

}  // namespace asr::test
