#include "session/initial_files.hpp"

#include <set>

namespace asr {

asio::awaitable<Result<void>> put_files(std::shared_ptr<Sandbox> sandbox,
                                        std::vector<InitialFile> files) {
  std::set<std::string> made{"/workspace", ""};  // and the root
  for (InitialFile& file : files) {
    std::string folder = file.path.substr(0, file.path.rfind('/'));
    if (made.insert(folder).second) {
      auto making = sandbox->make_directory(folder, 0755);
      auto done = co_await std::move(making);
      if (!done && done.error().code != Errc::conflict) co_return fail(std::move(done).error());
    }
    auto writing = sandbox->write_file(file.path, std::move(file.content), file.mode);
    auto written = co_await std::move(writing);
    if (!written)
      co_return fail(written.error().code, file.path + ": " + written.error().what,
                     written.error().hint);
  }
  co_return Result<void>();
}

}  // namespace asr
