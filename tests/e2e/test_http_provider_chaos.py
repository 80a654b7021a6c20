"""A provider whose connection breaks in every way: failures are typed, nothing is done twice, nothing is left behind.

ROUNDS=5 for the long form, which waits for what takes its time to fail, too.
"""
import os
import re
import time
import unittest

from chaos_proxy import ChaosProxy
from far_case import FAR_KEY, sandboxes, settings
from http_harness import HttpCase, Server, until

ROUNDS = int(os.environ.get("ROUNDS", "1"))
TROUBLE = ["refuse", "cut_request", "drop_answer", "truncate", "garble", "slow", "unavailable", "nonsense", "too_many"]
if ROUNDS > 1:
    TROUBLE += ["garble_all", "swallow"]
WELL = {200, 201, 202, 204}
TYPED = {400, 403, 404, 409, 410, 429, 501, 502}  # never 500: it is not this server that fails
MAKE = r"^POST /sandboxes "
START = r"^POST /process\.Process/Start "
LONG = 240  # seconds: longer than the longest wait for a provider that says nothing


class ChaosCase(HttpCase):
    @classmethod
    def setUpClass(cls):
        cls.far = Server("--stop-patience", "1s", admin_key=FAR_KEY)
        cls.addClassCleanup(cls.far.stop)
        cls.proxy = ChaosProxy(cls.far.port)
        cls.addClassCleanup(cls.proxy.close)
        super().setUpClass()

    @classmethod
    def serve(cls):
        server = Server("--stop-patience", "1s", env=settings(cls.proxy.url, lease=120))
        server.admin.provider = "e2b"
        server.leans_on_another = True
        cls.addClassCleanup(server.stop)
        return server

    def setUp(self):
        self.proxy.be_honest()
        self.recover()
        super().setUp()
        self.proxy.forget()

    def tearDown(self):
        self.proxy.be_honest()
        self.recover()
        self.doCleanups()
        # On this side and on the other, whatever has happened.
        listed = self.admin.expect(200, "GET", "/api/sessions").json["sessions"]
        self.assertEqual([each["session_id"] for each in listed], [])
        self.assertTrue(until(lambda: not self.far_ids(), 40, 0.2), self.far_ids())
        self.assertNotIn(FAR_KEY, self.server.log())
        super().tearDown()

    def far_ids(self):
        return {each["sandboxID"] for each in sandboxes(self.far)}

    def recover(self):
        """Until the provider is trusted again."""
        def well():
            answer = self.admin.post("/api/sessions", timeout=LONG)
            if answer.status == 201:
                self.admin.expect(204, "DELETE", answer.header("location"))
            return answer.status == 201
        self.assertTrue(until(well, 60, 0.3), self.server.log()[-2000:])

    def in_trouble(self, mode, work):
        """work(), while the provider is in this kind of trouble; all its answers are typed."""
        self.proxy.be(mode)
        try:
            for _ in range(ROUNDS):
                for answer in work():
                    self.assert_typed(answer)
        finally:
            self.proxy.be_honest()

    def assert_typed(self, answer):
        self.assertIn(answer.status, TYPED | WELL, answer)
        self.assertNotIn(FAR_KEY, str(answer))
        if answer.status >= 300:
            self.assertIn("code", answer.error)
        if answer.status == 502:
            self.assertEqual((answer.error["code"], answer.error["fault"]), ("provider", "platform"), answer)

    def assert_failed_there(self, answer):
        self.assert_typed(answer)
        self.assertEqual(answer.status, 502, answer)

    def sent(self, pattern):
        """How many requests of this kind have reached the other side."""
        return sum(bool(re.search(pattern, line)) for line in self.proxy.handed_on)


class Making(ChaosCase):
    def test_under_every_kind_of_trouble(self):
        def make():
            answer = self.admin.post("/api/sessions", timeout=LONG)
            yield answer
            if answer.status == 201:
                yield self.admin.delete(answer.header("location"), timeout=LONG)
        for mode in TROUBLE:
            with self.subTest(mode):
                began = time.monotonic()
                self.in_trouble(mode, make)
                self.assertLess(time.monotonic() - began, 110 * ROUNDS)
                self.recover()

    def test_a_lost_answer_is_not_asked_for_again(self):
        for mode in ("drop_answer", "truncate"):
            with self.subTest(mode):
                self.proxy.forget()
                self.proxy.be(mode, only=MAKE)
                self.assert_failed_there(self.admin.post("/api/sessions", timeout=LONG))
                self.assertEqual(self.sent(MAKE), 1)
                # It was made, though nobody said so: it is found by its mark and removed.
                self.proxy.be_honest()
                self.assertTrue(until(lambda: self.sent("^DELETE /sandboxes/"), 40, 0.2))
                self.assertTrue(until(lambda: not self.far_ids(), 10, 0.2), self.far_ids())

    def test_a_failure_of_the_other_side_is_not_asked_for_again(self):
        for mode in ("unavailable", "nonsense"):
            self.proxy.forget()
            self.proxy.be(mode, only=MAKE)
            self.assert_failed_there(self.admin.post("/api/sessions", timeout=LONG))
            self.assertEqual(len(self.proxy.stopped_here), 1, self.proxy.stopped_here)

    def test_one_that_was_never_sent_is_sent_again(self):
        # The connection is closed before anything could be written: that it did not arrive is sure, or it is an error.
        self.proxy.be("refuse", only=MAKE, times=1)
        answer = self.admin.post("/api/sessions", timeout=LONG)
        self.assert_typed(answer)
        self.assertLessEqual(self.sent(MAKE), 1)
        if answer.status == 201:
            self.admin.expect(204, "DELETE", answer.header("location"))

    def test_a_fork_whose_answer_is_lost_leaves_nothing(self):
        session = self.session()
        self.proxy.forget()
        self.proxy.be("drop_answer", only="^POST /sandboxes/[^/]+/fork ")
        self.assert_failed_there(self.admin.post(session + "/fork", {"count": 2}, timeout=LONG))
        self.assertEqual(self.sent("/fork "), 1)
        self.proxy.be_honest()
        own = {each["sandboxID"] for each in sandboxes(self.far)
               if each["metadata"].get("agent-sandbox-session") == session.rpartition("/")[2]}
        self.assertTrue(own)
        self.assertTrue(until(lambda: len(self.far_ids()) == 1, 40, 0.2), self.far_ids())
        self.assertEqual(self.admin.run(session, "echo here"), "here\n")

    def test_an_end_whose_answer_is_lost_is_an_end(self):
        session = self.session()
        self.proxy.be("drop_answer", only="^DELETE ", times=1)
        self.admin.expect(204, "DELETE", session)
        self.assertEqual(self.far_ids(), set())


class Rates(ChaosCase):
    """429 with Retry-After: nothing was done, so that everything may be asked for again, when it is time."""

    def test_a_session_is_made_when_it_is_time(self):
        self.proxy.be("too_many", only=MAKE, times=1)
        began = time.monotonic()
        session = self.session()
        self.assertGreaterEqual(time.monotonic() - began, 1)
        self.assertEqual((len(self.proxy.stopped_here), self.sent(MAKE)), (1, 1))
        self.assertEqual(len(self.far_ids()), 1)
        self.assertEqual(self.admin.run(session, "echo here"), "here\n")

    def test_a_command_is_started_when_it_is_time_and_once(self):
        session = self.session()
        self.proxy.forget()
        self.proxy.be("too_many", only=START, times=1)
        began = time.monotonic()
        self.assertEqual(self.admin.run(session, "echo x | tee -a /workspace/count"), "x\n")
        self.assertGreaterEqual(time.monotonic() - began, 1)
        self.assertEqual((len(self.proxy.stopped_here), self.sent(START)), (1, 1))
        self.assertEqual(self.admin.run(session, "cat count"), "x\n")

    def test_a_file_is_read_when_it_is_time(self):
        session = self.session()
        self.admin.expect(200, "PUT", session + "/files", b"bytes", path="/workspace/f")
        for mode in ("too_many", "unavailable", "drop_answer"):
            with self.subTest(mode):
                self.proxy.be(mode, only=r"^GET /files\?", times=1)
                self.assertEqual(self.admin.expect(200, "GET", session + "/files", path="/workspace/f").body, b"bytes")
                self.assertEqual(self.proxy.left, 0)

    def test_what_would_take_too_long_is_told_at_once(self):
        self.proxy.retry_after = 3600
        self.addCleanup(setattr, self.proxy, "retry_after", 1)
        self.proxy.be("too_many", only=MAKE)
        began = time.monotonic()
        answer = self.admin.post("/api/sessions", timeout=LONG)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual((answer.status, answer.error["code"]), (429, "exhausted"), answer)
        self.assertEqual(len(self.proxy.stopped_here), 1)


class Using(ChaosCase):
    def test_under_every_kind_of_trouble(self):
        session = self.session()

        def use():
            yield self.admin.post(session + "/commands", {"command": "echo x"}, timeout=LONG)
            yield self.admin.get(session + "/files", path="/etc/hostname", timeout=LONG)
            yield self.admin.get(session + "/files/list", path="/", timeout=LONG)
            yield self.admin.put(session + "/files", b"bytes", path="/workspace/f", timeout=LONG)
            yield self.admin.get(session + "/usage", timeout=LONG)
        for mode in TROUBLE:
            if ROUNDS == 1 and mode in ("unavailable", "too_many"):
                continue  # Everything is waited for; Rates has the same with less of it.
            with self.subTest(mode):
                self.in_trouble(mode, use)
                self.recover()
        self.assertEqual(self.admin.run(session, "echo alive"), "alive\n")

    def test_cells_and_rest_under_every_kind_of_trouble(self):
        session = self.session()

        def use():
            yield self.admin.post(session + "/execute", {"code": "1 + 1", "timeout_s": 20}, timeout=LONG)
            yield self.admin.post(session + "/pause", timeout=LONG)
            yield self.admin.post(session + "/resume", timeout=LONG)
        for mode in TROUBLE if ROUNDS > 1 else ("drop_answer", "garble"):
            with self.subTest(mode):
                self.in_trouble(mode, use)
                self.recover()
                if self.admin.state(session) == "paused":
                    self.admin.expect(200, "POST", session + "/resume")
        answer = self.admin.expect(200, "POST", session + "/execute", {"code": "6 * 7"}).json
        self.assertEqual(answer["results"][0]["text/plain"], "42", answer)

    def test_a_question_is_asked_again(self):
        session = self.session()
        for mode in ("drop_answer", "truncate", "unavailable"):
            with self.subTest(mode):
                self.proxy.be(mode, only="Filesystem/ListDir", times=1)
                self.admin.expect(200, "GET", session + "/files/list", path="/")
                self.assertEqual(self.proxy.left, 0)

    def test_nothing_is_run_twice(self):
        session = self.session()
        self.admin.run(session, ": > count")
        for number, mode in enumerate(("drop_answer", "truncate", "cut_request", "unavailable", "nonsense") * ROUNDS):
            with self.subTest(mode):
                self.proxy.be(mode, only=START)
                answer = self.admin.post(session + "/commands", {"command": f"echo {number} >> /workspace/count"}, timeout=LONG)
                self.assert_typed(answer)
                if answer.status != 502:  # What has said that it began is taken up again.
                    self.assertEqual((mode, answer.status), ("truncate", 200), answer)
                self.proxy.be_honest()
        lines = self.admin.run(session, "cat count").split()
        self.assertEqual(len(lines), len(set(lines)), lines)

    def test_a_program_that_nobody_knows_of_is_ended(self):
        session = self.session()
        self.proxy.be("drop_answer", only=START, times=1)
        self.assert_failed_there(self.admin.post(session + "/commands", {"command": "sleep 1234"}, timeout=LONG))

        def left():
            running = self.admin.expect(200, "GET", session + "/processes").json["processes"]
            return [each for each in running if "1234" in " ".join(each["argv"])]
        self.assertTrue(until(lambda: not left(), 20, 0.2), left())

    def test_input_is_not_repeated(self):
        session = self.session()
        made = self.admin.start(session, "cat > /workspace/input", background=True, stdin_open=True)
        address = f"{session}/commands/{made['command_id']}"
        self.proxy.forget()
        self.proxy.be("drop_answer", only="Process/SendInput", times=1)
        self.assert_failed_there(self.admin.post(address + "/stdin", {"data": "once\n"}, timeout=LONG))
        self.assertEqual(self.sent("Process/SendInput"), 1)
        self.proxy.be_honest()
        self.admin.expect(204, "POST", address + "/stdin", {"data": "more\n", "eof": True})
        self.assertEqual(self.admin.expect(200, "GET", address, wait_s=30).json["exit_code"], 0)
        self.assertEqual(self.admin.run(session, "cat input"), "once\nmore\n")

    def test_an_upload_that_breaks_changes_nothing(self):
        session = self.session()
        self.admin.expect(200, "PUT", session + "/files", b"old", path="/workspace/f")
        for mode in ("cut_request", "drop_answer", "truncate"):
            with self.subTest(mode):
                self.proxy.be(mode, only=r"^POST /files\?", times=1)
                self.assert_failed_there(self.admin.put(session + "/files", b"new", path="/workspace/f", timeout=LONG))
                self.proxy.be_honest()
                self.assertEqual(self.admin.expect(200, "GET", session + "/files", path="/workspace/f").body, b"old")
        # No half of it lies beside it, either.
        self.assertTrue(until(lambda: self.admin.run(session, "ls -A").split() == ["f"], 10, 0.2),
                        self.admin.run(session, "ls -A"))

    def test_a_stream_that_breaks_is_taken_up_again(self):
        session = self.session()
        made = self.admin.start(session, "for i in $(seq 50); do echo $i; sleep 0.1; done; exit 7", background=True)
        address = f"{session}/commands/{made['command_id']}"
        self.assertTrue(until(lambda: self.admin.expect(200, "GET", address).json["output_bytes"] > 0))
        self.proxy.be("refuse")  # what is open is cut with its next byte
        time.sleep(0.5)
        self.proxy.be_honest()
        done = self.admin.expect(200, "GET", address, wait_s=60).json
        self.assertEqual((done["status"], done["exit_code"]), ("exited", 7), done)
        output = self.admin.expect(200, "GET", address + "/output", offset=0).json
        text = "".join(chunk["data"] for chunk in output["chunks"])
        self.assertIn("50\n", text)
        self.assertIn("output may be missing here", text)

    def test_a_dead_provider_holds_nobody_up(self):
        session = self.session()
        self.proxy.be("refuse")
        for _ in range(3):
            self.assert_failed_there(self.admin.get(session + "/files/list", path="/", timeout=LONG))
        began = time.monotonic()
        for _ in range(20):
            self.assert_failed_there(self.admin.get(session + "/files/list", path="/", timeout=LONG))
        self.assertLess(time.monotonic() - began, 10)
        listed = self.admin.expect(200, "GET", "/api/providers").json["providers"]
        self.assertEqual({each["name"]: each["state"] for each in listed}, {"native": "ok", "e2b": "trouble"})
        chosen = self.admin.expect(201, "POST", "/api/sessions", {"provider": "auto"}).json
        self.addCleanup(self.admin.delete, "/api/sessions/" + chosen["session_id"])
        self.assertEqual(chosen["provider"], "native")
        refused = self.admin.post("/api/sessions", {"provider": "auto", "environment": "template:base"})
        self.assert_refused(refused, 501, "no provider")
        self.assertIn("does not answer", refused.error["hint"])

    def test_descriptors_come_back(self):
        session = self.session()
        self.admin.run(session, "true")
        before = self.server.open_files_at_rest()
        for mode in ("drop_answer", "truncate", "garble") * ROUNDS:
            self.in_trouble(mode, lambda: (self.admin.post(session + "/commands", {"command": "echo x"}, timeout=LONG),
                                           self.admin.get(session + "/files", path="/etc/hostname", timeout=LONG)))
            self.recover()
        # Idle connections are kept for a while, and for the next.
        self.assertTrue(until(lambda: self.server.open_files() <= before + 12, 60, 0.5), (before, self.server.open_files()))


if __name__ == "__main__":
    unittest.main()
