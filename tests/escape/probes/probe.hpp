// What the attacks of tests/escape/probes share: how an attempt is made, told apart and printed.
// Each attempt runs in a child of its own and is one JSON line. The program never decides what
// should have happened: that is the test's part, which runs it outside first and inside then.
#pragma once

#include <cerrno>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace probes {

struct Outcome {
  bool succeeded = false;
  int err = 0;
  std::string detail;
};

// Of a system call: anything but -1 is success.
Outcome from(long result, std::string detail = {});
// Of a system call made with arguments it cannot like: reaching the code that looks at them is
// success.
Outcome reached(long result);
Outcome when(bool succeeded, std::string detail = {});

// Why an attempt need not succeed outside. Such an attempt proves nothing, and the test says so.
struct Unprovable {
  std::string reason;
};

// What surrounds a case when it runs outside: always its own mount and process namespace, as root.
struct Box {
  bool host_network = false;  // Otherwise an empty network namespace with loopback up.
  bool host_ipc = false;
  unsigned memory_mib = 0;  // 0: no memory cgroup.
  unsigned pids = 0;        // 0: no pids cgroup.
};

class Probe {
 public:
  Probe(std::string_view name, std::vector<std::string> args, std::string scratch, bool outside)
      : args_(std::move(args)), name_(name), scratch_(std::move(scratch)), outside_(outside) {}

  // An attack: must succeed outside, must fail inside.
  void attempt(const std::string& what, const std::function<Outcome()>& attack) const {
    print(what, "attack", {}, in_child(attack));
  }
  void attempt(const std::string& what, const Unprovable& why,
               const std::function<Outcome()>& attack) const {
    print(what, "attack", why.reason, in_child(attack));
  }
  // What ordinary programs need: must succeed inside as well.
  void needed(const std::string& what, const std::function<Outcome()>& use) const {
    print(what, "needed", {}, in_child(use));
  }
  // For the test to look at; neither outcome is wrong by itself.
  void note(const std::string& what, const std::function<Outcome()>& look) const {
    print(what, "note", {}, in_child(look));
  }
  // The same for an outcome that is known already.
  void report(const std::string& what, const Outcome& outcome) const {
    print(what, "attack", {}, outcome);
  }
  void report_note(const std::string& what, const Outcome& outcome) const {
    print(what, "note", {}, outcome);
  }

  bool outside() const noexcept { return outside_; }
  const std::string& scratch() const noexcept {
    return scratch_;
  }  // A directory to write in, without a final slash.
  std::size_t args() const noexcept { return args_.size(); }
  std::string arg(std::size_t i, std::string_view otherwise = {}) const;
  long number(std::size_t i, long otherwise) const;

  void set_patience(unsigned seconds) noexcept { patience_ = seconds; }

 private:
  Outcome in_child(const std::function<Outcome()>& attack) const;
  void print(const std::string& what, const char* kind, const std::string& unprovable,
             const Outcome& outcome) const;

  std::vector<std::string> args_;
  std::string name_;
  std::string scratch_;
  bool outside_;
  unsigned patience_ = 10;
};

struct Case {
  const char* name;
  void (*run)(Probe&);
  Box box;
};

// One list per file.
std::span<const Case> resource_cases();
std::span<const Case> storage_cases();
std::span<const Case> budget_cases();
std::span<const Case> process_cases();
std::span<const Case> proc_cases();
std::span<const Case> namespace_cases();
std::span<const Case> descriptor_cases();
std::span<const Case> syscall_cases();
std::span<const Case> socket_cases();
std::span<const Case> network_cases();
std::span<const Case> file_cases();
std::span<const Case> terminal_cases();
std::span<const Case> posture_cases();

int sweep(std::string_view which);  // "native", "x32" or "i386"

// Runs `one` as root in a box of its own; its exit code, or 3 when the box cannot be made (a JSON
// line says why).
int run_outside(const Case& one, const std::vector<std::string>& args);

// Small things that many cases need.
std::string errno_name(int err);
std::string read_all(const std::string& path, std::size_t most = 1 << 20);
bool write_all(const std::string& path, std::string_view text);
std::vector<std::string> entries(const std::string& directory);
std::vector<int> process_ids();
std::string link_of(const std::string& path);
bool copy_self(const std::string& to, unsigned mode);  // This program, as another file.
std::string json_quoted(std::string_view text);

}  // namespace probes
