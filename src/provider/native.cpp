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
  bool can_keep() const noexcept override { return engine_.can_keep(); }
  std::vector<std::shared_ptr<Sandbox>> adopted() override { return engine_.adopted(); }
  asio::awaitable<Result<void>> make_volume(std::string source, VolumeOptions options) override {
    return engine_.make_volume(std::move(source), options);
  }
  asio::awaitable<Result<void>> remove_storage(std::string path) override {
    return engine_.remove_storage(std::move(path));
  }

 private:
  Engine& engine_;
};

}  // namespace

std::unique_ptr<Provider> native_provider(Engine& engine) {
  return std::make_unique<NativeProvider>(engine);
}

}  // namespace asr
