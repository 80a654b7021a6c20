"""The network of a session: nothing, a list of hosts, credentials it never sees, and a real wire."""
import hashlib
import http.server
import json
import os
import ssl
import subprocess
import threading
import unittest

from http_harness import HttpCase, Server, until

PROXY = "curl -sS -m 20 --noproxy '' -x http://127.0.0.1:3128"


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        # Not the word itself: what a host repeats, programs can see.
        body = json.dumps({"path": self.path, "authorization": digest(self.headers.get("Authorization", ""))}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve(case, tls=None):
    """A server of this machine; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    case.addCleanup(server.server_close)
    case.addCleanup(server.shutdown)
    return server.server_address[1]


def make_certificate(folder):
    """For localhost, signed by itself: (certificate, key)."""
    certificate, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    return certificate, key


def allow(*hosts, **more):
    return {"mode": "allow", "allow": list(hosts), **more}


class Allowed(HttpCase):
    def own(self, port, **more):
        return {"host": "localhost", "ports": [port], "private": True, **more}

    def denied(self, session):
        return [event["data"] for event in self.admin.get("/api/events", session_id=session.rsplit("/", 1)[1],
                                                          limit=1000).json["events"]
                if event["type"] == "network.denied"]

    def test_only_the_hosts_of_the_list(self):
        port, other = serve(self), serve(self)
        session = self.session(network=allow(self.own(port)))
        self.assertEqual(json.loads(self.admin.run(session, f"{PROXY} http://localhost:{port}/x"))["path"], "/x")
        refused = json.loads(self.admin.run(session, f"{PROXY} http://localhost:{other}/"))
        self.assertEqual(refused["error"]["fault"], "policy")
        # Without the proxy there is no way at all, whoever tries.
        for user in ("user", "root"):
            self.assertNotEqual(self.admin.start(session, f"curl -sS -m 5 --noproxy '*' http://127.0.0.1:{port}/",
                                                 user=user)["exit_code"], 0)
        self.assertTrue(until(lambda: self.denied(session)))
        self.assertEqual((self.denied(session)[0]["host"], self.denied(session)[0]["port"]), ("localhost", other))
        told = self.admin.expect(200, "GET", session + "/network").json
        self.assertEqual((told["mode"], told["attempts"], told["denied"]), ("allow", 2, 1))
        self.assertGreater(told["bytes_down"], 0)

    def test_programs_find_the_proxy_by_themselves(self):
        session = self.session(network=allow())
        words = self.admin.run(session, "echo $http_proxy $https_proxy").split()
        self.assertEqual(words, ["http://127.0.0.1:3128"] * 2)
        self.assertNotIn("3128", self.admin.run(self.session(), "env"))

    def test_a_new_list_counts_at_once(self):
        port = serve(self)
        session = self.session(network=allow())
        asked = f"{PROXY} -o /dev/null -w '%{{http_code}}' http://localhost:{port}/"
        self.assertEqual(self.admin.run(session, asked), "403")
        for network, expected in ((allow(self.own(port)), "200"), ({"mode": "none"}, "403"),
                                  (allow(self.own(port)), "200"), (allow({"host": "example.org"}), "403")):
            self.admin.expect(200, "PUT", session + "/network", network)
            self.assertEqual(self.admin.run(session, asked), expected)
        self.assert_refused(self.admin.put(session + "/network", json.dumps(allow({"host": "*.org"})).encode(),
                                           headers={"Content-Type": "application/json"}), 400, "/network/allow/0")
        self.assertEqual(self.admin.run(session, asked), "403")
        closed = self.session()
        self.assert_refused(self.admin.call("PUT", closed + "/network", allow()), 409, "when it is made")

    def test_who_may_open_what(self):
        user = self.admin.make_key()
        self.assert_refused(user.post("/api/sessions", {"network": allow({"host": "x.org", "private": True})}), 403,
                            "/network/allow")
        session = user.create(network=allow({"host": "x.org"}))
        self.addCleanup(self.admin.delete, session)
        self.assert_refused(user.call("PUT", session + "/network", allow({"host": "x.org", "private": True})), 403)
        for network in ({"mode": "all"}, {"mode": "allow", "allow": [{"host": "a_b"}]}, {"mode": "none", "allow": []},
                        {"mode": "allow", "allow": [{"host": "x.org", "ports": [0]}]}, {"mode": "full", "allow": []}):
            self.assert_refused(user.post("/api/sessions", {"network": network}), 400)
        self.assert_refused(user.post("/api/sessions", {"network": {"mode": "full"}}), 403)

    def test_names_that_lead_to_this_machine_need_a_word_for_it(self):
        port = serve(self)
        session = self.session(network=allow({"host": "localhost", "ports": [port]}))
        answer = json.loads(self.admin.run(session, f"{PROXY} http://localhost:{port}/"))
        self.assertEqual(answer["error"]["fault"], "policy")

    def test_a_program_that_knocks_without_end_is_not_told_of_without_end(self):
        session = self.session(network=allow(), limits={"cpus": 2})
        self.admin.run(session, "for i in $(seq 400); do echo http://x$i.example.org/; done > urls;"
                                f"xargs -P 8 -n 40 {PROXY} -o /dev/null < urls; true")
        until(lambda: len(self.denied(session)) > 50, 5)
        told = self.admin.expect(200, "GET", session + "/network").json
        self.assertEqual(told["attempts"], 400)
        self.assertLess(len(self.denied(session)), 400)


class Credentials(HttpCase):
    WORD = "a-credential-nobody-inside-may-see"

    def test_they_are_added_outside(self):
        scratch = self.scratch()
        certificate, key = make_certificate(scratch)
        port = serve(self, (certificate, key))
        first = Server("--network-trust", certificate, storage=os.path.join(scratch, "storage"))
        self.addCleanup(first.kill)
        rule = {"host": "localhost", "ports": [port], "private": True,
                "credentials": [{"header": "Authorization", "value": f"Bearer {self.WORD}", "path": "/v1"}]}
        session = first.admin.create(network=allow(rule))
        asked = f"{PROXY} -H 'Authorization: mine' https://localhost:{port}"

        def check(admin):
            self.assertEqual(json.loads(admin.run(session, asked + "/v1/x"))["authorization"],
                             digest(f"Bearer {self.WORD}"))
            self.assertEqual(json.loads(admin.run(session, asked + "/v2"))["authorization"], digest("mine"))
            shown = json.dumps([admin.expect(200, "GET", path).json for path in
                                (session, session + "/network", "/api/sessions", "/api/events", "/api/audit")])
            self.assertNotIn(self.WORD, shown)
            self.assertNotIn(self.WORD, admin.run(session, "env; cat /etc/agent-sandbox/* /proc/*/environ 2>/dev/null"))
        check(first.admin)
        first.end_now()
        second = self.other_server("--network-trust", certificate, storage=first.storage)
        check(second.admin)
        for folder, _, names in os.walk(first.storage):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    self.assertFalse(self.WORD.encode() in file.read(), name)
        self.assertNotIn(self.WORD, second.log())


class Wire(HttpCase):
    def test_a_session_with_a_network_of_its_own(self):
        with open("/proc/sys/net/ipv4/ip_forward") as file:
            if file.read().strip() != "1":
                self.skipTest("this machine forwards no packets")
        server = self.other_server("--network-full", "--network-resolvers", "192.0.2.53")
        session = server.admin.create(network={"mode": "full"})
        self.assertEqual(server.admin.run(session, "cat /etc/resolv.conf").split()[-2:],
                         ["nameserver", "192.0.2.53"])
        route = server.admin.run(session, "cat /proc/net/route").splitlines()[1:]
        self.assertTrue(any(line.split()[1] == "00000000" for line in route), route)
        port = serve(self)
        for address in ("10.233.0.1", "127.0.0.1"):
            self.assertNotEqual(server.admin.start(session, f"curl -sS -m 5 http://{address}:{port}/")["exit_code"], 0)
        self.assertEqual(server.admin.run(server.admin.create(), "wc -l < /proc/net/route").strip(), "1")


if __name__ == "__main__":
    unittest.main()
