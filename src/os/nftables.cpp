#include "os/nftables.hpp"

#include <nftables/libnftables.h>

#include <memory>
#include <mutex>

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

}  // namespace asr
