"""Servers that are killed or stopped, and what the next one on the same storage finds."""
import os
import signal
import time
import unittest

from http_harness import RestartCase, Server, is_alive, until
from http_raw import request


class Restart(RestartCase):
    def test_a_session_goes_on_after_the_server_was_killed(self):
        first = self.first()
        admin = first.admin
        session = admin.create(env={"SECRET": "a-word"}, labels={"of": "mine"}, ttl_s=1000)
        admin.run(session, "echo kept > file; cd /tmp; nohup sleep 1000 >/dev/null 2>&1 &")
        before = admin.expect(200, "GET", session).json
        self.next(first)
        after = admin.expect(200, "GET", session).json
        for name in ("state", "owner", "labels", "limits", "created_at", "expires_at", "isolation"):
            self.assertEqual(after[name], before[name], name)
        self.assertEqual(admin.run(session, "cat file; echo $SECRET; pgrep -c sleep"), "kept\na-word\n1\n")

    def test_interpreters_keep_their_variables(self):
        first = self.first()
        admin = first.admin
        session = admin.create(limits={"cpus": 2})
        execute = lambda **cell: admin.expect(200, "POST", session + "/execute", cell).json
        other = admin.expect(201, "POST", session + "/contexts", {"language": "python"}).json["context_id"]
        execute(code="x = 41; open('/workspace/made', 'w').write('made')")
        execute(code="x = 'other'", context=other)
        execute(code="Y=5", language="bash")
        self.next(first)
        answer = execute(code="x + 1")
        self.assertEqual((answer["results"][0]["text/plain"], answer["restarted"]), ("42", False))
        self.assertEqual(execute(code="x", context=other)["results"][0]["text/plain"], "'other'")
        self.assertEqual(execute(code="echo $Y", language="bash")["stdout"], "5\n")
        (artifact,) = admin.expect(200, "GET", session + "/artifacts").json["artifacts"]
        self.assertEqual(admin.expect(200, "GET", f"{session}/artifacts/{artifact['artifact_id']}").body, b"made")
        self.assertNotEqual(admin.expect(201, "POST", session + "/contexts", {}).json["context_id"], other)

    def test_secrets_are_not_readable_in_the_storage(self):
        first = self.first()
        session = first.admin.create(env={"SECRET": "canary-of-the-environment"})
        first.admin.run(session, ["/bin/true"], env={"OTHER": "canary-of-the-command"}, stdin="canary-of-the-input")
        found = []
        for folder, _, names in os.walk(first.storage):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    if b"canary-of" in file.read():
                        found.append(name)
        self.assertEqual(found, [])
        first.stop()

    def test_commands_go_on_and_lose_no_output(self):
        first = self.first()
        admin = first.admin
        session = admin.create()
        ended = admin.start(session, "echo out; echo err >&2; exit 3")
        counting = admin.start(session, "i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); sleep 0.01; done",
                               background=True)["command_id"]
        waiting = admin.start(session, ["cat"], background=True, stdin_open=True)["command_id"]
        until(lambda: admin.get(f"{session}/commands/{counting}").json["output_bytes"] > 100)
        self.next(first)
        told = admin.expect(200, "GET", f"{session}/commands/{ended['command_id']}").json
        self.assertEqual({name: told[name] for name in ended}, ended)
        done = admin.expect(200, "GET", f"{session}/commands/{counting}", wait_s=30).json
        self.assertEqual((done["status"], done["exit_code"]), ("exited", 0))
        self.assertEqual(done["stdout"].split(), [str(number) for number in range(400)])
        admin.expect(204, "POST", f"{session}/commands/{waiting}/stdin", {"data": "hello\n", "eof": True})
        done = admin.expect(200, "GET", f"{session}/commands/{waiting}", wait_s=30).json
        self.assertEqual((done["status"], done["stdout"]), ("exited", "hello\n"))
        self.assertNotIn(admin.start(session, ["/bin/true"])["command_id"], (counting, waiting, ended["command_id"]))

    def test_a_command_whose_caller_waits_goes_on(self):
        first = self.first()
        admin = first.admin
        session = admin.create()
        with first.connect() as connection:
            connection.send(request("POST", session + "/commands",
                                    admin.headers([("Content-Type", "application/json")]),
                                    b'{"command":"echo begun; sleep 2; echo done"}'))
            self.assertTrue(until(lambda: [c for c in admin.get(session + "/commands").json["commands"]
                                           if c["output_bytes"] > 0]))
            time.sleep(0.2)
            self.next(first)
        command, = admin.expect(200, "GET", session + "/commands").json["commands"]
        done = admin.expect(200, "GET", f"{session}/commands/{command['command_id']}", wait_s=30).json
        self.assertEqual((done["status"], done["stdout"]), ("exited", "begun\ndone\n"))

    def test_a_paused_session_is_paused_still(self):
        first = self.first()
        session = first.admin.create()
        first.admin.expect(200, "POST", session + "/pause")
        self.next(first)
        self.assertEqual(first.admin.state(session), "paused")
        first.admin.expect(200, "POST", session + "/resume")
        self.assertEqual(first.admin.run(session, "echo alive"), "alive\n")

    def test_what_expired_meanwhile_has_ended(self):
        first = self.first()
        admin = first.admin
        by_age, by_idleness, staying = admin.create(ttl_s=1), admin.create(idle_s=1), admin.create()
        first.end_now()
        time.sleep(1.5)
        self.next(first)
        self.assertTrue(until(lambda: {admin.state(by_age), admin.state(by_idleness)} == {"gone"}))
        self.assertEqual(admin.state(staying), "ready")

    def test_without_a_next_server_they_end(self):
        first = self.first("--sessions-keep-for", "1s")
        session = first.admin.create()
        first.admin.run(session, "echo x")
        family = first.end_now()
        self.assertTrue(until(lambda: not first.alive_of(family), within=15), first.alive_of(family))
        self.next(first)
        told = first.admin.expect(200, "GET", session).json
        self.assertEqual((told["state"], told["end_reason"]), ("gone", "lost when the server ended"))
        self.assertEqual(os.listdir(os.path.join(first.storage, "sessions")), [])

    def test_a_session_whose_sandbox_dies_is_gone_at_once(self):
        first = self.first()
        session = first.admin.create()
        with first.admin.events("/api/events") as events:
            first.admin.start(session, ["sleep", "1000"], background=True)
            os.kill(first.first_process_of("sleep"), signal.SIGKILL)
            gone = events.wait_for("session.gone", session_id=session.rsplit("/", 1)[1])
            self.assertIn("its sandbox ended", str(gone))
        self.assertEqual(first.admin.state(session), "gone")
        first.stop()

    def test_kept_when_the_server_is_told_to(self):
        first = self.first("--sessions-on-stop", "keep")
        session = first.admin.create()
        running = first.admin.start(session, "sleep 1; echo done", background=True)["command_id"]
        first.end_well()
        self.next(first)
        done = first.admin.expect(200, "GET", f"{session}/commands/{running}", wait_s=30).json
        self.assertEqual((done["status"], done["stdout"]), ("exited", "done\n"))

    def test_a_start_that_fails_ends_nothing(self):
        first = self.first()
        session = first.admin.create()
        first.end_now()
        with self.assertRaises(AssertionError):
            Server("--tls-certificate", "/does/not/exist", "--tls-key", "/neither", storage=first.storage)
        self.next(first)
        self.assertEqual(first.admin.run(session, "echo alive"), "alive\n")


class Persistent(RestartCase):
    def test_files_outlive_the_server(self):
        first = self.first()
        admin = first.admin
        session = admin.create(persistent=True, env={"WORD": "kept"})
        admin.run(session, "echo hello > note; echo there > ~/home; sync")
        ran = admin.start(session, "echo output")
        first.end_well()
        self.next(first)
        told = admin.expect(200, "GET", session).json
        self.assertEqual((told["state"], told["persistent"]), ("stopped", True))
        self.assert_refused(admin.post(session + "/commands", {"command": "true"}), 409, "stopped")
        self.assertEqual(admin.expect(200, "GET", f"{session}/commands/{ran['command_id']}").json["stdout"], "output\n")
        self.assertEqual(admin.expect(200, "POST", session + "/resume").json["state"], "ready")
        self.assertEqual(admin.run(session, "cat note ~/home; echo $WORD"), "hello\nthere\nkept\n")
        admin.expect(204, "DELETE", session)
        self.assertEqual(os.listdir(os.path.join(first.storage, "sessions")), [])

    def test_it_stops_when_its_time_is_over(self):
        first = self.first()
        session = first.admin.create(persistent=True, ttl_s=1)
        first.admin.run(session, "echo x > y")
        self.assertTrue(until(lambda: first.admin.state(session) == "stopped"))
        self.assertEqual([s["session_id"] for s in first.admin.get("/api/sessions").json["sessions"]],
                         [session.rsplit("/", 1)[1]])
        first.admin.expect(200, "POST", session + "/resume")
        self.assertEqual(first.admin.run(session, "cat y"), "x\n")
        first.admin.expect(204, "DELETE", session)
        first.stop()

    def test_killed_it_goes_on(self):
        first = self.first()
        session = first.admin.create(persistent=True)
        first.admin.run(session, "echo x > y; (while :; do sleep 1; done) >/dev/null 2>&1 &")
        self.next(first)
        self.assertEqual(first.admin.state(session), "ready")
        self.assertEqual(first.admin.run(session, "cat y"), "x\n")

    def test_after_a_restart_of_the_machine(self):
        """Nothing runs any more, whatever the files say: what was to be kept is there, and nothing is left of the rest."""
        first = self.first()
        admin = first.admin
        persistent, ordinary = admin.create(persistent=True), admin.create()
        for session in (persistent, ordinary):
            admin.run(session, "echo x > y; sync")
        for pid, start in first.end_now():
            if is_alive(pid, start):
                os.kill(pid, signal.SIGKILL)
        self.next(first)
        told = admin.expect(200, "GET", ordinary).json
        self.assertEqual((told["state"], told["end_reason"]), ("gone", "lost when the server ended"))
        self.assertEqual(admin.state(persistent), "stopped")
        admin.expect(200, "POST", persistent + "/resume")
        self.assertEqual(admin.run(persistent, "cat y"), "x\n")
        admin.expect(204, "DELETE", persistent)
        self.assertEqual(os.listdir(os.path.join(first.storage, "sessions")), [])

    def test_a_large_disk_needs_no_memory(self):
        first = self.first()
        session = first.admin.create(persistent=True, limits={"memory": "256M", "disk": "2G"})
        self.assertEqual(first.admin.run(session, "head -c 400M /dev/zero > big; stat -c %s big"), f"{400 << 20}\n")
        first.admin.expect(204, "DELETE", session)
        first.stop()

    def test_one_that_cannot_be_made_leaves_nothing(self):
        first = self.first()
        answer = first.admin.post("/api/sessions", {"persistent": True, "environment": "folder:/does/not/exist"})
        self.assertGreaterEqual(answer.status, 400)
        folder = os.path.join(first.storage, "sessions")
        self.assertEqual(os.listdir(folder) if os.path.exists(folder) else [], [])
        first.stop()


class Volumes(RestartCase):
    def test_sessions_share_what_is_in_them(self):
        made = self.admin.expect(201, "POST", "/api/volumes", {"name": "data", "size": "64M"}).json
        self.assertEqual((made["name"], made["size"]), ("data", 64 << 20))
        one = self.session(volumes=[{"name": "data", "path": "/data"}])
        other = self.session(volumes=[{"name": "data", "path": "/workspace/in", "read_only": True}])
        self.admin.run(one, "echo shared > /data/file")
        self.assertEqual(self.admin.run(other, "cat in/file"), "shared\n")
        self.assertNotEqual(self.admin.start(other, "echo x > in/file")["exit_code"], 0)
        self.assertEqual(self.admin.expect(200, "GET", one).json["volumes"],
                         [{"name": "data", "path": "/data", "read_only": False}])
        uses = self.admin.expect(200, "GET", "/api/volumes/data").json["used_by"]
        self.assertEqual(sorted((use["path"], use["read_only"]) for use in uses), [("/data", False),
                                                                                ("/workspace/in", True)])
        self.assert_refused(self.admin.delete("/api/volumes/data"), 409, "used by")
        self.assertNotEqual(self.admin.start(one, "head -c 100M /dev/zero > /data/big")["exit_code"], 0)
        self.admin.expect(204, "DELETE", one)
        self.admin.expect(204, "DELETE", other)
        self.assertEqual([v["name"] for v in self.admin.get("/api/volumes").json["volumes"]], ["data"])
        self.admin.expect(204, "DELETE", "/api/volumes/data")
        self.assert_refused(self.admin.get("/api/volumes/data"), 404)
        self.assertEqual(os.listdir(os.path.join(self.server.storage, "volumes")), [])

    def test_they_belong_to_one_key(self):
        owner, other = self.admin.make_key(), self.admin.make_key()
        owner.expect(201, "POST", "/api/volumes", {"name": "own", "size": "16M"})
        self.assertEqual(other.expect(200, "GET", "/api/volumes").json["volumes"], [])
        for answer in (other.get("/api/volumes/own"), other.delete("/api/volumes/own"),
                       other.post("/api/sessions", {"volumes": [{"name": "own", "path": "/data"}]})):
            self.assert_refused(answer, 404, "no volume")
        other.expect(201, "POST", "/api/volumes", {"name": "own", "size": "16M"})
        for key in (owner, other):
            key.expect(204, "DELETE", "/api/volumes/own")

    def test_bad_ones(self):
        self.admin.expect(201, "POST", "/api/volumes", {"name": "v", "size": "16M"})
        self.addCleanup(self.admin.delete, "/api/volumes/v")
        self.assert_refused(self.admin.post("/api/volumes", {"name": "v"}), 409, "already")
        for body in ({"name": "../x"}, {"name": ""}, {"name": "A"}, {"name": "x", "size": "1T"}, {"size": "1G"},
                     {"name": "x", "size": "1K"}, {"name": "x" * 64}):
            self.assert_refused(self.admin.post("/api/volumes", body), 400)
        for path in ("/", "/etc", "/usr/x", "relative", "/a/../b", "/proc/x", "/data//x"):
            self.assert_refused(self.admin.post("/api/sessions", {"volumes": [{"name": "v", "path": path}]}), 400)
        twice = [{"name": "v", "path": "/data"}] * 2
        self.assert_refused(self.admin.post("/api/sessions", {"volumes": twice}), 400, "two volumes")

    def test_they_outlive_sessions_and_servers(self):
        first = self.first()
        admin = first.admin
        admin.expect(201, "POST", "/api/volumes", {"name": "data", "size": "32M"})
        session = admin.create(volumes=[{"name": "data", "path": "/data"}])
        admin.run(session, "echo kept > /data/file")
        self.next(first)
        self.assertEqual(admin.run(session, "cat /data/file"), "kept\n")
        admin.expect(204, "DELETE", session)
        again = admin.create(volumes=[{"name": "data", "path": "/mnt/data"}])
        self.assertEqual(admin.run(again, "cat /mnt/data/file"), "kept\n")
        admin.expect(204, "DELETE", again)

    def test_a_viewer_makes_none(self):
        viewer = self.admin.make_key(role="viewer")
        self.assert_refused(viewer.post("/api/volumes", {"name": "x"}), 403)


class UsageOverTime(RestartCase):
    def test_it_is_written_down(self):
        server = self.first("--usage-every", "1s")
        session = server.admin.create()
        server.admin.run(session, "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
        path = session + "/usage/history"
        self.assertTrue(until(lambda: len(server.admin.expect(200, "GET", path).json["samples"]) >= 2))
        samples = server.admin.expect(200, "GET", path).json["samples"]
        self.assertGreater(samples[-1]["cpu_ms"], 0)
        self.assertGreater(samples[-1]["memory_bytes"], 0)
        later = server.admin.expect(200, "GET", path, from_ms=samples[1]["at_ms"], limit=1).json["samples"]
        self.assertEqual(later, samples[1:2])
        server.admin.expect(204, "DELETE", session)
        self.assertGreaterEqual(len(server.admin.expect(200, "GET", path).json["samples"]), 2)
        server.stop()


if __name__ == "__main__":
    unittest.main()
