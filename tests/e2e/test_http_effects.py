"""Effects ("effects": true) of a command or a cell: what it did in the sandbox, measured from outside of the program."""
import unittest

from http_harness import HttpCase, in_parallel, until
from test_http_network import PROXY, allow, serve

MIB = 1 << 20
FIELDS = {"processes_started", "peak_memory_bytes", "cpu_ms", "bytes_written", "connections", "refused_calls", "files"}

REFUSED = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(3):
    assert libc.mount(0, b"/", 0, 0, 0) == -1 and ctypes.get_errno() == errno.EPERM
assert libc.unshare(0x10000000) == -1 and ctypes.get_errno() == errno.EPERM
for family in 38, 40:
    try:
        socket.socket(family)
        raise SystemExit("a socket that nobody may have")
    except OSError as error:
        assert error.errno == errno.EAFNOSUPPORT, error
"""

FILES = """
import os
os.remove("gone")
with open("changed", "w") as file:
    file.write("x" * 2000)
os.mkdir("folder")
with open("folder/new", "w") as file:
    file.write("x" * 30)
os.symlink("new", "folder/link")
with open("briefly", "w") as file:
    file.write("x")
os.remove("briefly")
"""


class EffectsCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.box = self.session(limits={"cpus": 2})

    def checked(self, effects):
        """What is null has a reason, and nothing else has one."""
        self.assertEqual({name for name in FIELDS if effects[name] is None}, set(effects["unknown"]), effects)
        return effects

    def command(self, command, **fields):
        done = self.admin.start(self.box, command, effects=True, **fields)
        return self.checked(done["effects"])

    def script(self, code, **fields):
        """Python, as a command."""
        done = self.admin.start(self.box, ["python3", "-c", code], effects=True, **fields)
        self.assertEqual((done["status"], done["exit_code"]), ("exited", 0), done)
        return self.checked(done["effects"])

    def cell(self, code, **fields):
        answer = self.admin.expect(200, "POST", self.box + "/execute", {"code": code, "effects": True, **fields}).json
        self.assertEqual(answer["status"], "ok", answer)
        return self.checked(answer["effects"])

    def both(self, check):
        """check(way) for Python as a command and as a cell, each in a session of its own."""
        for way in (self.script, self.cell):
            self.box = self.session(limits={"cpus": 2})
            with self.subTest(way.__name__):
                check(way)


class Effects(EffectsCase):
    def test_only_if_they_are_asked_for(self):
        self.assertNotIn("effects", self.admin.start(self.box, "true"))
        self.assertNotIn("effects", self.admin.start(self.box, "true", effects=False))
        answer = self.admin.expect(200, "POST", self.box + "/execute", {"code": "1"}).json
        self.assertNotIn("effects", answer)

    def test_nothing(self):
        def check(run):
            effects = run("1")
            self.assertEqual((effects["files"], effects["files_complete"]), ([], True))
            self.assertEqual(effects["connections"], {"attempted": 0, "refused": 0})
            self.assertEqual(effects["refused_calls"], {})
            self.assertLess(effects["bytes_written"], 10_000)
        self.both(check)

    def test_files(self):
        def check(run):
            self.admin.run(self.box, "echo 1 > gone; echo 1 > changed; echo 1 > same; echo 1 > /tmp/other")
            effects = run(FILES)
            self.assertEqual([(file["path"], file["change"], file["type"], file["size_before"], file["size"])
                              for file in effects["files"]],
                             [("/workspace/changed", "changed", "file", 2, 2000),
                              ("/workspace/folder", "added", "directory", 0, 0),
                              ("/workspace/folder/link", "added", "symlink", 0, 3),
                              ("/workspace/folder/new", "added", "file", 0, 30),
                              ("/workspace/gone", "removed", "file", 2, 0)])
            self.assertTrue(effects["files_complete"])
            self.assertEqual(run("1")["files"], [])
        self.both(check)

    def test_files_of_the_environment(self):
        effects = self.command("rm /etc/hostname; echo x >> /etc/hosts; chmod 700 /usr/bin/env", user="root")
        files = {file["path"]: file for file in effects["files"]}
        self.assertEqual({path: file["change"] for path, file in files.items()},
                         {"/etc/hostname": "removed", "/etc/hosts": "changed", "/usr/bin/env": "changed"})
        self.assertEqual(files["/etc/hosts"]["size"], files["/etc/hosts"]["size_before"] + 2)

    def test_processes(self):
        self.assertEqual(self.command("for i in 1 2 3; do (exit 0); done")["processes_started"], 4)

        def check(run):
            one = run("1")["processes_started"]
            more = run("import subprocess, threading\n"
                       "for _ in range(5): subprocess.run(['true'])\n"
                       "threads = [threading.Thread(target=int) for _ in range(7)]\n"
                       "for thread in threads: thread.start(); thread.join()")["processes_started"]
            self.assertEqual(more - one, 12)
        self.both(check)

    def test_memory(self):
        def check(run):
            effects = run("data = bytearray(100 << 20); del data")
            if effects["peak_memory_bytes"] is None:
                self.skipTest(effects["unknown"]["peak_memory_bytes"])
            self.assertGreater(effects["peak_memory_bytes"], 100 * MIB)
            self.assertLess(effects["peak_memory_bytes"], 200 * MIB)
        self.both(check)

    def test_processor_time(self):
        def check(run):
            effects = run("import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass")
            self.assertTrue(350 < effects["cpu_ms"] < 5000, effects["cpu_ms"])
            self.assertLess(run("import time; time.sleep(0.5)")["cpu_ms"], 400)
        self.both(check)

    def test_bytes(self):
        def check(run):
            effects = run("with open('f', 'wb', buffering=0) as file:\n for _ in range(100): file.write(b'x' * 20_000)")
            self.assertTrue(2_000_000 <= effects["bytes_written"] < 2_010_000, effects["bytes_written"])
        self.both(check)

    def test_connections(self):
        def check(run):
            effects = run("import socket\n"
                          "listener = socket.create_server(('127.0.0.1', 0))\n"
                          "for _ in range(2): socket.create_connection(listener.getsockname())\n"
                          "for port in (1, 2, 3):\n"
                          "    try: socket.create_connection(('127.0.0.1', port))\n"
                          "    except ConnectionRefusedError: pass\n"
                          "try: socket.create_connection(('192.0.2.1', 80), 1)\n"
                          "except OSError: pass")
            self.assertEqual(effects["connections"], {"attempted": 6, "refused": 4})
        self.both(check)

    def test_connections_through_the_proxy(self):
        port, other = serve(self), serve(self)
        self.box = self.session(network=allow({"host": "localhost", "ports": [port], "private": True}))
        asked = f"{PROXY} http://localhost:{port}/; {PROXY} http://localhost:{port}/; {PROXY} http://localhost:{other}/"
        self.assertEqual(self.command(asked)["connections"], {"attempted": 3, "refused": 1})
        self.assertEqual(self.command("true")["connections"], {"attempted": 0, "refused": 0})
        self.assertEqual(self.cell(f"import subprocess; subprocess.run({asked!r}, shell=True)")["connections"],
                         {"attempted": 3, "refused": 1})

    def test_refused_calls(self):
        def check(run):
            self.assertEqual(run(REFUSED)["refused_calls"], {"mount": 3, "unshare": 1, "socket": 2})
            self.assertEqual(run("1")["refused_calls"], {})
        self.both(check)

    def test_refused_calls_of_others_at_the_same_time_are_part_of_it(self):
        effects = in_parallel(3, lambda _: self.script(REFUSED + "import time; time.sleep(1)"))
        self.assertEqual(max(one["refused_calls"]["mount"] for one in effects), 9, effects)

    def test_tier_browser(self):
        self.box = self.session(tier="browser")
        self.assertEqual(self.command("unshare --user true; unshare --mount true; true")["refused_calls"], {"unshare": 1})


class Ways(EffectsCase):
    """However it is run, and however it ends."""

    def test_in_the_background(self):
        started = self.admin.start(self.box, "sleep 0.2; echo x > f", effects=True, background=True)
        self.assertNotIn("effects", started)
        path = f"{self.box}/commands/{started['command_id']}"
        self.assertTrue(until(lambda: self.admin.expect(200, "GET", path).json["status"] != "running"))
        done = self.admin.expect(200, "GET", path).json
        self.assertEqual([file["path"] for file in self.checked(done["effects"])["files"]], ["/workspace/f"])

    def test_on_a_terminal(self):
        effects = self.command("echo x > f", pty={"rows": 24, "columns": 80})
        self.assertEqual([file["path"] for file in effects["files"]], ["/workspace/f"])

    def test_one_that_is_ended(self):
        for script, more in (("echo x > f; kill -9 $$", {}), ("echo xx > f; sleep 100", {"timeout_s": 1}),
                             ("rm f; no-such-program", {})):
            with self.subTest(script):
                self.assertEqual([file["path"] for file in self.command(script, **more)["files"]], ["/workspace/f"])

    def test_a_program_that_cannot_be_started(self):
        done = self.admin.start(self.box, ["no-such-program"], effects=True)
        self.assertEqual(self.checked(done["effects"])["files"], [])

    def test_interpreters_of_other_languages(self):
        for language, code in (("bash", "echo x > f; unshare --mount true || true"),
                               ("javascript", "require('fs').writeFileSync('f', 'x'); "
                                              "require('child_process').spawnSync('unshare', ['--mount', 'true']); 1")):
            with self.subTest(language):
                self.box = self.session()
                effects = self.cell(code, language=language)
                self.assertEqual([file["path"] for file in effects["files"]], ["/workspace/f"])
                self.assertEqual(effects["refused_calls"], {"unshare": 1})

    def test_an_interpreter_that_ends(self):
        answer = self.admin.expect(200, "POST", self.box + "/execute",
                                   {"code": "open('f', 'w').close(); import os; os._exit(3)", "effects": True}).json
        effects = answer["effects"]
        self.assertEqual(answer["status"], "error")
        self.assertEqual([file["path"] for file in effects["files"]], ["/workspace/f"])
        self.assertIsNone(effects["cpu_ms"])

    def test_a_cell_that_fails(self):
        answer = self.admin.expect(200, "POST", self.box + "/execute",
                                   {"code": "open('f', 'w').close(); 1 / 0", "effects": True}).json
        self.assertEqual([file["path"] for file in self.checked(answer["effects"])["files"]], ["/workspace/f"])

    def test_a_flood_of_refused_calls(self):
        flood = "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.mount(0, b'/', 0, 0, 0)"
        command = self.admin.start(self.box, ["python3", "-c", flood], background=True)
        path = f"{self.box}/commands/{command['command_id']}"
        for _ in range(20):
            self.admin.run(self.box, "true")
        self.admin.expect(200, "POST", self.box + "/pause")
        self.admin.expect(200, "POST", self.box + "/resume")
        self.assertGreater(self.command("sleep 0.2")["refused_calls"]["mount"], 0)
        self.admin.expect(204, "POST", path + "/signal", {"signal": "KILL"})


if __name__ == "__main__":
    unittest.main()
