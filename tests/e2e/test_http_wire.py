"""Bytes on the wire: requests two readers could understand differently, too large, too slow, broken off; TLS."""
import hashlib
import json
import os
import resource
import socket
import ssl
import time
import unittest
import warnings

from http_corpus import BODIES, FRAMING, LINES, TORTURE, head
from http_harness import Client, HttpCase, Server, in_parallel, until
from http_raw import Broken, Connection, WebSocket, request

HEAD_TIME = 10  # seconds for a head, from its first byte
HEARTBEAT = 15  # seconds between signs of life on a stream where nothing happens


class WireCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.key = b"Authorization: Bearer " + self.admin.key.encode() + b"\r\n"

    def talk(self, data, end=True, within=10):
        """Sends bytes, and that no more will come; all answers until the server closes."""
        with self.server.connect(timeout=within) as connection:
            connection.send_while_heard(data)
            if end:
                try:
                    connection.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # Closed by the other side already.
            return connection.read_answers([data.split(b" ", 1)[0].decode("latin-1")])

    def assert_well(self):
        began = time.monotonic()
        self.assertEqual(self.server.plain("GET", "/health").status, 200)
        self.assertLess(time.monotonic() - began, 5)


class Corpus(WireCase):
    def check(self, cases):
        for name, (data, statuses) in cases.items():
            with self.subTest(case=name):
                answers = self.talk(data.replace(b"{key}", self.key))
                self.assertLessEqual(len(answers), 1, f"two answers: {answers}")
                status = answers[0].status if answers else 0
                self.assertIn(status, statuses, answers)
                if status >= 400:
                    self.assertEqual(set(answers[0].error), {"code", "fault", "message", "hint", "trace_id"})
                if status in (400, 413, 414, 431):
                    self.assertEqual(answers[0].header("connection"), "close")
                self.assert_well()

    def test_framing(self):
        self.check(FRAMING)

    def test_lines(self):
        self.check(LINES)

    def test_bodies(self):
        self.check(BODIES)

    def test_there_are_enough(self):
        self.assertGreaterEqual(len(FRAMING) + len(LINES) + len(BODIES) + len(TORTURE), 120)

    def test_json(self):
        before = self.server.resident_bytes()
        for name, body in TORTURE.items():
            with self.subTest(case=name):
                began = time.monotonic()
                answer = self.admin.call("POST", "/api/sessions", body, {"Content-Type": "application/json"})
                self.assertEqual(answer.status, 400, answer)
                self.assertLess(time.monotonic() - began, 10)
                self.assertLess(len(answer.body), 5000)  # What is wrong is quoted, if at all, in part.
        self.assertLess(self.server.resident_bytes() - before, 64 << 20)
        self.assert_well()

    def test_content_types(self):
        for media, status in [("application/json", 201), ("application/json; charset=utf-8", 201),
                              ("APPLICATION/JSON", 201), ("text/plain", 400), ("", 400),
                              ("application/jsonx", 400), ("text/json", 400),
                              ("application/x-www-form-urlencoded", 400), ("application/json, text/plain", 400)]:
            with self.subTest(media=media):
                answer = self.admin.call("POST", "/api/sessions", b"{}", {"Content-Type": media})
                self.assertEqual(answer.status, status)
                if status == 201:
                    self.admin.delete(answer.header("location"))

    def test_refusals_are_traced(self):
        for data in (b"GET /health HTTP/9.9\r\n\r\n", head(b"X: " + b"x" * 40_000 + b"\r\n"),
                     b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n"):
            self.server.note("GET", "/nowhere", self.talk(data)[0])

    def test_methods(self):
        answer = self.admin.call("DELETE", "/api/sessions")
        self.assertEqual(answer.status, 405)
        self.assertLessEqual({"GET", "POST"}, {name.strip() for name in answer.header("allow").split(",")})


class Conversations(WireCase):
    def test_pipelined_requests_are_answered_in_order(self):
        traces = [f"{number:032x}" for number in range(1, 31)]
        kinds = [("GET", "/health", b""), ("HEAD", "/health", b""), ("POST", "/api/sessions", b'{"ttl_s":"x"}'),
                 ("GET", "/nowhere", b"ignored body"),
                 ("GET", "/api/sessions?limit=1", b"")]
        sent, methods = b"", []
        for number, trace in enumerate(traces):
            method, target, body = kinds[number % len(kinds)]
            methods.append(method)
            sent += request(method, target, [*self.admin.headers(), ("traceparent", f"00-{trace}-00f067aa0ba902b7-01"),
                                             ("Content-Type", "application/json")], body)
        with self.server.connect() as connection:
            connection.send(sent)
            connection.socket.shutdown(socket.SHUT_WR)
            answers = connection.read_answers(methods)
        self.assertEqual([answer.status for answer in answers], [200, 200, 400, 404, 200] * 6)
        self.assertEqual([answer.header("traceparent")[3:35] for answer in answers], traces)

    def test_a_slow_one_holds_up_those_behind_it_and_nobody_else(self):
        box = self.session()
        with self.server.connect() as connection:
            headers = self.admin.headers([("Content-Type", "application/json")])
            connection.send(request("POST", box + "/commands", headers, b'{"command":"sleep 1"}') + request("GET",
                                                                                                            "/health"))
            began = time.monotonic()
            self.assert_well()
            self.assertLess(time.monotonic() - began, 0.9)
            self.assertEqual(json.loads(connection.read_answer().body)["status"], "exited")
            self.assertEqual(connection.read_answer().status, 200)

    def test_one_connection_many_requests(self):
        with self.server.connect() as connection:
            for number in range(50):
                connection.send(request("GET", "/health" if number % 2 else "/nowhere"))
                self.assertEqual(connection.read_answer().status, 200 if number % 2 else 404)

    def test_version_1_0(self):
        with self.server.connect() as connection:
            connection.send(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
            self.assertEqual(connection.read_answer().status, 200)
            self.assertTrue(connection.is_closed())
        with self.server.connect() as connection:
            connection.send(b"GET /health HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n" * 2)
            self.assertEqual([connection.read_answer().status for _ in range(2)], [200, 200])

    def test_version_1_0_knows_no_chunks(self):
        box = self.session()
        with self.server.connect() as connection:
            asked = request("GET", box + "/files/archive", self.admin.headers())
            connection.send(asked.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
            answer = connection.read_head()
            self.assertEqual((answer.status, answer.header("transfer-encoding")), (200, None))

    def test_close_is_done_and_said(self):
        with self.server.connect() as connection:
            connection.send(request("GET", "/health", [("Connection", "close")]))
            self.assertEqual(connection.read_answer().header("connection"), "close")
            self.assertTrue(connection.is_closed())

    def test_whoever_closes_says_so(self):
        # Else a client sends its next request into a connection that is gone.
        box = self.session(limits={"memory": "64M", "disk": "4M"})
        for what, target, headers in [
                ("too large", box + "/files?path=/workspace/x", [("Content-Length", str(1 << 30))]),
                ("not asked for", box + "/files?path=/etc/x", [("Content-Length", "9"), ("Expect", "100-continue")]),
                ("no key", "/api/sessions/x/files?path=/x",
                 [("Content-Length", str(1 << 30)), ("Authorization", "none")])]:
            with self.subTest(what=what), self.server.connect() as connection:
                own = [] if what == "no key" else self.admin.headers()
                connection.send(request("PUT", target, [*own, *headers]))
                answer = connection.read_answer()
                self.assertGreaterEqual(answer.status, 400)
                if connection.is_closed(1):
                    self.assertEqual(answer.header("connection"), "close")

    def test_an_answer_is_whole_whatever_was_asked_before(self):
        with self.server.connect() as connection:
            connection.send(request("HEAD", "/health") + b"NONSENSE\r\n\r\n")
            self.assertEqual(connection.read_answer("HEAD").status, 200)
            refused = connection.read_answer()
            self.assertEqual((refused.status, refused.error["code"]), (400, "invalid"))

    def test_a_client_that_sends_on_gets_its_answer(self):
        box = self.session(limits={"memory": "64M", "disk": "4M"})
        with self.server.connect() as connection:
            headers = self.admin.headers([("Content-Length", str(64 << 20))])
            connection.send(request("PUT", box + "/files?path=/workspace/x", headers))
            for _ in range(64):
                connection.send_while_heard(b"x" * (1 << 20))
            answer = connection.read_answer()
        self.assertIsNotNone(answer, "the answer was lost with the connection")
        self.assertIn(answer.status, (413, 507))


class Crowds(WireCase):
    def test_five_hundred_idle_connections(self):
        files, before = self.server.open_files_at_rest(), self.server.resident_bytes()
        crowd = [socket.create_connection(self.server.address, timeout=30) for _ in range(500)]
        for one in crowd[::2]:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: lo")
        self.assertTrue(until(lambda: self.server.open_files() >= files + 500))
        self.assert_well()
        self.admin.run(self.session(), "true")
        self.assertLess(self.server.resident_bytes() - before, 64 << 20)
        for one in crowd:
            one.close()
        self.assertTrue(until(lambda: self.server.open_files() < files + 20))

    def begin(self, box, path="/files?path=/workspace/big", method="GET", headers=(), body=b""):
        connection = self.server.connect()
        connection.send(request(method, box + path, self.admin.headers(headers), body))
        return connection

    def test_reset_in_the_middle_of_everything(self):
        box = self.session(limits={"cpus": 2})
        self.admin.run(box, "head -c 20000000 /dev/zero > big")
        flood = self.admin.start(box, "timeout 3 sh -c 'while :; do echo x; done'", background=True)["command_id"]
        files = self.server.open_files_at_rest()
        json_body = [("Content-Type", "application/json")]
        for _ in range(5):
            halves = [
                self.begin(box), self.begin(box, "/files/archive"),
                self.begin(box, "/files?path=/workspace/n", "PUT", [("Content-Length", "999")], b"half"),
                self.begin(box, "/files/archive", "PUT", [("Transfer-Encoding", "chunked")], b"FFFF\r\nhalf"),
                self.begin(box, "/commands", "POST", json_body, b'{"command":"sleep 0.5"}'),
                self.begin(box, "/commands", "POST", [*json_body, ("Content-Length", "99")]),
                self.begin(box, f"/commands/{flood}/output", headers=[("Accept", "text/event-stream")]),
                self.begin(box, f"/commands/{flood}?wait_s=2"),
                self.begin("", "/api/sessions", "POST", json_body, b"{}")]
            socket_ = self.admin.socket(box + "/stream")
            socket_.send(type="attach", command_id=flood)
            raw = self.server.connect()
            raw.send(b"GET /hea")
            time.sleep(0.05)
            for one in [*halves, socket_.connection, raw]:
                one.reset()
        self.assert_well()
        self.assertEqual(self.admin.run(box, "echo alive"), "alive\n")
        names = [entry["name"] for entry in self.admin.get(box + "/files/list").json["entries"]]
        self.assertEqual(names, ["big"])
        for each in self.admin.get("/api/sessions", limit=1000).json["sessions"]:
            if not box.endswith(each["session_id"]):
                self.admin.delete("/api/sessions/" + each["session_id"])
        self.assertTrue(until(lambda: self.server.open_files() <= files + 5, 15, every=0.2),
                        f"{self.server.open_files()} files, before {files}")

    def test_out_of_descriptors(self):
        # One that does nothing by itself meanwhile: without a descriptor the sanitizer cannot look at types it meets first.
        server = self.other_server("--interpreters-cold")
        box = server.admin.create()
        count = server.open_files_at_rest()
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (count + 30, count + 30))
        crowd = [socket.create_connection(server.address, timeout=30) for _ in range(100)]
        time.sleep(0.5)
        before = server.cpu_seconds()
        time.sleep(2)
        self.assertLess(server.cpu_seconds() - before, 0.5)  # Waits, does not spin.
        for one in crowd:
            one.close()
        self.assertTrue(until(lambda: server.plain("GET", "/health").status == 200))
        self.assertEqual(server.admin.run(box, "echo alive"), "alive\n")


class Slowness(WireCase):
    def test_half_of_a_request_and_clients_that_went_away(self):
        """What takes time, at once: heads that do not end are answered 408; streams to nobody are given up."""
        box = self.session()
        files = self.server.open_files_at_rest()
        for _ in range(5):
            watch, stream = self.admin.events(box + "/files/watch"), self.admin.events(box + "/stream")
            watch.next()
            watch.connection.reset(), stream.connection.reset()
        began = time.monotonic()
        kinds = [b"G", b"GET /health HTTP/1.1\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: y", b"\r\n",
                 b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r"]
        halves = [self.server.connect(HEAD_TIME + 15) for _ in range(len(kinds) + 1)]
        for connection, data in zip(halves, kinds):
            connection.send(data)
        drip = halves[-1]
        while time.monotonic() - began < HEAD_TIME - 1:
            drip.send_while_heard(b"G")  # Always something, never enough.
            time.sleep(0.5)
            self.assert_well()

        def wait(number):
            answers = halves[number].read_answers()
            return [answer.status for answer in answers], time.monotonic() - began
        for number, (statuses, seconds) in enumerate(in_parallel(len(halves), wait)):
            with self.subTest(sent=(kinds + [b"dripping"])[number]):
                self.assertEqual(statuses, [408])
                self.assertTrue(HEAD_TIME - 1 < seconds < HEAD_TIME + 5, seconds)
        for connection in halves:
            connection.close()
        left = HEARTBEAT + 4 - (time.monotonic() - began)
        self.assertTrue(until(lambda: self.server.open_files() <= files + 2, left, every=0.2),
                        f"{self.server.open_files()} files, before {files}")


class Tls(HttpCase):
    FLAGS = ("--tls-self-signed",)

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--stop-patience", "1s", *cls.FLAGS, wait=False)
        cls.addClassCleanup(cls.server.stop)
        cls.server.tls = cls.context()
        cls.server.wait_until_ready()
        cls.admin = cls.server.admin

    @classmethod
    def context(cls):
        return ssl.create_default_context(cafile=os.path.join(cls.server.storage, "tls", "certificate.pem"))

    def test_everything_works_as_without(self):
        box = self.session()
        data = os.urandom(5_000_000)
        self.admin.expect(200, "PUT", box + "/files", data, path="/workspace/f")
        answer = self.admin.expect(200, "GET", box + "/files", path="/workspace/f")
        self.assertEqual(hashlib.sha256(answer.body).digest(), hashlib.sha256(data).digest())
        with self.admin.socket(box + "/stream") as stream:
            stream.send(type="start", command="echo hi")
            self.assertEqual(stream.wait_for("output")["data"], "hi\n")
        with self.admin.events("/api/events", after=0) as events:
            self.assertEqual(events.next()["event"], "session.ready")
        self.assertTrue(self.admin.get(box).json["url"].startswith("https://"))

    def test_the_certificate_is_checked_and_fits(self):
        for name in ("127.0.0.1", "localhost"):
            with socket.create_connection(self.server.address, timeout=30) as plain, \
                    self.context().wrap_socket(plain, server_hostname=name) as secure:
                self.assertIn(secure.version(), ("TLSv1.2", "TLSv1.3"))
        for context, name in ((ssl.create_default_context(), "localhost"), (self.context(), "evil.example")):
            with socket.create_connection(self.server.address, timeout=30) as plain, \
                    self.assertRaises(ssl.SSLCertVerificationError):
                context.wrap_socket(plain, server_hostname=name)

    def test_old_versions_are_refused(self):
        context = self.context()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python does not like them either.
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(self.server.address, timeout=30) as plain, \
                self.assertRaises((ssl.SSLError, OSError)):
            context.wrap_socket(plain, server_hostname="localhost")

    def test_what_is_no_tls(self):
        for data in (request("GET", "/health"), b"\x16\x03\x01\x40\x00" + b"\xff" * 100, os.urandom(500)):
            with Connection(self.server.address, 15) as connection:
                connection.send_while_heard(data)
                connection.socket.shutdown(socket.SHUT_WR)
                self.assertNotIn(b"200", connection.file.read())
        self.assertEqual(Client(self.server).get("/health").status, 200)

    def test_a_socket_without_tls_is_none(self):
        with Connection(self.server.address, 15) as connection, self.assertRaises(Broken):
            WebSocket(connection, "/api/events", self.admin.headers())


if __name__ == "__main__":
    unittest.main()
