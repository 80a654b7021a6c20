#include "os/loop.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <memory>

namespace asr {

namespace {

// Others take devices, too, between our question and our claim.
constexpr int kTries = 64;

std::optional<unsigned> number_of(const char* name) {
  std::string_view text = name;
  if (!text.starts_with("loop")) return std::nullopt;
  text.remove_prefix(4);
  unsigned number = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string loop_path(unsigned number) { return "/dev/loop" + std::to_string(number); }

Result<LoopDevice> attach_loop(int image) {
  UniqueFd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control)
    return fail(Errc::unsupported, errno_error(errno, "open /dev/loop-control").what,
                "a disk needs loop devices: load the module loop, and give them to the container");
  for (int tries = 0; tries < kTries; ++tries) {
    int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno("find a free loop device");
    LoopDevice device{static_cast<unsigned>(number), UniqueFd()};
    device.fd = UniqueFd(::open(loop_path(device.number).c_str(), O_RDWR | O_CLOEXEC));
    if (!device.fd && errno == ENXIO) continue;  // Taken, and given back, and on its way out.
    if (!device.fd) return fail_errno("open " + loop_path(device.number));
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(image);
    // Not direct: the next mount of a disk finds it in memory, and waits a third of the time.
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (::ioctl(device.fd.get(), LOOP_CONFIGURE, &config) == 0) return device;
    if (errno != EBUSY) return fail_errno("configure " + loop_path(device.number));
  }
  return fail(Errc::exhausted, "no loop device stays free for long enough");
}

std::optional<unsigned> loop_of(int image) {
  struct stat file {};
  if (::fstat(image, &file) != 0) return std::nullopt;
  std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir("/sys/block"), ::closedir);
  while (dirent* entry = all ? ::readdir(all.get()) : nullptr) {
    auto number = number_of(entry->d_name);
    if (!number) continue;
    // Only those in use have this folder; opening the others would make them busy for a moment.
    std::string bound = std::string("/sys/block/") + entry->d_name + "/loop";
    if (::access(bound.c_str(), F_OK) != 0) continue;
    UniqueFd device(::open(loop_path(*number).c_str(), O_RDONLY | O_CLOEXEC));
    loop_info64 info{};
    if (device && ::ioctl(device.get(), LOOP_GET_STATUS64, &info) == 0 &&
        info.lo_inode == file.st_ino && info.lo_device == file.st_dev)
      return number;
  }
  return std::nullopt;
}

}  // namespace asr
