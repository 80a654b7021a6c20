"""How a server is set up and what it keeps to itself: settings and their order, names it answers to, secrets, logs."""
import json
import os
import re
import ssl
import stat
import subprocess
import time
import unittest

from harness import BINARY, PATIENCE, Case
from http_harness import ADMIN_KEY, Client, HttpCase, Server, environment, until
from http_raw import request


class Refusals(HttpCase):
    """Pages of other origins, and names somebody made to lead here."""

    FLAGS = ("--hosts", "box.example,other.example", "--origins", "https://app.example")

    def status(self, host, *headers, path="/api/me"):
        with self.server.connect() as connection:
            connection.send(request("GET", path, [*self.admin.headers(headers), ("Connection", "close")], host=host))
            answer = connection.read_answer()
        self.server.note("GET", path, answer)
        return answer

    def test_hosts(self):
        for host, status in [
                ("127.0.0.1", 200), (f"127.0.0.1:{self.server.port}", 200), ("localhost", 200),
                (f"localhost:{self.server.port}", 200),
                ("[::1]:80", 200), ("box.example", 200), ("BOX.example:443", 200), ("evil.example", 403),
                ("127.0.0.1.evil.example", 403),
                ("localhost.evil.example", 403), ("evil-localhost", 403), ("sub.box.example", 403),
                ("169.254.169.254", 403)]:
            for path in ("/api/me", "/health", "/docs"):
                with self.subTest(host=host, path=path):
                    self.assertEqual(self.status(host, path=path).status, status)

    def test_origins(self):
        own = f"127.0.0.1:{self.server.port}"
        for origin, status in [
                (f"http://{own}", 200), ("https://app.example", 200), (f"https://{own}", 403),
                ("https://evil.example", 403),
                ("null", 403), ("http://127.0.0.1:1", 403), ("https://app.example.evil.example", 403),
                ("file://", 403)]:
            with self.subTest(origin=origin):
                answer = self.status(own, ("Origin", origin))
                self.assertEqual(answer.status, status)
                self.assertNotEqual(answer.header("access-control-allow-origin"), "*")

    def test_a_page_that_is_allowed_can_ask_and_read(self):
        origin = ("Origin", "https://app.example")
        answer = self.status("box.example", origin)
        self.assertEqual(answer.header("access-control-allow-origin"), "https://app.example")
        # Browsers ask this before they send a key or JSON.
        asked = self.server.plain("OPTIONS", "/api/sessions", [
            origin, ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization, content-type")])
        self.assertIn(asked.status, (200, 204))
        self.assertIn("authorization", (asked.header("access-control-allow-headers") or "").lower())
        self.assertIn("POST", asked.header("access-control-allow-methods") or "")

    def test_hints_name_flags_that_exist(self):
        known = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, timeout=PATIENCE).stdout
        for answer in (self.status("evil.example"), self.status("localhost", ("Origin", "https://evil.example"))):
            for flag in re.findall(r"--[a-z-]+", answer.error["hint"]):
                self.assertRegex(known, rf"{flag}\b(?![a-z-])")

    def test_what_a_page_can_send_unasked_does_nothing(self):
        for media in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            answer = self.admin.call("POST", "/api/sessions", b'{"labels":{"forged":"1"}}', {"Content-Type": media})
            self.assert_refused(answer, 400)


class WithoutKeys(Case):
    def refused(self, *flags, env=None):
        return subprocess.run([BINARY, "serve", "--storage", os.path.join(self.scratch(), "s"), *flags],
                              capture_output=True, text=True,
                              timeout=PATIENCE, env=environment(HOME=self.scratch(), **(env or {})), cwd=self.scratch())

    def test_on_loopback(self):
        server = Server("--no-auth", admin_key=None)
        self.addCleanup(server.stop)
        nobody = Client(server)
        self.assertEqual(nobody.expect(200, "GET", "/api/me").json["role"], "admin")
        self.assertEqual(nobody.run(nobody.create(), "echo hi"), "hi\n")
        self.assertEqual(server.problems, [])

    def test_nowhere_else(self):
        for flags in (["--listen", "0.0.0.0:0"], ["--listen", ":0"], ["--listen", "[::]:0"]):
            done = self.refused("--no-auth", *flags)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("no_auth", done.stderr)
            self.assertNotIn("listens", done.stdout)
        done = self.refused("--listen", "0.0.0.0:0", env={"AGENT_SANDBOX_NO_AUTH": "true"})
        self.assertNotEqual(done.returncode, 0)

    def test_the_first_start_makes_a_key(self):
        server = Server(admin_key=None)
        key = until(lambda: re.search(r"shown this once: (\S+)", server.process.stdout.readline().decode()), 5)[1]
        login = os.path.join(server.folder, ".config", "agent-sandbox", "login.json")
        self.assertEqual(Client(server, key).expect(200, "GET", "/api/me").json["role"], "admin")
        self.assertTrue(until(lambda: os.path.exists(login)))
        self.assertEqual(stat.S_IMODE(os.stat(login).st_mode), 0o600)
        with open(login) as file:
            self.assertEqual(json.load(file)["key"], key)
        for name in os.listdir(server.storage):
            with open(os.path.join(server.storage, name), "rb") as file:
                self.assertNotIn(key.encode(), file.read(), name)
        server.stop()


class Secrets(Case):
    def setUp(self):
        self.storage = os.path.join(self.scratch(), "storage")
        self.canaries = {name: f"canary-{name}-{os.urandom(6).hex()}" for name in (
            "admin", "env", "command-env", "command", "stdin", "file", "query", "user-agent")}
        self.server = Server("--log-format", "json", "--log-level", "debug", storage=self.storage,
                             admin_key=self.canaries["admin"])
        self.addCleanup(self.server.kill)

    def use_all(self):
        """Puts every secret where secrets come in, on ways that go well and on ways that fail."""
        c, admin = self.canaries, self.server.admin
        user = admin.make_key()
        self.canaries["key"] = user.key
        box = user.create(env={"TOKEN": c["env"]}, labels={"no": "secret-of-ours"},
                          files=[{"path": "/workspace/f", "content": c["file"]}])
        user.run(box, f"echo {c['command']}", env={"SECRET": c["command-env"]}, stdin=c["stdin"])
        user.start(box, ["no-such-program", c["command"]], env={"SECRET": c["command-env"]})
        user.start(box, f"echo {c['command']}; exit 3", background=True)
        user.post("/api/sessions", {"env": {"BAD NAME": c["env"]}}, headers={"Idempotency-Key": "k"})
        user.post("/api/sessions", {"env": {"TOKEN": c["env"]}}, headers={"Idempotency-Key": "l"})
        user.get("/api/me", token=c["query"], headers={"User-Agent": c["user-agent"]})
        Client(self.server, user.key + "x").get("/api/me")
        user.get(box + "/nowhere")
        user.delete(box)
        admin.expect(204, "DELETE", f"/api/keys/{user.key_id}")

    def found_in(self, text):
        return sorted(name for name, canary in self.canaries.items() if canary.encode() in text)

    def test_they_stay_where_they_belong(self):
        self.use_all()
        places = {"metrics": self.server.admin.expect(200, "GET", "/metrics").body}
        for pid in [self.server.pid, *os.listdir(f"/proc/{self.server.pid}/task")]:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                places[f"arguments of {pid}"] = file.read()
        time.sleep(0.3)  # Events and audit are written behind the answers.
        places["log"] = self.server.log().encode()
        for moment in ("running", "stopped"):
            for folder, _, names in os.walk(self.storage):
                for name in names:
                    with open(os.path.join(folder, name), "rb") as file:
                        places[f"{name}, {moment}"] = file.read()
            if moment == "running":
                self.server.stop()
        self.assertIn(b"secret-of-ours", places["state.db, stopped"])  # Searching there finds what is there.
        self.assertIn(b"/api/me", places["log"])
        self.assertEqual({place: self.found_in(text) for place, text in places.items() if self.found_in(text)}, {})

    def test_metrics_count_and_name_nobody(self):
        admin = self.server.admin
        box = admin.create(labels={"a": "b"})
        admin.run(box, "true")
        first = admin.expect(200, "GET", "/metrics").body.decode()
        for line in ('agent_sandbox_sessions{state="ready"} 1', 'agent_sandbox_executions_total{status="exited"} 1',
                     'agent_sandbox_requests_total{', "agent_sandbox_request_seconds_bucket{"):
            self.assertIn(line, first)
        self.assertNotIn(box.rsplit("/", 1)[1], first)
        for number in range(20):
            admin.get(f"/nowhere/{number}"), admin.get(f"/api/sessions/unknown{number}")
            admin.call(f"VERB{number}", "/health")
        second = admin.expect(200, "GET", "/metrics").body.decode()
        self.assertLess(len(second) - len(first), 6000)  # Names from outside make no new rows.

    def test_every_line_of_the_log_is_json(self):
        paths = ["/a%22%7D%0A%7B%22level%22:%22error%22", "/%1b%5b31mred", "/%ff%fe", "/%25n%25s", "/" + "x" * 7000,
                 "/%5c%22", "/${jndi:ldap://x}",
                 "/%e2%80%ae", "/%c3%a4", "/%7f%00", "/" + "%ff" * 2000]
        agents = ['"}\\n{', "\x1b[31m", "${jndi:ldap://evil/x}", "ä" * 100, "%n%s%x" * 50]
        for path in paths:
            for agent in agents:
                with self.server.connect() as connection:
                    connection.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {agent}\r\n"
                                    f"traceparent: {agent}\r\nConnection: close\r\n\r\n".encode())
                    self.assertLess(connection.read_answer().status, 500)
        self.server.admin.create(files=[{"path": "/workspace/\x1b[31m\nnew\u202e", "content": ""}])
        log = self.server.log()
        for line in log.splitlines():
            self.assertLessEqual({"time", "level", "message"}, set(json.loads(line)))
        self.assertIn('"path":"/a\\"}\\u000a{', log)
        self.assertIsNone(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\uffff]", log))
        self.server.stop()

    def test_a_log_for_people_keeps_its_lines(self):
        server = Server("--log-format", "text")
        self.addCleanup(server.kill)
        for path in ("/%1b%5b31m%0a2026-01-01T00:00:00Z%20error%20forged", "/x%0d%0ay"):
            server.plain("GET", path)
        log = server.log()
        self.assertIsNone(re.search(r"[\x00-\x09\x0b-\x1f\x7f-\uffff]", log))
        for line in log.splitlines():
            self.assertRegex(line, r"^\d{4}-\d\d-\d\dT\S+ (debug|info|warning) ")  # Nobody forged an error.
        server.stop()


class Settings(Case):
    def setUp(self):
        self.folder = self.scratch()

    def config(self, *flags, env=None, dotenv=None, yaml=None):
        """What agent-sandbox config says with these sources."""
        for name, text in ((".env", dotenv), ("server.yaml", yaml)):
            if text is not None:
                with open(os.path.join(self.folder, name), "w") as file:
                    file.write(text)
        words = [*(("--config", "server.yaml") if yaml is not None else ()), *flags]
        return subprocess.run([os.path.abspath(BINARY), "config", *words], cwd=self.folder,
                              env=environment(HOME=self.folder, **(env or {})),
                              capture_output=True, text=True, timeout=PATIENCE)

    def told(self, **sources):
        done = self.config(*sources.pop("flags", ()), **sources)
        self.assertEqual(done.returncode, 0, done.stderr)
        section, values = "", {}
        for line in done.stdout.splitlines():
            name, _, value = line.partition(":")
            section = section if line.startswith(" ") else ""
            if not value and not line.startswith(" "):
                section = name + "."
            else:
                values[section + name.strip()] = value.strip()
        return values

    def test_the_order(self):
        yaml = ("listen: 127.0.0.1:1111\nsessions:\n  ttl: 11s\n  idle: 11s\n  max: 11\n"
                "pool: {size: 11}\nlog: {level: error}\n")
        dotenv = ("# comment\nOTHER=1\nAGENT_SANDBOX_SESSIONS_TTL=22s\nexport AGENT_SANDBOX_SESSIONS_IDLE='22s'\n"
                  'AGENT_SANDBOX_SESSIONS_MAX="22"\n')
        env = {"AGENT_SANDBOX_SESSIONS_IDLE": "33s", "AGENT_SANDBOX_SESSIONS_MAX": "33"}
        told = self.told(flags=["--sessions-max", "44"], env=env, dotenv=dotenv, yaml=yaml)
        names = ("listen", "pool.size", "log.level", "sessions.ttl", "sessions.idle", "sessions.max")
        self.assertEqual([told[name] for name in names], ["127.0.0.1:1111", "11", "error", "22s", "33s", "44"])
        self.assertEqual(told["sessions.max_per_key"], "1000")

    def test_yaml_takes_from_the_environment(self):
        told = self.told(yaml="storage: /data/${WHERE}/x\nhosts: [a.example, b.example]\n", env={"WHERE": "here"})
        self.assertEqual((told["storage"], told["hosts"]), ("/data/here/x", "a.example,b.example"))
        done = self.config(yaml="storage: ${NOWHERE_TO_BE_FOUND}\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("NOWHERE_TO_BE_FOUND", done.stderr)

    def test_secrets_are_not_told(self):
        for sources in ({"env": {"AGENT_SANDBOX_ADMIN_KEY": "canary-value-1234"}},
                        {"dotenv": "AGENT_SANDBOX_ADMIN_KEY=canary-value-1234\n"},
                        {"yaml": "admin_key: canary-value-1234\n"}):
            done = self.config(**sources)
            self.assertEqual(done.returncode, 0)
            self.assertNotIn("canary", done.stdout + done.stderr)
            self.assertIn("not shown", done.stdout)
        # Arguments can be seen by everybody on the machine.
        self.assertNotEqual(self.config("--admin-key", "canary-value-1234").returncode, 0)

    def test_what_is_unknown_or_wrong_is_refused(self):
        for sources, word in [
                ({"env": {"AGENT_SANDBOX_SESIONS_TTL": "1s"}}, "AGENT_SANDBOX_SESIONS_TTL"),
                ({"dotenv": "\nAGENT_SANDBOX_NOPE=1\n"}, ".env:2"),
                ({"yaml": "listen: 1\nsessions:\n  tttl: 1s\n"}, "server.yaml:3"),
                ({"yaml": "sessions: 5\n"}, "sessions"),
                ({"yaml": "- a\n- b\n"}, "server.yaml"), ({"yaml": "a: [unclosed\n"}, "server.yaml"),
                ({"dotenv": "no equals sign\n"}, ".env:1"),
                ({"yaml": "sessions: {ttl: soon}\n"}, "sessions.ttl"),
                ({"env": {"AGENT_SANDBOX_SESSIONS_MAX": "-1"}}, "sessions.max"),
                ({"env": {"AGENT_SANDBOX_NO_AUTH": "perhaps"}}, "no_auth"),
                ({"env": {"AGENT_SANDBOX_LOG_LEVEL": "loud"}}, "log.level"),
                ({"yaml": "tls: {certificate: a.pem}\n"}, "tls")]:
            with self.subTest(sources=sources):
                done = self.config(**sources)
                self.assertNotEqual(done.returncode, 0, done.stdout)
                self.assertIn(word, done.stderr)
                self.folder = self.scratch()
        self.assertNotEqual(self.config("--no-such-setting", "1").returncode, 0)
        self.assertNotEqual(self.config("--config", "missing.yaml").returncode, 0)

    def test_yaml_that_explodes(self):
        bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12))
        for text in (bomb, "hosts: &a [*a]\n", "{" * 20000, "x: " + "a" * (2 << 20) + "\n", "? " * 20000,
                     "hosts: [&a [1,1],*a,*a]\n"):
            began = time.monotonic()
            self.assertNotEqual(self.config(yaml=text).returncode, 0, text[:50])
            self.assertLess(time.monotonic() - began, 10)


class Folders(Case):
    def start(self, storage):
        return subprocess.run([BINARY, "serve", "--listen", "127.0.0.1:0", "--storage", storage], capture_output=True,
                              text=True,
                              timeout=PATIENCE, env=environment(HOME=self.scratch(), AGENT_SANDBOX_ADMIN_KEY=ADMIN_KEY))

    def test_only_the_owner_can_look_in(self):
        storage = os.path.join(self.scratch(), "storage")
        old = os.umask(0)
        try:
            server = Server("--tls-self-signed", storage=storage, wait=False)
        finally:
            os.umask(old)
        self.addCleanup(server.kill)
        server.tls = ssl.create_default_context(cafile=os.path.join(storage, "tls", "certificate.pem"))
        server.wait_until_ready()
        found = {path: stat.S_IMODE(os.stat(path).st_mode) for folder, _, names in os.walk(storage)
                 for path in [folder, *(os.path.join(folder, name) for name in names)]}
        self.assertIn(os.path.join(storage, "secret.key"), found)
        self.assertEqual({path: oct(mode) for path, mode in found.items() if mode & 0o077}, {})
        server.stop()
        for name, mode in (("", 0o750), ("secret.key", 0o644)):
            path = os.path.join(storage, name)
            before = stat.S_IMODE(os.stat(path).st_mode)
            os.chmod(path, mode)
            done = self.start(storage)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("chmod", done.stderr)
            os.chmod(path, before)


if __name__ == "__main__":
    unittest.main()
