#include "cli/commands.hpp"
namespace asr {
void add_tour_command(CLI::App&, int&) {}
void add_doctor_command(CLI::App&, int&) {}
void add_completion_command(CLI::App&, int&) {}
}
