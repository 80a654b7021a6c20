"""--effects of exec, exec --session and run: what a program did, in words and as JSON."""
import ctypes
import fcntl
import json
import os
import unittest

from harness import Case, OrdinaryUser, run
from test_cli_session import CliCase

MOUNT = ("python3 -c 'import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
         "print(libc.mount(0, 0, 0, 0, 0), ctypes.get_errno())'")  # -1 1: EPERM
SCRIPT = f"echo out; echo 12345 > new; rm gone; echo longer >> kept; {MOUNT} > /dev/null"


class WhatItDid(Case):
    """In words, on stderr, after everything the program said."""

    def assert_told(self, text):
        told = text[text.index("agent-sandbox: what it did:\n"):].splitlines()[1:]
        self.assertEqual(told[:3], ["  - /workspace/gone (2 B)", "  ~ /workspace/kept (2 B, now 9 B)",
                                    "  + /workspace/new (6 B)"])
        self.assertRegex(told[3], r"\A  [0-9]+ processes, .*of processor time, [0-9.]+ .*B written\Z")
        self.assertIn("  refused system calls: mount 1", told)

    def test_in_a_new_sandbox(self):
        folder = self.scratch()
        for name in ("gone", "kept"):
            with open(os.path.join(folder, name), "w") as file:
                file.write("1\n")
        done = run("exec", "--on", folder, "--effects", "--", "sh", "-c", SCRIPT)
        self.assert_ran(done, b"out\n")
        self.assert_told(done.stderr.decode())

    def test_only_if_it_is_asked_for(self):
        done = run("exec", "sh", "-c", "echo x > f")
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_as_json(self):
        done = run("exec", "--effects", "--json", "--", "sh", "-c", "printf abc > f; exit 3")
        self.assertEqual((done.returncode, done.stderr), (3, b""))
        effects = json.loads(done.stdout)["effects"]
        self.assertEqual(effects["files"], [{"path": "/workspace/f", "change": "added", "type": "file", "size": 3,
                                             "size_before": 0}])
        self.assertEqual((effects["processes_started"], effects["refused_calls"]), (1, {}))
        self.assertNotIn("effects", json.loads(run("exec", "--json", "true").stdout))

    def test_the_exit_code_stays_the_programs(self):
        for script, code in (("exit 7", 7), ("kill -9 $$", 137)):
            done = run("exec", "--effects", "--", "sh", "-c", script)
            self.assertEqual(done.returncode, code)
            self.assertIn(b"what it did:", done.stderr)

    def test_names_that_speak_to_the_terminal(self):
        done = run("exec", "--effects", "--", "sh", "-c", "touch \"$(printf 'a\\033[2Jb')\"")
        self.assert_ran(done)
        self.assertNotIn(b"\x1b", done.stderr)

    def test_many_files_are_not_all_named(self):
        done = run("exec", "--effects", "--", "sh", "-c", "for i in $(seq 300); do : > f$i; done")
        self.assertEqual(done.stderr.count(b"  + /workspace/"), 40)
        self.assertIn(b"  and 260 files more\n", done.stderr)

    def test_without_control_groups(self):
        done = run("exec", "--no-cgroups", "--effects", "--", "true")
        self.assert_ran(done)
        self.assertIn(b"  peak_memory_bytes is not known: ", done.stderr)


def listen_to_calls():
    """What container managers do: a filter that a process around the sandbox listens to."""
    class Program(ctypes.Structure):
        _fields_ = [("size", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
    allow = ctypes.create_string_buffer(b"\x06\0\0\0\0\0\xff\x7f")
    seccomp, set_filter, new_listener = {"x86_64": 317, "aarch64": 277}[os.uname().machine], 1, 8
    listener = ctypes.CDLL(None).syscall(seccomp, set_filter, new_listener,
                                         ctypes.byref(Program(1, ctypes.addressof(allow))))
    assert listener >= 0
    fcntl.fcntl(listener, fcntl.F_SETFD, 0)


class Elsewhere(Case):
    def test_an_ordinary_users_sandbox(self):
        done = OrdinaryUser(self).run("exec", "--effects", "--json", "--", "sh", "-c", "printf abc > f; " + MOUNT)
        told = json.loads(done.stdout)
        self.assertEqual(told["stdout"], "-1 1\n", told)
        effects = told["effects"]
        self.assertEqual([file["path"] for file in effects["files"]], ["/workspace/f"])
        self.assertEqual((effects["refused_calls"], effects["bytes_written"]), ({"mount": 1}, 3 + len("-1 1\n")))

    def test_where_somebody_listens_already(self):
        done = run("exec", "--effects", "--json", "--", "sh", "-c", MOUNT, preexec_fn=listen_to_calls, close_fds=False)
        told = json.loads(done.stdout)
        self.assertEqual((told["exit_code"], told["stdout"]), (0, "-1 1\n"), told)
        self.assertIsNone(told["effects"]["refused_calls"])
        self.assertIn("listens", told["effects"]["unknown"]["refused_calls"])


class OfASession(CliCase):
    def test_exec(self):
        self.id = self.new_session()
        self.assert_ran(self.exec("sh", "-c", "echo 1 > gone; echo 1 > kept"))
        done = self.exec("--effects", "--", "sh", "-c", SCRIPT)
        self.assert_ran(done, b"out\n")
        WhatItDid.assert_told(self, done.stderr.decode())
        told = json.loads(self.exec("--effects", "--json", "--", "sh", "-c", "printf abc > f").stdout)
        self.assertEqual([file["path"] for file in told["effects"]["files"]], ["/workspace/f"])
        self.assertEqual(self.exec("true").stderr, b"")

    def test_run(self):
        path = os.path.join(self.scratch(), "code.py")
        with open(path, "w") as file:
            file.write("open('f', 'w').write('abc')\nimport ctypes\nctypes.CDLL(None).mount(0, 0, 0, 0, 0)\nprint('out')\n")
        done = self.cli("run", "--effects", path)
        self.assertEqual((done.returncode, done.stdout.splitlines()[0]), (0, b"out"))
        told = done.stderr.decode().splitlines()
        self.assertEqual(told[told.index("agent-sandbox: what it did:") + 1], "  + /workspace/f (3 B)")
        self.assertIn("  refused system calls: mount 1", told)
        effects = json.loads(self.cli("run", "--effects", "--json", path).stdout)["effects"]
        self.assertEqual(effects["refused_calls"], {"mount": 1})
        self.assertNotIn(b"what it did", self.cli("run", path).stderr)


if __name__ == "__main__":
    unittest.main()
