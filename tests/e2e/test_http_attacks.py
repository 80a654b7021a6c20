"""Attacks that need a server of their own kind, or none of the other suites' room."""
import http.client
import os
import re
import subprocess
import tempfile
import threading
import time
import unittest

from http_harness import ADMIN_KEY, HttpCase, in_parallel, until

# Exchanges a folder and a link with each other as fast as it can.
RACER = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
os.makedirs('/workspace/race', exist_ok=True)
os.chdir('/workspace/race')
os.makedirs('real', exist_ok=True)
open('real/f', 'w').write('inside')
if not os.path.islink('link'):
    os.symlink(sys.argv[1], 'link')
print('ready', flush=True)
while True:
    libc.renameat2(-100, b'real', -100, b'link', 2)
"""


class Races(HttpCase):
    def test_folders_that_become_links(self):
        """Whatever the moment, nothing of this machine is read, listed, packed, written or removed."""
        with tempfile.TemporaryDirectory(prefix="asr-canary-") as outside:
            canary = os.path.join(outside, "f")
            with open(canary, "w", encoding="ascii") as file:
                file.write("canary-of-the-host")
            session = self.session(limits={"cpus": 2}, files=[{"path": "/workspace/racer.py", "content": RACER}])
            command = self.admin.start(session, ["python3", "/workspace/racer.py", outside], background=True)["command_id"]
            until(lambda: b"ready" in self.admin.get(f"{session}/commands/{command}/output").body)
            calls = [("GET", "/files", {"path": "/workspace/race/real/f"}), ("GET", "/files/list", {"path": "/workspace/race/real"}),
                     ("GET", "/files/stat", {"path": "/workspace/race/real/f"}),
                     ("GET", "/files/archive", {"path": "/workspace/race/real"}),
                     ("PUT", "/files", {"path": "/workspace/race/real/g"}), ("DELETE", "/files", {"path": "/workspace/race/real/g"})]
            seen = {}
            for method, path, query in calls:
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    answer = self.admin.call(method, session + path, b"written" if method == "PUT" else None, **query)
                    self.assertLess(answer.status, 500, answer)
                    self.assertNotIn(b"canary-of-the-host", answer.body)
                    seen.setdefault((method, path), set()).add(answer.status)
            self.assertEqual(sorted(os.listdir(outside)), ["f"])
            self.assertTrue(any(len(statuses) > 1 for statuses in seen.values()), f"no race was met: {seen}")


class Names(HttpCase):
    def test_words_that_a_shell_would_obey(self):
        """No name reaches a shell: nothing is made, and the server starts no program but its own."""
        with tempfile.TemporaryDirectory() as folder:
            mark = os.path.join(folder, "mark")
            for word in (f"$(touch {mark})", f"`touch {mark}`", f";touch {mark}", f"a\ntouch {mark}", "-rf", "--help", "../..", "x" * 4096):
                for method, path, body in (
                        ("POST", "/api/sessions", {"environment": word}), ("POST", "/api/sessions", {"provider": word}),
                        ("POST", "/api/volumes", {"name": word}), ("POST", "/api/sessions", {"labels": {word: word}}),
                        ("POST", "/api/sessions", {"network": {"mode": "allow", "allow": [{"host": word}]}}),
                        ("POST", "/api/keys", {"name": word})):
                    answer = self.admin.call(method, path, body)
                    self.assertLess(answer.status, 500, answer)
                    if answer.status == 201 and "session_id" in answer.json:
                        self.admin.expect(204, "DELETE", "/api/sessions/" + answer.json["session_id"])
                session = self.session()
                self.assertIn(self.admin.call("POST", session + "/commands", {"argv": ["true"], "user": word[:60] or "x"}).status, (200, 400, 404))
                self.assertLess(self.admin.call("GET", session + "/files", path=word).status, 500)
            self.assertFalse(os.path.exists(mark))


class Logs(HttpCase):
    def test_a_log_that_nobody_reads_stops_nothing(self):
        reader, writer = os.pipe()
        server = subprocess.Popen(
            [os.environ["AGENT_SANDBOX"], "serve", "--listen", "127.0.0.1:0", "--storage", self.scratch() + "/storage",
             "--log-level", "debug", "--rate-per-key", "0", "--rate-per-address", "0"],
            env={**os.environ, "AGENT_SANDBOX_ADMIN_KEY": ADMIN_KEY, "HOME": self.scratch()}, stdout=subprocess.PIPE, stderr=writer)
        os.close(writer)
        try:
            port = int(re.search(rb":([0-9]+)\n", server.stdout.readline())[1])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            for _ in range(1500):  # each tells of itself, and nobody listens
                connection.request("GET", "/api/me", headers={"X-API-Key": ADMIN_KEY})
                answer = connection.getresponse()
                answer.read()
                self.assertEqual(answer.status, 200)
            os.set_blocking(reader, False)
            os.read(reader, 1 << 20)
            connection.request("GET", "/api/me", headers={"X-API-Key": ADMIN_KEY})
            connection.getresponse().read()
            os.set_blocking(reader, True)  # It is told after the answer.
            told = b""
            while b"lines of this log were dropped" not in told and (part := os.read(reader, 1 << 20)):
                told += part
            self.assertIn(b"lines of this log were dropped", told)
        finally:
            server.terminate()
            try:
                server.wait(30)
            finally:
                server.kill()
            os.close(reader)
            server.stdout.close()


class Errors(HttpCase):
    """Whatever goes wrong, an answer tells what to do and nothing of how the server is made or where it lies."""

    TELLING = re.compile(rb"\\.[ch]pp|std::|boost|0x[0-9a-f]{6,}|Traceback|terminate|SQLITE|sqlite|INSERT|SELECT|openssl|errno", re.I)

    def test_they_tell_nothing_of_the_inside(self):
        session, unknown = self.session(), "/api/sessions/" + "0" * 33
        calls = [("GET", unknown, None), ("POST", "/api/sessions", {"limits": {"memory": "1"}}), ("POST", "/api/sessions", {"x": 1}),
                 ("POST", "/api/sessions", {"environment": "/nowhere"}), ("GET", session + "/files?path=/none", None),
                 ("GET", session + "/files?path=/proc/1/mem", None), ("PUT", session + "/files?path=/proc/x", b"x"),
                 ("PUT", session + "/files?path=/etc/shadow/x", b"x"), ("POST", session + "/commands", {"argv": ["/none"]}),
                 ("POST", session + "/commands", {"command": "true", "cwd": "/none"}),
                 ("POST", session + "/commands", {"command": "true", "user": "nobody-here"}),
                 ("GET", session + "/commands/c99", None), ("GET", session + "/preview?port=0", None),
                 ("POST", session + "/execute", {"code": "1", "language": "none"}), ("GET", session + "/artifacts/..%2f..%2fkey", None),
                 ("GET", "/api/audit", None), ("GET", "/api/sessions?cursor=%00%ff", None), ("POST", "/api/volumes", {"name": "/"}),
                 ("DELETE", "/api/keys/none", None), ("GET", "/nothing", None), ("PATCH", session, {"ttl_s": -1}),
                 ("POST", session + "/files/archive?path=/workspace", b"not an archive")]
        for method, path, body in calls:
            answer = self.admin.call(method, path, body)
            if answer.status < 400:
                continue
            with self.subTest(method=method, path=path):
                self.assertIsNone(self.TELLING.search(answer.body), answer.body)
                self.assertNotIn(self.server.storage.encode(), answer.body)
                self.assertEqual(set(answer.json["error"]), {"code", "fault", "message", "hint", "trace_id"})


class Host(HttpCase):
    """What the machine notices of sessions."""

    def mounts(self):
        with open(f"/proc/{self.server.pid}/mountinfo", encoding="utf-8") as file:
            return len(file.readlines())

    def test_sessions_mount_nothing_on_the_host(self):
        self.session()
        before = self.mounts()
        for _ in range(10):
            self.session()
        self.assertEqual(self.mounts(), before)

    def test_sandboxes_go_before_the_server_when_memory_is_short(self):
        session = self.session()
        inside = int(self.admin.run(session, "cat /proc/self/oom_score_adj"))
        with open(f"/proc/{self.server.pid}/oom_score_adj", encoding="ascii") as file:
            self.assertGreaterEqual(inside, int(file.read()) + 400)


class Clocks(HttpCase):
    """The wall clock jumps; what lasts so and so long lasts so long."""

    # What a program sees of the wall clock is as far off as the file $CLOCK says, in seconds.
    LIBRARY = r"""
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>

        int clock_gettime(clockid_t clock, struct timespec* time) {
          int result = syscall(SYS_clock_gettime, clock, time);
          if (clock != CLOCK_REALTIME) return result;
          FILE* file = fopen(getenv("CLOCK"), "re");
          long off = 0;
          if (file && fscanf(file, "%ld", &off) == 1) time->tv_sec += off;
          if (file) fclose(file);
          return result;
        }
    """

    def test_a_clock_that_jumps(self):
        clock = os.path.join(self.scratch(), "clock")
        subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", clock + ".so"], input=self.LIBRARY.encode(), check=True)

        def jump(days):
            with open(clock + ".new", "w", encoding="ascii") as file:
                file.write(str(days * 86400))
            os.rename(clock + ".new", clock)

        jump(0)
        server = self.other_server(env={"LD_PRELOAD": clock + ".so", "CLOCK": clock})
        admin = server.admin
        staying = [admin.create(ttl_s=600), admin.create(idle_s=600)]
        for days in (366, -366, -20000, 0):
            with self.subTest(days=days):
                ending = [admin.create(ttl_s=2), admin.create(idle_s=1)]
                before = admin.expect(200, "GET", ending[0]).json["created_at"]
                jump(days)
                after = admin.expect(200, "GET", admin.create()).json["created_at"]
                self.assertNotEqual(before[:4], after[:4], "the clock did not jump")
                done = admin.start(staying[0], "sleep 0.1; echo on")
                self.assertEqual((done["status"], done["stdout"]), ("exited", "on\n"))
                self.assertTrue(0.05 < done["usage"]["wall_ms"] / 1000 < 20, done)
                self.assertTrue(until(lambda: all(admin.state(session) == "gone" for session in ending), within=10))
                self.assertEqual([admin.state(session) for session in staying], ["ready", "ready"])


class Memory(HttpCase):
    """The server may have no more than a bounded memory, whatever is asked of it."""

    MOST = 128 << 20

    def group(self):
        """A memory group of our own below this process's."""
        with open("/proc/self/cgroup", encoding="ascii") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
        v1 = [path for _, names, path in lines if "memory" in names.split(",")]
        root, limit = ("/sys/fs/cgroup/memory" + v1[0], "memory.limit_in_bytes") if v1 else ("/sys/fs/cgroup" + lines[-1][2], "memory.max")
        folder = os.path.join(root, f"asr-test-{os.getpid()}")
        try:
            os.mkdir(folder)
            with open(os.path.join(folder, limit), "w", encoding="ascii") as file:
                file.write(str(self.MOST))
        except OSError as problem:
            self.skipTest(f"no memory group can be made here: {problem}")
        self.addCleanup(until, lambda: self.removed(folder))
        return folder

    @staticmethod
    def removed(folder):
        try:
            os.rmdir(folder)
        except OSError:
            return False
        return True

    def test_a_server_with_little_memory(self):
        group = self.group()
        server = self.other_server()
        with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(server.pid))
        session = server.admin.create()
        flood = {"argv": ["sh", "-c", "yes | head -c 300M"]}

        def ask(number):
            for _ in range(3):
                if number % 3 == 0:
                    answer = server.admin.put(session + "/files", b"x" * (24 << 20), path=f"/workspace/{number}")
                elif number % 3 == 1:
                    answer = server.admin.post(session + "/commands", flood)
                else:
                    answer = server.admin.post("/api/sessions", {"labels": {"x": "y" * (4 << 20)}})
                self.assertTrue(answer.status < 500 or answer.status in (503, 507), answer)

        in_parallel(24, ask)
        self.assertIsNone(server.process.poll(), server.log()[-2000:])
        self.assertEqual(server.admin.run(server.admin.create(), "echo alive"), "alive\n")


class Tenants(HttpCase):
    def test_one_who_takes_all_it_may(self):
        """Whatever one key does with its share, another gets what it asks for."""
        greedy, modest = self.admin.make_key(max_sessions=5), self.admin.make_key()
        over = threading.Event()
        statuses = set()

        def hammer():
            while not over.is_set():
                answer = greedy.post("/api/sessions")
                statuses.add(answer.status)
                if answer.status == 201 and len(greedy.get("/api/sessions").json["sessions"]) > 3:
                    statuses.add(greedy.delete(answer.header("location")).status)

        threads = [threading.Thread(target=hammer) for _ in range(8)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(30):
                session = modest.create()
                self.assertEqual(modest.run(session, "echo mine"), "mine\n")
                modest.expect(204, "DELETE", session)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertLessEqual({201, 429}, statuses)
        self.assertLessEqual(statuses, {201, 204, 404, 429})
        for session in greedy.get("/api/sessions").json["sessions"]:
            greedy.expect(204, "DELETE", "/api/sessions/" + session["session_id"])


class Links(HttpCase):
    def test_hard_links_count_once_and_lead_nowhere(self):
        session = self.session()
        run = lambda command: self.admin.start(session, command)
        self.assertNotEqual(run("ln /etc/shadow /workspace/s")["exit_code"], 0)
        run("head -c 1000000 /dev/zero > /workspace/a; for i in $(seq 200); do ln /workspace/a /workspace/l$i; done")
        usage = self.admin.expect(200, "GET", session + "/usage").json
        self.assertLess(usage["disk_bytes"], 20_000_000, usage)


if __name__ == "__main__":
    unittest.main()
