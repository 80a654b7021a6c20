#include "cli/cell_answer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <optional>

#include "base/unique_fd.hpp"
#include "base/units.hpp"
#include "cli/terminal.hpp"

namespace asr {

namespace {

constexpr int kMostNumbers = 10'000;

std::optional<int> number_in(std::string_view text) {
  int number = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The code a program chose to exit with; nothing if it failed otherwise.
std::optional<int> chosen_code(const json::value& answer) {
  const json::object* fields = answer.if_object();
  const json::value* error = fields ? fields->if_contains("error") : nullptr;
  if (!error || !error->is_object()) return std::nullopt;
  std::string name = text_at(*error, "name");
  std::string value = text_at(*error, "value");
  if (name == "SystemExit" && (value.empty() || value == "None")) return 0;
  if (name == "SystemExit") return number_in(value).value_or(1) & 0xFF;
  constexpr std::string_view kEnded = "the interpreter ended with exit code ";
  if (name != "InterpreterEnded" || !value.starts_with(kEnded)) return std::nullopt;
  return number_in(value.substr(kEnded.size()));
}

// A new file in `folder`, and its name. plot.png becomes plot-2.png where that is taken.
Result<std::pair<UniqueFd, std::filesystem::path>> new_file(const std::filesystem::path& folder,
                                                            const std::filesystem::path& name,
                                                            IfTaken taken) {
  for (int number = 1; number < kMostNumbers; ++number) {
    std::string numbered = number == 1 ? name.native()
                                       : name.stem().native() + "-" + std::to_string(number) +
                                             name.extension().native();
    std::filesystem::path place = folder / numbered;
    UniqueFd file(
        ::open(place.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (file) return std::pair(std::move(file), place);
    if (errno != EEXIST) return fail_errno("write " + printable(place.native()));
    if (taken == IfTaken::refuse) break;
  }
  return fail(Errc::conflict, printable((folder / name).native()) + " is there already");
}

}  // namespace

std::string result_text(const json::object& result) {
  const json::value* text = result.if_contains("text/plain");
  return text && text->is_string() ? printable_lines(text->get_string()) : std::string();
}

void print_traceback(const json::value& error) {
  std::string text = printable_lines(text_at(error, "traceback"));
  while (text.ends_with('\n')) text.pop_back();
  if (::isatty(STDERR_FILENO) != 0) {  // The last line says most.
    std::size_t last = text.rfind('\n') + 1;
    text = text.substr(0, last) + Paint().bad(text.substr(last));
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

void print_answer(const json::value& answer) {
  std::fputs(text_at(answer, "stdout").c_str(), stdout);
  std::fputs(text_at(answer, "stderr").c_str(), stderr);
  for (const json::value& result : answer.at("results").as_array())
    if (std::string text = result_text(result.as_object()); !text.empty())
      std::fprintf(stdout, "%s\n", text.c_str());
  if (const json::value& error = answer.at("error"); error.is_object()) print_traceback(error);
  const json::array& artifacts = answer.at("artifacts").as_array();
  if (artifacts.empty()) return;
  Table table({"MADE", "SIZE", "KIND"});
  for (const json::value& artifact : artifacts) {
    boost::system::error_code ec;
    const json::value* size = artifact.as_object().if_contains("size");
    table.add({printable(text_at(artifact, "name")),
               size ? format_bytes(size->to_number<std::uint64_t>(ec)) : "",
               printable(text_at(artifact, size ? "mime" : "problem"))});
  }
  std::fflush(stdout);
  std::fputs(table.text().c_str(), stderr);
}

bool has_exited(const json::value& answer) { return chosen_code(answer).has_value(); }

int exit_code_of(const json::value& answer) {
  std::string status = text_at(answer, "status");
  if (status == "ok") return 0;
  if (status == "timeout" || status == "out_of_memory") return 137;
  if (status == "interrupted") return 130;
  if (auto chosen = chosen_code(answer)) return *chosen;
  const json::object* fields = answer.if_object();
  const json::value* error = fields ? fields->if_contains("error") : nullptr;
  if (!error || text_at(*error, "name") != "ExitStatus") return 1;
  return number_in(text_at(*error, "value")).value_or(1);  // of Bash
}

std::string file_name_for(const std::string& name, const std::string& otherwise) {
  std::string last = std::filesystem::path(name).filename().native();
  if (last.empty() || last == "." || last == "..") last = otherwise;
  last = printable(last);
  for (char& c : last)
    if (c == '?' || c == '/') c = '_';
  while (last.starts_with('.')) last.erase(0, 1);
  return last.empty() ? "file" : last;
}

Result<std::filesystem::path> fetch_artifact(Remote& remote, const std::string& session,
                                             const json::value& artifact,
                                             const std::filesystem::path& folder, IfTaken taken,
                                             std::function<bool()> go_on) {
  std::string id = text_at(artifact, "artifact_id");
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) return fail(Errc::denied, "cannot make " + folder.native() + ": " + ec.message());
  auto [file, place] = TRY(new_file(folder, file_name_for(text_at(artifact, "name"), id), taken));
  bool written = true;
  ClientRequest request;
  request.go_on = std::move(go_on);
  request.write_body = [&written, fd = file.get()](std::string_view part) {
    while (!part.empty() && written) {
      ssize_t n = ::write(fd, part.data(), part.size());
      if (n < 0 && errno == EINTR) continue;
      written = n > 0;
      if (written) part.remove_prefix(static_cast<std::size_t>(n));
    }
    return written;
  };
  auto answer =
      remote.send(std::move(request), session_path(session, "/artifacts/" + percent_encode(id)));
  if (!written) answer = fail_errno("write " + place.native());
  if (answer) return place;
  ::unlink(place.c_str());
  return fail(answer.error());
}

}  // namespace asr
