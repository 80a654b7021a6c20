// The floor: what the kernel alone asks for an isolated process with limits. The engine is measured
// against this loop: groups with limits, one clone3() into seven namespaces, tmpfs, overlay, /proc,
// pivot_root(), one byte back, exit, and the groups removed. No filter, no capabilities dropped, no
// protocol: it isolates nothing well and is not a sandbox.
//
//   floor create N                      one after the other; times until the byte is back and until
//   all is removed floor cycle-exec N                  the same, and /bin/true is run inside before
//   the byte is sent floor sustained SECONDS WORKERS     cycles per second of parallel workers;
//   --exec: with /bin/true inside floor spawn N [command…]            posix_spawn() and wait on the
//   host, /bin/true by default floor rate SECONDS WORKERS command… the same as a rate; {} in an
//   argument becomes a number used once
//
// --join procs|tasks chooses the file through which the child enters v1 groups. One JSON object on
// stdout.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BASE_GROUP "agent-sandbox-floor"

// ---- times and failures
// -------------------------------------------------------------------------------------------

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void die(const char* what) {
  fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(bool ok, const char* what) {
  if (!ok) die(what);
}

static volatile sig_atomic_t interrupted;
static void on_signal(int number) {
  (void)number;
  interrupted = 1;
}

// No SA_RESTART needed: a cycle is always finished, so that nothing is left behind.
static void finish_cycle_on_signals(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

// ---- control groups
// -----------------------------------------------------------------------------------------------

enum { kControllers = 3, kMostTrees = kControllers + 1 };

struct Limit {
  const char* controller;
  const char* v1_file;
  const char* v1_value;
  const char* v2_file;
  const char* v2_value;
};
static const struct Limit kLimits[kControllers] = {
    {"memory", "memory.limit_in_bytes", "536870912", "memory.max", "536870912"},
    {"pids", "pids.max", "256", "pids.max", "256"},
    {"cpu", "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000"},
};

// One mounted hierarchy that a cycle makes a group in.
struct Tree {
  int base;  // directory of BASE_GROUP; stays usable when the mount is out of sight
  int mount;
  bool v2;
  bool limits[kControllers];
};
static struct Tree trees[kMostTrees];
static int tree_count;
static const char* join_file = "tasks";

static bool has_word(const char* list, const char* word, const char* separators) {
  char copy[1024];
  snprintf(copy, sizeof copy, "%s", list);
  char* state = NULL;
  for (char* w = strtok_r(copy, separators, &state); w; w = strtok_r(NULL, separators, &state))
    if (strcmp(w, word) == 0) return true;
  return false;
}

static int write_at(int dir, const char* file, const char* value) {
  int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t n = write(fd, value, strlen(value));
  int error = errno;
  close(fd);
  errno = error;
  return n < 0 ? -1 : 0;
}

static struct Tree* add_tree(const char* mount_point, bool v2) {
  struct Tree* tree = &trees[tree_count++];
  tree->v2 = v2;
  tree->mount = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(tree->mount >= 0, mount_point);
  return tree;
}

// A controller is limited where it is: in the v2 tree if that has it, otherwise in the v1 hierarchy
// that does.
static void find_trees(void) {
  FILE* mounts = fopen("/proc/self/mountinfo", "re");
  check(mounts != NULL, "/proc/self/mountinfo");
  char line[4096], v2_point[1024] = "", v1_point[kControllers][1024] = {"", "", ""};
  while (fgets(line, sizeof line, mounts)) {
    char point[1024], type[64], options[1024];
    char* rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %*s %*s %1023s", point) != 1) continue;
    if (sscanf(rest, " - %63s %*s %1023s", type, options) != 2) continue;
    if (strcmp(type, "cgroup2") == 0 && !*v2_point) strcpy(v2_point, point);
    if (strcmp(type, "cgroup") != 0) continue;
    for (int c = 0; c < kControllers; c++)
      if (!*v1_point[c] && has_word(options, kLimits[c].controller, ",\n"))
        strcpy(v1_point[c], point);
  }
  fclose(mounts);

  char in_v2[1024] = "";
  if (*v2_point) {
    struct Tree* v2 = add_tree(v2_point, true);
    int fd = openat(v2->mount, "cgroup.controllers", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, in_v2, sizeof in_v2 - 1);
    in_v2[n > 0 ? n : 0] = 0;
    if (fd >= 0) close(fd);
  }
  for (int c = 0; c < kControllers; c++) {
    if (has_word(in_v2, kLimits[c].controller, " \n")) {
      trees[0].limits[c] = true;
    } else if (*v1_point[c]) {
      add_tree(v1_point[c], false)->limits[c] = true;
    } else {
      fprintf(stderr, "floor: no control group limits %s here\n", kLimits[c].controller);
      exit(1);
    }
  }
}

// Groups of floors that were killed. Their names begin with the pid that made them.
static void sweep(int base) {
  DIR* dir = fdopendir(openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir) return;
  for (struct dirent* entry; (entry = readdir(dir));) {
    int maker = atoi(entry->d_name);
    if (entry->d_type == DT_DIR && maker > 0 && kill(maker, 0) != 0)
      unlinkat(base, entry->d_name, AT_REMOVEDIR);
  }
  closedir(dir);
}

static void enable_controllers(int dir, const struct Tree* tree) {
  for (int c = 0; c < kControllers; c++) {
    char word[32];
    snprintf(word, sizeof word, "+%s", kLimits[c].controller);
    if (tree->limits[c])
      check(write_at(dir, "cgroup.subtree_control", word) == 0, "cgroup.subtree_control");
  }
}

static void make_base_groups(void) {
  find_trees();
  for (int i = 0; i < tree_count; i++) {
    struct Tree* tree = &trees[i];
    check(mkdirat(tree->mount, BASE_GROUP, 0755) == 0 || errno == EEXIST, "mkdir " BASE_GROUP);
    tree->base = openat(tree->mount, BASE_GROUP, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(tree->base >= 0, BASE_GROUP);
    sweep(tree->base);
    if (!tree->v2) continue;
    enable_controllers(tree->mount, tree);
    enable_controllers(tree->base, tree);
  }
}

// Another floor may still use them: then they stay.
static void remove_base_groups(void) {
  for (int i = 0; i < tree_count; i++) unlinkat(trees[i].mount, BASE_GROUP, AT_REMOVEDIR);
}

static void make_groups(const char* name) {
  for (int i = 0; i < tree_count; i++) {
    check(mkdirat(trees[i].base, name, 0755) == 0, "mkdir of a group");
    for (int c = 0; c < kControllers; c++) {
      if (!trees[i].limits[c]) continue;
      char file[128];
      snprintf(file, sizeof file, "%s/%s", name,
               trees[i].v2 ? kLimits[c].v2_file : kLimits[c].v1_file);
      check(write_at(trees[i].base, file,
                     trees[i].v2 ? kLimits[c].v2_value : kLimits[c].v1_value) == 0,
            file);
    }
  }
}

static void remove_groups(const char* name) {
  for (int i = 0; i < tree_count; i++) {
    uint64_t give_up = now_ns() + 2000000000u;
    while (unlinkat(trees[i].base, name, AT_REMOVEDIR) != 0)
      check(errno == EBUSY && now_ns() < give_up, "rmdir of a group");
  }
}

// ---- one cycle
// ----------------------------------------------------------------------------------------------------

enum Step {
  kGroups,   // made, limits written
  kClone,    // clone3() has returned in the parent
  kMaps,     // uid_map and gid_map are written
  kJoin,     // child: is in the v1 groups
  kMapped,   // child: has heard that the maps are there
  kTmpfs,    // child
  kOverlay,  // child
  kProc,     // child
  kPivot,    // child: pivot_root() is done
  kDetach,   // child: the old root is gone
  kExec,     // child: /bin/true has ended (cycle-exec only)
  kByte,     // parent: the byte is back
  kReap,     // parent: the child is reaped
  kUngroup,  // parent: the groups are removed
  kSteps,
};
static const char* const kStepNames[kSteps] = {
    "groups_made", "clone3",        "id_maps",    "child_joined_v1", "child_mapped",
    "child_tmpfs", "child_overlay", "child_proc", "child_pivoted",   "child_detached",
    "child_exec",  "byte_received", "reaped",     "groups_removed",
};

struct Cycle {
  uint64_t start;
  uint64_t at[kSteps];
};
static struct Cycle* shared;  // The cycle under way: the child writes its times here.

enum Work { kNothing, kRunTrue };

static _Noreturn void child_fails(int channel, const char* what) {
  char text[200];
  int n = snprintf(text, sizeof text, "!%s: %s", what, strerror(errno));
  (void)!write(channel, text, (size_t)n);
  _exit(1);
}

static _Noreturn void child_main(int channel, const char* name, enum Work work) {
#define STEP(call) \
  if ((call) < 0) child_fails(channel, #call)
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int i = 0; i < tree_count; i++) {
    if (trees[i].v2) continue;
    char file[128];
    snprintf(file, sizeof file, "%s/%s", name, join_file);
    STEP(write_at(trees[i].base, file, "0"));
  }
  shared->at[kJoin] = now_ns();
  char byte;
  if (read(channel, &byte, 1) != 1) _exit(1);
  shared->at[kMapped] = now_ns();

  STEP(syscall(SYS_setresgid, 0, 0, 0));
  STEP(syscall(SYS_setresuid, 0, 0, 0));
  STEP(
      mount("tmpfs", "/box", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,nr_inodes=65536,mode=0755"));
  STEP(chdir("/box"));
  STEP(mkdir("usr", 0755));
  STEP(mkdir("proc", 0755));
  STEP(mkdir("upper", 0755));
  STEP(mkdir("work", 0755));
  STEP(symlink("usr/bin", "bin"));
  STEP(symlink("usr/lib", "lib"));
  STEP(symlink("usr/lib64", "lib64"));
  shared->at[kTmpfs] = now_ns();
  STEP(mount("overlay", "usr", "overlay", MS_NOSUID | MS_NODEV,
             "lowerdir=/usr,upperdir=/box/upper,workdir=/box/work,userxattr"));
  shared->at[kOverlay] = now_ns();
  STEP(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
  shared->at[kProc] = now_ns();
  STEP(syscall(SYS_pivot_root, ".", "."));
  shared->at[kPivot] = now_ns();
  STEP(umount2(".", MNT_DETACH));
  STEP(chdir("/"));
  shared->at[kDetach] = now_ns();

  if (work == kRunTrue) {
    char* argv[] = {"/bin/true", NULL};
    char* envp[] = {NULL};
    pid_t pid = vfork();
    if (pid == 0) {
      execve(argv[0], argv, envp);
      _exit(127);
    }
    STEP(pid);
    int status = 0;
    STEP(waitpid(pid, &status, 0));
    errno = ENOEXEC;
    STEP(status == 0 ? 0 : -1);
  }
  shared->at[kExec] = now_ns();
  byte = '.';
  STEP(write(channel, &byte, 1));
  _exit(0);
#undef STEP
}

static void write_maps(pid_t pid) {
  char file[64];
  snprintf(file, sizeof file, "/proc/%d/uid_map", pid);
  check(write_at(AT_FDCWD, file, "0 1000000 65536") == 0, file);
  snprintf(file, sizeof file, "/proc/%d/gid_map", pid);
  check(write_at(AT_FDCWD, file, "0 1000000 65536") == 0, file);
}

static pid_t clone_child(int channel, const char* name, enum Work work) {
  struct clone_args args = {
      .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
               CLONE_NEWUTS | CLONE_NEWCGROUP,
      .exit_signal = SIGCHLD,
  };
  int group = -1;
  if (trees[0].v2) {
    group = openat(trees[0].base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check(group >= 0, "open of the v2 group");
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = (uint64_t)group;
  }
  pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
  check(pid >= 0, "clone3");
  if (pid == 0) child_main(channel, name, work);
  if (group >= 0) close(group);
  return pid;
}

static void run_cycle(enum Work work) {
  static unsigned count;
  char name[64];
  snprintf(name, sizeof name, "%d-%u", getpid(), count++);

  shared->start = now_ns();
  make_groups(name);
  int channel[2];
  check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0, "socketpair");
  shared->at[kGroups] = now_ns();
  pid_t pid = clone_child(channel[1], name, work);
  close(channel[1]);
  shared->at[kClone] = now_ns();
  write_maps(pid);
  (void)!write(channel[0], ".", 1);
  shared->at[kMaps] = now_ns();

  char answer[200];
  ssize_t n = read(channel[0], answer, sizeof answer - 1);
  shared->at[kByte] = now_ns();
  close(channel[0]);
  check(waitpid(pid, NULL, 0) == pid, "waitpid");
  shared->at[kReap] = now_ns();
  remove_groups(name);
  shared->at[kUngroup] = now_ns();
  if (n == 1 && answer[0] == '.') return;
  answer[n > 0 ? n : 0] = 0;
  fprintf(stderr, "floor: the child says: %s\n", n > 0 ? answer + 1 : "nothing");
  remove_base_groups();
  exit(1);
}

// Few mounts, as a launcher has them: the price of a new mount namespace is the number of mounts it
// copies.
static void enter_small_root(void) {
  check(unshare(CLONE_NEWNS) == 0, "unshare");
  check(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "make / private");
  check(mount("tmpfs", "/tmp", "tmpfs", 0, NULL) == 0, "mount a root");
  check(chdir("/tmp") == 0, "chdir");
  check(mkdir("usr", 0755) == 0 && mkdir("proc", 0755) == 0 && mkdir("box", 0755) == 0, "mkdir");
  check(mount("/usr", "usr", NULL, MS_BIND, NULL) == 0, "bind /usr");
  check(mount("proc", "proc", "proc", 0, NULL) == 0, "mount /proc");
  check(syscall(SYS_pivot_root, ".", ".") == 0, "pivot_root");
  check(umount2(".", MNT_DETACH) == 0 && chdir("/") == 0, "leave the old root");
}

static void prepare_cycles(void) {
  if (geteuid() != 0) {
    fprintf(stderr, "floor: must be root\n");
    exit(1);
  }
  make_base_groups();
  enter_small_root();
  finish_cycle_on_signals();
}

static void map_shared(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(shared != MAP_FAILED, "mmap");
}

// ---- output
// -------------------------------------------------------------------------------------------------------

static int compare_times(const void* a, const void* b) {
  uint64_t x = *(const uint64_t*)a, y = *(const uint64_t*)b;
  return (x > y) - (x < y);
}

static void print_list(const char* name, const uint64_t* values, unsigned n) {
  printf("\"%s\": [", name);
  for (unsigned i = 0; i < n; i++) printf("%s%lu", i ? ", " : "", values[i]);
  printf("]");
}

// Medians of the times since the start. Those of the child and of the parent run side by side.
static void print_steps(const struct Cycle* cycles, unsigned n, uint64_t* scratch) {
  printf("\"steps_ns\": {");
  for (int step = 0; step < kSteps; step++) {
    for (unsigned i = 0; i < n; i++) scratch[i] = cycles[i].at[step] - cycles[i].start;
    qsort(scratch, n, sizeof *scratch, compare_times);
    printf("%s\"%s\": %lu", step ? ", " : "", kStepNames[step], n ? scratch[n / 2] : 0);
  }
  printf("}");
}

static int run_create(unsigned n, enum Work work) {
  prepare_cycles();
  map_shared();
  struct Cycle* cycles = calloc(n + 1, sizeof *cycles);
  uint64_t* times = calloc(n + 1, sizeof *times);
  check(cycles && times, "calloc");
  for (int i = 0; i < 5 && !interrupted; i++) run_cycle(work);  // Caches and slabs fill.
  unsigned done = 0;
  for (; done < n && !interrupted; done++) {
    run_cycle(work);
    cycles[done] = *shared;
  }
  remove_base_groups();

  printf("{");
  for (unsigned i = 0; i < done; i++) times[i] = cycles[i].at[kByte] - cycles[i].start;
  print_list("until_byte_ns", times, done);
  printf(", ");
  for (unsigned i = 0; i < done; i++) times[i] = cycles[i].at[kUngroup] - cycles[i].start;
  print_list("cycle_ns", times, done);
  printf(", ");
  print_steps(cycles, done, times);
  printf("}\n");
  return interrupted ? 130 : 0;
}

// ---- rates
// --------------------------------------------------------------------------------------------------------

struct Job {
  enum Work work;
  char** argv;  // A host command, or NULL for cycles.
};

static uint64_t spawn_and_wait(char** argv);

// Runs `job` in each of `workers` processes until the time is over and prints what they did
// together.
static int run_rate(double seconds, unsigned workers, struct Job job) {
  unsigned long* counts = mmap(NULL, (workers + 1) * sizeof *counts, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(counts != MAP_FAILED, "mmap");
  finish_cycle_on_signals();
  uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
  for (unsigned w = 0; w < workers; w++) {
    pid_t pid = fork();
    check(pid >= 0, "fork");
    if (pid > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    map_shared();
    for (; now_ns() < end && !interrupted; counts[w]++)
      job.argv ? (void)spawn_and_wait(job.argv) : run_cycle(job.work);
    _exit(0);
  }
  bool ok = true;
  for (unsigned w = 0; w < workers; w++) {
    int status = 0;
    while (wait(&status) < 0) check(errno == EINTR, "wait");
    ok = ok && status == 0;
  }
  double took = (double)(now_ns() - start) / 1e9;
  if (!job.argv) remove_base_groups();
  unsigned long cycles = 0;
  for (unsigned w = 0; w < workers; w++) cycles += counts[w];
  if (!ok) return 1;
  printf("{\"cycles\": %lu, \"seconds\": %.3f, \"workers\": %u, \"per_second\": %.1f}\n", cycles,
         took, workers, (double)cycles / took);
  return interrupted ? 130 : 0;
}

// ---- programs on the host
// -----------------------------------------------------------------------------------------

extern char** environ;

// Each "{}" becomes a number that no other call gets.
static char* fill_in(const char* argument) {
  static unsigned count;
  const char* hole = strstr(argument, "{}");
  char* text = NULL;
  int n = hole ? asprintf(&text, "%.*s%d-%u%s", (int)(hole - argument), argument, getpid(), count++,
                          hole + 2)
               : asprintf(&text, "%s", argument);
  check(n >= 0, "asprintf");
  return text;
}

static uint64_t spawn_and_wait(char** argv) {
  char* filled[256] = {NULL};
  for (int i = 0; argv[i] && i < 255; i++) filled[i] = fill_in(argv[i]);
  uint64_t start = now_ns();
  pid_t pid;
  int status = 0;
  errno = posix_spawn(&pid, filled[0], NULL, NULL, filled, environ);
  check(errno == 0, filled[0]);
  while (waitpid(pid, &status, 0) < 0) check(errno == EINTR, "waitpid");
  uint64_t took = now_ns() - start;
  for (int i = 0; filled[i]; i++) free(filled[i]);
  if (status == 0) return took;
  fprintf(stderr, "floor: %s: wait status %#x\n", argv[0], (unsigned)status);
  exit(1);
}

static int run_spawn(unsigned n, char** argv) {
  uint64_t* times = calloc(n + 1, sizeof *times);
  check(times != NULL, "calloc");
  for (int i = 0; i < 2; i++) spawn_and_wait(argv);
  for (unsigned i = 0; i < n; i++) times[i] = spawn_and_wait(argv);
  printf("{");
  print_list("ns", times, n);
  printf("}\n");
  return 0;
}

static int usage(void) {
  fprintf(stderr,
          "usage: floor [--join procs|tasks] create N | cycle-exec N | sustained SECONDS WORKERS "
          "[--exec]\n"
          "       floor spawn N [command…] | rate SECONDS WORKERS command…\n");
  return 2;
}

int main(int argc, char** argv) {
  if (argc > 2 && strcmp(argv[1], "--join") == 0) {
    if (strcmp(argv[2], "procs") != 0 && strcmp(argv[2], "tasks") != 0) return usage();
    join_file = argv[2][0] == 'p' ? "cgroup.procs" : "tasks";
    argv += 2;
    argc -= 2;
  }
  if (argc < 3) return usage();
  const char* mode = argv[1];
  unsigned n = (unsigned)strtoul(argv[2], NULL, 10);
  if (strcmp(mode, "create") == 0) return run_create(n, kNothing);
  if (strcmp(mode, "cycle-exec") == 0) return run_create(n, kRunTrue);
  char* run_true[] = {"/bin/true", NULL};
  if (strcmp(mode, "spawn") == 0) return run_spawn(n, argc > 3 ? argv + 3 : run_true);
  if (argc < 4) return usage();
  double seconds = strtod(argv[2], NULL);
  unsigned workers = (unsigned)strtoul(argv[3], NULL, 10);
  if (strcmp(mode, "rate") == 0 && argc > 4)
    return run_rate(seconds, workers, (struct Job){.argv = argv + 4});
  if (strcmp(mode, "sustained") != 0) return usage();
  prepare_cycles();
  bool with_exec = argc > 4 && strcmp(argv[4], "--exec") == 0;
  return run_rate(seconds, workers, (struct Job){.work = with_exec ? kRunTrue : kNothing});
}
