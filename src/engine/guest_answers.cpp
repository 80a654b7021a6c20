#include "engine/guest_answers.hpp"

#include <fcntl.h>
#include <sys/stat.h>

namespace asr {

Error failure_in(const Letter& letter) {
  if (letter.lost_descriptors) return out_of_descriptors();
  auto failure = letter.as<wire::Failure>();
  if (!failure) return Error(Errc::internal, "the sandbox sent a wrong answer");
  Errc code = failure->code <= static_cast<std::uint8_t>(Errc::internal)
                  ? static_cast<Errc>(failure->code)
                  : Errc::internal;
  return Error(code, failure->what, failure->hint);
}

Result<UniqueFd> descriptor_in(Letter letter) {
  if (!letter.as<wire::Opened>() || letter.fds.size() != 1) return fail(failure_in(letter));
  return std::move(letter.fds[0]);
}

Result<UniqueFd> pipe_in(Letter letter) {
  UniqueFd fd = TRY(descriptor_in(std::move(letter)));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISFIFO(info.st_mode))
    return fail(Errc::internal, "the sandbox handed out something that is not a pipe");
  std::string own = "/proc/self/fd/" + std::to_string(fd.get());
  // Without waiting: a FIFO with a name would keep us until somebody writes.
  UniqueFd reopened(::open(own.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!reopened || ::fcntl(reopened.get(), F_SETFL, 0) != 0) return fail_errno("open pipe");
  return reopened;
}

}  // namespace asr
