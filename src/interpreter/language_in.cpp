#include "interpreter/language_in.hpp"

#include <sys/stat.h>

namespace asr {

namespace {

constexpr unsigned kMayBeStarted = S_IXUSR | S_IXGRP | S_IXOTH;

Error no_interpreter(const std::string& name) {
  std::string names;
  for (const LanguagePtr& language : languages())
    names += (names.empty() ? "" : ", ") + language->name;
  return Error(Errc::invalid, "there is no interpreter for \"" + name + "\"",
               "the languages are " + names + "; an environment may bring others as executables " +
                   std::string(kKernelFolder) + "<name>");
}

// What the sandbox says when there is nothing that could be opened.
bool means_none(Errc code) {
  return code == Errc::not_found || code == Errc::denied || code == Errc::invalid ||
         code == Errc::conflict;
}

}  // namespace

asio::awaitable<Result<LanguagePtr>> language_in(Result<std::shared_ptr<Sandbox>> sandbox,
                                                 std::string name) {
  LanguagePtr language = possible_language(name);
  if (!language) co_return fail(no_interpreter(name));
  if (!language->is_brought()) co_return language;
  auto in = CO_TRY(std::move(sandbox));
  // Opened rather than looked at: it may be a link.
  auto opening = in->open_read(language->program);
  auto file = co_await std::move(opening);
  if (!file && !means_none(file.error().code)) co_return fail(file.error());
  struct stat info {};
  if (!file || ::fstat(file->get(), &info) != 0 || (info.st_mode & kMayBeStarted) == 0)
    co_return fail(no_interpreter(name));
  co_return language;
}

}  // namespace asr
