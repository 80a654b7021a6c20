"""A server as people start it, and clients whose every answer is held against the server's own /openapi.json."""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from urllib.parse import quote, urlencode

from harness import BINARY, PATIENCE, Case
from http_raw import Answer, Connection, EventStream, WebSocket, request
from http_schema import Contract, Mismatch, strict_json

ADMIN_KEY = "first-admin-key-of-the-tests"
SOON = 10  # seconds: what takes longer on a busy machine hangs


def until(condition, within=SOON, every=0.02):
    """Asks until the answer is true; gives the last one."""
    end = time.monotonic() + within
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(every)
    return answer


def descendants(pid):
    """(pid, start time) of a process's children, theirs and so on."""
    children, born = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
        born[int(name)] = fields[19]
    found, unseen = set(), [pid]
    while unseen:
        for child in children.get(unseen.pop(), []):
            found.add((child, born[child]))
            unseen.append(child)
    return found


def is_alive(pid, start):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == start and fields[0] not in "ZX"


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def running(program, below):
    """Processes below another that run a program of that name."""
    return [pid for pid, _ in descendants(below) if name_of(pid) == program]


def environment(**more):
    """Nothing of the caller's own settings, so that a test means the same everywhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_SANDBOX_", "XDG_"))}
    # Freed memory is to be given back, or the memory a test measures is that of the sanitizer's quarantine.
    kept["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"
    return {**kept, **more}


class Server:
    """One agent-sandbox serve with storage, home and working directory of its own."""

    def __init__(self, *flags, env=None, storage=None, admin_key=ADMIN_KEY, port=0, wait=True):
        self.folder = tempfile.mkdtemp(prefix="agent-sandbox-http-")
        self.storage = storage or os.path.join(self.folder, "storage")
        self.problems = []
        self.contract = None
        self.tls = None
        self.leans_on_another = False  # Its provider may fail it, which it says: 502, and the code "provider".
        self._log = open(os.path.join(self.folder, "log"), "w+b")
        words = {"HOME": self.folder, **({"AGENT_SANDBOX_ADMIN_KEY": admin_key} if admin_key else {}), **(env or {})}
        self.process = subprocess.Popen(
            [os.path.abspath(BINARY), "serve", "--listen", f"127.0.0.1:{port}", "--storage", self.storage, *flags],
            cwd=self.folder, env=environment(**words),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log)
        self.first_line = self.process.stdout.readline().decode()
        found = re.search(r"listens on (https?)://127\.0\.0\.1:([0-9]+)", self.first_line)
        if not found:
            code, log = self.process.wait(PATIENCE), self.log()
            self.kill()
            raise AssertionError(f"the server did not start ({code}): {self.first_line}{log}")
        self.scheme, self.port = found[1], int(found[2])
        self.admin = Client(self, admin_key)
        if wait:
            self.wait_until_ready()

    @property
    def pid(self):
        return self.process.pid

    @property
    def address(self):
        return "127.0.0.1", self.port

    def wait_until_ready(self):
        if not until(lambda: self.plain("GET", "/ready").status == 200, PATIENCE):
            raise AssertionError(f"not ready: {self.log()}")
        self.contract = Contract(strict_json(self.plain("GET", "/openapi.json").body))

    def plain(self, method, target, headers=(), body=b""):
        """One request on a connection of its own; the answer is not checked."""
        with self.connect() as connection:
            connection.send_while_heard(request(method, target, [*headers, ("Connection", "close")], body))
            return connection.read_answer(method)

    def connect(self, timeout=PATIENCE, room=None, source=None):
        return Connection(self.address, timeout, self.tls, room, source)

    def log(self):
        with open(self._log.name, "rb") as file:
            return file.read().decode(errors="replace")

    def resident_bytes(self):
        with open(f"/proc/{self.pid}/status") as file:
            return 1024 * int(re.search(r"VmRSS:\s+([0-9]+)", file.read())[1])

    def connections(self):
        """Those that are established, by the server's side of them."""
        own, established = f":{self.port:04X}", "01"
        with open(f"/proc/{self.pid}/net/tcp") as file:
            lines = [line.split() for line in file.readlines()[1:]]
        return sum(fields[1].endswith(own) and fields[3] == established for fields in lines)

    def open_files(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def open_files_at_rest(self):
        """As above, once what earlier tests left has gone and the pool is full."""
        seen = [self.open_files()]
        while len(seen) < 5 or len(set(seen[-5:])) > 1:
            time.sleep(0.1)
            seen.append(self.open_files())
        return seen[-1]

    def cpu_seconds(self):
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def note(self, method, path, answer):
        """Remembers where an answer is not what /openapi.json says; the test's end tells."""
        if not self.contract:
            return
        try:
            self.contract.check(method, path, answer, self.leans_on_another)
        except Mismatch as problem:
            self.problems.append(f"{method} {path} {answer.status}: {problem}")

    def stop(self, within=PATIENCE):
        """SIGTERM; then nothing of it may be left, and it must have ended well."""
        family = descendants(self.pid)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(within)
        finally:
            self._end()
        left = [pid for pid, start in family if until(lambda: not is_alive(pid, start), SOON) is False]
        log = self.log()
        shutil.rmtree(self.folder, ignore_errors=True)
        # A sanitizer's report is long, and its beginning tells most.
        report = re.search(r"==[0-9]+==ERROR|runtime error:", log)
        told = log[report.start():][:6000] if report else log[-3000:]
        assert code == 0 and not report, f"the server ended with {code}: {told}"
        assert not left, f"processes outlive the server: {left}"

    def kill(self):
        """For tests that may fail before they come to stop(); does no harm after it."""
        for pid, _ in self.end_now():
            if name_of(pid) == "asr-keeper":  # What it keeps ends with it.
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def end_now(self):
        """SIGKILL. Gives what was below it; does no harm to one that has ended."""
        family = descendants(self.pid) if self.process.poll() is None else set()
        self._end()
        return family

    def end_well(self, within=PATIENCE):
        """SIGTERM, and nothing but its exit status is looked at."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(within)
        assert code == 0, f"the server ended with {code}: {self.log()[-3000:]}"
        self._end()

    @staticmethod
    def alive_of(family):
        return [(pid, name_of(pid)) for pid, start in family if is_alive(pid, start)]

    def first_process_of(self, program):
        """The pid of the sandbox's first process that runs a program of that name."""
        runner = next(pid for pid, _ in descendants(self.pid) if name_of(pid) == program)
        with open(f"/proc/{runner}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])

    def _end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._log.close()


class Client:
    """Somebody with a key, or without one."""

    def __init__(self, server, key=None, key_id=None, provider=None):
        self.server = server
        self.key = key
        self.key_id = key_id
        self.provider = provider  # that its sessions are made at; None: the server's own choice

    def headers(self, more=()):
        own = [("Authorization", f"Bearer {self.key}")] if self.key else []
        return [*own, *(more.items() if isinstance(more, dict) else more)]

    def call(self, method, path, body=None, /, headers=(), timeout=PATIENCE, **query):
        """`body`: bytes go as they are, anything else as JSON. Every answer is checked."""
        if self.provider and (method, path) == ("POST", "/api/sessions") and isinstance(body, (dict, type(None))):
            body = {"provider": self.provider, **(body or {})}
        target = path + ("?" + urlencode(query, quote_via=quote, doseq=True) if query else "")
        fields = dict(self.headers(headers))
        if body is not None and not isinstance(body, (bytes, bytearray)) and not hasattr(body, "__next__"):
            body = json.dumps(body).encode()
            fields.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(*self.server.address, timeout=timeout)
        if self.server.tls:
            connection = http.client.HTTPSConnection(*self.server.address, timeout=timeout, context=self.server.tls)
        try:
            try:
                connection.request(method, target, body, fields)
            except (BrokenPipeError, ConnectionResetError):
                pass  # It has answered before it has read all.
            response = connection.getresponse()
            answer = Answer(response.status, response.getheaders(), response.read())
        finally:
            connection.close()
        self.server.note(method, path, answer)
        return answer

    def get(self, path, /, **more):
        return self.call("GET", path, **more)

    def post(self, path, body=None, /, **more):
        return self.call("POST", path, body, **more)

    def put(self, path, body=b"", /, **more):
        return self.call("PUT", path, body, **more)

    def delete(self, path, /, **more):
        return self.call("DELETE", path, **more)

    def expect(self, status, method, path, body=None, /, **more):
        """The answer, which has that status."""
        answer = self.call(method, path, body, **more)
        assert answer.status == status, f"{method} {path}: {answer}, not {status}"
        return answer

    def make_key(self, role="user", name="somebody", **fields):
        made = self.expect(201, "POST", "/api/keys", {"name": name, "role": role, **fields}).json
        return Client(self.server, made["key"], made["key_id"], self.provider)

    def create(self, **fields):
        """A session: its address below /api."""
        answer = self.expect(201, "POST", "/api/sessions", fields)
        return "/api/sessions/" + answer.json["session_id"]

    def state(self, session):
        return self.expect(200, "GET", session).json["state"]

    def start(self, session, command, /, **fields):
        """A command as the API tells of it; a list is argv."""
        body = {"argv" if isinstance(command, list) else "command": command, **fields}
        return self.expect(202 if fields.get("background") else 200, "POST", session + "/commands", body).json

    def run(self, session, command, /, **fields):
        """Standard output of a command that must go well."""
        done = self.start(session, command, **fields)
        assert (done["status"], done["exit_code"]) == ("exited", 0), done
        return done["stdout"]

    def events(self, path, /, headers=(), timeout=PATIENCE, body=None, **query):
        """Opens a stream of events; with a body, by POST."""
        target = path + ("?" + urlencode(query, quote_via=quote) if query else "")
        connection = self.server.connect(timeout)
        method, fields = "GET", [("Accept", "text/event-stream"), *self.headers(headers)]
        if body is not None:
            method, body = "POST", json.dumps(body).encode()
            fields.append(("Content-Type", "application/json"))
        connection.send(request(method, target, fields, body or b""))
        answer = connection.read_head()
        if answer.status != 200:
            answer.body = connection.file.read(int(answer.header("content-length")))
        self.server.note(method, path, answer)
        return EventStream(connection, answer)

    def socket(self, path, /, headers=(), room=None):
        """Opens a WebSocket."""
        socket = WebSocket(self.server.connect(room=room), path, self.headers(headers))
        self.server.note("GET", path, socket.answer)
        return socket


def needs_ability(*abilities):
    """A test that makes sense only where sessions are held by somebody who can do this; see GET /api/providers."""
    def mark(test):
        test.abilities = abilities
        return test
    return mark


_shared = {}


def shared_server(flags):
    """One for all classes of a module that want these flags; one that broke is told of at the end and replaced."""
    if flags not in _shared or _shared[flags].process.poll() is not None:
        _shared[flags] = server = Server("--stop-patience", "1s", *flags)
        unittest.addModuleCleanup(server.stop)
    return _shared[flags]


class HttpCase(Case):
    """Tests of a server. They fail, too, if any answer was not what /openapi.json says."""

    FLAGS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = cls.serve()
        cls.admin = cls.server.admin

    @classmethod
    def serve(cls):
        return shared_server(cls.FLAGS)

    def setUp(self):
        self.assertIsNone(self.server.process.poll(), "the server has ended")
        self.server.problems.clear()
        self.skip_what_the_provider_cannot_do()

    def skip_what_the_provider_cannot_do(self):
        """By its own word, which is a part of the API: what it says it can do must work."""
        if not self.admin.provider:
            return
        known = self.admin.expect(200, "GET", "/api/providers").json["providers"]
        own = next(each for each in known if each["name"] == self.admin.provider)
        abilities = {each["name"]: each for each in own["abilities"]}
        for need in getattr(getattr(self, self._testMethodName), "abilities", ()):
            if not abilities[need]["can"]:
                self.skipTest(f"{own['name']} cannot: {need} ({abilities[need]['why_not']})")

    def tearDown(self):
        self.assertEqual(self.server.problems, [])

    def other_server(self, *flags, **more):
        """Stopped and checked at the end of the test."""
        server = Server(*flags, **more)
        self.addCleanup(lambda: self.assertEqual(server.problems, []))
        self.addCleanup(server.stop)
        return server

    def session(self, client=None, **fields):
        client = client or self.admin
        session = client.create(**fields)
        self.addCleanup(self.admin.delete, session)
        return session

    def assert_refused(self, answer, status, word=None):
        """An error of that status, whose message has that word."""
        self.assertEqual(answer.status, status, answer)
        if word is not None:
            self.assertIn(word, answer.error["message"])


def in_parallel(count, work):
    """work(0) … work(count-1) in threads of their own; their results in that order. The first exception is raised."""
    results, problems = [None] * count, []

    def run(number):
        try:
            results[number] = work(number)
        except BaseException as problem:  # noqa: B902  (told below, in the caller's thread)
            problems.append(problem)
    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if problems:
        raise problems[0]
    assert not any(thread.is_alive() for thread in threads), "some have not come to an end"
    return results


class RestartCase(HttpCase):
    def first(self, *flags):
        """A server whose storage outlives it."""
        server = Server(*flags, storage=os.path.join(self.scratch(), "storage"))
        self.addCleanup(server.kill)
        return server

    def next(self, server, *flags):
        """The one after it; takes over its clients."""
        server.end_now()
        after = self.other_server(*flags, storage=server.storage)
        server.admin.server = after
        return after
