// What tests look at on the host, as root, from outside every sandbox.
#pragma once

#include <string>

namespace asr::test {

std::string read_fd(int fd);
// "" if there is none, also when it stands for a process that ends meanwhile.
std::string read_host_file(const std::string& path);
bool process_lives(int pid);  // and is no zombie

}  // namespace asr::test
