// What tests look at on the host, as root, from outside every sandbox.
#pragma once

#include <string>
#include <vector>

namespace asr::test {

std::string read_fd(int fd);
// "" if there is none, also when it stands for a process that ends meanwhile.
std::string read_host_file(const std::string& path);
bool process_lives(int pid);  // and is no zombie
// One process, by its number. Numbers that mean several are an error: -1 would be the machine.
void signal_one(int pid, int signal);
// Folders of an instance in any hierarchy of control groups; only those with a process if `in_use`.
std::vector<std::string> groups_of(const std::string& instance, bool in_use = false);
// A process's group in the hierarchy of this controller: the folder, "" if there is none.
std::string group_of(int pid, const std::string& controller);

}  // namespace asr::test
