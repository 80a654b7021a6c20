// agent-sandbox audit: who did what, and whether somebody tampered with the record of it.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commands.hpp"
#include "cli/remote.hpp"
#include "cli/report.hpp"
#include "store/audit_records.hpp"
#include "store/store.hpp"

namespace asr {

namespace {

constexpr int kTampered = 1;

// Of a folder no server uses at the moment, or by the server that does.
Result<json::value> verdict(const std::string& storage) {
  if (storage.empty()) {
    Remote remote = TRY(Remote::find());
    return remote.call("GET", "/api/audit/verify");
  }
  auto store = TRY(Store::open(storage));
  auto check = [&](Database& database) { return verify_audit(database, store->secrets()); };
  AuditVerdict found = TRY(store->run(check));
  return json::object{{"ok", found.ok},
                      {"entries", found.count},
                      {"first_bad", found.first_bad_seq},
                      {"why", found.why}};
}

int verify(const std::string& storage, bool as_json) {
  auto found = verdict(storage);
  if (!found) return as_json ? print_json_error(found.error()) : complain(found.error());
  bool ok = found->at("ok").as_bool();
  if (as_json)
    std::printf("%s\n", to_text(*found).c_str());
  else if (ok)
    std::printf("All %s entries are as they were written.\n", text_at(*found, "entries").c_str());
  else
    std::printf("Entry %s is not as it was written: %s\n", text_at(*found, "first_bad").c_str(),
                text_at(*found, "why").c_str());
  return ok ? 0 : kTampered;
}

int list(bool as_json) {
  auto remote = Remote::find();
  if (!remote) return complain(remote.error());
  std::string after = "0";
  for (;;) {
    auto page = remote->call("GET", "/api/audit?limit=1000&after=" + after);
    if (!page) return complain(page.error());
    const json::array& entries = page->at("entries").as_array();
    for (const json::value& entry : entries) {
      after = text_at(entry, "seq");
      std::string line =
          as_json ? to_text(entry)
                  : text_at(entry, "at") + "  " + printable(text_at(entry, "actor")) + "  " +
                        text_at(entry, "action") + "  " + printable(text_at(entry, "target"));
      std::printf("%s\n", line.c_str());
    }
    if (entries.empty()) return 0;
  }
}

}  // namespace

void add_audit_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* group = app.add_subcommand("audit", "Who did what on a server");
  group->require_subcommand(1);
  auto storage = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* check = group->add_subcommand("verify", "Check that nobody changed the record");
  check->add_option("--storage", *storage, "A folder, instead of asking the server");
  check->add_flag("--json", *as_json, "As JSON");
  check->callback([=, &invocation] { invocation.status = verify(*storage, *as_json); });
  CLI::App* show = group->add_subcommand("list", "All of it, the oldest first");
  show->add_flag("--json", *as_json, "One JSON object a line");
  show->callback([=, &invocation] { invocation.status = list(*as_json); });
}

}  // namespace asr
