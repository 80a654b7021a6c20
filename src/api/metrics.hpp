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
  Metrics(const Sessions& sessions, const class Batches* batches);
  ~Metrics();

  void count_request(const std::string& route, const std::string& method, unsigned status,
                     std::chrono::duration<double> time);
  void count_fault(std::string_view fault);
  std::string text();  // Collects what others count, too.

 private:
  struct Families;
  void collect_batches();

  const Sessions& sessions_;
  const Batches* batches_;
  std::shared_ptr<prometheus::Registry> registry_;
  std::unique_ptr<Families> families_;
};

}  // namespace asr
