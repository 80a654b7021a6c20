"""exec --on: a folder that a program works on without changing it, what it changed, and what of that is kept."""
import json
import os
import signal
import stat
import subprocess
import time
import unittest

from harness import NOBODY, PLATFORM_ERROR, USAGE_ERROR, Case, OrdinaryUser, run, start
from http_harness import until
from test_terminal import Session

CHANGES = ("echo four >> a; rm gone; mkdir -p new/deep; echo hi > new/deep/f; ln -s a link; printf 'bin\\0x' > b; "
           "chmod 755 sub/s")


class OnCase(Case):
    def setUp(self):
        super().setUp()
        self.folder = self.scratch()
        for name, data in {"a": b"one\ntwo\nthree\n", "b": b"bin\0", "gone": b"x\n", "sub/s": b"s\n"}.items():
            self.put(name, data)
        self.before = self.look()

    def put(self, name, data):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def look(self, folder=None):
        """What is in the folder: bytes of files, targets of links, modes; b"" of folders."""
        folder, found = folder or self.folder, {}
        for top, folders, files in os.walk(folder):
            for name in folders + files:
                path = os.path.join(top, name)
                info = os.lstat(path)
                data = b""
                if stat.S_ISLNK(info.st_mode):
                    data = os.readlink(path)
                elif stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as file:
                        data = file.read()
                found[os.path.relpath(path, folder)] = (oct(info.st_mode), data)
        return found

    def on(self, script, *words, **more):
        return run("exec", "--on", self.folder, *words, "--", "sh", "-c", script, **more)


class Keeping(OnCase):
    def test_nothing_is_kept_unless_it_is_asked_for(self):
        done = self.on("cat a; " + CHANGES + "; cat a")
        self.assert_ran(done, b"one\ntwo\nthree\none\ntwo\nthree\nfour\n")
        self.assertEqual(self.look(), self.before)
        told = done.stderr.decode()
        self.assertIn("--- a/a\n+++ b/a\n@@ -1,3 +1,4 @@\n one\n two\n three\n+four\n", told)
        self.assertIn("--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", told)
        self.assertIn("--- /dev/null\n+++ b/new/deep/f\n@@ -0,0 +1 @@\n+hi\n", told)
        self.assertIn("changed b (binary, 4 B → 5 B)\n", told)
        self.assertIn("added link (link to a)\n", told)
        self.assertIn("changed sub/s (mode 755)\n", told)
        self.assertNotIn("\033", told)

    def test_everything(self):
        done = self.on(CHANGES, "--keep", "all")
        self.assert_ran(done, b"")
        after = self.look()
        self.assertEqual(after["a"], ("0o100644", b"one\ntwo\nthree\nfour\n"))
        self.assertEqual(after["b"], ("0o100644", b"bin\0x"))
        self.assertEqual(after["link"][1], "a")
        self.assertEqual(after["new/deep/f"], ("0o100644", b"hi\n"))
        self.assertEqual(after["sub/s"], ("0o100755", b"s\n"))
        self.assertNotIn("gone", after)
        self.assertEqual({name for name in after if name.startswith(".agent")}, set())

    def test_the_exit_code_is_the_commands(self):
        self.assertEqual(self.on("echo x > a; exit 7", "--keep", "all").returncode, 7)
        self.assertEqual(self.look()["a"][1], b"x\n")

    def test_quiet(self):
        done = self.on("echo x > a", "-q")
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_nothing_changed(self):
        self.assertIn(b"nothing changed in " + self.folder.encode(), self.on("cat a > /tmp/x; echo > /dev/shm/y").stderr)

    def test_colours(self):
        told = self.on("echo four >> a", "--color", "always").stderr
        self.assertIn(b"\033[32m+four\033[0m\n", told)

    def test_what_files_hold_does_not_command_a_terminal(self):
        told = self.on(r"printf 'a\033]0;owned\007b\n' > a; touch \"$(printf 'x\033[2J')\"", "--color", "never").stderr
        self.assertNotIn(b"\033", told)
        self.assertNotIn(b"\007", told)

    def test_json(self):
        done = self.on(CHANGES, "--json", "--keep", "all")
        told = json.loads(done.stdout)["changes"]
        self.assertEqual((told["folder"], told["complete"], told["left"]), (os.path.realpath(self.folder), True, []))
        by_path = {entry["path"]: entry for entry in told["files"]}
        self.assertEqual(by_path["/workspace/a"]["diff"], "--- a/a\n+++ b/a\n@@ -1,3 +1,4 @@\n one\n two\n three\n+four\n")
        self.assertEqual(by_path["/workspace/b"]["no_diff"], "binary")
        self.assertEqual({entry["path"]: entry["action"] for entry in told["kept"]},
                         {"a": "replaced", "b": "replaced", "gone": "removed", "link": "created", "new": "created",
                          "new/deep": "created", "new/deep/f": "created", "sub/s": "replaced"})
        self.assertEqual(self.look()["a"][1], b"one\ntwo\nthree\nfour\n")

    def test_presets_and_users(self):
        for words in (["-p", "strict"], ["-u", "root"], ["--read-only"], ["--tier", "browser"]):
            with self.subTest(words=words):
                self.assert_ran(self.on("echo x >> sub/s && cat sub/s", *words), b"s\nx\n")
        self.assertEqual(self.look(), self.before)

    def test_a_folder_becomes_a_file_and_a_file_a_folder(self):
        self.assert_ran(self.on("rm -r sub a; echo file > sub; mkdir a; echo in > a/f", "--keep", "all"))
        after = self.look()
        self.assertEqual((after["sub"][1], after["a/f"][1]), (b"file\n", b"in\n"))
        self.assertNotIn("sub/s", after)


class Safety(OnCase):
    def test_links_that_lead_out_are_left(self):
        outside = self.scratch()
        done = self.on(f"ln -s /etc/passwd abs; ln -s ../{os.path.basename(outside)} up; ln -s sub/../../x odd; "
                       "ln -s sub/s ok; echo x > a", "--keep", "all")
        self.assert_ran(done)
        self.assertEqual(done.stderr.count(b"not kept: "), 3, done.stderr)
        after = self.look()
        self.assertEqual((after["ok"][1], after["a"][1]), ("sub/s", b"x\n"))
        self.assertFalse({"abs", "up", "odd"} & set(after))

    def test_nothing_is_written_through_a_link_of_the_folder(self):
        outside = self.scratch()
        with open(os.path.join(outside, "secret"), "w") as file:
            file.write("canary")
        os.symlink(outside, os.path.join(self.folder, "way"))
        os.symlink(os.path.join(outside, "secret"), os.path.join(self.folder, "file"))
        # Inside, the link leads nowhere; what is put in its place is a file and a folder of the folder's own.
        done = self.on("rm way file; mkdir way; echo x > way/secret; echo y > file", "--keep", "all")
        self.assert_ran(done)
        with open(os.path.join(outside, "secret")) as file:
            self.assertEqual(file.read(), "canary")
        after = self.look()
        self.assertEqual((after["way/secret"][1], after["file"][1]), (b"x\n", b"y\n"))

    def test_devices_and_pipes_are_left(self):
        done = self.on("mkfifo pipe; echo x > a", "--keep", "all")
        self.assert_ran(done)
        self.assertIn(b"not kept: ", done.stderr)
        self.assertNotIn("pipe", self.look())

    def test_no_special_bits_come_out(self):
        self.assert_ran(self.on("echo x > s; chmod 6755 s; mkdir d; chmod 3777 d", "--keep", "all", "-u", "root"))
        after = self.look()
        self.assertEqual((after["s"][0], after["d"][0]), ("0o100755", "0o40777"))

    def test_what_changed_meanwhile_has_the_last_word(self):
        process = start("exec", "--on", self.folder, "--keep", "all", "--", "sh", "-c",
                        "echo theirs > a; echo theirs > b; echo ready; read line")
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        time.sleep(0.02)  # Times of files are as coarse as the kernel's clock.
        self.put("a", b"mine\n")
        _, told = process.communicate(b"\n", 60)
        self.assertIn(b"not kept: a was changed there meanwhile", told)
        after = self.look()
        self.assertEqual((after["a"][1], after["b"][1]), (b"mine\n", b"theirs\n"))

    def test_nothing_goes_on_after_the_program(self):
        """What runs on in the background does not change what was shown before it is kept."""
        self.put("build.sh", b"good\n")
        session = Session("exec", "--on", self.folder, "--color", "never", "--", "sh", "-c",
                          "echo fine > build.sh; echo evil > /tmp/evil; "
                          "(setsid sh -c 'sleep 1; cp /tmp/evil build.sh; cp /tmp/evil a') > /dev/null 2>&1 &")
        self.addCleanup(lambda: os.path.exists(f"/proc/{session.pid}") and os.kill(session.pid, signal.SIGKILL))
        session.expect(rb"\+fine")
        session.expect(rb"by file: ")
        time.sleep(2)
        session.type("a\n")
        session.expect(rb"kept 1 of 1 change ")
        self.assertEqual(session.wait(), 0)
        self.assertEqual((self.look()["build.sh"][1], self.look()["a"][1]), (b"fine\n", self.before["a"][1]))

    def test_what_writes_until_it_is_killed(self):
        """What is kept is what was told, however busy the program was."""
        done = self.on("for i in 1 2 3 4; do (while :; do echo $i$i$i$i > a; echo $i$i$i > c; done) & done; sleep 0.3", "--keep",
                       "all", "--json")
        told = json.loads(done.stdout)["changes"]
        self.assertEqual((len(told["kept"]), told["left"]), (len(told["files"]), []), told)
        for name in ("a", "c"):
            diff = next(entry["diff"] for entry in told["files"] if entry["path"] == "/workspace/" + name)
            added = "".join(line[1:] + "\n" for line in diff.splitlines()[3:] if line.startswith("+"))
            self.assertEqual(self.look()[name][1].decode(), added)

    def test_no_mount_is_emptied(self):
        """Other file systems in the folder are not seen inside: whoever removes what is around them does not mean them."""
        outside = self.scratch()
        with open(os.path.join(outside, "precious"), "w") as file:
            file.write("precious")
        for kind in ("bind", "tmpfs"):
            with self.subTest(kind=kind):
                self.put("data/f", b"x")
                place = os.path.join(self.folder, "data/deep/remote")
                os.makedirs(place, exist_ok=True)
                words = ["--bind", outside] if kind == "bind" else ["-t", "tmpfs", "tmpfs"]
                subprocess.run(["mount", *words, place], check=True)
                try:
                    with open(os.path.join(place, "precious"), "w") as file:
                        file.write("precious")
                    done = self.on("rm -rf data; echo x > a", "--keep", "all")
                    self.assert_ran(done)
                    self.assertIn(b"not kept: data/deep/remote is another file system there", done.stderr)
                    after = self.look()
                    self.assertEqual((after["data/deep/remote/precious"][1], after["data/f"][1], after["a"][1]),
                                     (b"precious", b"x", b"x\n"))
                    done = self.on("rm -rf data; echo x > data", "--keep", "all")
                    self.assertIn(b"not kept: ", done.stderr)
                    self.assertEqual(self.look()["data/deep/remote/precious"][1], b"precious")
                finally:
                    subprocess.run(["umount", place], check=True)

    def test_what_changed_meanwhile_in_a_folder_that_goes(self):
        process = start("exec", "--on", self.folder, "--keep", "all", "--", "sh", "-c",
                        "rm -r sub; echo theirs > b; echo ready; read line")
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        time.sleep(0.02)  # Times of files are as coarse as the kernel's clock.
        with open(os.path.join(self.folder, "sub/s"), "r+b") as file:
            file.write(b"S")
        _, told = process.communicate(b"\n", 60)
        self.assertIn(b"not kept: sub/s was changed there meanwhile", told)
        after = self.look()
        self.assertEqual((after["sub/s"][1], after["b"][1]), (b"S\n", b"theirs\n"))

    def test_a_full_disk_of_the_folders_keeps_nothing(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", self.folder], check=True)
        self.addCleanup(subprocess.run, ["umount", self.folder], check=True)
        self.put("a", b"one\n")
        before = self.look()
        # The name of what does not fit is told, too, and is not for the terminal to obey.
        done = self.on("echo x > a; head -c 1M /dev/zero > \"$(printf 'b\\033[2J\\nagent-sandbox: kept')\"", "--keep", "all", "-q")
        self.assertEqual(done.returncode, PLATFORM_ERROR, done.stderr)
        self.assertIn(b"No space left", done.stderr)
        self.assertNotIn(b"\033", done.stderr)
        self.assertNotIn(b"\nagent-sandbox: kept", done.stderr)
        self.assertEqual(self.look(), before)

    def test_the_folder_is_gone_meanwhile(self):
        folder = self.scratch()
        process = start("exec", "--on", folder, "--keep", "all", "--", "sh", "-c", "echo x > a; echo ready; read line")
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        os.rmdir(folder)
        _, told = process.communicate(b"\n", 60)
        self.assertNotEqual(process.returncode, 0, told)
        self.assertFalse(os.path.exists(folder))

    def test_killed_it_leaves_the_folder_as_it_was(self):
        process = start("exec", "--on", self.folder, "--keep", "all", "--", "sh", "-c", "rm -r *; echo ready; sleep 60")
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close(), process.stderr.close(), process.stdin.close()
        self.assertEqual(self.look(), self.before)

    def test_everything_belongs_to_the_folders_owner(self):
        for path in [self.folder] + [os.path.join(self.folder, name) for name in self.before]:
            os.chown(path, 12345, 23456)
        self.assert_ran(self.on(CHANGES + "; stat -c %U:%G a | grep -q user:user", "--keep", "all"))
        for name in self.look():
            info = os.lstat(os.path.join(self.folder, name))
            self.assertEqual((info.st_uid, info.st_gid), (12345, 23456), name)

    def test_a_full_disk_inside_is_the_programs_trouble(self):
        done = self.on("head -c 100M /dev/zero > big; echo $?", "--disk", "8M")
        self.assertNotEqual(done.stdout, b"0\n")
        self.assertEqual(self.look(), self.before)


class Asking(OnCase):
    def asked(self, script, *words):
        session = Session("exec", "--on", self.folder, *words, "--", "sh", "-c", script)
        self.addCleanup(lambda: os.path.exists(f"/proc/{session.pid}") and os.kill(session.pid, signal.SIGKILL))
        return session

    def test_all(self):
        session = self.asked("echo x > a; echo y > new")
        session.expect(rb"\x1b\[31m-one\x1b\[0m")
        session.expect(rb"Keep 2 changes .*by file: ")
        session.type("what\n")
        session.expect(rb"by file: ")
        session.type("a\n")
        session.expect(rb"kept 2 of 2 changes")
        self.assertEqual(session.wait(), 0)
        self.assertEqual((self.look()["a"][1], self.look()["new"][1]), (b"x\n", b"y\n"))

    def test_none(self):
        session = self.asked("echo x > a; exit 3")
        session.expect(rb"by file: ")
        session.type("n\n")
        session.expect(rb"kept 0 of 1 change ")
        self.assertEqual(session.wait(), 3)
        self.assertEqual(self.look(), self.before)

    def test_one_by_one(self):
        session = self.asked("echo x > a; echo x > b; rm gone; mkdir d; echo 1 > d/e; echo 2 > d/f; mkdir empty; echo z > z",
                             "--color", "never")
        session.expect(rb"by file: ")
        session.type("f\n")
        for name, answer in (("changed a", "y"), ("changed b", "?"), (r"\[y,n,a,q,\?\]", "n"), ("added d/e", "n"),
                             ("added d/f", "y"), ("added empty", "n"), ("removed gone", "a")):
            session.expect((rb"Keep this: " if " " in name else b"") + name.encode() + rb".*\? ")
            session.type(answer + "\n")
        session.expect(rb"kept 5 of 8 changes")
        self.assertEqual(session.wait(), 0)
        after = self.look()
        self.assertEqual((after["a"][1], after["b"], after["z"][1], after["d/f"][1]),
                         (b"x\n", self.before["b"], b"z\n", b"2\n"))
        self.assertFalse({"gone", "d/e", "empty"} & set(after))

    def test_enough(self):
        session = self.asked("echo x > a; echo x > b")
        session.expect(rb"by file: ")
        session.type("f\n")
        session.expect(rb"changed a")
        session.type("y\n")
        session.expect(rb"changed b")
        session.type("\x04")
        session.expect(rb"kept 1 of 2")
        self.assertEqual(session.wait(), 0)
        self.assertEqual((self.look()["a"][1], self.look()["b"]), (b"x\n", self.before["b"]))

    def test_interrupted(self):
        session = self.asked("echo x > a")
        session.expect(rb"by file: ")
        session.type("\x03")
        self.assertEqual(session.wait(), 130)
        self.assertEqual(self.look(), self.before)

    def test_a_program_with_a_terminal(self):
        session = self.asked("tty; echo x > a", "-T")
        session.expect(rb"/dev/pts/")
        session.expect(rb"by file: ")
        session.type("a\n")
        session.expect(rb"kept 1 of 1")
        self.assertEqual(session.wait(), 0)
        self.assertEqual(self.look()["a"][1], b"x\n")

    def test_a_shell(self):
        session = Session("shell", "--on", self.folder, "--keep", "all")
        session.type("echo x > a; exit\n")
        session.expect(rb"kept 1 of 1")
        self.assertEqual(session.wait(), 0)
        self.assertEqual(self.look()["a"][1], b"x\n")


class Words(OnCase):
    def test_what_cannot_be(self):
        for words, said in [(["--on", "/nowhere"], b"/nowhere"), (["--on", "/"], b"the machine's own root"),
                            (["--on", os.path.join(self.folder, "a")], b"a"),
                            (["--on", self.folder, "--keep", "some"], b"unknown --keep some"),
                            (["--on", self.folder, "--keep", "ask"], b"no terminal"),
                            (["--on", self.folder, "--color", "red"], b"unknown --color red"),
                            (["--keep", "all"], b"name it with --on"),
                            (["--session", "x", "--on", self.folder], b"--on is for a new sandbox")]:
            with self.subTest(words=words):
                done = run("exec", *words, "--", "true")
                self.assertIn(done.returncode, (USAGE_ERROR, PLATFORM_ERROR), done.stderr)
                self.assertIn(said, done.stderr)


@unittest.skipIf(os.geteuid() != 0, "only root becomes somebody else")
class Ordinary(OnCase):
    def test_works_on_a_folder_of_their_own(self):
        somebody = OrdinaryUser(self)
        folder = os.path.join(somebody.home, "project")
        os.mkdir(folder)
        with open(os.path.join(folder, "a"), "w") as file:
            file.write("mine\n")
        for path in (folder, os.path.join(folder, "a")):
            os.chown(path, NOBODY, NOBODY)
        done = somebody.run("exec", "--on", folder, "--", "sh", "-c", "stat -c %U a; echo x >> a; cat a; rm -f a; ls")
        self.assert_ran(done, b"user\nmine\nx\n")
        self.assertEqual(self.look(folder), {"a": ("0o100644", b"mine\n")})
        done = somebody.run("exec", "--on", folder, "--keep", "all", "--", "sh", "-c", "echo x >> a; mkdir d; echo y > d/f")
        self.assert_ran(done, b"")
        after = self.look(folder)
        self.assertEqual((after["a"][1], after["d/f"][1]), (b"mine\nx\n", b"y\n"))
        self.assertEqual(os.stat(os.path.join(folder, "d/f")).st_uid, NOBODY)

    def test_not_on_somebody_elses(self):
        somebody = OrdinaryUser(self)
        os.chmod(self.folder, 0o755)
        done = somebody.run("exec", "--on", self.folder, "--", "true")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"belongs to somebody else", done.stderr)


if __name__ == "__main__":
    unittest.main()
