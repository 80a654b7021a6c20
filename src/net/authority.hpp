// A certificate authority that one session trusts and nobody else: for hosts whose connections are
// opened on the way, so that credentials can be added. Its keys never leave this process's memory.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "net/host_name.hpp"

namespace asr {

class Authority {
 public:
  static Result<std::unique_ptr<Authority>> make();
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  const std::string& certificate() const noexcept { return pem_; }  // PEM, without the key

  // What a server called `host` needs: a certificate for a day, made where there is none; TLS 1.2
  // or later, HTTP/1.1 by ALPN.
  Result<std::shared_ptr<boost::asio::ssl::context>> server_context(const HostName& host);

 private:
  struct Keys;
  Authority();

  std::unique_ptr<Keys> keys_;
  std::string pem_;
};

}  // namespace asr
