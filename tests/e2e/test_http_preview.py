"""Servers inside sessions seen from outside, and events told by webhook."""
import hashlib
import hmac
import http.server
import json
import threading
import unittest

from http_harness import HttpCase, until
from http_raw import TEXT, WebSocket, request

# Answers with what it was asked, and echoes frames of a WebSocket; misbehaves where the path says so.
INNER = r'''
import base64, hashlib, http.server, json, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response(101)
            self.send_header("Upgrade", "websocket"); self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers(); self.wfile.flush()
            head = self.rfile.read(2); size = head[1] & 127
            mask = self.rfile.read(4); data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(bytes([129, len(data)]) + data); self.wfile.flush(); self.close_connection = True
            return
        if self.path == "/garbage":
            self.wfile.write(b"this is no answer\r\n\r\n"); self.close_connection = True; return
        if self.path == "/two-lengths":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"); self.close_connection = True; return
        if self.path == "/endless-head":
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                for _ in range(100000): self.wfile.write(b"X-More: " + b"x" * 1000 + b"\r\n")
            except OSError: pass
            self.close_connection = True; return
        body = json.dumps({"path": self.path, "headers": list(self.headers.items())}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", "a=b; Domain=localhost; Path=/")
        self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
        for i in range(0, len(body), 1000):
            part = body[i:i + 1000]
            self.wfile.write(b"%x\r\n" % len(part) + part + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
Server(("127.0.0.1", 8080), Handler).serve_forever()
'''


class Preview(HttpCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.admin.create(limits={"cpus": 1}, files=[{"path": "/workspace/inner.py", "content": INNER}])
        cls.admin.start(cls.box, "exec python3 inner.py", background=True)
        cls.id = cls.box.rsplit("/", 1)[1]
        cls.host = f"8080-{cls.id}.localhost:{cls.server.port}"
        assert until(lambda: cls.ask("GET", "/").status == 200, 20)

    @classmethod
    def ask(cls, method, target, headers=(), body=b"", host=None):
        with cls.server.connect() as connection:
            connection.send(request(method, target, [*headers, *([("Content-Length", str(len(body)))] if body else [])],
                                    body, host=host or cls.host))
            return connection.read_answer(method)

    def test_the_api_tells_the_address(self):
        told = self.admin.expect(200, "GET", self.box + "/preview", port=8080).json
        self.assertEqual(told["url"].split("/")[2].split(":")[0], self.host.split(":")[0])
        self.assert_refused(self.admin.get(self.box + "/preview", port=0), 400)
        self.assert_refused(self.admin.get(self.box + "/preview"), 400)

    def test_requests_arrive_without_this_servers_keys(self):
        seen = self.ask("GET", "/a%20b?c=d", [
            ("Authorization", f"Bearer {self.admin.key}"), ("X-API-Key", self.admin.key), ("X-Forwarded-For", "6.6.6.6"),
            ("Connection", "X-Private"), ("X-Private", "1"), ("X-Mine", "2")]).json
        headers = {name.lower(): value for name, value in seen["headers"]}
        self.assertEqual(seen["path"], "/a%20b?c=d")
        self.assertNotIn(self.admin.key, json.dumps(seen))
        self.assertNotIn("x-private", headers)
        self.assertEqual(headers["x-mine"], "2")
        self.assertEqual(headers["x-forwarded-for"], "127.0.0.1")
        self.assertEqual(headers["host"], "localhost:8080")

    def test_other_authorization_is_the_inner_servers_own(self):
        seen = self.ask("GET", "/", [("Authorization", "Bearer for-the-app")]).json
        self.assertIn(["Authorization", "Bearer for-the-app"], seen["headers"])

    def test_cookies_stay_with_their_origin(self):
        self.assertEqual(self.ask("GET", "/").header("set-cookie"), "a=b; Path=/")

    def test_bodies_pass_both_ways(self):
        body = bytes(range(256)) * 400
        self.assertEqual(self.ask("POST", "/", body=body).body, body)

    def test_a_websocket_passes(self):
        with self.server.connect() as connection:
            socket = WebSocket(connection, "/socket", host=self.host)
            self.assertEqual(socket.answer.status, 101)
            connection.send(socket.frame(TEXT, b'"hot reload"'))
            self.assertEqual(socket.receive(), "hot reload")

    def test_the_path_form_locks_pages_in(self):
        answer = self.ask("GET", f"/preview/{self.id}/8080/x?y=1", host=f"localhost:{self.server.port}")
        self.assertEqual(answer.json["path"], "/x?y=1")
        self.assertIn("sandbox", answer.header("content-security-policy"))
        self.assertNotIn("allow-same-origin", answer.header("content-security-policy"))

    def test_what_does_not_answer_properly_is_a_bad_gateway(self):
        for target in ("/garbage", "/two-lengths", "/endless-head"):
            with self.subTest(target):
                self.assertEqual(self.ask("GET", target).status, 502)
        self.assertEqual(self.ask("GET", "/", host=self.host.replace("8080-", "8081-")).status, 502)
        self.assertEqual(self.ask("GET", "/").status, 200)

    def test_nobody_elses_ports_can_be_reached(self):
        port = self.server.port
        # The server's own port, seen from inside, is nobody's.
        self.assertEqual(self.ask("GET", "/health", host=self.host.replace("8080-", f"{port}-")).status, 502)
        unknown = self.id[:-1] + ("a" if self.id[-1] != "a" else "b")
        answer = self.ask("GET", "/", host=f"8080-{unknown}.localhost")  # In the words that E2B's clients look for.
        self.assertEqual((answer.status, answer.json["message"]), (502, "The sandbox was not found"))
        for host in (f"0-{self.id}.localhost", f"65536-{self.id}.localhost", f"x-{self.id}.localhost"):
            self.assertEqual(self.ask("GET", "/", host=host).status, 404)

    def test_a_page_inside_is_of_another_origin_than_the_api(self):
        foreign = [("Origin", f"http://{self.host}"), *self.admin.headers()]
        with self.server.connect() as connection:
            connection.send(request("GET", "/api/sessions", foreign, host=f"localhost:{self.server.port}"))
            self.assertEqual(connection.read_answer().status, 403)


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.got.append((dict(self.headers.items()), body))
            status = self.server.answers.pop(0) if self.server.answers else 200
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Webhooks(HttpCase):
    FLAGS = ("--webhooks-allow-private",)

    def setUp(self):
        super().setUp()
        self.receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.receiver.lock, self.receiver.got, self.receiver.answers = threading.Lock(), [], []
        threading.Thread(target=self.receiver.serve_forever, daemon=True).start()
        self.addCleanup(self.receiver.server_close)
        self.addCleanup(self.receiver.shutdown)

    def hook(self, client, **fields):
        url = f"http://127.0.0.1:{self.receiver.server_port}/hook"
        return client.expect(201, "POST", "/api/webhooks", {"url": url, **fields}).json

    def test_events_are_told_signed_and_again_after_a_failure(self):
        made = self.hook(self.admin, events=["session.ready"])
        self.addCleanup(self.admin.delete, "/api/webhooks/" + made["webhook_id"])
        self.receiver.answers = [503]
        box = self.session()
        self.assertTrue(until(lambda: len(self.receiver.got) >= 2, 20), self.receiver.got)
        for headers, body in self.receiver.got:
            seconds, signature = [part.split("=")[1] for part in headers["X-Agent-Sandbox-Signature"].split(",")]
            right = hmac.new(made["secret"].encode(), f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
            self.assertEqual(signature, right)
            self.assertEqual(json.loads(body)["type"], "session.ready")
            self.assertEqual("/api/sessions/" + json.loads(body)["session_id"], box)
        self.assertTrue(until(lambda: self.admin.get("/api/webhooks").json["webhooks"][0]["failures"] == 0, 10))

    def test_a_webhook_hears_its_owner_only(self):
        ann, bob = self.admin.make_key(), self.admin.make_key()
        made = self.hook(ann)
        self.session(bob)
        box = self.session(ann)
        self.assertTrue(until(lambda: self.receiver.got, 10))
        self.assertEqual({json.loads(body)["session_id"] for _, body in self.receiver.got}, {box.rsplit("/", 1)[1]})
        self.assertEqual(bob.expect(200, "GET", "/api/webhooks").json["webhooks"], [])
        self.assert_refused(bob.delete("/api/webhooks/" + made["webhook_id"]), 404)
        ann.expect(204, "DELETE", "/api/webhooks/" + made["webhook_id"])

    def test_the_secret_is_told_once_and_not_kept_in_the_clear(self):
        made = self.hook(self.admin)
        self.assertNotIn("secret", self.admin.get("/api/webhooks").json["webhooks"][0])
        self.admin.expect(204, "DELETE", "/api/webhooks/" + made["webhook_id"])

    def test_private_addresses_are_refused_where_nobody_allowed_them(self):
        server = self.other_server()
        url = f"http://127.0.0.1:{self.receiver.server_port}/"
        server.admin.expect(201, "POST", "/api/webhooks", {"url": url})
        server.admin.create()
        self.assertTrue(until(lambda: server.admin.get("/api/webhooks").json["webhooks"][0]["last_error"], 10))
        self.assertIn("not public", server.admin.get("/api/webhooks").json["webhooks"][0]["last_error"])
        self.assertEqual(self.receiver.got, [])
        for url in ("ftp://example.org/", "file:///etc/passwd", "http://user:pw@example.org/", "nonsense!"):
            self.assert_refused(server.admin.post("/api/webhooks", {"url": url}), 400)


if __name__ == "__main__":
    unittest.main()
