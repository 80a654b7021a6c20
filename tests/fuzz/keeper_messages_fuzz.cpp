// Frames between daemon and keeper, both ways.
#include <cstdint>

#include "round_trip.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  asr::fuzz::check_round_trip<asr::wire::KeeperMessages>(
      {reinterpret_cast<const char*>(data), size});
  return 0;
}
