"""Where files come from and who calls: the host, a folder, an archive; root and ordinary users."""
import json
import os
import re
import shutil
import subprocess
import tarfile
import unittest

from harness import PLATFORM_ERROR, USAGE_ERROR, Case, OrdinaryUser, exec_json, run


def make_root(folder):
    """A tiny root file system: a static busybox where there is one, else two programs and their libraries."""
    os.makedirs(os.path.join(folder, "bin"))
    os.makedirs(os.path.join(folder, "etc"))
    with open(os.path.join(folder, "etc", "marker"), "w") as file:
        file.write("from the environment\n")
    busybox = shutil.which("busybox")
    if busybox and b"not a dynamic executable" in subprocess.run(["ldd", busybox], capture_output=True).stderr:
        shutil.copy(busybox, os.path.join(folder, "bin", "busybox"))
        for name in ("sh", "cat", "true", "id", "ls", "touch"):
            os.symlink("busybox", os.path.join(folder, "bin", name))
        return
    for program in ("/bin/sh", "/bin/cat", "/bin/true", "/usr/bin/id", "/bin/ls", "/bin/touch"):
        shutil.copy(os.path.realpath(program), os.path.join(folder, "bin", os.path.basename(program)))
        listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/\S+)", listing):
            target = folder + library
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.realpath(library), target)


class Environments(Case):
    def make_root(self):
        folder = os.path.join(self.scratch(), "root")
        os.mkdir(folder)
        os.chmod(os.path.dirname(folder), 0o755)
        make_root(folder)
        return folder

    def assert_is_our_root(self, *environment):
        done = run("exec", "-q", *environment, "sh", "-c", "cat /etc/marker; ls /usr/bin 2>/dev/null; touch /workspace/x && id -u")
        self.assert_ran(done, b"from the environment\n1000\n")

    def test_host_is_readable_and_not_writable(self):
        done = run("exec", "sh", "-c", "test -x /usr/bin/env && ! touch /usr/bin/new 2>/dev/null && test ! -e /root/.ssh")
        self.assert_ran(done)

    def test_folder(self):
        folder = self.make_root()
        before = sorted(os.listdir(folder))
        self.assert_is_our_root("-E", "folder:" + folder)
        done = run("exec", "-E", "folder:" + folder, "-u", "root", "sh", "-c", "echo changed > /etc/marker; cat /etc/marker")
        self.assert_ran(done, b"changed\n")
        self.assert_is_our_root("-E", "folder:" + folder)
        self.assertEqual(sorted(os.listdir(folder)), before)

    def test_tarball(self):
        folder = self.make_root()
        for ending, mode in (("tar", "w"), ("tar.gz", "w:gz"), ("tar.xz", "w:xz")):
            archive = os.path.join(self.scratch(), "root." + ending)
            with tarfile.open(archive, mode) as file:
                file.add(folder, ".")
            with self.subTest(ending=ending):
                self.assert_is_our_root("-E", "tar:" + archive)
                self.assert_is_our_root("-E", "tar:" + archive)  # Now out of the cache.

    def test_archive_that_is_none(self):
        archive = os.path.join(self.scratch(), "root.tar")
        with open(archive, "wb") as file:
            file.write(os.urandom(4096))
        done = run("exec", "--json", "-E", "tar:" + archive, "true")
        self.assertIn("error", json.loads(done.stdout))
        self.assertNotEqual(done.returncode, 0)

    def test_read_only_root(self):
        done = run("exec", "--read-only", "-u", "root", "sh", "-c",
                   "! touch /etc/new 2>/dev/null && touch /tmp/a /workspace/b /dev/shm/c && echo good")
        self.assert_ran(done, b"good\n")

    def test_network(self):
        script = """
import socket
server = socket.create_server(("127.0.0.1", 8000))
socket.create_connection(("127.0.0.1", 8000), 5)
try: socket.create_connection(("192.0.2.1", 80), 5)
except OSError as error: print(error.strerror)
"""
        self.assert_ran(run("exec", "python3", "-c", script), b"Network is unreachable\n")
        self.assertIn(b"unreachable", run("exec", "--network", "none", "python3", "-c", script).stderr)

    def test_users(self):
        self.assert_ran(run("exec", "sh", "-c", "id -u; id -un; echo $HOME"), b"1000\nuser\n/home/user\n")
        self.assert_ran(run("exec", "-u", "root", "sh", "-c", "id -u; id -un"), b"0\nroot\n")
        self.assert_ran(run("exec", "-u", "1234", "id", "-u"), b"1234\n")
        self.assertNotEqual(run("exec", "-u", "no-such-user", "true").returncode, 0)

    def test_no_cgroups_is_told(self):
        facts = {fact["name"]: fact for fact in exec_json("--no-cgroups", "true")["isolation"]}
        self.assertEqual(facts["cpu_limit"]["guarantee"], "none")
        self.assertNotEqual(facts["memory_limit"]["guarantee"], "full")

    def test_nothing_of_the_sandbox_is_left(self):
        def mounts():
            with open("/proc/self/mountinfo") as file:
                return sum("agent-sandbox" in line for line in file)
        before = mounts()
        for _ in range(3):
            self.assert_ran(run("exec", "sh", "-c", "sleep 1000 & echo x > /tmp/x"))
        self.assertEqual(mounts(), before)


@unittest.skipUnless(os.geteuid() == 0, "needs root to become somebody else")
class Rootless(Case):
    def setUp(self):
        self.user = OrdinaryUser(self)

    def test_program_runs(self):
        done = self.user.run("exec", "sh", "-c", "id -u; cat; touch /workspace/x; exit 3", stdin=b"input")
        self.assertEqual((done.returncode, done.stdout), (3, b"1000\ninput"), done.stderr)

    def test_user_without_a_name(self):
        self.assert_ran(OrdinaryUser(self, uid=54321).run("exec", "echo", "hello"), b"hello\n")

    def test_fewer_guarantees_are_told(self):
        done = self.user.run("exec", "--json", "true")
        facts = {fact["name"]: fact for fact in json.loads(done.stdout)["isolation"]}
        self.assertEqual(facts["uid_range"]["guarantee"], "none")
        self.assertTrue(facts["uid_range"]["note"])
        self.assertEqual(facts["namespaces"]["guarantee"], "full")

    def test_limits_hold(self):
        for words, reason in [(["--timeout", "300ms", "sleep", "60"], "wall_time"),
                              (["--memory", "64M", "tail", "/dev/zero"], "out_of_memory")]:
            done = self.user.run("exec", "--json", *words)
            self.assertEqual(json.loads(done.stdout)["reason"], reason)

    def test_root_is_refused_with_a_reason(self):
        done = self.user.run("exec", "-u", "root", "true")
        self.assertIn(done.returncode, (USAGE_ERROR, PLATFORM_ERROR))
        self.assertIn(b"root", done.stderr)

    def test_doctor(self):
        done = self.user.run("doctor", "--json")
        found = json.loads(done.stdout)
        self.assertEqual((done.returncode, found["root"], found["sandbox"]["ok"]), (1, False, True))
        self.assertFalse(found["guarantees"]["root"]["measured"])

    def test_tour(self):
        done = self.user.run("tour")
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    def test_leaves_only_its_cache(self):
        self.assert_ran(self.user.run("exec", "true"))
        left = [name for name in os.listdir(os.path.join(self.user.home, "agent-sandbox"))
                if name.startswith("i-") or name.startswith("stage-")]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
