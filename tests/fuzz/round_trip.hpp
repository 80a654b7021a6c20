// What holds for every message, whoever sent it: it is refused, or it is exactly what encode()
// would have made.
#pragma once

#include <cstdlib>
#include <string_view>

#include "wire/message_lists.hpp"

namespace asr::fuzz {

template <class Messages>
void check_round_trip(std::string_view packet) {
  auto frame = parse_frame(packet);
  if (!frame) return;
  int readings = 0;
  wire::for_each_message<Messages>([&](auto message) {
    auto read = decode<decltype(message)>(*frame);
    if (!read) return;
    ++readings;
    if (encode(frame->id, *read) != packet) std::abort();
  });
  if (readings > 1) std::abort();
}

}  // namespace asr::fuzz
