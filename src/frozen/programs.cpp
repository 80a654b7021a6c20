#include "frozen/programs.hpp"

#if ASR_CAN_FREEZE
extern "C" const char asr_freeze_begin[], asr_freeze_end[];
extern "C" const char asr_thaw_begin[], asr_thaw_end[];
#endif

namespace asr::frozen {

#if ASR_CAN_FREEZE
std::string_view freeze_library() {
  return {asr_freeze_begin, static_cast<std::size_t>(asr_freeze_end - asr_freeze_begin)};
}
std::string_view thaw_program() {
  return {asr_thaw_begin, static_cast<std::size_t>(asr_thaw_end - asr_thaw_begin)};
}
#else
std::string_view freeze_library() { return {}; }
std::string_view thaw_program() { return {}; }
#endif

}  // namespace asr::frozen
