#include "api/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "base/version.hpp"
#include "session/batches.hpp"

namespace asr {

namespace {

const prometheus::Histogram::BucketBoundaries kSeconds{
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

}  // namespace

struct Metrics::Families {
  explicit Families(prometheus::Registry& registry)
      : requests(prometheus::BuildCounter()
                     .Name("agent_sandbox_requests_total")
                     .Help("Requests by operation, method and status")
                     .Register(registry)),
        seconds(prometheus::BuildHistogram()
                    .Name("agent_sandbox_request_seconds")
                    .Help("Time from a request's head to its answer")
                    .Register(registry)),
        faults(prometheus::BuildCounter()
                   .Name("agent_sandbox_errors_total")
                   .Help("Errors by whose fault they are")
                   .Register(registry)),
        sessions(prometheus::BuildGauge()
                     .Name("agent_sandbox_sessions")
                     .Help("Sessions by state")
                     .Register(registry)),
        changes(prometheus::BuildGauge()
                    .Name("agent_sandbox_sessions_total")
                    .Help("Sessions created, ended and failed since the start")
                    .Register(registry)),
        executions(prometheus::BuildGauge()
                       .Name("agent_sandbox_executions_total")
                       .Help("Commands that ended, by status")
                       .Register(registry)),
        pool(prometheus::BuildGauge()
                 .Name("agent_sandbox_pool_sandboxes")
                 .Help("Warm sandboxes ready and wanted, of all pools")
                 .Register(registry)),
        served(prometheus::BuildGauge()
                   .Name("agent_sandbox_pool_served_total")
                   .Help("Sandboxes handed out warm and made cold")
                   .Register(registry)),
        cells(prometheus::BuildGauge()
                  .Name("agent_sandbox_cells_total")
                  .Help("Pieces of code that interpreters have run, by how they ended")
                  .Register(registry)),
        interpreters(prometheus::BuildGauge()
                         .Name("agent_sandbox_interpreters_total")
                         .Help("Interpreters by where they came from: one that ran already, an "
                               "image, or its file")
                         .Register(registry)),
        images(prometheus::BuildGauge()
                   .Name("agent_sandbox_interpreter_images")
                   .Help("Environments whose interpreters come from an image")
                   .Register(registry)),
        judged(prometheus::BuildGauge()
                   .Name("agent_sandbox_batch_verdicts_total")
                   .Help("Programs judged, by verdict")
                   .Register(registry)),
        to_judge(prometheus::BuildGauge()
                     .Name("agent_sandbox_batch_programs")
                     .Help("Programs that wait for their turn, and those in work")
                     .Register(registry)),
        builds(prometheus::BuildGauge()
                   .Name("agent_sandbox_batch_builds_total")
                   .Help("Programs built by a compiler, and executables that were there already")
                   .Register(registry)),
        retries(prometheus::BuildGauge()
                    .Name("agent_sandbox_batch_retries_total")
                    .Help("Programs tried again because of this server")
                    .Register(registry)) {
    prometheus::BuildGauge()
        .Name("agent_sandbox_build_info")
        .Help("Which version this is")
        .Register(registry)
        .Add({{"version", std::string(kVersion)}})
        .Set(1);
  }

  prometheus::Family<prometheus::Counter>& requests;
  prometheus::Family<prometheus::Histogram>& seconds;
  prometheus::Family<prometheus::Counter>& faults;
  prometheus::Family<prometheus::Gauge>& sessions;
  prometheus::Family<prometheus::Gauge>& changes;
  prometheus::Family<prometheus::Gauge>& executions;
  prometheus::Family<prometheus::Gauge>& pool;
  prometheus::Family<prometheus::Gauge>& served;
  prometheus::Family<prometheus::Gauge>& cells;
  prometheus::Family<prometheus::Gauge>& interpreters;
  prometheus::Family<prometheus::Gauge>& images;
  prometheus::Family<prometheus::Gauge>& judged;
  prometheus::Family<prometheus::Gauge>& to_judge;
  prometheus::Family<prometheus::Gauge>& builds;
  prometheus::Family<prometheus::Gauge>& retries;
};

Metrics::Metrics(const Sessions& sessions, const Batches* batches)
    : sessions_(sessions),
      batches_(batches),
      registry_(std::make_shared<prometheus::Registry>()),
      families_(std::make_unique<Families>(*registry_)) {}

Metrics::~Metrics() = default;

void Metrics::count_request(const std::string& route, const std::string& method, unsigned status,
                            std::chrono::duration<double> time) {
  families_->requests
      .Add({{"operation", route}, {"method", method}, {"status", std::to_string(status)}})
      .Increment();
  families_->seconds.Add({{"operation", route}}, kSeconds).Observe(time.count());
}

void Metrics::count_fault(std::string_view fault) {
  families_->faults.Add({{"fault", std::string(fault)}}).Increment();
}

void Metrics::collect_batches() {
  if (!batches_) return;
  BatchCounts counts = batches_->counts();
  auto set = [](prometheus::Family<prometheus::Gauge>& family, const char* label,
                std::string_view value, auto number) {
    family.Add({{label, std::string(value)}}).Set(static_cast<double>(number));
  };
  for (std::size_t i = 0; i < kVerdicts; ++i)
    set(families_->judged, "verdict", to_string(static_cast<Verdict>(i)), counts.verdicts[i]);
  set(families_->to_judge, "state", "waiting", counts.waiting);
  set(families_->to_judge, "state", "in_work", counts.in_work);
  set(families_->builds, "kind", "built", counts.built);
  set(families_->builds, "kind", "reused", counts.reused);
  families_->retries.Add({}).Set(static_cast<double>(counts.retries));
}

std::string Metrics::text() {
  SessionCounts counts = sessions_.counts();
  auto set = [](prometheus::Family<prometheus::Gauge>& family, const char* label,
                const std::string& value, double number) {
    family.Add({{label, value}}).Set(number);
  };
  set(families_->sessions, "state", "ready", static_cast<double>(counts.ready));
  set(families_->sessions, "state", "paused", static_cast<double>(counts.paused));
  set(families_->sessions, "state", "stopped", static_cast<double>(counts.stopped));
  set(families_->sessions, "state", "creating", static_cast<double>(counts.creating));
  set(families_->changes, "change", "created", static_cast<double>(counts.created));
  set(families_->changes, "change", "ended", static_cast<double>(counts.ended));
  set(families_->changes, "change", "failed", static_cast<double>(counts.failed));
  for (const auto& [status, count] : counts.command_ends)
    set(families_->executions, "status", status, static_cast<double>(count));
  for (const auto& [status, count] : counts.cells)
    set(families_->cells, "status", status, static_cast<double>(count));
  WarmCounts warm = sessions_.interpreters()->counts();
  set(families_->interpreters, "from", "ready", static_cast<double>(warm.ready));
  set(families_->interpreters, "from", "image", static_cast<double>(warm.thawed));
  set(families_->interpreters, "from", "file", static_cast<double>(warm.started));
  families_->images.Add({}).Set(static_cast<double>(warm.images));
  PoolState all;
  for (const auto& [name, provider] : sessions_.providers())
    for (const PoolState& pool : provider->pools()) {
      all.ready += pool.ready;
      all.wanted += pool.wanted;
      all.served_warm += pool.served_warm;
      all.served_cold += pool.served_cold;
    }
  set(families_->pool, "kind", "ready", all.ready);
  set(families_->pool, "kind", "wanted", all.wanted);
  set(families_->served, "kind", "warm", static_cast<double>(all.served_warm));
  set(families_->served, "kind", "cold", static_cast<double>(all.served_cold));
  collect_batches();
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace asr
