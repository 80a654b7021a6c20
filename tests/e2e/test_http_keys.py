"""Who may do what: every route of /openapi.json for every kind of caller, shares, roles, keys that end, rates."""
import json
import re
import time
import unittest

from http_harness import Client, HttpCase, in_parallel, until
from http_raw import request

CALLERS = ("nobody", "wrong", "viewer", "other", "owner", "operator", "admin")
UNKNOWN = "a" * 33
OK = "ok"
# What callers get. The viewer was given the session to read; the other is a user like the owner, and a stranger to it.
KINDS = {
    "open": {caller: OK for caller in CALLERS},
    "any key": {"nobody": 401, "wrong": 401, "viewer": OK, "other": OK, "owner": OK, "operator": OK, "admin": OK},
    "look": {"nobody": 401, "wrong": 401, "viewer": OK, "other": 404, "owner": OK, "operator": OK, "admin": OK},
    "use": {"nobody": 401, "wrong": 401, "viewer": 403, "other": 404, "owner": OK, "operator": OK, "admin": OK},
    "make": {"nobody": 401, "wrong": 401, "viewer": 403, "other": OK, "owner": OK, "operator": OK, "admin": OK},
    "own": {"nobody": 401, "wrong": 401, "viewer": 403, "other": 404, "operator": 404, "admin": 404, "owner": OK},
    "see own": {"nobody": 401, "wrong": 401, "viewer": 404, "other": 404, "operator": 404, "admin": 404, "owner": OK},
    "not shared": {"nobody": 401, "wrong": 401, "viewer": 404, "other": 404, "owner": OK, "operator": OK, "admin": OK},
    # This server was not told of any folder.
    "apply": {"nobody": 401, "wrong": 401, "viewer": 403, "other": 404, "owner": 403, "operator": 403, "admin": 403},
    "admin": {"nobody": 401, "wrong": 401, "viewer": 403, "other": 403, "owner": 403, "operator": 403, "admin": OK},
}
FILE = "?path=/workspace/f"
# operationId: kind, what follows the path, body. A route that is not here fails the test: somebody must decide.
RULES = {
    "health": ("open", "", None), "ready": ("open", "", None), "openapi": ("open", "", None),
    "docs": ("open", "", None),
    "metrics": ("any key", "", None), "listProviders": ("any key", "", None), "listEvents": ("any key", "", None),
    "listSessions": ("any key", "", None), "whoAmI": ("any key", "", None),
    "createSession": ("make", "", {}), "compatCreate": ("make", "", {}),
    "getSession": ("look", "", None), "getUsage": ("look", "", None), "getIsolation": ("look", "", None),
    "listCommands": ("look", "", None), "getCommand": ("look", "", None), "getOutput": ("look", "", None),
    "listProcesses": ("look", "", None), "stream": ("look", "", None), "readFile": ("look", FILE, None),
    "listFiles": ("look", "", None), "statFile": ("look", FILE, None), "downloadArchive": ("look", "", None),
    "watchFiles": ("look", "", None), "getPreview": ("look", "?port=8080", None),
    "changeSession": ("use", "", {"labels": {"changed": "1"}}), "deleteSession": ("use", "", None),
    "pauseSession": ("use", "", None), "resumeSession": ("use", "", None),
    "shareSession": ("use", "", {"key_id": "{key}", "access": "read"}), "unshareSession": ("use", "", None),
    "runCommand": ("use", "", {"command": "true"}), "writeStdin": ("use", "", {"data": "x"}),
    "signalCommand": ("use", "", {"signal": "CONT"}), "resizeTerminal": ("use", "", {"rows": 5, "columns": 5}),
    "writeFile": ("use", FILE, b"changed"), "removeFile": ("use", FILE, None),
    "uploadArchive": ("use", "", b"\0" * 1024),
    "makeDirectory": ("use", "", {"path": "/workspace/d"}),
    "moveFile": ("use", "", {"from": "/workspace/f", "to": "/workspace/g"}),
    "copyFile": ("use", "", {"from": "/workspace/f", "to": "/workspace/g"}),
    "compatExecute": ("use", "", {"session_id": "{id}", "command": "true"}),
    "compatExecuteCode": ("use", "", {"session_id": "{id}", "code": "true", "language": "bash"}),
    "compatListFiles": ("look", "", None),
    "compatWriteFile": ("use", "", {"session_id": "{id}", "path": "/workspace/f", "content": "as it was"}),
    "compatCleanup": ("use", "", {"session_id": "{id}"}),
    "createKey": ("admin", "", {"name": "made"}), "listKeys": ("admin", "", None), "revokeKey": ("admin", "", None),
    "listAudit": ("admin", "", None), "verifyAudit": ("admin", "", None),
    "createWebhook": ("make", "", {"url": "https://hooks.example/x", "events": ["session.paused"]}),
    "listWebhooks": ("any key", "", None),
    "deleteWebhook": ("own", "", None),
    "getUsageHistory": ("look", "", None), "getHistory": ("look", "", None), "getNetwork": ("look", "", None),
    "setNetwork": ("use", "", {"mode": "allow", "allow": []}),
    "listContexts": ("look", "", None), "getContext": ("look", "", None), "listArtifacts": ("look", "", None),
    "getArtifact": ("look", "", None),
    "executeCode": ("use", "", {"code": "true", "language": "bash"}), "createContext": ("use", "", {"language": "bash"}),
    "removeContext": ("use", "", None), "restartContext": ("use", "", None), "interruptContext": ("use", "", None),
    "answerInput": ("use", "", {"text": "x"}), "completeCode": ("use", "", {"text": "pri"}),
    "removeArtifact": ("use", "", None),
    "createVolume": ("make", "", {"name": "{new}", "size": "16M"}), "listVolumes": ("any key", "", None),
    "getVolume": ("see own", "", None), "deleteVolume": ("own", "", None),
    "submitBatch": ("make", "", {"items": [{"id": "a", "code": "true", "language": "bash"}]}),
    "listBatches": ("any key", "", None), "getBatch": ("not shared", "", None), "readVerdicts": ("not shared", "", None),
    "cancelBatch": ("use", "", None),
    "saveCheckpoint": ("use", "", {"name": "{new}"}), "listCheckpoints": ("look", "", None),
    "removeCheckpoint": ("use", "", None), "rollBack": ("use", "", {"name": "saved"}), "undo": ("use", "", None),
    "forkSession": ("use", "", {"ttl_s": 60}), "mergeSession": ("use", "", {"from": "{branch}"}),
    "showTree": ("look", "", None), "saveSnapshot": ("use", "", {"name": "{new}"}),
    "getDiff": ("look", "", None), "applyChanges": ("apply", "", {"folder": "/srv/none"}),
    "listSnapshots": ("any key", "", None), "removeSnapshot": ("own", "", None),
}
# After these the session is not as it was, so the next caller gets a new one.
USE_IT_UP = {"deleteSession", "pauseSession", "resumeSession", "unshareSession", "removeFile", "moveFile",
             "compatCleanup", "removeContext", "removeArtifact", "rollBack", "removeCheckpoint"}
# There is nothing to do at the moment, which only those learn who might.
IN_VAIN = {"interruptContext", "answerInput", "undo"}


def filled(value, names):
    """Puts the values of {names} into a text, or into the texts of a body."""
    if isinstance(value, dict):
        return {key: filled(each, names) for key, each in value.items()}
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], value) if isinstance(value, str) else value


class Scene:
    """A session with a file, a terminal and a guest, as every operation finds it."""

    def __init__(self, case, paused):
        self.case = case
        owner = case.callers["owner"]
        self.session = case.session(owner, files=[{"path": "/workspace/f", "content": "as it was"}],
                                    network={"mode": "allow", "allow": []})
        command = owner.start(self.session, "cat", background=True, pty={})
        made = owner.expect(200, "POST", self.session + "/execute", {"code": "echo x > /workspace/made", "language": "bash"})
        viewer, spare = case.callers["viewer"].key_id, case.spare.key_id
        for key in (viewer, spare):
            owner.expect(204, "POST", self.session + "/shares", {"key_id": key, "access": "read"})
        owner.expect(201, "POST", self.session + "/checkpoint", {"name": "saved"})
        if paused:
            owner.expect(200, "POST", self.session + "/pause")
        id = self.session.rsplit("/", 1)[1]
        self.names = {"id": id, "name": "saved", "new": "new", "branch": id, "command": command["command_id"], "key": spare,
                      "context": "bash", "artifact": made.json["artifacts"][0]["artifact_id"]}

    def look(self):
        """What must be the same after a call that was refused."""
        admin = self.case.admin
        told = admin.get(self.session).json
        commands = admin.get(self.session + "/commands").json["commands"]
        file = admin.get(self.session + "/files", path="/workspace/f")
        return told["state"], told["labels"], len(commands), file.status, file.body if file.status == 200 else b"", [
            entry["name"] for entry in admin.get(self.session + "/files/list").json.get("entries", [])]


class Matrix(HttpCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        admin = cls.admin
        cls.callers = {"nobody": Client(cls.server), "wrong": Client(cls.server, "asr_" + "0" * 32), "admin": admin,
                       "owner": admin.make_key(), "other": admin.make_key(),
                       "viewer": admin.make_key(role="viewer"), "operator": admin.make_key(role="operator")}
        cls.spare = admin.make_key()
        cls.known = {client for name, client in cls.callers.items() if name not in ("nobody", "wrong")}
        cls.strangers = cls.names_made = 0

    def ask(self, client, method, target, body):
        """The status of an answer; what streams is let go after its head."""
        headers = client.headers([("Connection", "close"), ("Accept", "text/event-stream")])
        if isinstance(body, dict):
            headers.append(("Content-Type", "application/json"))
            body = json.dumps(body).encode()
        # Who has no key comes from another address each time, or would soon be told to wait.
        self.strangers += client not in self.known
        source = f"127.0.1.{self.strangers % 250 + 1}" if client not in self.known else None
        with self.server.connect(source=source) as connection:
            connection.send_while_heard(request(method, target, headers, body or b""))
            answer = connection.read_head()
            if answer.header("content-length") and method != "HEAD":
                answer.body = connection.file.read(int(answer.header("content-length")))
        if answer.status >= 400:
            self.server.note(method, target, answer)
        return answer

    def test_every_route_has_a_rule(self):
        described = {operation["operationId"] for operation in self.server.contract.operations.values()}
        self.assertEqual(described - set(RULES), set(), "decide who may call these")
        self.assertEqual(set(RULES) - described, set(), "these are no more")

    def test_every_route_for_every_caller(self):
        scene = Scene(self, False)
        for (method, path), operation in self.server.contract.operations.items():
            name = operation["operationId"]
            kind, tail, body = RULES.get(name, ("admin", "", None))
            if name == "resumeSession":
                scene = Scene(self, True)
            before = scene.look()
            for caller in [each for each in CALLERS if KINDS[kind][each] != OK]:
                self.check(caller, KINDS[kind][caller], name, method, path + tail, body, scene)
            self.assertEqual(scene.look(), before, f"{name} was refused and changed something")
            for caller in [each for each in CALLERS if KINDS[kind][each] == OK]:
                self.check(caller, OK, name, method, path + tail, body, scene)
                if name in USE_IT_UP:
                    scene = Scene(self, name == "resumeSession" and caller != CALLERS[-1])

    def check(self, caller, expected, name, method, target, body, scene):
        self.names_made += 1
        names = {**scene.names, "new": f"v{self.names_made}", "volume": f"v{self.names_made}"}
        if name in ("getVolume", "deleteVolume"):
            self.callers["owner"].expect(201, "POST", "/api/volumes", {"name": names["volume"], "size": "16M"})
        if name in ("getBatch", "readVerdicts", "cancelBatch"):
            made = self.callers["owner"].expect(202, "POST", "/api/batch", {**RULES["submitBatch"][2], "background": True})
            names["batch"] = made.json["batch_id"]
        if name == "mergeSession":
            made = self.callers["owner"].expect(201, "POST", scene.session + "/fork", {"ttl_s": 60})
            names["branch"] = made.json["sessions"][0]["session_id"]
        if name == "removeSnapshot":
            names["name"] = names["new"]
            self.callers["owner"].expect(201, "POST", scene.session + "/snapshot", {"name": names["new"]})
        if name == "revokeKey":
            names["key"] = self.admin.make_key().key_id
        if name == "deleteWebhook":
            hook = self.callers["owner"].expect(201, "POST", "/api/webhooks", RULES["createWebhook"][2])
            names["webhook"] = hook.json["webhook_id"]
        answer = self.ask(self.callers[caller], method, filled(target, names), filled(body, names))
        with self.subTest(operation=name, caller=caller):
            if expected == OK:
                self.assertIn(answer.status, (200, 201, 202, 204) + ((409,) if name in IN_VAIN else ()), answer)
            else:
                self.assertEqual(answer.status, expected, answer)

    def test_foreign_and_unknown_look_alike(self):
        scene = Scene(self, False)
        other = self.callers["other"]
        for (method, path), operation in self.server.contract.operations.items():
            name = operation["operationId"]
            kind, tail, body = RULES.get(name, ("open", "", None))
            if "{id}" not in path + str(body):
                continue
            answers = []
            for id in (scene.names["id"], UNKNOWN):
                names = {**scene.names, "id": id}
                answer = self.ask(other, method, filled(path + tail, names), filled(body, names))
                own = [(key, value) for key, value in answer.headers if key.lower() not in ("date", "traceparent")]
                answers.append((answer.status, own, re.sub(rb'"trace_id":"\w+"', b"", answer.body)))
            with self.subTest(operation=name):
                self.assertEqual(answers[0], answers[1])
                self.assertEqual(answers[0][0], 404)

    def test_foreign_events_are_not_told(self):
        scene = Scene(self, False)
        other, owner = self.callers["other"], self.callers["owner"]
        for query in ({}, {"session_id": scene.names["id"]}):
            told = other.expect(200, "GET", "/api/events", limit=1000, **query).json["events"]
            self.assertNotIn(scene.names["id"], {event["session_id"] for event in told})
        self.assertTrue(owner.get("/api/events", session_id=scene.names["id"]).json["events"])


class Roles(HttpCase):
    def test_who_sees_which_sessions(self):
        one, two = self.admin.make_key(), self.admin.make_key()
        mine, theirs = self.session(one), self.session(two)

        def listed(client):
            told = client.get("/api/sessions", limit=1000).json["sessions"]
            return {"/api/sessions/" + each["session_id"] for each in told}
        self.assertEqual((listed(one), listed(two)), ({mine}, {theirs}))
        self.assertLessEqual({mine, theirs}, listed(self.admin.make_key(role="operator")))
        self.assertEqual(listed(self.admin.make_key(role="viewer")), set())

    def test_folders_of_the_server_are_for_operators(self):
        user, operator = self.admin.make_key(), self.admin.make_key(role="operator")
        for environment in ("folder:/", "folder:/etc", "tar:/etc/passwd"):
            self.assert_refused(user.post("/api/sessions", {"environment": environment}), 403)
        self.assertNotEqual(operator.post("/api/sessions", {"environment": "folder:/nowhere"}).status, 403)

    def test_keys_tell_their_secret_once(self):
        made = self.admin.expect(201, "POST", "/api/keys", {"name": "once", "role": "user"}).json
        self.assertGreaterEqual(len(made["key"]), 32)
        answer = self.admin.expect(200, "GET", "/api/keys")
        self.assertNotIn(made["key"].encode(), answer.body)
        told = next(each for each in answer.json["keys"] if each["key_id"] == made["key_id"])
        self.assertTrue(made["key"].startswith(told["prefix"]))
        self.assertLess(len(told["prefix"]), len(made["key"]) / 2)

    def test_bad_keys_are_not_made(self):
        for body, place in [({}, "name"), ({"name": ""}, "/name"), ({"name": "x", "role": "root"}, "/role"),
                            ({"name": "x", "ttl_s": 0}, "/ttl_s"), ({"name": "x", "key": "chosen"}, "/key"),
                            ({"name": "x", "max_sessions": 0}, "/max_sessions")]:
            self.assert_refused(self.admin.post("/api/keys", body), 400, place)

    def test_a_revoked_key_opens_nothing(self):
        key = self.admin.make_key()
        key.expect(200, "GET", "/api/me")
        self.admin.expect(204, "DELETE", f"/api/keys/{key.key_id}")
        key.expect(401, "GET", "/api/me")
        told = next(each for each in self.admin.get("/api/keys").json["keys"] if each["key_id"] == key.key_id)
        self.assertIsNotNone(told["revoked_at"])
        self.admin.expect(404, "DELETE", "/api/keys/nobody")

    def test_a_key_expires(self):
        key = self.admin.make_key(ttl_s=1)
        key.expect(200, "GET", "/api/me")
        self.assertTrue(until(lambda: key.get("/api/me").status == 401, 5, every=0.2))

    def test_the_audit_knows_who(self):
        key = self.admin.make_key()
        session = self.session(key)
        key.start(session, "true")
        key.expect(204, "DELETE", session)

        def actions():
            entries = self.admin.expect(200, "GET", "/api/audit", limit=1000).json["entries"]
            return [(entry["action"], entry["target"]) for entry in entries if entry["actor"] == key.key_id]
        id = session.rsplit("/", 1)[1]
        self.assertTrue(until(lambda: len(actions()) == 3))
        self.assertEqual({("session.create", id), ("command.start", id), ("session.delete", id)}, set(actions()))


class Shares(HttpCase):
    def setUp(self):
        super().setUp()
        self.owner, self.guest = self.admin.make_key(), self.admin.make_key()
        self.box = self.session(self.owner)

    def share(self, access, status=204, by=None, to=None):
        return (by or self.owner).expect(status, "POST", self.box + "/shares",
                                         {"key_id": to or self.guest.key_id, "access": access})

    def test_read(self):
        self.share("read")
        self.guest.expect(200, "GET", self.box)
        self.guest.expect(200, "GET", self.box + "/files/list")
        self.assertEqual(len(self.guest.get("/api/sessions").json["sessions"]), 1)
        self.guest.expect(403, "POST", self.box + "/commands", {"command": "true"})
        self.guest.expect(403, "PUT", self.box + "/files", b"x", path="/workspace/x")
        self.guest.expect(403, "DELETE", self.box)

    def test_read_and_write(self):
        self.share("read-write")
        self.assertEqual(self.guest.run(self.box, "echo hi"), "hi\n")
        stranger = self.admin.make_key()
        self.share("read", 403, by=self.guest, to=stranger.key_id)
        self.guest.expect(403, "DELETE", f"{self.box}/shares/{self.guest.key_id}")
        stranger.expect(404, "GET", self.box)

    def test_a_viewer_stays_a_viewer(self):
        viewer = self.admin.make_key(role="viewer")
        self.share("read-write", to=viewer.key_id)
        viewer.expect(200, "GET", self.box)
        viewer.expect(403, "POST", self.box + "/commands", {"command": "true"})

    def test_taken_back(self):
        self.share("read-write")
        self.owner.expect(204, "DELETE", f"{self.box}/shares/{self.guest.key_id}")
        self.guest.expect(404, "GET", self.box)
        self.assertEqual(self.guest.get("/api/sessions").json["sessions"], [])
        self.owner.expect(404, "DELETE", f"{self.box}/shares/{self.guest.key_id}")

    def test_shares_that_make_no_sense(self):
        self.share("read", 404, to="knobody")
        self.share("write", 400)
        self.assert_refused(self.owner.post(self.box + "/shares", {"access": "read"}), 400, "key_id")


class Headers(HttpCase):
    def status(self, *headers, target="/api/me"):
        answer = self.server.plain("GET", target, headers)
        self.server.note("GET", "/api/me", answer)
        return answer.status

    def test_forms_of_a_key(self):
        key = self.admin.key
        for headers, status in [
                ([("Authorization", f"Bearer {key}")], 200), ([("X-API-Key", key)], 200), ([("x-api-key", key)], 200),
                ([("authorization", f"bearer {key}")], 200), ([], 401), ([("Authorization", key)], 401),
                ([("Authorization", f"Basic {key}")], 401), ([("Authorization", "Bearer ")], 401),
                ([("Authorization", "Bearer")], 401),
                ([("X-API-Key", "")], 401), ([("X-API-Key", key[:-1])], 401), ([("X-API-Key", key + "x")], 401),
                ([("Authorization", f"Bearer {key},")], 401), ([("Cookie", f"key={key}")], 401),
                ([("X-API-Key", key.upper())], 401),
                ([("Authorization", f"Bearer {key}"), ("Authorization", f"Bearer {key}")], 400),
                ([("Authorization", f"Bearer {key}"), ("X-API-Key", key)], 400),
                ([("X-API-Key", key), ("X-API-Key", "y")], 400)]:
            with self.subTest(headers=headers):
                self.assertEqual(self.status(*headers), status)

    def test_not_in_the_address(self):
        self.assertEqual(self.status(target=f"/api/me?key={self.admin.key}&api_key={self.admin.key}"), 401)

    def test_how_to_ask_is_told(self):
        answer = Client(self.server).get("/api/me")
        self.assertEqual(answer.header("www-authenticate"), "Bearer")
        self.assertIn("X-API-Key", answer.error["hint"])


class Rates(HttpCase):
    FLAGS = ("--rate-per-key", "5")

    def test_of_one_key(self):
        key, other = self.admin.make_key(), self.admin.make_key()
        answers = in_parallel(30, lambda number: key.get("/api/me", headers={"X-Forwarded-For": f"10.0.0.{number}"}))
        refused = [answer for answer in answers if answer.status == 429]
        self.assertGreaterEqual(len(answers) - len(refused), 5)
        self.assertGreaterEqual(len(refused), 5)
        self.assertEqual(refused[0].error["fault"], "limit")
        wait = int(refused[0].header("retry-after"))
        self.assertTrue(1 <= wait <= 10)
        other.expect(200, "GET", "/api/me")
        time.sleep(wait)
        key.expect(200, "GET", "/api/me")


class WrongKeys(HttpCase):
    def test_from_one_address(self):
        answers = in_parallel(100, lambda number: Client(self.server, f"guess-number-{number:020}").get(
            "/api/me", headers={"X-Forwarded-For": f"10.0.0.{number}", "Forwarded": f"for=10.0.0.{number}"}))
        self.assertLessEqual({answer.status for answer in answers}, {401, 429})
        refused = [answer for answer in answers if answer.status == 429]
        self.assertGreater(len(refused), 10)
        self.assertGreaterEqual(int(refused[0].header("retry-after")), 1)
        self.admin.expect(200, "GET", "/api/me")  # Whoever has a key is not shut out by those who guess.


if __name__ == "__main__":
    unittest.main()
