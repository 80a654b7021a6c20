#include "os/nftables.hpp"

#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <nftables/libnftables.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "os/netlink.hpp"

namespace asr {

Result<std::string> run_nft(const std::string& commands) {
  // The library keeps tables of its own, once for all contexts.
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::unique_ptr<nft_ctx, void (*)(nft_ctx*)> context(::nft_ctx_new(NFT_CTX_DEFAULT),
                                                       ::nft_ctx_free);
  if (!context || ::nft_ctx_buffer_output(context.get()) != 0 ||
      ::nft_ctx_buffer_error(context.get()) != 0)
    return fail(Errc::os, "the packet filter cannot be reached");
  if (::nft_run_cmd_from_buffer(context.get(), commands.c_str()) == 0)
    return std::string(::nft_ctx_get_output_buffer(context.get()));
  std::string said = ::nft_ctx_get_error_buffer(context.get());
  // Its first line says what is wrong, the others show where.
  return fail(Errc::os, "packet filter: " + said.substr(0, said.find('\n')));
}

Result<UniqueFd> watch_nft() {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER));
  if (!fd) return fail_errno("open netlink socket");
  // Bound first: a socket without a number is left out of what is sent to everybody.
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  int group = NFNLGRP_NFTABLES;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::setsockopt(fd.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) != 0)
    return fail_errno("watch the packet filter");
  return fd;
}

bool saw_deleted_table(int watch) {
  constexpr int kDeleted = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE;
  bool seen = false;
  std::string buffer(64 * 1024, '\0');
  for (;;) {
    ssize_t n = ::recv(watch, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ENOBUFS) {
      seen = true;
      continue;
    }
    if (n <= 0) return seen;
    std::string_view rest(buffer.data(), static_cast<std::size_t>(n));
    while (auto head = netlink_header<nlmsghdr>(rest)) {
      if (head->nlmsg_type == kDeleted) seen = true;
      if (head->nlmsg_len < NLMSG_HDRLEN) break;
      rest.remove_prefix(std::min(rest.size(), std::size_t{NLMSG_ALIGN(head->nlmsg_len)}));
    }
  }
}

}  // namespace asr
