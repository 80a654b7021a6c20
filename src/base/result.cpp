#include "base/result.hpp"

#include <cstring>

namespace asr {

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::invalid:
      return "invalid";
    case Errc::not_found:
      return "not_found";
    case Errc::conflict:
      return "conflict";
    case Errc::denied:
      return "denied";
    case Errc::exhausted:
      return "exhausted";
    case Errc::timeout:
      return "timeout";
    case Errc::unsupported:
      return "unsupported";
    case Errc::gone:
      return "gone";
    case Errc::os:
      return "os";
    case Errc::internal:
      return "internal";
    case Errc::provider:
      return "provider";
  }
  return "internal";
}

std::string_view to_string(Fault fault) noexcept {
  switch (fault) {
    case Fault::program:
      return "program";
    case Fault::limit:
      return "limit";
    case Fault::policy:
      return "policy";
    case Fault::caller:
      return "caller";
    case Fault::platform:
      return "platform";
  }
  return "platform";
}

Fault fault_of(Errc code) noexcept {
  switch (code) {
    case Errc::invalid:
    case Errc::not_found:
    case Errc::conflict:
    case Errc::gone:
      return Fault::caller;
    case Errc::denied:
      return Fault::policy;
    case Errc::exhausted:
    case Errc::timeout:
      return Fault::limit;
    case Errc::unsupported:
    case Errc::os:
    case Errc::internal:
    case Errc::provider:
      return Fault::platform;
  }
  return Fault::platform;
}

namespace {

Errc code_of(int err) {
  switch (err) {
    case ENOENT:
    case ESRCH:
    case ENOTDIR:
      return Errc::not_found;
    case EACCES:
    case ENXIO:  // A socket's file, a FIFO nobody reads, /dev/tty without a terminal: not to be
                 // opened.
    case EPERM:
    case EROFS:
      return Errc::denied;
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
    case EBUSY:
    case EXDEV:
      return Errc::conflict;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EFBIG:
    case EAGAIN:
    case ENOMEM:
      return Errc::exhausted;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return Errc::invalid;
    case ETIMEDOUT:
      return Errc::timeout;
    case ENOSYS:
    case EOPNOTSUPP:
      return Errc::unsupported;
    default:
      return Errc::os;
  }
}

}  // namespace

Error errno_error(int err, std::string_view what) {
  char buffer[128];
  const char* text = ::strerror_r(err, buffer, sizeof buffer);
  return Error(code_of(err), std::string(what) + ": " + text);
}

}  // namespace asr
