// R04-R08, R17, R21: more files, names, attributes or bytes on disk than the quota allows. The
// argument is what must be more than the quota; outside, where a box has room for it, there is
// none.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "probe.hpp"

namespace probes {

namespace {

constexpr long kMiB = 1L << 20;

std::vector<std::string> places(const Probe& probe) {
  if (probe.outside()) return {probe.scratch()};
  std::vector<std::string> found;
  for (const char* place :
       {"/tmp", "/dev/shm", "/run", "/var/tmp", "/workspace", "/home/user", "/root", "/"})
    if (::access(place, W_OK) == 0) found.emplace_back(place);
  return found;
}

Outcome fill(const std::string& path, long mib) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return from(-1, "open");
  std::string block(kMiB, 'x');
  long written = 0;
  int err = 0;
  while (written < mib * kMiB) {
    ssize_t size = ::write(fd, block.data(), block.size());
    if (size <= 0) {
      err = errno;
      break;
    }
    written += size;
  }
  ::close(fd);
  ::unlink(path.c_str());
  return {written >= mib * kMiB, err, std::to_string(written / kMiB) + " MiB written"};
}

// R04 and R06. Argument: MiB to write into one file, in each place that can be written.
void r04_fill(Probe& probe) {
  probe.set_patience(30);
  long mib = probe.number(0, 300);
  for (const std::string& place : places(probe))
    probe.attempt(
        "write " + std::to_string(mib) + " MiB to " + (probe.outside() ? "a tmpfs" : place),
        [&] { return fill(place + "/asr-fill", mib); });
}

// Fills everything and leaves it so.
void r04_fill_and_leave(Probe& probe) {
  for (const std::string& place : places(probe)) {
    int fd = ::open((place + "/asr-left").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    std::string block(kMiB, 'x');
    while (fd >= 0 && ::write(fd, block.data(), block.size()) > 0) {
    }
    while (fd >= 0 && ::write(fd, block.data(), 1) > 0) {
    }
    ::close(fd);
  }
  probe.report_note("everything is full", when(true));
}

// Argument: files to create.
void r05_inodes(Probe& probe) {
  probe.set_patience(60);
  long wanted = probe.number(0, 70'000);
  std::vector<std::string> where = places(probe);
  probe.attempt("create " + std::to_string(wanted) + " files", [&] {
    long made = 0;
    int err = 0;
    for (; made < wanted; ++made) {
      std::string path = where[0] + "/asr-inode-" + std::to_string(made);
      int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
      if (fd < 0) {
        err = errno;
        break;
      }
      ::close(fd);
    }
    return Outcome{made >= wanted, err, std::to_string(made) + " files"};
  });
}

// Argument: MiB that must be more than the quota.
void r07_sparse(Probe& probe) {
  probe.set_patience(30);
  long mib = probe.number(0, 300);
  std::string path = probe.scratch() + "/asr-sparse";
  probe.attempt("fallocate " + std::to_string(mib) + " MiB", [&] {
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    Outcome outcome = from(::fallocate(fd, 0, 0, mib * kMiB));
    (void)!::ftruncate(fd, 0);
    return outcome;
  });
  probe.attempt("fallocate KEEP_SIZE " + std::to_string(mib) + " MiB", [&] {
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    Outcome outcome = from(::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, mib * kMiB));
    (void)!::ftruncate(fd, 0);
    return outcome;
  });
  probe.attempt("copy_file_range 1 MiB into " + std::to_string(mib) + " MiB", [&] {
    int in = ::open((path + "-in").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int out = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    std::string block(kMiB, 'x');
    (void)!::write(in, block.data(), block.size());
    long copied = 0;
    int err = 0;
    while (copied < mib * kMiB) {
      off_t start = 0;
      ssize_t size = ::copy_file_range(in, &start, out, nullptr, kMiB, 0);
      if (size <= 0) {
        err = errno;
        break;
      }
      copied += size;
    }
    (void)!::ftruncate(out, 0);
    ::unlink((path + "-in").c_str());
    return Outcome{copied >= mib * kMiB, err, std::to_string(copied / kMiB) + " MiB"};
  });
  probe.attempt("punch holes and write again, " + std::to_string(mib) + " MiB in all at once", [&] {
    int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    std::string block(kMiB, 'x');
    for (long i = 0; i < mib; ++i) {
      if (::pwrite(fd, block.data(), block.size(), i * kMiB) != kMiB)
        return from(-1, std::to_string(i) + " MiB");
      (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * kMiB, 4096);
    }
    struct stat info {};
    ::fstat(fd, &info);
    (void)!::ftruncate(fd, 0);
    return when(info.st_blocks * 512 >= (mib - 2) * kMiB);
  });
  probe.note("truncate to 1 TiB", [&] { return from(::truncate(path.c_str(), 1L << 40)); });
}

// Arguments: depth, entries. Leaves them for the test to list and remove.
void r08_trees(Probe& probe) {
  probe.set_patience(60);
  long depth = probe.number(0, 40'000);
  long wide = probe.number(1, 15'000);
  auto deep = [&] {
    if (::mkdir((probe.scratch() + "/deep").c_str(), 0755) != 0) return from(-1);
    int at = ::open((probe.scratch() + "/deep").c_str(), O_DIRECTORY | O_CLOEXEC);
    for (long i = 0; i < depth; ++i) {
      if (::mkdirat(at, "d", 0755) != 0) return from(-1, std::to_string(i) + " levels");
      int next = ::openat(at, "d", O_DIRECTORY | O_CLOEXEC);
      ::close(at);
      at = next;
    }
    return when(true);
  };
  // Not forbidden inside: what counts there is that it can be listed and removed.
  std::string what = "a directory " + std::to_string(depth) + " levels deep";
  if (probe.outside())
    probe.attempt(what, deep);
  else
    probe.needed(what, deep);
  probe.needed(std::to_string(wide) + " entries in one directory", [&] {
    std::string place = probe.scratch() + "/wide";
    ::mkdir(place.c_str(), 0755);
    for (long i = 0; i < wide; ++i)
      if (::mknod((place + "/n" + std::to_string(i)).c_str(), S_IFREG | 0644, 0) != 0)
        return from(-1);
    return when(true);
  });
  probe.needed("names that are not text", [&] {
    std::string place = probe.scratch() + "/names";
    ::mkdir(place.c_str(), 0755);
    for (const std::string& name :
         {std::string("a\nb"), std::string("\x1b[31mred"), std::string("\xff\xfe\x80"),
          std::string(255, 'n'), std::string("\"quote\\")})
      if (::mknod((place + "/" + name).c_str(), S_IFREG | 0644, 0) != 0) return from(-1);
    return when(true);
  });
}

long bytes_to_disk() {
  std::string io = read_all("/proc/self/io");
  std::size_t at = io.find("\nwrite_bytes: ");
  return at == std::string::npos ? -1 : std::atol(io.c_str() + at + 14);
}

// Argument: a directory on a disk (outside only; the box's own scratch is memory).
void r17_disk(Probe& probe) {
  probe.set_patience(30);
  std::vector<std::string> where =
      probe.outside() ? std::vector<std::string>{probe.arg(0)} : places(probe);
  for (const std::string& place : where)
    probe.attempt("write 8 MiB to a block device" + (probe.outside() ? "" : " through " + place),
                  [&] {
                    std::string path = place + "/asr-disk-" + std::to_string(::getpid());
                    int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
                    if (fd < 0) return from(-1);
                    std::string block(kMiB, 'd');
                    for (int i = 0; i < 8; ++i) (void)!::write(fd, block.data(), block.size());
                    ::fsync(fd);
                    ::unlink(path.c_str());
                    long bytes = bytes_to_disk();
                    return when(bytes >= 8 * kMiB, std::to_string(bytes) + " bytes");
                  });
  probe.note("read a file of the environment past the page cache", [] {
    int fd = ::open("/usr/bin/bash", O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0) return from(-1, "open");
    void* block = nullptr;
    if (::posix_memalign(&block, 4096, 65536) != 0) return from(-1);
    return from(::read(fd, block, 65536));
  });
}

// Argument: MiB of attributes that must be more than the quota.
void r21_attributes(Probe& probe) {
  probe.set_patience(60);
  long mib = probe.number(0, 300);
  probe.attempt(std::to_string(mib) + " MiB of extended attributes", [&] {
    std::string value(32 << 10, 'v');
    long written = 0;
    for (int file = 0; written < mib * kMiB; ++file) {
      std::string path = probe.scratch() + "/asr-attr-" + std::to_string(file);
      int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
      if (fd < 0) return from(-1, std::to_string(written / kMiB) + " MiB");
      for (int i = 0; i < 512 && written < mib * kMiB; ++i) {
        if (::fsetxattr(fd, ("user.a" + std::to_string(i)).c_str(), value.data(), value.size(),
                        0) != 0) {
          if (i == 0) return from(-1, std::to_string(written / kMiB) + " MiB");
          break;
        }
        written += static_cast<long>(value.size());
      }
      ::close(fd);
    }
    return when(true);
  });
  probe.note("look up 200,000 missing names", [&] {
    for (int i = 0; i < 200'000; ++i)
      (void)::access((probe.scratch() + "/missing-" + std::to_string(i)).c_str(), F_OK);
    return when(true);
  });
}

}  // namespace

std::span<const Case> storage_cases() {
  static constexpr Case cases[] = {
      {"R04", r04_fill, {.memory_mib = 1024}},
      {"R04-leave", r04_fill_and_leave, {.memory_mib = 64}},
      {"R05", r05_inodes, {.memory_mib = 1024}},
      {"R06", r04_fill, {.memory_mib = 1024}},
      {"R07", r07_sparse, {.memory_mib = 1024}},
      {"R08", r08_trees, {.memory_mib = 1024}},
      {"R17", r17_disk, {}},
      {"R21", r21_attributes, {.memory_mib = 1024}},
  };
  return cases;
}

}  // namespace probes
