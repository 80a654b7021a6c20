#include "engine/environment.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "base/id.hpp"
#include "os/file.hpp"

namespace asr {

namespace fs = std::filesystem;

namespace {

constexpr int kSkeletonVersion = 2;

constexpr std::string_view kPasswd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
    "man:x:6:12:man:/var/cache/man:/usr/sbin/nologin\n"
    "mail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n"
    "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
    "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    "user:x:1000:1000:user:/home/user:/bin/bash\n";
constexpr std::string_view kGroup =
    "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\nmail:x:8:\nman:x:12:\nwww-"
    "data:x:33:\n"
    "shadow:x:42:\nutmp:x:43:\nstaff:x:50:\nusers:x:100:\nnogroup:x:65534:\nuser:x:1000:\n";
constexpr std::string_view kHosts =
    "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n";
constexpr std::string_view kNsswitch =
    "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: "
    "files\n"
    "services: files\nethers: files\nrpc: files\n";

// Distributions' own starts programs to find out who it is for. Every command that is run by a
// login shell passes here.
constexpr std::string_view kProfile =
    "# For login shells. Starts no program.\n"
    "case \"${EUID:-${USER-}}\" in\n"
    "  0 | root) PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin ;;\n"
    "  *) PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games ;;\n"
    "esac\n"
    "export PATH\n"
    "if [ -n \"${PS1-}\" ] && [ -n \"${BASH-}\" ] && [ \"$BASH\" != /bin/sh ] && [ -f "
    "/etc/bash.bashrc ]; then\n"
    "  . /etc/bash.bashrc\n"
    "fi\n"
    "for i in /etc/profile.d/*.sh; do\n"
    "  if [ -r \"$i\" ]; then . \"$i\"; fi\n"
    "done\n"
    "unset i\n";

// Of /etc, what programs look for and no secret is in. Copied, not shared: the host's /etc stays
// its own.
constexpr std::array<const char*, 41> kFromEtc{"ImageMagick-6",
                                               "R",
                                               "alternatives",
                                               "bash.bashrc",
                                               "ca-certificates",
                                               "ca-certificates.conf",
                                               "chromium",
                                               "chromium.d",
                                               "debian_version",
                                               "dictionaries-common",
                                               "fonts",
                                               "gai.conf",
                                               "ghostscript",
                                               "groff",
                                               "host.conf",
                                               "inputrc",
                                               "java-17-openjdk",
                                               "ld.so.cache",
                                               "ld.so.conf",
                                               "ld.so.conf.d",
                                               "locale.alias",
                                               "locale.conf",
                                               "localtime",
                                               "lsb-release",
                                               "magic",
                                               "mailcap",
                                               "matplotlibrc",
                                               "maven",
                                               "mime.types",
                                               "os-release",
                                               "perl",
                                               "php",
                                               "profile.d",
                                               "protocols",
                                               "python3",
                                               "python3.11",
                                               "services",
                                               "shells",
                                               "ssl/certs",
                                               "ssl/openssl.cnf",
                                               "terminfo"};

constexpr std::array<const char*, 6> kTopLinks{"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

Result<void> write_text(const fs::path& path, std::string_view text) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail_errno("write " + path.native());
  return {};
}

// Regular files everybody may read, links and folders; nothing else, and nothing above 16 MiB.
void copy_public(const fs::path& from, const fs::path& to) {
  struct stat info {};
  if (::lstat(from.c_str(), &info) != 0) return;
  std::error_code ec;
  if (S_ISLNK(info.st_mode)) {
    fs::copy_symlink(from, to, ec);
  } else if (S_ISREG(info.st_mode) && (info.st_mode & 0004) != 0 && info.st_size < (16 << 20)) {
    fs::copy_file(from, to, ec);
  } else if (S_ISDIR(info.st_mode) && (info.st_mode & 0005) == 0005) {
    fs::create_directories(to, ec);
    for (const fs::directory_entry& entry : fs::directory_iterator(from, ec))
      copy_public(entry.path(), to / entry.path().filename());
  }
}

Result<void> write_common_etc(const fs::path& etc) {
  TRY(write_text(etc / "hosts", kHosts));
  TRY(write_text(etc / "hostname", "sandbox\n"));
  TRY(write_text(etc / "resolv.conf", "# A sandbox reaches no name server by itself.\n"));
  return {};
}

Result<void> build_skeleton(const fs::path& root) {
  std::error_code ec;
  for (const char* dir :
       {"etc/ssl", "usr", "var/tmp", "var/log", "var/cache", "var/lib", "run", "opt", "srv", "mnt",
        "media", "home/user", "root", "tmp", "proc", "dev", "workspace"})
    if (!fs::create_directories(root / dir, ec) && ec)
      return fail(Errc::os, "create " + (root / dir).native() + ": " + ec.message());
  ::chmod((root / "var/tmp").c_str(), 01777);
  ::chmod((root / "tmp").c_str(), 01777);
  for (const char* link : kTopLinks) {
    fs::path host = fs::path("/") / link;
    if (fs::is_symlink(host, ec))
      fs::copy_symlink(host, root / link, ec);
    else if (fs::is_directory(host, ec))
      fs::create_directory(root / link, ec);
  }
  for (const char* name : kFromEtc) copy_public(fs::path("/etc") / name, root / "etc" / name);
  TRY(write_text(root / "etc/passwd", kPasswd));
  TRY(write_text(root / "etc/group", kGroup));
  TRY(write_text(root / "etc/nsswitch.conf", kNsswitch));
  TRY(write_text(root / "etc/profile", kProfile));
  TRY(write_common_etc(root / "etc"));
  fs::create_symlink("/proc/mounts", root / "etc/mtab", ec);
  fs::create_symlink("/run", root / "var/run", ec);
  return {};
}

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;  // FNV-1a
  return hash;
}

std::string stamp_of(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return "-";
  return std::to_string(info.st_ino) + "," + std::to_string(info.st_size) + "," +
         std::to_string(info.st_mtim.tv_sec) + "," + std::to_string(info.st_mtim.tv_nsec);
}

std::string to_hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::string host_key() {
  std::uint64_t hash = mix(0xcbf29ce484222325ULL, std::to_string(kSkeletonVersion));
  for (const char* name : kFromEtc) hash = mix(hash, stamp_of(fs::path("/etc") / name));
  for (const char* name : kTopLinks) hash = mix(hash, stamp_of(fs::path("/") / name));
  return to_hex(hash);
}

}  // namespace

std::string half_made(const InstanceId& maker) {
  return "new-" + maker.text + "-" + random_name(8);
}

bool is_half_made_by(std::string_view name, const InstanceId& maker) {
  return name.starts_with("new-" + maker.text + "-");
}

Result<std::vector<wire::Layer>> host_layers(const fs::path& cache, const InstanceId& maker) {
  fs::path skeleton = cache / ("host-" + host_key());
  std::error_code ec;
  if (!fs::is_directory(skeleton, ec)) {
    // Built aside and renamed: there is only ever a whole one.
    fs::create_directories(cache, ec);
    fs::path making = cache / half_made(maker);
    if (auto built = build_skeleton(making); !built) {
      (void)remove_tree(AT_FDCWD, making.native());
      return fail(std::move(built).error());
    }
    ::chmod(making.c_str(), 0755);
    if (::rename(making.c_str(), skeleton.c_str()) != 0) {
      (void)remove_tree(AT_FDCWD, making.native());
      if (!fs::is_directory(skeleton, ec)) return fail_errno("rename " + skeleton.native());
    }
  }
  std::vector<wire::Layer> layers{{skeleton.native(), ""}, {"/usr", "usr"}};
  for (const char* name : kTopLinks) {
    fs::path host = fs::path("/") / name;
    if (!fs::is_symlink(host, ec) && fs::is_directory(host, ec))
      layers.push_back({host.native(), name});
  }
  return layers;
}

namespace {

bool has_account(std::string_view text, std::string_view name) {
  std::string start = std::string(name) + ":";
  return text.starts_with(start) || text.find("\n" + start) != std::string_view::npos;
}

std::string with_lines(std::string text, std::string_view standard,
                       std::initializer_list<const char*> names) {
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  for (const char* name : names) {
    if (has_account(text, name)) continue;
    std::size_t at = standard.find(std::string(name) + ":x:");
    text += std::string(standard.substr(at, standard.find('\n', at) - at + 1));
  }
  return text;
}

// A file of the image, read without running or believing anything of it: no link leads out of it,
// no FIFO holds us, no size surprises us.
std::string image_file(int root, const std::string& path) {
  auto fd = open_resolved(root, path, O_RDONLY | O_NONBLOCK, Resolve::in_root);
  struct stat info {};
  constexpr off_t kMost = 1 << 20;
  if (!fd || ::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kMost)
    return {};
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  ssize_t n = ::read(fd->get(), text.data(), text.size());
  text.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
  return text;
}

}  // namespace

std::string with_accounts(std::string passwd) {
  return with_lines(std::move(passwd), kPasswd, {"root", "nobody", "user"});
}
std::string with_groups(std::string group) {
  return with_lines(std::move(group), kGroup, {"root", "tty", "nogroup", "user"});
}

Result<std::vector<wire::Layer>> folder_layers(const fs::path& folder, const fs::path& work) {
  std::error_code ec;
  fs::path root = fs::canonical(folder, ec);
  if (ec || !fs::is_directory(root, ec))
    return fail(Errc::not_found, folder.native() + " is not a folder",
                "give the root of a file system");
  if (root == "/")
    return fail(Errc::denied, "the machine's own root is not an environment",
                "use the environment host");
  UniqueFd fd = TRY(open_dir(AT_FDCWD, root.native()));
  bool looks_right = open_resolved(fd.get(), "bin", O_PATH, Resolve::in_root) ||
                     open_resolved(fd.get(), "usr/bin", O_PATH, Resolve::in_root);
  if (!looks_right)
    return fail(Errc::invalid, root.native() + " has neither bin nor usr/bin",
                "give the root of a file system, such as debootstrap makes");
  std::string passwd = with_accounts(image_file(fd.get(), "etc/passwd"));
  std::string group = with_groups(image_file(fd.get(), "etc/group"));
  // Equal ones share it: sandboxes that an earlier engine made may live above it.
  fs::path top =
      work / ("top-" + to_hex(mix(mix(mix(0xcbf29ce484222325ULL, root.native()), passwd), group)));
  if (!fs::is_directory(top, ec)) {
    fs::path making = work / ("making-" + random_name(8));
    fs::create_directories(making / "etc", ec);
    TRY(write_text(making / "etc/passwd", passwd));
    TRY(write_text(making / "etc/group", group));
    TRY(write_common_etc(making / "etc"));
    if (::rename(making.c_str(), top.c_str()) != 0) return fail_errno("rename " + top.native());
  }
  return std::vector<wire::Layer>{{top.native(), ""}, {root.native(), ""}};
}

Result<wire::Layer> workspace_layer(const fs::path& folder, Ids ids) {
  std::error_code ec;
  fs::path root = fs::canonical(folder, ec);
  if (ec || !fs::is_directory(root, ec))
    return fail(Errc::not_found, folder.native() + " is not a folder");
  if (root == "/")
    return fail(Errc::denied, "the machine's own root is not for a sandbox to work on",
                "give a folder below it");
  struct stat info {};
  if (::stat(root.c_str(), &info) != 0) return fail_errno("stat " + root.native());
  if (ids == Ids::own && info.st_uid != ::geteuid())
    return fail(Errc::denied, root.native() + " belongs to somebody else",
                "work on a folder of your own, or as root");
  return wire::Layer{root.native(), "workspace", true};
}

Result<UnpackedTar> find_unpacked(const fs::path& tar, const fs::path& cache) {
  std::error_code ec;
  fs::path file = fs::canonical(tar, ec);
  if (ec || !fs::is_regular_file(file, ec))
    return fail(Errc::not_found, tar.native() + " is not a file",
                "give a tar archive of a root file system");
  std::uint64_t hash = mix(mix(0xcbf29ce484222325ULL, file.native()), stamp_of(file));
  UnpackedTar unpacked;
  unpacked.root = cache / ("tar-" + to_hex(hash));
  unpacked.ready = fs::is_directory(unpacked.root, ec);
  return unpacked;
}

}  // namespace asr
