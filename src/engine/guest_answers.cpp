#include "engine/guest_answers.hpp"

namespace asr {

Error failure_in(const Letter& letter) {
  if (letter.lost_descriptors) return out_of_descriptors();
  auto failure = letter.as<wire::Failure>();
  if (!failure) return Error(Errc::internal, "the sandbox sent a wrong answer");
  Errc code = failure->code <= static_cast<std::uint8_t>(Errc::internal)
                  ? static_cast<Errc>(failure->code)
                  : Errc::internal;
  return Error(code, failure->what, failure->hint);
}

}  // namespace asr
