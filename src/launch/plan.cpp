#include "launch/plan.hpp"

namespace asr {

std::string_view to_string(LaunchStep step) noexcept {
  static constexpr std::array<std::string_view, kLaunchSteps> kNames{"join cgroups",
                                                                     "wait for id maps",
                                                                     "take ids",
                                                                     "mount scratch",
                                                                     "make scratch folders",
                                                                     "mount root",
                                                                     "mount layers",
                                                                     "mount writable parts",
                                                                     "mount /proc",
                                                                     "kernel settings",
                                                                     "inner user namespace",
                                                                     "mask /proc",
                                                                     "mount /dev",
                                                                     "mount volumes",
                                                                     "bring up loopback",
                                                                     "enter root",
                                                                     "join cpu cgroup",
                                                                     "set limits",
                                                                     "drop privileges",
                                                                     "landlock",
                                                                     "system call gate"};
  auto index = static_cast<std::size_t>(step);
  return index < kNames.size() ? kNames[index] : "unknown step";
}

}  // namespace asr
