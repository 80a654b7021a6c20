// The description of the API: written from the routes, so that it cannot leave one out.
#pragma once

#include <string_view>
#include <vector>

#include "api/route.hpp"
#include "net/json.hpp"

namespace asr {

// All schemas: an OpenAPI document with nothing but components.
const json::value& schemas();
const json::value& schema_of(std::string_view name);

json::object openapi_document(const std::vector<Route>& routes);

}  // namespace asr
