"""How servers end, are stopped for a while, begin again, and live beside each other."""
import os
import signal
import subprocess
import time
import unittest

from harness import BINARY
from http_harness import ADMIN_KEY, HttpCase, Server, environment, in_parallel, until
from http_raw import request


class Stop(HttpCase):
    def test_requests_under_way_are_answered(self):
        server = Server()
        session = server.admin.create()

        def work(number):
            if number == 0:
                return server.admin.run(session, "sleep 1; echo done")
            time.sleep(0.4)
            server.stop()
        self.assertEqual(in_parallel(2, work)[0], "done\n")

    def test_stopped_as_soon_as_it_listens(self):
        for _ in range(5):
            Server(wait=False).stop()

    def test_streams_do_not_hold_it_up(self):
        # They have no end of their own, so waiting for it is of no use to anybody.
        server = Server()
        session = server.admin.create()
        with server.admin.events(session + "/stream"), server.admin.socket(session + "/stream") as socket, \
                server.admin.events("/api/events"), server.admin.events(session + "/files/watch"):
            socket.send(type="start", command="while :; do echo x; sleep 0.1; done")
            socket.wait_for("output")
            began = time.monotonic()
            server.stop()
            self.assertLess(time.monotonic() - began, 5)

    def test_what_does_not_end_holds_it_up_no_longer_than_said(self):
        server = Server("--stop-patience", "1s")
        session = server.admin.create(limits={"cpus": 2})
        command = server.admin.start(session, "while :; do echo x; done", background=True)["command_id"]
        waiting = []
        for method, path, headers, body in [
                ("PUT", "/files?path=/workspace/x", [("Content-Length", "9")], b""),
                ("GET", f"/commands/{command}?wait_s=60", [], b""),
                ("GET", f"/commands/{command}/output?wait_s=60", [], b""),
                ("POST", "/commands", [("Content-Type", "application/json")], b'{"command":"sleep 60"}')]:
            waiting.append(server.connect())
            self.addCleanup(waiting[-1].close)
            waiting[-1].send(request(method, session + path, server.admin.headers(headers), body))
        time.sleep(0.3)
        began = time.monotonic()
        server.stop()
        self.assertLess(time.monotonic() - began, 6)

    def test_what_was_stored_is_there_again(self):
        first = Server(storage=os.path.join(self.scratch(), "storage"))
        key = first.admin.make_key(role="operator")
        session = first.admin.create(labels={"a": "b"})
        first.stop()
        second = self.other_server(storage=first.storage)
        key.server = second
        self.assertEqual(key.expect(200, "GET", session).json["labels"], {"a": "b"})
        self.assertEqual(key.expect(200, "GET", "/api/me").json["role"], "operator")

    def test_a_second_server_on_the_same_storage(self):
        done = subprocess.run([BINARY, "serve", "--listen", "127.0.0.1:0", "--storage", self.server.storage],
                              env=environment(AGENT_SANDBOX_ADMIN_KEY=ADMIN_KEY, HOME=self.server.folder),
                              capture_output=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"another server uses the storage", done.stderr)
        self.session()

    def test_a_second_server_beside_it_touches_nothing(self):
        session = self.session()
        other = Server()
        other.admin.create()
        other.stop()
        self.assertEqual(self.admin.run(session, "echo alive"), "alive\n")

    def test_stopped_for_a_while(self):
        ending, staying = self.session(ttl_s=1), self.session(ttl_s=60)
        os.kill(self.server.pid, signal.SIGSTOP)
        time.sleep(2)
        os.kill(self.server.pid, signal.SIGCONT)
        self.assertTrue(until(lambda: self.admin.state(ending) == "gone"))
        self.assertEqual(self.admin.run(staying, "echo alive"), "alive\n")
        ends = [event for event in self.admin.get("/api/events", session_id=ending.rsplit("/", 1)[1]).json["events"]
                if event["type"] == "session.gone"]
        self.assertEqual(len(ends), 1)


if __name__ == "__main__":
    unittest.main()
