#include "cli/user_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/unique_fd.hpp"
#include "net/json.hpp"

namespace asr {

namespace {

namespace fs = std::filesystem;

// As the XDG base directories say it: a variable, or a folder of the home.
fs::path own_folder(const char* variable, const char* in_home) {
  const char* folder = std::getenv(variable);
  const char* home = std::getenv("HOME");
  fs::path base = folder && *folder ? fs::path(folder) : fs::path(home ? home : ".") / in_home;
  return base / "agent-sandbox";
}

fs::path login_file() { return own_folder("XDG_CONFIG_HOME", ".config") / "login.json"; }

void take_text(const json::object& object, std::string_view name, std::string& value) {
  const json::value* found = object.if_contains(name);
  if (found && found->is_string()) value = std::string(found->get_string());
}

}  // namespace

std::filesystem::path state_folder() { return own_folder("XDG_STATE_HOME", ".local/state"); }

Result<std::string> keep_login(const Login& login) {
  fs::path file = login_file();
  std::error_code ec;
  fs::create_directories(file.parent_path(), ec);
  (void)::chmod(file.parent_path().c_str(), 0700);
  fs::path half = file;
  half += ".new";
  UniqueFd fd(::open(half.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) return fail_errno("write " + half.native());
  std::string text = json::serialize(json::object{{"url", login.url}, {"key", login.key}}) + "\n";
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail_errno("write " + half.native());
  if (::rename(half.c_str(), file.c_str()) != 0) return fail_errno("rename " + half.native());
  return file.native();
}

Result<Login> find_login() {
  Login login{"http://127.0.0.1:8000", ""};
  if (std::ifstream file(login_file()); file) {
    std::ostringstream text;
    text << file.rdbuf();
    json::value kept = TRY(parse_json(text.str()));
    if (const json::object* parts = kept.if_object()) {
      take_text(*parts, "url", login.url);
      take_text(*parts, "key", login.key);
    }
  }
  if (const char* url = std::getenv("AGENT_SANDBOX_URL"); url && *url) login.url = url;
  if (const char* key = std::getenv("AGENT_SANDBOX_API_KEY"); key && *key) login.key = key;
  return login;
}

}  // namespace asr
