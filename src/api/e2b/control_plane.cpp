#include "api/e2b/control_plane.hpp"

namespace asr {

Route e2b_route(const E2bParts& parts, std::string method, std::string path, std::string name,
                E2bHandle handle, E2bBody body, Role least) {
  Route route;
  route.method = std::move(method);
  route.path = std::move(path);
  route.name = std::move(name);
  route.tag = "e2b";
  route.handle = [parts, handle](CallPtr call) { return handle(parts, std::move(call)); };
  route.least = least;
  route.dialect = Dialect::e2b;
  if (body != E2bBody::none) route.body = "AnyObject";
  route.body_optional = body == E2bBody::optional;
  return route;
}

std::vector<Route> e2b_routes(const E2bParts& parts) {
  std::vector<Route> all;
  for (auto routes :
       {e2b_watch_routes(parts), e2b_sandbox_routes(parts), e2b_branch_routes(parts),
        e2b_template_routes(parts), e2b_volume_routes(parts), e2b_volume_content_routes(parts),
        e2b_secret_routes(parts), e2b_event_routes(parts)})
    for (Route& route : routes) all.push_back(std::move(route));
  return all;
}

}  // namespace asr
