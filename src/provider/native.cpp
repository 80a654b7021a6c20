#include "provider/provider.hpp"

namespace asr {

Abilities native_abilities(const NativeOptions& options) {
  Abilities all;
  all.lacks(Ability::images, "environments of this server are folders and archives");
  if (!options.full_network) all.may_not(Ability::internet, "the setting network.full is off");
  return all;
}

namespace {

class NativeProvider final : public Provider {
 public:
  NativeProvider(Engine& engine, const NativeOptions& options)
      : engine_(engine), abilities_(native_abilities(options)) {}

  std::string_view name() const noexcept override { return "native"; }
  const Abilities& abilities() const noexcept override { return abilities_; }
  asio::awaitable<Result<std::shared_ptr<Sandbox>>> create(SandboxSpec spec, SandboxWish) override {
    return engine_.create(std::move(spec));
  }
  std::vector<PoolState> pools() const override { return engine_.pools(); }
  bool can_keep() const noexcept override { return engine_.can_keep(); }
  // The keeper knows better than any record.
  asio::awaitable<std::vector<std::shared_ptr<Sandbox>>> adopt(std::vector<KnownSandbox>) override {
    co_return engine_.adopted();
  }
  asio::awaitable<Result<void>> make_volume(std::string source, VolumeOptions options) override {
    return engine_.make_volume(std::move(source), options);
  }
  asio::awaitable<Result<void>> remove_storage(std::string path) override {
    return engine_.remove_storage(std::move(path));
  }

 private:
  Engine& engine_;
  Abilities abilities_;
};

}  // namespace

asio::awaitable<Result<std::vector<std::shared_ptr<Sandbox>>>> Provider::fork(
    std::shared_ptr<Sandbox>, std::vector<std::string>) {
  co_return fail(Errc::unsupported, "not supported by this provider");
}

std::unique_ptr<Provider> native_provider(Engine& engine, NativeOptions options) {
  return std::make_unique<NativeProvider>(engine, options);
}

}  // namespace asr
