// What the server counts, in the words of Prometheus. No label grows with the number of sessions.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "session/sessions.hpp"

namespace prometheus {
class Registry;
}

namespace asr {

class Metrics {
 public:
  explicit Metrics(const Sessions& sessions);
  ~Metrics();

  void count_request(const std::string& route, const std::string& method, unsigned status,
                     std::chrono::duration<double> time);
  void count_fault(std::string_view fault);
  std::string text();  // Collects what others count, too.

 private:
  struct Families;
  const Sessions& sessions_;
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<Families> families_;
};

}  // namespace asr
