"""A server that is killed under load, over and over: nothing acknowledged is lost, nothing is left behind.

ROUNDS=100 SESSIONS=100 in the environment make the long form of it (./dev leaks).
"""
import glob
import http.client
import json
import os
import random
import socket
import threading
import time
import unittest

from harness import PATIENCE
from http_harness import ADMIN_KEY, HttpCase, Server, until

ROUNDS = int(os.environ.get("ROUNDS", "4"))
SESSIONS = int(os.environ.get("SESSIONS", "12"))
WORKERS = 6
MOST_DOWN = float(os.environ.get("MOST_DOWN", "0"))  # seconds until it serves again; 0: not judged


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Ledger:
    """What the server has acknowledged. What was under way when it died may be or not be."""

    def __init__(self):
        self.lock = threading.Lock()
        self.alive, self.gone, self.unsure, self.labels = {}, set(), set(), {}
        self.settled = []  # of those alive, whose maker has done with them
        self.keys = {}  # id: whether it is revoked

    def made(self, session, token):
        with self.lock:
            self.alive[session] = token

    def choose_victim(self, keep):
        """One to be ended, if there are more than `keep`."""
        with self.lock:
            if len(self.alive) <= keep or not self.settled:
                return None
            session = self.settled.pop(random.randrange(len(self.settled)))
            self.unsure.add(session)
            del self.alive[session]
            return session

    def ended(self, session):
        with self.lock:
            self.unsure.discard(session)
            self.gone.add(session)


class Worker(threading.Thread):
    """Makes sessions, uses them, ends them, until the server is gone."""

    def __init__(self, port, ledger, keep):
        super().__init__(daemon=True)
        self.port, self.ledger, self.keep, self.problem = port, ledger, keep, None

    def call(self, method, path, body=None, expected=(200, 201, 202, 204)):
        self.connection.request(method, path, json.dumps(body) if body is not None else None,
                                {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"})
        answer = self.connection.getresponse()
        data = answer.read()
        if answer.status not in expected:
            raise AssertionError(f"{method} {path}: {answer.status} {data[:300]!r}")
        return json.loads(data) if data else None

    def run(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            while True:
                self.step()
        except (OSError, http.client.HTTPException):
            pass  # Killed, as it should be.
        except BaseException as problem:  # noqa: B902  (told by the main thread)
            self.problem = problem
        finally:
            self.connection.close()

    def step(self):
        token = f"{random.getrandbits(64):x}"
        made = self.call("POST", "/api/sessions", {"labels": {"token": token}, "files": [
            {"path": "/workspace/token", "content": token}]})
        session = made["session_id"]
        self.ledger.made(session, token)
        path = f"/api/sessions/{session}"
        done = self.call("POST", path + "/commands", {"command": "cat token"})
        assert done["stdout"] == token, done
        label = f"{random.getrandbits(32):x}"
        self.call("PATCH", path, {"labels": {"token": token, "changed": label}})
        with self.ledger.lock:
            self.ledger.labels[session] = label
        key = self.call("POST", "/api/keys", {"name": "x"})["key_id"]
        with self.ledger.lock:
            self.ledger.keys[key] = False
        self.call("DELETE", f"/api/keys/{key}")
        with self.ledger.lock:
            self.ledger.keys[key] = True
            self.ledger.settled.append(session)
        if victim := self.ledger.choose_victim(self.keep):
            self.call("DELETE", f"/api/sessions/{victim}")
            self.ledger.ended(victim)


def leftovers(runtime, storage):
    """What a server that has ended may not leave on the machine."""
    with open("/proc/self/mounts") as mounts:
        found = [line.split()[1] for line in mounts if storage in line or runtime in line]
    for backing in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(backing) as file:
                found += [backing] if storage in file.read() else []
        except OSError:
            pass
    found += [entry for entry in glob.glob(runtime + "/*/*") if not entry.endswith(("/lock", "/daemon"))]
    return found


class Crash(HttpCase):
    def start(self):
        began = time.monotonic()
        server = Server("--runtime-dir", self.runtime, "--sessions-max-per-key", "5000",
                        "--rate-per-key", "0", "--rate-per-address", "0", storage=self.storage, port=self.port)
        self.addCleanup(server.kill)
        self.down.append(time.monotonic() - began)
        return server

    def check(self, server, ledger):
        """Everything acknowledged is so."""
        for session, token in ledger.alive.items():
            path = f"/api/sessions/{session}"
            told = server.admin.expect(200, "GET", path).json
            self.assertEqual(told["state"], "ready", told)
            self.assertEqual(told["labels"]["token"], token)
            if session in ledger.labels:
                self.assertEqual(told["labels"].get("changed"), ledger.labels[session])
            self.assertEqual(server.admin.run(path, "cat token"), token)
        for session in random.sample(sorted(ledger.gone), min(20, len(ledger.gone))):
            self.assertEqual(server.admin.state(f"/api/sessions/{session}"), "gone")
        listed = {key["key_id"]: key["revoked_at"] is not None for key in server.admin.get("/api/keys").json["keys"]}
        for key, revoked in ledger.keys.items():
            self.assertIn(key, listed)
            if revoked:
                self.assertTrue(listed[key], "a revoked key is valid again")
        # Sessions nobody was told of: made when the server died. They belong to nobody's ledger.
        alive, cursor = set(), ""
        while cursor is not None:
            page = server.admin.get("/api/sessions", limit=1000, **({"cursor": cursor} if cursor else {})).json
            alive |= {session["session_id"] for session in page["sessions"]}
            cursor = page["next_cursor"]
        for session in alive - set(ledger.alive) - {self.persistent}:
            self.assertNotIn(session, ledger.gone)
            server.admin.delete(f"/api/sessions/{session}")
            ledger.unsure.discard(session)
        self.assertEqual(set(ledger.alive) - alive, set())

    def test_killed_under_load(self):
        scratch = self.scratch()
        self.storage, self.runtime = os.path.join(scratch, "storage"), os.path.join(scratch, "run")
        self.port, self.down = free_port(), []
        ledger = Ledger()
        server = self.start()
        persistent = server.admin.create(persistent=True)
        self.persistent = persistent.rsplit("/", 1)[1]
        server.admin.run(persistent, "echo kept > file")
        counter = server.admin.start(persistent, "i=0; while :; do echo $i; i=$((i+1)); sleep 0.05; done",
                                     background=True)["command_id"]
        for number in range(ROUNDS):
            workers = [Worker(self.port, ledger, SESSIONS) for _ in range(WORKERS)]
            for worker in workers:
                worker.start()
            if number == 0:
                self.assertTrue(until(lambda: len(ledger.alive) >= SESSIONS or any(w.problem for w in workers),
                                      within=120))
            time.sleep(random.uniform(0.1, 1.0))
            server.end_now()
            for worker in workers:
                worker.join(PATIENCE)
                if worker.problem:
                    raise worker.problem
            server = self.start()
            self.check(server, ledger)
            self.assertEqual(server.admin.run(persistent, "cat file"), "kept\n")
        told = server.admin.expect(200, "GET", f"{persistent}/commands/{counter}").json
        self.assertEqual(told["status"], "running")
        # A server that dies between reading a piece and writing it down takes that piece along: one each time at most.
        numbers = [int(number) for number in told["stdout"].split()]
        self.assertEqual(numbers, sorted(set(numbers)), "output came twice")
        missing = numbers[-1] + 1 - len(numbers)
        self.assertLessEqual(missing, ROUNDS, "output was lost")
        verdict = server.admin.expect(200, "GET", "/api/audit/verify").json
        self.assertTrue(verdict["ok"], verdict)
        print(f"{ROUNDS} rounds, {len(ledger.alive)} sessions alive, {len(ledger.gone)} ended, {missing} lines of {numbers[-1] + 1} lost; serving again after "
              f"{max(self.down[1:]):.2f} s at most, {sorted(self.down)[len(self.down) // 2]:.2f} s usually", flush=True)
        for session in [*ledger.alive, self.persistent]:
            server.admin.expect(204, "DELETE", f"/api/sessions/{session}")
        self.assertEqual(os.listdir(os.path.join(self.storage, "sessions")), [])
        server.stop()
        self.assertEqual(leftovers(self.runtime, self.storage), [])
        if MOST_DOWN:
            self.assertLessEqual(max(self.down[1:]), MOST_DOWN)


if __name__ == "__main__":
    unittest.main()
