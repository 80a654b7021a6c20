// One file on its way into a sandbox: written in place, as E2B does it, so that who watches it sees
// a file that changes.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/e2b/envd.hpp"
#include "session/content_hash.hpp"

namespace asr {

class Upload {
 public:
  // `metadata` replaces what the file had.
  static asio::awaitable<Result<std::unique_ptr<Upload>>> open(EnvdCallPtr call, std::string path,
                                                               FileAttributes metadata);

  // `data` must live until it is done.
  asio::awaitable<Result<void>> write(std::string_view data);
  // When all is written; what went wrong before is told here.
  asio::awaitable<Result<void>> finish();

  const std::string& path() const noexcept { return path_; }

 private:
  Upload(EnvdCallPtr call, std::string path, std::unique_ptr<FileWrite> file);

  EnvdCallPtr call_;
  std::string path_;
  std::unique_ptr<FileWrite> file_;
  asio::posix::stream_descriptor pipe_;
  std::vector<std::string> made_;  // by root, for the user
  std::unique_ptr<ContentHash> hash_;
  bool broken_ = false;
};

}  // namespace asr
