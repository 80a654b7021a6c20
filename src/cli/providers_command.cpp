// agent-sandbox providers: where a server's sessions can live, and what each place can do.
#include <CLI/CLI.hpp>

#include "cli/answer.hpp"
#include "cli/commands.hpp"

namespace asr {

namespace {

const json::array& list_in(const json::value& from, std::string_view name) {
  static const json::array none;
  const json::value* list = from.is_object() ? from.get_object().if_contains(name) : nullptr;
  return list && list->is_array() ? list->get_array() : none;
}

// Those that cannot, with the reason; what is not listed can be done.
std::string provider_text(const json::value& provider) {
  std::string state = text_at(provider, "state");
  std::string trouble = text_at(provider, "trouble");
  std::string out = printable(text_at(provider, "name")) + ": " + printable(state) +
                    (trouble.empty() ? "" : ", " + printable(trouble)) + "\n";
  Table table({"CANNOT", "WHY"});
  bool any = false;
  for (const json::value& ability : list_in(provider, "abilities")) {
    if (text_at(ability, "can") == "true") continue;
    table.add({printable(text_at(ability, "name")), printable(text_at(ability, "why_not"))});
    any = true;
  }
  return out + (any ? table.text() : "");
}

}  // namespace

void add_providers_command(CLI::App& app, Invocation& invocation) {
  auto output = std::make_shared<Output>();
  CLI::App* command =
      app.add_subcommand("providers", "Where sessions can live, and what each place cannot do");
  command->add_flag("--json", output->json, "As JSON");
  command->callback([=, &invocation] {
    auto answer = call("GET", "/api/providers");
    invocation.status = output->show(answer, [&] {
      std::string text;
      for (const json::value& provider : list_in(*answer, "providers"))
        text += (text.empty() ? "" : "\n") + provider_text(provider);
      return text;
    });
  });
}

}  // namespace asr
