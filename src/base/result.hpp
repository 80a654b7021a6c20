// Expected failures are values. Exceptions mean a bug, lost memory or a cancelled wait.
#pragma once

#include <cerrno>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace asr {

enum class Errc {
  invalid,      // the request makes no sense
  not_found,    // what it names is not there
  conflict,     // it is there, but in a state that forbids this
  denied,       // a policy says no
  exhausted,    // a limit is used up
  timeout,      // a deadline passed
  unsupported,  // this machine or this sandbox cannot do it
  gone,         // the sandbox has ended
  os,           // the kernel refused something it should have done
  internal,     // a bug, or a peer that broke the protocol
  provider,     // another server that holds a sandbox does not answer, or answers nonsense
};

// Whose fault a failure is: what a user may retry, must change, or should report.
enum class Fault { program, limit, policy, caller, platform };

std::string_view to_string(Errc code) noexcept;
std::string_view to_string(Fault fault) noexcept;
Fault fault_of(Errc code) noexcept;

struct Error {
  Error(Errc c, std::string w, std::string h = {})
      : code(c), what(std::move(w)), hint(std::move(h)) {}

  Fault fault() const noexcept { return fault_of(code); }

  Errc code;
  std::string what;
  std::string hint;  // What to do next; empty when there is nothing useful to say.
};

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};

inline auto fail(Error error) { return tl::unexpected<Error>(std::move(error)); }
inline auto fail(Errc code, std::string what, std::string hint = {}) {
  return fail(Error(code, std::move(what), std::move(hint)));
}

// An Error from an errno value, with the code that fits it.
Error errno_error(int err, std::string_view what);
inline auto fail_errno(std::string_view what) { return fail(errno_error(errno, what)); }

template <class T>
T unwrap(Result<T>&& result) {
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace asr

// The value of a Result, or return its error. Not in coroutines: they use CO_TRY.
#define TRY(expr)                                           \
  __extension__({                                           \
    auto try_ = (expr);                                     \
    if (!try_) return ::asr::fail(std::move(try_).error()); \
    ::asr::unwrap(std::move(try_));                         \
  })

// The same inside a coroutine that returns awaitable<Result<T>>.
#define CO_TRY(expr)                                           \
  __extension__({                                              \
    auto try_ = (expr);                                        \
    if (!try_) co_return ::asr::fail(std::move(try_).error()); \
    ::asr::unwrap(std::move(try_));                            \
  })
