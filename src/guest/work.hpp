// Things a forked worker does and answers for itself. Each runs with the rights of the user it
// works for, never returns, and ends with status 0 if it has answered.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "guest/scratch.hpp"
#include "wire/guest_messages.hpp"
#include "wire/send.hpp"

namespace asr {

struct Work {
  int socket;
  std::uint32_t id;

  template <class Message>
  Result<void> answer(const Message& message, std::span<const int> fds = {}) const {
    return send_message(socket, id, message, fds);
  }
};

// Every file operation that ends by itself.
Result<void> work_on_files(const Work& work, const wire::File& request);
// Writes what comes from `source` until its end; answers when it begins, and when all is written.
// Here and not in the daemon: whoever writes to a file system in memory pays for it.
Result<void> work_on_write(const Work& work, const wire::File& request, UniqueFd source);
// Reports changes below request.path until it is killed.
Result<void> work_on_watch(const Work& work, const wire::File& request);
// Writes or reads a tar stream.
Result<void> work_on_archive_out(const Work& work, const wire::File& request);
Result<void> work_on_archive_in(const Work& work, const wire::File& request, UniqueFd tar);
// Everything that was written: told, saved as a tar stream, and made from one.
Result<void> work_on_changes(const Work& work, const Scratch& scratch);
Result<void> work_on_saving(const Work& work, const Scratch& scratch, UniqueFd only);
Result<void> work_on_restoring(const Work& work, const Scratch& scratch, UniqueFd tar);
// A file as it was when the sandbox began.
Result<void> work_on_before(const Work& work, const wire::File& request, const Scratch& scratch);
// Connects to a port on the sandbox's loopback.
Result<void> work_on_connection(const Work& work, std::uint16_t port);
// Copies between a terminal and the daemon until either is closed.
void relay_terminal(UniqueFd master, UniqueFd peer);

}  // namespace asr
