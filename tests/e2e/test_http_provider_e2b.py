"""What is particular to sessions that another server holds: where they are, how they end, what a restart finds."""
import json
import os
import sqlite3
import time
import unittest

from far_case import FAR_KEY, Far, far, sandboxes, settings, url_of
from http_harness import HttpCase, Server, until


class Itself(Far, HttpCase):
    def test_it_is_far_away_and_goes_with_its_session(self):
        before = {each["sandboxID"] for each in sandboxes(far())}
        session = self.admin.create()
        made = [each for each in sandboxes(far()) if each["sandboxID"] not in before]
        self.assertEqual(len(made), 1)
        self.assertEqual(made[0]["metadata"]["agent-sandbox-session"], session.rpartition("/")[2])
        self.assertEqual(self.admin.expect(200, "GET", session).json["provider"], "e2b")
        self.admin.expect(204, "DELETE", session)
        self.assertEqual({each["sandboxID"] for each in sandboxes(far())} - before, set())

    def test_one_that_ends_there_ends_here(self):
        session = self.session()
        mine = next(each for each in sandboxes(far())
                    if each["metadata"].get("agent-sandbox-session") == session.rpartition("/")[2])
        far().plain("DELETE", "/sandboxes/" + mine["sandboxID"], [("X-API-Key", FAR_KEY)])
        answer = self.admin.post(session + "/commands", {"command": "true"})
        self.assertIn(answer.status, (404, 410), answer)
        self.assertTrue(until(lambda: self.admin.get(session).json.get("state") == "gone"))

    def test_pause_and_resume_with_a_program(self):
        session = self.session()
        made = self.admin.start(session, "i=0; while :; do i=$((i+1)); echo $i > /workspace/n; sleep 0.05; done",
                                background=True)
        self.assertTrue(until(lambda: self.admin.run(session, "cat n || true").strip() not in ("", "0")))
        self.admin.expect(200, "POST", session + "/pause")
        self.assertEqual(self.admin.state(session), "paused")
        self.assertEqual(self.admin.post(session + "/commands", {"command": "true"}).status, 409)
        self.admin.expect(200, "POST", session + "/resume")
        first = int(self.admin.run(session, "cat n"))
        self.assertTrue(until(lambda: int(self.admin.run(session, "cat n")) > first))
        found = self.admin.expect(200, "GET", f"{session}/commands/{made['command_id']}").json
        self.assertEqual(found["status"], "running")

    def test_usage_is_told_and_isolation_is_its_word(self):
        session = self.session()
        before = self.admin.expect(200, "GET", session + "/usage").json
        self.admin.run(session, "head -c 5000000 /dev/urandom > /workspace/big")
        after = self.admin.expect(200, "GET", session + "/usage").json
        self.assertGreaterEqual(after["disk_bytes"] - before["disk_bytes"], 4_500_000)
        self.assertGreater(after["memory_bytes"], 0)
        self.admin.expect(200, "POST", session + "/pause")
        self.assertGreaterEqual(self.admin.expect(200, "GET", session + "/usage").json["disk_bytes"], after["disk_bytes"] - 65536)
        self.admin.expect(200, "POST", session + "/resume")
        facts = self.admin.expect(200, "GET", session + "/isolation").json["isolation"]
        self.assertEqual({fact["mechanism"] for fact in facts}, {"e2b"}, facts)
        self.assertNotIn("full", {fact["guarantee"] for fact in facts})

    def test_changes_of_a_folder_are_told(self):
        session = self.session()
        with self.admin.events(session + "/files/watch") as stream:
            self.assertEqual(stream.next()["event"], "watching")
            self.admin.run(session, "echo a > f; sleep 0.2; mkdir new; sleep 0.3; echo b > new/deep; rm f")
            seen = set()
            while ("removed", "f") not in seen:
                change = stream.next(10)["data"]
                seen.add((change["kind"], change["path"]))
        self.assertLessEqual({("created", "f"), ("modified", "f"), ("created", "new"), ("created", "new/deep")}, seen)

    def test_a_fork_has_the_files(self):
        session = self.session()
        self.admin.run(session, "echo one > /workspace/x")
        forked = self.admin.expect(201, "POST", session + "/fork", {"count": 2}).json["sessions"]
        self.assertEqual(len(forked), 2)
        for each in forked:
            address = "/api/sessions/" + each["session_id"]
            self.addCleanup(self.admin.delete, address)
            self.assertEqual(self.admin.expect(200, "GET", address).json["provider"], "e2b")
            self.assertEqual(self.admin.run(address, "cat x; echo two > x"), "one\n")
        self.assertEqual(self.admin.run(session, "cat x"), "one\n")

    def test_what_it_cannot_do_is_said_and_typed(self):
        for fields in ({"persistent": True}, {"volumes": [{"name": "x", "path": "/x"}]}, {"tier": "browser"},
                       {"auto_checkpoint": True}, {"environment": "folder:/tmp"},
                       {"network": {"mode": "allow", "allow": [{"host": "example.org"}]}}):
            answer = self.admin.post("/api/sessions", {"provider": "e2b", **fields})
            self.assert_refused(answer, 501, "not supported by this provider")
        session = self.session()
        for path in ("/checkpoint", "/snapshot"):
            answer = self.admin.post(session + path, {"name": "x"})
            self.assertEqual(answer.status, 501, answer)
            self.assertEqual(answer.error["code"], "unsupported")

    def test_auto_says_why(self):
        made = self.admin.expect(201, "POST", "/api/sessions", {"provider": "auto"}).json
        self.addCleanup(self.admin.delete, "/api/sessions/" + made["session_id"])
        self.assertEqual(made["provider"], "native")
        self.assertIn("first that can", made["provider_reason"])
        made = self.admin.expect(201, "POST", "/api/sessions", {"provider": "auto", "environment": "template:base"}).json
        self.addCleanup(self.admin.delete, "/api/sessions/" + made["session_id"])
        self.assertEqual(made["provider"], "e2b")
        self.assertIn("images", made["provider_reason"])
        refused = self.admin.post("/api/sessions", {"provider": "auto", "environment": "template:base", "persistent": True})
        self.assert_refused(refused, 501, "no provider")

    def test_a_life_that_it_cannot_give_is_refused_and_chosen_elsewhere(self):
        server = self.other_server("--stop-patience", "1s", env=settings(url_of(far()), max_ttl="100s"))
        listed = {each["name"]: each for each in server.admin.get("/api/providers").json["providers"]}
        self.assertEqual(listed["e2b"]["longest_life_s"], 100)
        self.assertNotIn("longest_life_s", listed["native"])
        for ttl in (101, 0):
            answer = server.admin.post("/api/sessions", {"ttl_s": ttl})
            self.assert_refused(answer, 501, "not supported by this provider: e2b cannot give a life")
        session = server.admin.create(ttl_s=100)
        self.assert_refused(server.admin.call("PATCH", session, {"ttl_s": 101}), 501, "a life of")
        server.admin.expect(200, "PATCH", session, {"ttl_s": 50})
        template = {"provider": "auto", "environment": "template:base"}
        short = server.admin.expect(201, "POST", "/api/sessions", {**template, "ttl_s": 60}).json
        self.assertEqual(short["provider"], "e2b")
        self.assertIn("a life of 60 s", short["provider_reason"])
        self.assert_refused(server.admin.post("/api/sessions", {**template, "ttl_s": 101}), 501, "no provider")
        longer = server.admin.expect(201, "POST", "/api/sessions", {"provider": "auto", "ttl_s": 0}).json
        self.assertEqual(longer["provider"], "native")

    def test_the_key_is_nowhere_to_be_seen(self):
        self.session()
        self.assertNotIn(FAR_KEY, self.server.log())
        with open(f"/proc/{self.server.pid}/cmdline", "rb") as file:
            self.assertNotIn(FAR_KEY.encode(), file.read())
        for folder, _, names in os.walk(self.server.storage):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    self.assertNotIn(FAR_KEY.encode(), file.read(), name)


class Restarts(HttpCase):
    @classmethod
    def serve(cls):
        return far()

    def setUp(self):
        super().setUp()
        self.storage = os.path.join(self.scratch(), "storage")

    def start(self, url=None):
        server = Server("--stop-patience", "1s", storage=self.storage, env=settings(url or url_of(far())))
        server.admin.provider = "e2b"
        self.addCleanup(server.kill)
        return server

    def far_ids(self):
        return {each["sandboxID"] for each in sandboxes(far())}

    def test_sessions_and_commands_go_on_after_kill(self):
        before = self.far_ids()
        first = self.start()
        session = first.admin.create()
        first.admin.run(session, "echo kept > /workspace/x")
        ticking = first.admin.start(session, "while :; do echo tick; sleep 0.1; done", background=True)
        paused = first.admin.create()
        first.admin.expect(200, "POST", paused + "/pause")
        first.end_now()
        second = self.start()
        self.assertEqual(second.admin.state(session), "ready")
        self.assertEqual(second.admin.state(paused), "paused")
        self.assertEqual(second.admin.run(session, "cat x"), "kept\n")
        address = f"{session}/commands/{ticking['command_id']}"
        found = second.admin.expect(200, "GET", address).json
        self.assertEqual(found["status"], "running")
        size = found["output_bytes"]
        self.assertTrue(until(lambda: second.admin.expect(200, "GET", address).json["output_bytes"] > size + 10))
        second.admin.expect(204, "POST", address + "/signal", {"signal": "KILL"})
        self.assertTrue(until(lambda: second.admin.expect(200, "GET", address).json["status"] == "signaled"))
        second.admin.expect(200, "POST", paused + "/resume")
        self.assertEqual(second.admin.run(paused, "echo again"), "again\n")
        second.stop()
        self.assertEqual(self.far_ids() - before, set())

    def test_what_nobody_knows_is_removed_and_nothing_else(self):
        mine = json.dumps({"templateID": "base", "timeout": 60, "metadata": {"agent-sandbox-server": "another"}}).encode()
        other = far().plain("POST", "/sandboxes", [("X-API-Key", FAR_KEY), ("Content-Type", "application/json")], mine)
        self.assertEqual(other.status, 201, other)
        foreign = other.json["sandboxID"]
        self.addCleanup(far().plain, "DELETE", "/sandboxes/" + foreign, [("X-API-Key", FAR_KEY)])
        before = self.far_ids()
        first = self.start()
        first.admin.create()
        first.end_now()
        orphan = self.far_ids() - before
        self.assertEqual(len(orphan), 1)
        # Its record is lost, its mark is not.
        with sqlite3.connect(os.path.join(self.storage, "state.db")) as database:
            database.execute("update sessions set state = 'gone'")
        self.start()
        self.assertTrue(until(lambda: not self.far_ids() & orphan, 20))
        self.assertIn(foreign, self.far_ids())

    def test_one_that_nobody_renews_ends(self):
        before = self.far_ids()
        server = Server("--stop-patience", "1s", storage=self.storage,
                        env=settings(url_of(far()), lease=15))
        self.addCleanup(server.kill)
        server.admin.provider = "e2b"
        session = server.admin.create()
        time.sleep(20)  # longer than the lease: it is renewed
        self.assertEqual(server.admin.run(session, "echo here"), "here\n")
        server.end_now()
        self.assertTrue(until(lambda: self.far_ids() == before, 30))

    def test_a_wrong_key_is_a_typed_failure(self):
        server = Server("--stop-patience", "1s", storage=self.storage,
                        env=settings(url_of(far()), key="wrong-key-0123456789"))
        self.addCleanup(server.kill)
        answer = server.admin.post("/api/sessions", {"provider": "e2b"})
        self.assertEqual((answer.status, answer.error["fault"]), (502, "platform"), answer)
        self.assertEqual(answer.error["code"], "provider")
        self.assertIn("key", answer.error["message"])
        self.assertNotIn("wrong-key-0123456789", str(answer))


if __name__ == "__main__":
    unittest.main()
