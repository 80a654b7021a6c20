"""What cells made, after their session: kept only if it is to be, for its owner, as long as its record."""
import os
import sqlite3
import unittest

from harness import run
from http_harness import ADMIN_KEY, HttpCase, Server, environment, needs_ability, until

SHOW = """
open('/workspace/note.txt', 'w').write('kept')
class Drawn:
    def _repr_png_(self): return b'picture'
Drawn()
"""


class ArtifactCase(HttpCase):
    def made(self, client=None, **fields):
        """A session that has a file and a picture."""
        session = self.session(client, **fields)
        (client or self.admin).expect(200, "POST", session + "/execute", {"code": SHOW})
        return session

    def contents(self, session, client=None):
        client = client or self.admin
        listed = client.expect(200, "GET", session + "/artifacts").json["artifacts"]
        return {one["name"]: client.expect(200, "GET", f"{session}/artifacts/{one['artifact_id']}").body for one in listed}

    def assert_kept(self, session, client=None):
        self.assertEqual(self.contents(session, client), {"note.txt": b"kept", "result-1-1.png": b"picture"})

    def assert_lost(self, session, server=None):
        self.assert_refused(self.admin.get(session + "/artifacts"), 404, "went with it")
        self.assert_refused(self.admin.get(session + "/artifacts/a1"), 404, "went with it")
        self.assertFalse(os.path.exists(self.folder(session, server)))

    def folder(self, session, server=None):
        return os.path.join((server or self.server).storage, "artifacts", session.rpartition("/")[2])


class Kept(ArtifactCase):
    def test_they_go_with_the_session(self):
        session = self.made()
        self.assertIs(self.admin.get(session).json["keep_artifacts"], False)
        self.assert_kept(session)
        self.admin.expect(204, "DELETE", session)
        self.assert_lost(session)

    def test_kept_from_the_beginning(self):
        session = self.made(keep_artifacts=True)
        before = self.admin.get(session + "/artifacts").json
        self.admin.expect(204, "DELETE", session)
        told = self.admin.expect(200, "GET", session).json
        self.assertEqual((told["state"], told["keep_artifacts"]), ("gone", True))
        self.assertEqual(self.admin.get(session + "/artifacts").json, before)
        self.assert_kept(session)
        self.assertFalse(os.path.exists(os.path.join(self.server.storage, "sessions", session.rpartition("/")[2])))

    def test_everything_else_of_it_is_gone(self):
        session = self.made(keep_artifacts=True)
        self.admin.expect(204, "DELETE", session)
        for method, path in (("GET", "/contexts"), ("POST", "/execute"), ("GET", "/commands"), ("GET", "/usage")):
            self.assert_refused(self.admin.call(method, session + path, {"code": "1"} if method == "POST" else None), 404)
        self.assert_refused(self.admin.call("PATCH", session, {"keep_artifacts": False}), 404)
        self.assert_refused(self.admin.delete(session), 404)

    def test_one_can_be_removed(self):
        session = self.made(keep_artifacts=True)
        self.admin.expect(204, "DELETE", session)
        first, second = self.admin.get(session + "/artifacts").json["artifacts"]
        self.admin.expect(204, "DELETE", f"{session}/artifacts/{first['artifact_id']}")
        self.assertEqual(self.admin.get(session + "/artifacts").json["artifacts"], [second])
        self.assert_refused(self.admin.get(f"{session}/artifacts/{first['artifact_id']}"), 404, "no such artifact")
        self.assert_refused(self.admin.delete(f"{session}/artifacts/{first['artifact_id']}"), 404, "no such artifact")
        for name in ("..", "a1.json", "%2e%2e%2fstate.db", "a99"):
            self.assertEqual(self.admin.get(f"{session}/artifacts/{name}").status, 404, name)

    def test_a_change_of_mind(self):
        kept, lost = self.made(), self.made(keep_artifacts=True)
        self.assertIs(self.admin.expect(200, "PATCH", kept, {"keep_artifacts": True}).json["keep_artifacts"], True)
        self.assertIs(self.admin.expect(200, "PATCH", lost, {"keep_artifacts": False}).json["keep_artifacts"], False)
        # What is not named stays as it is.
        self.assertIs(self.admin.expect(200, "PATCH", kept, {"labels": {"a": "b"}}).json["keep_artifacts"], True)
        for session in (kept, lost):
            self.admin.expect(204, "DELETE", session)
        self.assert_kept(kept)
        self.assert_lost(lost)

    def test_said_when_it_is_removed(self):
        kept, lost = self.made(), self.made(keep_artifacts=True)
        for word in ("yes", "1", "", "True"):
            self.assert_refused(self.admin.delete(kept, keep_artifacts=word), 400, "true or false")
        self.admin.expect(204, "DELETE", kept, keep_artifacts="true")
        self.admin.expect(204, "DELETE", lost, keep_artifacts="false")
        self.assert_kept(kept)
        self.assert_lost(lost)
        self.assertEqual([self.admin.get(session).json["keep_artifacts"] for session in (kept, lost)], [True, False])

    def test_one_that_expires(self):
        kept, lost = self.made(keep_artifacts=True), self.made()
        for session in (kept, lost):
            self.admin.expect(200, "PATCH", session, {"ttl_s": 1})
        self.assertTrue(until(lambda: {self.admin.state(kept), self.admin.state(lost)} == {"gone"}))
        self.assertTrue(until(lambda: not os.path.exists(self.folder(lost))))
        self.assert_kept(kept)
        self.assert_lost(lost)

    @needs_ability("disks")
    def test_a_persistent_one(self):
        session = self.made(persistent=True, keep_artifacts=True)
        self.admin.expect(204, "DELETE", session)
        self.assert_kept(session)

    def test_without_any(self):
        session = self.session(keep_artifacts=True)
        self.admin.expect(204, "DELETE", session)
        self.assertEqual(self.contents(session), {})

    def test_who_may_see_them(self):
        owner, other, friend = (self.admin.make_key(name=name) for name in ("owner", "other", "friend"))
        operator = self.admin.make_key("operator")
        session = self.made(owner, keep_artifacts=True)
        owner.expect(204, "POST", session + "/shares", {"key_id": friend.key_id, "access": "read-write"})
        self.assert_kept(session, friend)
        owner.expect(204, "DELETE", session)
        self.assert_kept(session, owner)
        self.assert_kept(session, operator)
        for client in (other, friend):
            for method, path in (("GET", ""), ("GET", "/a1"), ("DELETE", "/a1")):
                self.assert_refused(client.call(method, f"{session}/artifacts{path}"), 404, "no such session")
        owner.expect(204, "DELETE", session + "/artifacts/a1")
        operator.expect(204, "DELETE", session + "/artifacts/a2")
        self.assertEqual(self.contents(session, owner), {})

    def test_a_cell_that_runs_while_it_ends(self):
        session = self.made()
        with self.admin.events(session + "/execute", body={"code": "print('begun', flush=True)\nimport time\ntime.sleep(60)"}) as events:
            events.wait_for("stdout")
            self.admin.expect(204, "DELETE", session)
        self.assert_lost(session)


class Restart(ArtifactCase):
    def first(self, *flags):
        server = Server(*flags, storage=os.path.join(self.scratch(), "storage"))
        self.addCleanup(server.kill)
        return server

    def next(self, server):
        after = self.other_server(storage=server.storage)
        server.admin.server = after
        return after

    def made_in(self, server, **fields):
        session = server.admin.create(**fields)
        server.admin.expect(200, "POST", session + "/execute", {"code": SHOW})
        return session

    def age(self, server, session):
        """A record that is older than the server keeps them. Nobody else has the file open."""
        with sqlite3.connect(os.path.join(server.storage, "state.db")) as database:
            changed = database.execute("UPDATE sessions SET ended_ms = ended_ms - 25 * 3600 * 1000 WHERE id = ?",
                                       [session.rpartition("/")[2]])
            self.assertEqual(changed.rowcount, 1)
        database.close()

    def test_they_outlive_the_server_and_go_with_the_record(self):
        first = self.first()
        admin = first.admin
        old, young, lost = (self.made_in(first, keep_artifacts=keep) for keep in (True, True, False))
        for session in (old, young, lost):
            admin.expect(204, "DELETE", session)
        os.mkdir(self.folder(lost, first))  # as if the server had died before it came to that
        first.end_now()
        second = Server(storage=first.storage)
        self.addCleanup(second.kill)
        admin.server = second
        for session in (old, young):
            self.assert_kept(session, admin)
        self.assertFalse(os.path.exists(self.folder(lost, second)))
        second.end_now()
        self.age(second, old)
        third = self.next(first)
        self.assertTrue(until(lambda: not os.path.exists(self.folder(old, third))))
        self.assert_refused(admin.get(old + "/artifacts"), 404, "no such session")
        self.assert_kept(young, admin)

    def test_of_sessions_that_were_lost_with_the_server(self):
        first = self.first("--sessions-keep-for", "1s")
        kept, lost = self.made_in(first, keep_artifacts=True), self.made_in(first)
        family = first.end_now()
        self.assertTrue(until(lambda: not first.alive_of(family), within=15), first.alive_of(family))
        second = self.next(first)
        self.assertEqual({first.admin.state(kept), first.admin.state(lost)}, {"gone"})
        self.assert_kept(kept, first.admin)
        self.assertFalse(os.path.exists(self.folder(lost, second)))

    def test_of_sessions_that_go_on(self):
        first = self.first()
        session = self.made_in(first)
        first.admin.expect(200, "PATCH", session, {"keep_artifacts": True})
        first.end_now()
        self.next(first)
        self.assertIs(first.admin.get(session).json["keep_artifacts"], True)
        self.assert_kept(session, first.admin)
        first.admin.expect(204, "DELETE", session)
        self.assert_kept(session, first.admin)


class CommandLine(ArtifactCase):
    def cli(self, *words):
        done = run(*words, env=environment(AGENT_SANDBOX_URL=f"http://127.0.0.1:{self.server.port}",
                                           AGENT_SANDBOX_API_KEY=ADMIN_KEY))
        self.assert_ran(done)
        return done.stdout.decode().strip()

    def test_create_and_rm(self):
        created = "/api/sessions/" + self.cli("session", "create", "--keep-artifacts")
        other = "/api/sessions/" + self.cli("session", "create")
        for session, *words in ((created,), (other, "--keep-artifacts")):
            self.admin.expect(200, "POST", session + "/execute", {"code": SHOW})
            self.assertEqual(self.cli("session", "rm", session.rpartition("/")[2], *words), "")
            self.assert_kept(session)


if __name__ == "__main__":
    unittest.main()
