// agent-sandbox doctor: what this machine can give, what it lacks and how to get it. Ends by making
// a sandbox.

#include <sys/utsname.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cstdio>

#include "base/units.hpp"
#include "base/version.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "cli/terminal.hpp"
#include "cli/trial.hpp"
#include "engine/full_network.hpp"
#include "session/session.hpp"

namespace asr {

namespace json = boost::json;

namespace {

enum Verdict { all_guarantees = 0, fewer_guarantees = 1, no_sandbox = 2 };

struct Examination {
  KernelFeatures kernel;
  bool is_root = ::geteuid() == 0;
  Result<Trial> own = fail(Errc::internal, "not tried");
  Result<Trial> rootless = fail(Errc::internal, "not tried");  // Measured for root only.

  // Of sandboxes that root makes, and of those an ordinary user makes. Empty where nothing is
  // known.
  Isolation as_root() const {
    if (!own) return {};
    return is_root ? own->isolation : expected_as_root(own->isolation, kernel);
  }
  Isolation as_user() const {
    const Result<Trial>& tried = is_root ? rootless : own;
    return tried ? tried->isolation : Isolation();
  }
  Verdict verdict() const {
    if (!own) return no_sandbox;
    for (const IsolationFact& fact : own->isolation.facts)
      if (is_missing(fact)) return fewer_guarantees;
    return all_guarantees;
  }
};

Feature full_network() {
  auto tried = try_full_network();
  if (tried)
    return {"full_network", FeatureState::ok, "sandboxes can have a way to the internet", ""};
  return {"full_network", FeatureState::missing, tried.error().what, tried.error().hint};
}

Examination examine() {
  Examination found;
  found.kernel = probe_features();
  found.kernel.features.push_back(full_network());
  // Before our own engine: a fork must not copy its threads.
  if (found.is_root) found.rootless = try_sandbox_rootless();
  found.own = try_sandbox();
  return found;
}

std::string machine() {
  utsname names{};
  ::uname(&names);
  return names.machine;
}

const char* describe(Verdict verdict) {
  switch (verdict) {
    case all_guarantees:
      return "sandboxes work, with every guarantee";
    case fewer_guarantees:
      return "sandboxes work, with fewer guarantees than they could have";
    case no_sandbox:
      return "no sandbox can be made";
  }
  return "";
}

// ---- for programs
// --------------------------------------------------------------------------------

json::object json_of(const Result<Trial>& trial) {
  if (!trial) return {{"ok", false}, {"error", json_of(trial.error())}};
  return {{"ok", true},
          {"start_ms", millis(trial->start)},
          {"create_ms", millis(trial->create)},
          {"run_ms", millis(trial->run)},
          {"destroy_ms", millis(trial->destroy)}};
}

std::string to_json(const Examination& found) {
  json::array features;
  for (const Feature& one : found.kernel.features)
    features.push_back({{"name", one.name},
                        {"state", to_string(one.state)},
                        {"detail", one.detail},
                        {"fix", one.fix}});
  json::array controllers;
  for (const CgroupController& one : found.kernel.controllers)
    controllers.push_back({{"name", one.name},
                           {"version", to_string(one.version)},
                           {"path", one.path},
                           {"writable", one.writable}});
  json::object object;
  object["version"] = kVersion;
  object["kernel"] = found.kernel.release;
  object["machine"] = machine();
  object["root"] = found.is_root;
  object["features"] = std::move(features);
  object["controllers"] = std::move(controllers);
  object["guarantees"] = {
      {"root", {{"measured", found.is_root}, {"facts", json_of(found.as_root())}}},
      {"rootless", {{"measured", true}, {"facts", json_of(found.as_user())}}}};
  object["sandbox"] = json_of(found.own);
  if (found.is_root) object["rootless_sandbox"] = json_of(found.rootless);
  object["verdict"] = describe(found.verdict());
  object["exit_code"] = static_cast<int>(found.verdict());
  return json::serialize(object);
}

// ---- for people
// ----------------------------------------------------------------------------------

class Page {
 public:
  void show(const Examination& found) const {
    std::printf("agent-sandbox %s on Linux %s, %s, as %s\n", std::string(kVersion).c_str(),
                found.kernel.release.c_str(), machine().c_str(),
                found.is_root ? "root" : "an ordinary user");
    show_features(found.kernel);
    show_controllers(found.kernel);
    show_guarantees(found);
    show_trials(found);
    Verdict verdict = found.verdict();
    std::string words = std::string("Verdict: ") + describe(verdict) + ".";
    line("\n" + (verdict == all_guarantees     ? paint_.good(words)
                 : verdict == fewer_guarantees ? paint_.fair(words)
                                               : paint_.bad(words)));
  }

 private:
  static void line(std::string text) {
    text.erase(text.find_last_not_of(' ') + 1);
    std::printf("%s\n", text.c_str());
  }
  void title(const char* text) const { line("\n" + paint_.bold(text)); }

  std::string mark(FeatureState state) const {
    std::string word = padded(to_string(state), 8);
    if (state == FeatureState::ok) return paint_.good(word);
    return state == FeatureState::limited ? paint_.fair(word) : paint_.bad(word);
  }
  std::string mark(const IsolationFact* fact) const {
    if (fact == nullptr) return padded("unknown", 10);
    std::string word = padded(to_string(fact->guarantee), 10);
    if (fact->guarantee == Guarantee::full) return paint_.good(word);
    return fact->guarantee == Guarantee::partial ? paint_.fair(word) : paint_.bad(word);
  }

  void show_features(const KernelFeatures& kernel) const {
    title("What this kernel gives us");
    for (const Feature& one : kernel.features) {
      if (one.name.starts_with("cgroup_")) continue;  // In the table below.
      line("  " + mark(one.state) + padded(one.name, 21) + one.detail);
      if (!one.fix.empty()) line("          " + paint_.dim("fix: " + one.fix));
    }
  }

  void show_controllers(const KernelFeatures& kernel) const {
    title("Control groups");
    for (const CgroupController& one : kernel.controllers) {
      const Feature* feature = kernel.find("cgroup_" + one.name);
      FeatureState state = feature == nullptr ? FeatureState::ok : feature->state;
      std::string version =
          one.version == CgroupController::Version::none ? "" : std::string(to_string(one.version));
      std::string where = one.path.empty() ? "no hierarchy has it" : one.path;
      line("  " + mark(state) + padded(one.name, 9) + padded(version, 4) +
           padded(one.writable ? "ours" : "not ours", 10) + where);
      if (feature != nullptr && !feature->fix.empty())
        line("          " + paint_.dim("fix: " + feature->fix));
    }
  }

  void show_guarantees(const Examination& found) const {
    Isolation root = found.as_root();
    Isolation user = found.as_user();
    title("What a sandbox is guaranteed");
    line("  " + padded("", 25) + padded(found.is_root ? "as root" : "as root?", 10) +
         "as an ordinary user");
    const Isolation& longer = root.facts.empty() ? user : root;
    for (const IsolationFact& fact : longer.facts)
      line("  " + padded(fact.name, 25) + mark(root.find(fact.name)) + mark(user.find(fact.name)));
    const Isolation& own = found.is_root ? root : user;
    for (const IsolationFact& fact : own.facts)
      if (!fact.note.empty()) line("  " + paint_.dim(fact.name + ": " + fact.note));
    if (!found.is_root && !root.facts.empty())
      line("  " + paint_.dim("as root?: expected, not tried"));
  }

  void show_trial(const char* who, const Result<Trial>& trial) const {
    if (!trial) {
      line("  " + mark(FeatureState::missing) + padded(who, 21) + trial.error().what);
      if (!trial.error().hint.empty()) line("          " + paint_.dim(trial.error().hint));
      return;
    }
    line("  " + mark(FeatureState::ok) + padded(who, 21) + "made in " +
         format_duration(trial->create) + ", ran true in " + format_duration(trial->run) +
         ", removed in " + format_duration(trial->destroy));
  }

  void show_trials(const Examination& found) const {
    title("A sandbox, tried");
    show_trial(found.is_root ? "as root" : "as an ordinary user", found.own);
    if (found.is_root) show_trial("as an ordinary user", found.rootless);
  }

  Paint paint_;
};

int doctor(bool as_json) {
  Examination found = examine();
  if (as_json)
    std::printf("%s\n", to_json(found).c_str());
  else
    Page().show(found);
  return found.verdict();
}

}  // namespace

void add_doctor_command(CLI::App& app, Invocation& call) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "doctor", "Tell what this machine can give, and how to get what is missing");
  command->add_flag("--json", *as_json, "for programs");
  command->footer(
      "Tries each kernel feature, then makes a sandbox and runs true in it; as root a second one "
      "as an ordinary\n"
      "user would. Leaves nothing behind.\n\n"
      "Exit status: 0 if sandboxes work with every guarantee, 1 if they work but a guarantee is "
      "missing,\n"
      "2 if no sandbox can be made.");
  command->callback([as_json, &call] { call.status = doctor(*as_json); });
}

}  // namespace asr
