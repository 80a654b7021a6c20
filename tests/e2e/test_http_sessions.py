"""Sessions over HTTP: made, found, listed, changed, paused, ended by hand and by time."""
import base64
import datetime
import time
import unittest

from http_harness import HttpCase, in_parallel, needs_ability, until


class Create(HttpCase):
    def test_without_a_body(self):
        answer = self.admin.expect(201, "POST", "/api/sessions")
        session = answer.json
        self.addCleanup(self.admin.delete, "/api/sessions/" + session["session_id"])
        self.assertEqual(answer.header("location"), "/api/sessions/" + session["session_id"])
        self.assertEqual((session["state"], session["provider"], session["environment"]), ("ready", self.admin.provider or "native", "host"))
        self.assertEqual(session["url"], f"http://127.0.0.1:{self.server.port}{answer.header('location')}")
        self.assertTrue(session["isolation"])
        made, ends = (datetime.datetime.fromisoformat(session[name]) for name in ("created_at", "expires_at"))
        self.assertEqual((ends - made).total_seconds(), 3600)

    @needs_ability("limits", "browser")
    def test_every_field(self):
        session = self.session(
            environment="host", provider="native", preset="standard", tier="browser", network={"mode": "none"},
            limits={"memory": "256M", "disk": 16 << 20, "output": "1M", "cpus": 0.5, "pids": 40, "inodes": 1000,
                    "open_files": 99, "timeout_s": 20, "cpu_time_s": 9},
            env={"GREETING": "grüß dich"}, labels={"team": "a/b", "ü": "=:"}, ttl_s=600, idle_s=300,
            files=[{"path": "/workspace/deep/er/note.txt", "content": "hello\n"},
                   {"path": "/workspace/tool", "content_base64": base64.b64encode(b"\0\xff").decode(), "mode": 0o750}])
        told = self.admin.get(session).json
        self.assertEqual(told["limits"], {
            "memory": 256 << 20, "disk": 16 << 20, "output": 1 << 20, "cpus": 0.5, "pids": 40, "inodes": 1000,
            "open_files": 99, "timeout_s": 20, "cpu_time_s": 9})
        self.assertEqual(told["labels"], {"team": "a/b", "ü": "=:"})
        self.assertEqual((told["idle_s"], told["tier"], told["network"]), (300, "browser", {"mode": "none"}))
        out = self.admin.run(session, 'echo "$GREETING"; ulimit -n; cat deep/er/note.txt; od -An -tx1 tool;'
                                      "stat -c %a tool")
        self.assertEqual(out.split("\n"), ["grüß dich", "99", "hello", " 00 ff", "750", ""])

    def test_a_bad_field_is_named_by_its_place(self):
        for body, place in [
                ({"environment": ""}, "/environment"), ({"environment": "mars"}, "/environment"),
                ({"provider": "nobody"}, "/provider"), ({"provider": 7}, "/provider"),
                ({"preset": "lax"}, "/preset"), ({"tier": None}, "/tier"),
                ({"limits": []}, "/limits"), ({"limits": {"memory": "lots"}}, "/limits/memory"),
                ({"limits": {"memory": -1}}, "/limits/memory"), ({"limits": {"memory": "1K"}}, "/limits/memory"),
                ({"limits": {"memory": "99999999999999T"}}, "/limits/memory"),
                ({"limits": {"disk": 1}}, "/limits/disk"), ({"limits": {"disk": "4T"}}, "/limits/disk"),
                ({"limits": {"cpus": "2"}}, "/limits/cpus"), ({"limits": {"cpus": 1e300}}, "/limits/cpus"),
                ({"limits": {"cpus": 0.001}}, "/limits/cpus"), ({"limits": {"pids": 0}}, "/limits/pids"),
                ({"limits": {"pids": 100000}}, "/limits/pids"), ({"limits": {"pids": 1.5}}, "/limits/pids"),
                ({"limits": {"inodes": 1}}, "/limits/inodes"),
                ({"limits": {"open_files": 1 << 40}}, "/limits/open_files"),
                ({"limits": {"timeout_s": -1}}, "/limits/timeout_s"), ({"limits": {"a/b~c": 1}}, "/limits/a~1b~0c"),
                ({"network": {}}, "/network"), ({"network": {"mode": "host"}}, "/network/mode"),
                ({"env": {"A=B": "1"}}, "/env/A=B"), ({"env": {"A": 1}}, "/env/A"), ({"env": {"A": "a\0b"}}, "/env/A"),
                ({"files": [{}]}, "/files/0"), ({"files": [{"path": "/a"}, {"path": ""}]}, "/files/1/path"),
                ({"files": [{"path": "/workspace/a", "content_base64": "%%%"}]}, "/files/0/content_base64"),
                ({"files": [{"path": "no/slash", "content": ""}]}, "/files/0/path"),
                ({"files": [{"path": "/a", "mode": 0o4755}]}, "/files/0/mode"),
                ({"labels": {"": "x"}}, "/labels/"), ({"labels": {"a": None}}, "/labels/a"),
                ({"ttl_s": -1}, "/ttl_s"), ({"ttl_s": "60"}, "/ttl_s"), ({"idle_s": 1e12}, "/idle_s")]:
            with self.subTest(body=body):
                self.assert_refused(self.admin.post("/api/sessions", body), 400, place)

    def test_nobody_takes_more_than_is_offered(self):
        for name, value in [("owner", "somebody"), ("role", "admin"), ("privileged", True), ("binds", ["/:/host"]),
                            ("capabilities", ["ALL"]), ("seccomp", "off"), ("session_id", "a" * 33),
                            ("state", "ready")]:
            with self.subTest(name=name):
                self.assert_refused(self.admin.post("/api/sessions", {name: value}), 400, "/" + name)

    def test_lengths_are_counted_in_characters(self):
        # As JSON Schema does, so that a client's own check agrees with the server's.
        session = self.session(labels={"note": "ü" * 1024})
        self.assertEqual(self.admin.get(session).json["labels"]["note"], "ü" * 1024)
        self.assert_refused(self.admin.post("/api/sessions", {"labels": {"note": "ü" * 1025}}), 400, "/labels/note")

    def test_a_body_that_is_no_object(self):
        for body in ([], "x", 3, True):
            self.assert_refused(self.admin.post("/api/sessions", body), 400)
        self.assert_refused(self.admin.call("POST", "/api/sessions", b"null", {"Content-Type": "application/json"}),
                            400)

    def test_what_fails_leaves_nothing(self):
        key = self.admin.make_key(max_sessions=1)
        bad = {"files": [{"path": "/proc/nowhere/x", "content": ""}]}
        for _ in range(3):
            self.assertIn(key.post("/api/sessions", bad).status, (400, 403, 404))
        self.assertEqual(key.get("/api/sessions").json["sessions"], [])
        self.session(key)  # Its one place is still free.

    def test_for_clients_of_other_systems(self):
        made = self.admin.expect(200, "POST", "/create_session", {}).json
        done = self.admin.expect(200, "POST", "/execute",
                                 {"session_id": made["session_id"], "command": "echo out; echo err >&2; exit 4"}).json
        self.assertEqual(done["exit_code"], 4)
        self.assertEqual(sorted(done["output"].split()), ["err", "out"])
        self.admin.expect(200, "POST", "/cleanup", {"session_id": made["session_id"]})
        self.admin.expect(404, "POST", "/execute", {"session_id": made["session_id"], "command": "true"})
        session = self.session(provider="native", environment="host")
        self.admin.expect(204, "DELETE", session, sandbox_id=session.rsplit("/", 1)[1])

    def test_the_callers_trace_comes_back(self):
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        given = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        self.assertIn(trace, self.admin.get("/health", headers=given).header("traceparent"))
        self.assertEqual(self.admin.get("/nowhere", headers=given).error["trace_id"], trace)
        for wrong in ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", f"00-{trace.upper()}-00f067aa0ba902b7-01", "x"):
            answer = self.admin.get("/nowhere", headers={"traceparent": wrong})
            self.assertNotIn(answer.error["trace_id"], (trace, "0" * 32))


class Lists(HttpCase):
    def setUp(self):
        super().setUp()
        self.key = self.admin.make_key()

    def listed(self, **query):
        return ["/api/sessions/" + each["session_id"] for each in
                self.key.expect(200, "GET", "/api/sessions", **query).json["sessions"]]

    def test_filters(self):
        one = self.session(self.key, labels={"a": "1", "b": "2"})
        two = self.session(self.key, labels={"a": "1", "b": "x:y"})
        three = self.session(self.key)
        self.assertEqual(self.listed(), [three, two, one])
        self.assertEqual(self.listed(label="a:1"), [two, one])
        self.assertEqual(self.listed(label=["a:1", "b:2"]), [one])
        self.assertEqual(self.listed(label="b:x:y"), [two])
        self.assertEqual(self.listed(label="a:%"), [])
        self.assertEqual(self.listed(label="a:1' OR '1'='1"), [])
        self.assertEqual(self.listed(provider=self.key.provider or "native", environment="host"), [three, two, one])
        self.assertEqual(self.listed(provider="docker"), [])
        self.key.expect(200, "POST", two + "/pause")
        self.key.expect(204, "DELETE", one)
        self.assertEqual(self.listed(), [three, two])
        self.assertEqual(self.listed(state="paused"), [two])
        self.assertEqual(self.listed(state=["gone", "ready"]), [three, one])
        self.assertEqual(self.listed(state="gone", label="a:1"), [one])

    def test_pages_to_the_end(self):
        made = [self.session(self.key) for _ in range(7)]
        for limit in (1, 3, 7):
            seen, cursor = [], None
            while True:
                query = {"limit": limit, **({"cursor": cursor} if cursor else {})}
                page = self.key.expect(200, "GET", "/api/sessions", **query).json
                self.assertLessEqual(len(page["sessions"]), limit)
                seen += ["/api/sessions/" + each["session_id"] for each in page["sessions"]]
                cursor = page["next_cursor"]
                if cursor is None:
                    break
            self.assertEqual(seen, made[::-1])

    def test_a_cursor_opens_nothing_foreign(self):
        other = self.admin.make_key()
        for _ in range(3):
            self.session(other), self.session(self.key)
        theirs = other.get("/api/sessions", limit=1).json["next_cursor"]
        own = {each["owner"] for each in self.key.get("/api/sessions", cursor=theirs).json["sessions"]}
        self.assertLessEqual(own, {self.key.key_id})

    def test_bad_questions(self):
        for query in ({"cursor": "x"}, {"cursor": "MTIz"}, {"cursor": "A" * 5000}, {"cursor": "' OR 1=1 --"},
                      {"cursor": base64.urlsafe_b64encode(b"9:").decode()}, {"limit": "0"}, {"limit": "1001"},
                      {"limit": "-1"}, {"limit": "many"}, {"limit": ""}, {"limit": "1e1"}, {"label": "nocolon"}):
            with self.subTest(query=query):
                self.assert_refused(self.key.get("/api/sessions", **query), 400)


class Life(HttpCase):
    def test_change(self):
        session = self.session(labels={"old": "1"})
        told = self.admin.expect(200, "PATCH", session, {"labels": {"new": "2"}, "ttl_s": 0, "idle_s": 77}).json
        self.assertEqual((told["labels"], told["expires_at"], told["idle_s"]), ({"new": "2"}, None, 77))
        self.assertEqual({**self.admin.get(session).json, "active_at": ""}, {**told, "active_at": ""})
        self.assertEqual(self.admin.expect(200, "PATCH", session, {"idle_s": 0}).json["labels"], {"new": "2"})
        for body, place in [({"labels": {"a": 1}}, "/labels/a"), ({"ttl_s": 0.5}, "/ttl_s"),
                            ({"state": "gone"}, "/state")]:
            self.assert_refused(self.admin.call("PATCH", session, body), 400, place)

    def test_delete_and_what_is_left(self):
        session = self.session(labels={"keep": "me"})
        self.admin.start(session, "sleep 1000", background=True)
        self.admin.expect(204, "DELETE", session)
        self.admin.expect(404, "DELETE", session)
        told = self.admin.expect(200, "GET", session).json
        self.assertEqual((told["state"], told["end_reason"], told["labels"]), ("gone", "deleted", {"keep": "me"}))
        self.assertGreaterEqual(told["ended_at"], told["created_at"])
        for method, path, body in [("POST", "/commands", {"command": "true"}), ("POST", "/pause", None),
                                   ("PATCH", "", {"ttl_s": 5}), ("GET", "/usage", None), ("GET", "/files/list", None)]:
            self.assertIn(self.admin.call(method, session + path, body).status, (404, 410))

    def test_unknown_ids(self):
        for id in ("a" * 33, "x", "-rf", "..%2f..%2fetc", "%27%20OR%201=1", "A" * 2000, "%00"):
            with self.subTest(id=id):
                self.assertIn(self.admin.get("/api/sessions/" + id).status, (400, 404))

    def test_a_pause_stops_a_counter(self):
        session = self.session()
        counter = self.admin.start(session, "while :; do echo x; sleep 0.02; done", background=True)
        output = f"{session}/commands/{counter['command_id']}"

        def count():
            return self.admin.expect(200, "GET", output).json["output_bytes"]
        self.assertTrue(until(count))
        self.assertEqual(self.admin.expect(200, "POST", session + "/pause").json["state"], "paused")
        time.sleep(0.1)  # What was under way when it froze.
        before = count()
        time.sleep(0.5)
        self.assertEqual(count(), before)
        self.admin.expect(409, "POST", session + "/pause")
        self.admin.expect(409, "POST", session + "/commands", {"command": "true"})
        self.admin.expect(409, "GET", session + "/files/list")
        self.admin.expect(200, "GET", session + "/usage")
        self.assertEqual(self.admin.expect(200, "POST", session + "/resume").json["state"], "ready")
        self.assertTrue(until(lambda: count() > before))
        self.admin.expect(409, "POST", session + "/resume")

    def test_a_paused_session_can_be_deleted(self):
        session = self.session()
        self.admin.expect(200, "POST", session + "/pause")
        self.admin.expect(204, "DELETE", session)

    def test_the_time_of_a_paused_session_stands_still(self):
        session = self.session(ttl_s=2)
        paused = self.admin.expect(200, "POST", session + "/pause").json
        self.assertLessEqual(paused["time_left_s"], 2)
        time.sleep(2.5)
        self.assertEqual(self.admin.state(session), "paused")
        self.assertNotIn("time_left_s", self.admin.expect(200, "POST", session + "/resume").json)
        self.assert_ends(session, 6)

    def test_the_time_of_a_paused_session_can_be_changed(self):
        session = self.session(ttl_s=60)
        self.admin.expect(200, "POST", session + "/pause")
        self.assertEqual(self.admin.expect(200, "PATCH", session, {"ttl_s": 1}).json["time_left_s"], 1)
        time.sleep(1.5)
        self.admin.expect(200, "POST", session + "/resume")
        self.assert_ends(session, 5)

    def test_a_session_may_be_paused_when_its_time_is_over(self):
        session = self.session(ttl_s=1, at_expiry="pause")
        self.assertTrue(until(lambda: self.admin.state(session) == "paused", 5, every=0.2))
        self.assertEqual(self.admin.expect(200, "POST", session + "/resume").json["state"], "ready")
        self.assertTrue(until(lambda: self.admin.state(session) == "paused", 5, every=0.2), "it has its time again")
        self.admin.expect(204, "DELETE", session)

    def test_traffic_wakes_a_session_that_wants_it(self):
        for wakes in (True, False):
            session = self.session(wake_on_traffic=wakes)
            self.admin.start(session, "exec python3 -m http.server 8080 --bind 127.0.0.1", background=True)
            page = f"/preview/{session.rsplit('/', 1)[1]}/8080/"
            self.assertTrue(until(lambda: self.server.plain("GET", page).status == 200))
            self.admin.expect(200, "POST", session + "/pause")
            self.assertEqual(self.server.plain("GET", page).status, 200 if wakes else 409)
            self.assertEqual(self.admin.state(session), "ready" if wakes else "paused")

    def assert_ends(self, session, within):
        self.assertTrue(until(lambda: self.admin.state(session) == "gone", within, every=0.3))
        self.assertEqual(self.admin.get(session).json["end_reason"], "expired")

    def test_age(self):
        session = self.session(ttl_s=1)
        began = time.monotonic()
        self.admin.expect(200, "GET", session)
        self.assert_ends(session, 5)
        self.assertGreater(time.monotonic() - began, 0.9)

    def test_age_can_be_renewed(self):
        session = self.session(ttl_s=1)
        self.admin.expect(200, "PATCH", session, {"ttl_s": 60})
        time.sleep(1.5)
        self.assertEqual(self.admin.state(session), "ready")

    def ready_without_looking(self, session):
        """Looking at a session is using it; the list is not."""
        page = self.admin.get("/api/sessions", limit=1000).json
        return session.rsplit("/", 1)[1] in {each["session_id"] for each in page["sessions"]}

    def test_idleness_and_its_renewal(self):
        session = self.session(idle_s=1)
        for _ in range(4):
            time.sleep(0.5)
            self.admin.run(session, "true")
        time.sleep(0.5)
        self.assertTrue(self.ready_without_looking(session))
        self.assertTrue(until(lambda: not self.ready_without_looking(session), 5, every=0.1))
        self.assertEqual(self.admin.get(session).json["end_reason"], "expired")

    def test_a_session_is_not_idle_while_a_command_is_waited_for(self):
        session = self.session(idle_s=1)
        self.assertEqual(self.admin.run(session, "sleep 2; echo done"), "done\n")

    @needs_ability("cpu_usage")
    def test_usage_and_isolation(self):
        session = self.session()
        before = self.admin.expect(200, "GET", session + "/usage").json
        self.admin.run(session, "head -c 5000000 /dev/zero > big; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
        after = self.admin.expect(200, "GET", session + "/usage").json
        self.assertGreaterEqual(after["disk_bytes"] - before["disk_bytes"], 5_000_000)
        self.assertGreater(after["cpu_ms"], before["cpu_ms"])
        self.assertGreater(after["memory_peak_bytes"], 1 << 20)
        self.assertEqual(after["disk_limit_bytes"], self.admin.get(session).json["limits"]["disk"])
        facts = self.admin.expect(200, "GET", session + "/isolation").json["isolation"]
        self.assertEqual(facts, self.admin.get(session).json["isolation"])
        self.assertIn("full", {fact["guarantee"] for fact in facts if fact["name"] == "namespaces"})

    def test_events_tell_all_of_it_in_order(self):
        session = self.session()
        id = session.rsplit("/", 1)[1]
        self.admin.start(session, "exit 3")
        self.assertTrue(until(lambda: len(self.admin.get("/api/events", session_id=id).json["events"]) == 2))
        self.admin.expect(200, "PATCH", session, {"labels": {}})
        self.admin.expect(200, "POST", session + "/pause")
        self.admin.expect(200, "POST", session + "/resume")
        self.admin.expect(204, "DELETE", session)
        events = self.admin.expect(200, "GET", "/api/events", session_id=id).json["events"]
        self.assertEqual([event["type"] for event in events], [
            "session.ready", "command.ended", "session.changed", "session.paused", "session.ready", "session.gone"])
        self.assertEqual((events[1]["data"]["status"], events[1]["data"]["exit_code"]), ("exited", 3))
        self.assertEqual(events[-1]["data"]["reason"], "deleted")
        ids = [event["id"] for event in events]
        self.assertEqual(ids, sorted(set(ids)))
        later = self.admin.get("/api/events", session_id=id, after=ids[2], limit=2).json
        self.assertEqual([event["id"] for event in later["events"]], ids[3:5])
        with self.admin.events("/api/events", {"Last-Event-ID": str(ids[3])}, session_id=id) as stream:
            self.assertEqual([stream.next()["id"] for _ in range(2)], [str(ids[4]), str(ids[5])])


class Idempotency(HttpCase):
    def test_a_hundred_at_once_make_one(self):
        key = self.admin.make_key()
        again = {"Idempotency-Key": "the-same"}
        answers = in_parallel(100, lambda _: key.post("/api/sessions", {"labels": {"n": "1"}}, headers=again))
        self.assertEqual({answer.status for answer in answers}, {201})
        self.assertEqual(len({answer.body for answer in answers}), 1)
        self.assertEqual(len(key.get("/api/sessions").json["sessions"]), 1)
        self.assert_refused(key.post("/api/sessions", {"labels": {"n": "2"}}, headers=again), 409, "Idempotency-Key")
        other = key.post("/api/sessions", {"labels": {"n": "1"}}, headers={"Idempotency-Key": "another"})
        self.assertNotEqual(other.json["session_id"], answers[0].json["session_id"])
        foreign = self.admin.make_key().post("/api/sessions", {"labels": {"n": "1"}}, headers=again)
        self.assertNotEqual(foreign.json["session_id"], answers[0].json["session_id"])
        for answer in (answers[0], other, foreign):
            self.admin.expect(204, "DELETE", "/api/sessions/" + answer.json["session_id"])

    def test_a_repetition_looks_like_the_first(self):
        again = {"Idempotency-Key": "look"}
        first, second = (self.admin.expect(201, "POST", "/api/sessions", {}, headers=again) for _ in range(2))
        self.admin.expect(204, "DELETE", first.header("location"))
        self.assertEqual(second.header("location"), first.header("location"))

    def test_what_failed_may_be_tried_again(self):
        again = {"Idempotency-Key": "twice"}
        key = self.admin.make_key(max_sessions=1)
        only = key.create()
        self.assert_refused(key.post("/api/sessions", {}, headers=again), 429)
        self.admin.expect(204, "DELETE", only)
        made = key.expect(201, "POST", "/api/sessions", {}, headers=again)
        self.admin.expect(204, "DELETE", made.header("location"))

    def test_a_key_too_long(self):
        self.assert_refused(self.admin.post("/api/sessions", {}, headers={"Idempotency-Key": "k" * 256}), 400)


class Quota(HttpCase):
    def test_of_one_key(self):
        key = self.admin.make_key(max_sessions=3)
        answers = in_parallel(10, lambda _: key.post("/api/sessions"))
        self.assertEqual(sorted(answer.status for answer in answers), [201] * 3 + [429] * 7)
        refused = next(answer for answer in answers if answer.status == 429)
        self.assertEqual((refused.error["code"], refused.error["fault"]), ("exhausted", "limit"))
        made = [answer.header("location") for answer in answers if answer.status == 201]
        key.expect(204, "DELETE", made.pop())
        made.append(key.create())
        self.session()  # Others are not touched by it.
        for session in made:
            key.expect(204, "DELETE", session)

    def test_of_the_server(self):
        server = self.other_server("--sessions-max", "2", "--sessions-max-ttl", "60s", "--sessions-ttl", "30s")
        session = server.admin.expect(201, "POST", "/api/sessions", {"ttl_s": 0}).json
        made, ends = (datetime.datetime.fromisoformat(session[name]) for name in ("created_at", "expires_at"))
        self.assertEqual((ends - made).total_seconds(), 60)
        server.admin.create()
        self.assert_refused(server.admin.post("/api/sessions"), 429)


if __name__ == "__main__":
    unittest.main()
