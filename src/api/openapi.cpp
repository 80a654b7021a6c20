#include "api/openapi.hpp"

#include <boost/json/parse.hpp>

#include "base/version.hpp"

extern "C" {
extern const char asr_api_schemas_begin[];
extern const char asr_api_schemas_end[];
}

namespace asr {

namespace {

json::object reference(const std::string& schema) {
  return {{"$ref", "#/components/schemas/" + schema}};
}

json::object content(const std::string& media, const std::string& schema) {
  json::object inner;
  if (!schema.empty()) inner["schema"] = reference(schema);
  return {{media, std::move(inner)}};
}

json::array parameters_of(const Route& route) {
  json::array out;
  std::string_view path = route.path;
  for (std::size_t open = path.find('{'); open != std::string_view::npos;
       open = path.find('{', open + 1)) {
    std::string name(path.substr(open + 1, path.find('}', open) - open - 1));
    out.push_back(json::object{
        {"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  }
  for (const Parameter& parameter : route.parameters)
    out.push_back(json::object{{"name", parameter.name},
                               {"in", "query"},
                               {"required", parameter.required},
                               {"description", parameter.description},
                               {"schema", {{"type", parameter.type}}}});
  return out;
}

json::object operation_of(const Route& route) {
  json::object operation{
      {"operationId", route.name}, {"tags", json::array{route.tag}}, {"summary", route.summary}};
  json::array parameters = parameters_of(route);
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (!route.body.empty())
    operation["requestBody"] = {{"required", !route.body_optional},
                                {"content", content("application/json", route.body)}};
  else if (!route.media.empty())
    operation["requestBody"] = {{"required", true}, {"content", content(route.media, "")}};
  json::object responses;
  for (const Answer& answer : route.answers) {
    json::value& response = responses[std::to_string(answer.status)];
    if (!response.is_object()) response = json::object{{"description", answer.description}};
    if (answer.schema.empty() && answer.media == "application/json") continue;
    // The same status may come with different bodies, by what the client accepts.
    json::value& bodies = response.as_object()["content"];
    if (!bodies.is_object()) bodies = json::object();
    for (const auto& [media, body] : content(answer.media, answer.schema))
      bodies.as_object()[media] = body;
  }
  responses["default"] = {{"description", "It failed, and this is why"},
                          {"content", content("application/json", "Error")}};
  operation["responses"] = std::move(responses);
  if (route.needs == Needs::nothing) operation["security"] = json::array();
  return operation;
}

std::string lowercase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

const json::value& schemas() {
  static const json::value all = json::parse(
      std::string_view(asr_api_schemas_begin,
                       static_cast<std::size_t>(asr_api_schemas_end - asr_api_schemas_begin)));
  return all;
}

const json::value& schema_of(std::string_view name) {
  return schemas().at_pointer("/components/schemas/" + std::string(name));
}

json::object openapi_document(const std::vector<Route>& routes) {
  json::object document{
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Agent Sandbox Runtime"},
        {"version", std::string(kVersion)},
        {"description", "Isolated computers for AI agents that keep their state."},
        {"license", {{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
      {"security",
       json::array{json::object{{"bearer", json::array()}}, json::object{{"key", json::array()}}}}};
  json::object paths;
  for (const Route& route : routes) {
    if (route.dialect != Dialect::own) continue;
    json::value& path = paths[route.path];
    if (!path.is_object()) path = json::object();
    path.as_object()[lowercase(route.method)] = operation_of(route);
  }
  document["paths"] = std::move(paths);
  json::object components = schemas().at("components").as_object();
  components["securitySchemes"] = {
      {"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
      {"key", {{"type", "apiKey"}, {"in", "header"}, {"name", "X-API-Key"}}}};
  document["components"] = std::move(components);
  return document;
}

}  // namespace asr
