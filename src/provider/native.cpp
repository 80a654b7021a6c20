#include "provider/provider.hpp"

namespace asr {

namespace {

class NativeProvider final : public Provider {
 public:
  explicit NativeProvider(Engine& engine) : engine_(engine) {}

  std::string_view name() const noexcept override { return "native"; }
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec) override {
    return engine_.create(std::move(spec));
  }
  std::vector<PoolState> pools() const override { return engine_.pools(); }

 private:
  Engine& engine_;
};

}  // namespace

std::unique_ptr<Provider> native_provider(Engine& engine) {
  return std::make_unique<NativeProvider>(engine);
}

}  // namespace asr
