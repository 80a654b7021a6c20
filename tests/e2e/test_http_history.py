"""What was done in sessions: steps of every kind, pages and lines, bounds, secrets, kill -9, sessions that are gone."""
import contextlib
import hashlib
import io
import json
import os
import tarfile
import time
import unittest

from http_harness import HttpCase, RestartCase, Server, in_parallel, until


def lines_of(answer):
    return [json.loads(line) for line in answer.body.decode().splitlines()]


def sha(data):
    return hashlib.sha256(data).hexdigest()


class HistoryCase(HttpCase):
    def page(self, session, client=None, **query):
        return (client or self.admin).expect(200, "GET", session + "/history", **query).json

    def steps(self, session, client=None):
        return self.page(session, client, limit=1000)["steps"]

    def cell(self, session, code, client=None, **more):
        return (client or self.admin).expect(200, "POST", session + "/execute", {"code": code, **more}).json

    def export(self, session, client=None):
        client = client or self.admin
        return lines_of(client.expect(200, "GET", session + "/history", headers={"Accept": "application/jsonl"}))


class Steps(HistoryCase):
    def test_a_session_without_steps(self):
        session = self.session()
        told = self.page(session)
        self.assertEqual((told["first"], told["last"], told["dropped"], told["next"], told["steps"], told["running"]),
                         (0, 0, 0, None, [], []))

    def test_commands(self):
        session = self.session()
        answer = self.admin.start(session, "echo out; echo err >&2; exit 3", cwd="/tmp", timeout_s=20)
        self.admin.start(session, ["/bin/sh", "-c", "id -un"], user="0")
        first, second = self.steps(session)
        self.assertEqual((first["number"], first["kind"], first["command_id"]), (1, "command", answer["command_id"]))
        self.assertEqual(first["argv"], ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"])
        for name in ("status", "exit_code", "stdout", "stderr", "started_at", "usage", "fault", "output_bytes"):
            self.assertEqual(first[name], answer[name], name)
        self.assertEqual((first["cwd"], first["limits"]), ("/tmp", {"timeout_s": 20}))
        self.assertEqual(first["duration_ms"], answer["usage"]["wall_ms"])
        self.assertEqual((second["number"], second["user"], second["stdout"]), (2, "0", "root\n"))
        self.assertGreater(second["started_us"], first["started_us"])
        self.assertEqual({"user", "env", "stdin_bytes", "terminal", "left_out"} & set(first), set())

    def test_cells(self):
        session = self.session()
        answer = self.cell(session, "print('out')\n6 * 7")
        failed = self.cell(session, "1 / 0", timeout_s=10)
        self.cell(session, "X=1; echo $X", language="bash")
        first, second, third = self.steps(session)
        self.assertEqual((first["kind"], first["code"], first["context_id"], first["language"]),
                         ("cell", "print('out')\n6 * 7", "python", "python"))
        for name in ("status", "stdout", "stderr", "results", "error", "execution_count", "duration_ms", "restarted"):
            self.assertEqual(first[name], answer[name], name)
        self.assertEqual(first["results"][0]["text/plain"], "42")
        self.assertEqual((second["status"], second["error"], second["timeout_s"]), ("error", failed["error"], 10))
        self.assertEqual((third["language"], third["stdout"]), ("bash", "1\n"))

    def test_cells_and_commands_over_a_stream(self):
        session = self.session()
        with self.admin.events(session + "/execute", body={"code": "print(1)"}) as events:
            events.wait_for("done")
        with self.admin.socket(session + "/stream") as socket:
            socket.send(type="execute", code="input('name? ')")
            socket.wait_for("input")
            socket.send(type="input", text="an answer")
            socket.wait_for("done")
            socket.send(type="start", command="cat", stdin="given")
            socket.wait_for("exit")
        self.assertTrue(until(lambda: len(self.steps(session)) == 3))
        one, two, three = self.steps(session)
        self.assertNotIn("questions", one)
        self.assertEqual(two["questions"], 1)
        self.assertEqual((three["stdout"], three["stdin_bytes"]), ("given", 5))

    def test_files(self):
        session = self.session(files=[{"path": "/workspace/first", "content": "initial", "mode": 0o600}])
        admin = self.admin
        admin.expect(200, "PUT", session + "/files", b"uploaded", path="/workspace/up", mode=0o755)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            info = tarfile.TarInfo("packed")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
        admin.expect(200, "PUT", session + "/files/archive", archive.getvalue(), path="/workspace/a")
        admin.expect(204, "POST", session + "/files/mkdir", {"path": "/workspace/d"})
        admin.expect(204, "POST", session + "/files/copy", {"from": "/workspace/up", "to": "/workspace/d/up"})
        admin.expect(204, "POST", session + "/files/move", {"from": "/workspace/d/up", "to": "/workspace/d/moved"})
        admin.expect(204, "DELETE", session + "/files", path="/workspace/d")
        admin.expect(200, "POST", "/api/e2b/files",
                     {"session_id": session.rsplit("/", 1)[1], "path": "/workspace/other", "content": "other"})
        self.cell(session, "open('/workspace/with').read()", files=[{"path": "/workspace/with", "content": "brought"}])
        # What was refused was not done.
        admin.expect(404, "DELETE", session + "/files", path="/workspace/nothing")
        told = self.page(session)
        (first,) = told["session"]["files"]
        self.assertEqual(first, {"path": "/workspace/first", "mode": 0o600, "size": 7, "sha256": sha(b"initial")})
        steps = told["steps"]
        self.assertEqual([(step["kind"], step.get("operation"), step.get("path")) for step in steps], [
            ("file", "write", "/workspace/up"), ("file", "unpack", "/workspace/a"),
            ("file", "make_directory", "/workspace/d"), ("file", "copy", "/workspace/up"),
            ("file", "move", "/workspace/d/up"), ("file", "remove", "/workspace/d"), ("file", "write", "/workspace/other"),
            ("cell", None, None)])
        self.assertEqual((steps[0]["size"], steps[0]["sha256"], steps[0]["mode"]), (8, sha(b"uploaded"), 0o755))
        self.assertEqual((steps[1]["size"], steps[1]["sha256"]), (len(archive.getvalue()), sha(archive.getvalue())))
        self.assertEqual(steps[4]["to"], "/workspace/d/moved")
        self.assertEqual(steps[6]["sha256"], sha(b"other"))
        self.assertEqual(steps[7]["files"][0]["sha256"], sha(b"brought"))

    def test_a_large_upload_is_known_by_its_beginning(self):
        session = self.session()
        data = os.urandom(20 << 20)
        self.admin.expect(200, "PUT", session + "/files", data, path="/workspace/large")
        (step,) = self.steps(session)
        self.assertEqual((step["size"], step["sha256"], step["sha256_bytes"]),
                         (len(data), sha(data[:16 << 20]), 16 << 20))

    def test_an_upload_that_failed_is_no_step(self):
        session = self.session()
        self.admin.expect(507, "PUT", session + "/files", b"x" * (300 << 20), path="/workspace/too-large")
        self.assertEqual(self.steps(session), [])

    def test_contexts_and_signals(self):
        session = self.session()
        context = self.admin.expect(201, "POST", session + "/contexts", {"language": "bash", "cwd": "/tmp"}).json["context_id"]
        self.cell(session, "pwd", context=context)
        self.admin.expect(200, "POST", f"{session}/contexts/{context}/restart")
        self.admin.expect(204, "DELETE", f"{session}/contexts/{context}")
        command = self.admin.start(session, "exec sleep 1000", background=True)["command_id"]
        self.admin.expect(204, "POST", f"{session}/commands/{command}/signal", {"signal": "TERM"})
        self.admin.expect(200, "GET", f"{session}/commands/{command}", wait_s=30)
        self.assertTrue(until(lambda: len(self.steps(session)) == 6))
        create, cell, restart, remove, *last = self.steps(session)
        self.assertEqual((create["operation"], create["context_id"], create["language"], create["cwd"]),
                         ("create", context, "bash", "/tmp"))
        self.assertEqual((cell["context_id"], cell["stdout"]), (context, "/tmp\n"))
        self.assertEqual((restart["operation"], remove["operation"]), ("restart", "remove"))
        signal = next(step for step in last if step["kind"] == "signal")
        ended = next(step for step in last if step["kind"] == "command")
        self.assertEqual((signal["command_id"], signal["signal"]), (command, 15))
        self.assertEqual((ended["command_id"], ended["status"], ended["signal"]), (command, "signaled", 15))
        self.assertLess(ended["started_us"], signal["started_us"])

    def test_a_background_command_is_a_step_when_it_has_ended(self):
        session = self.session()
        command = self.admin.start(session, "read line; echo $line", background=True, stdin_open=True)["command_id"]
        told = self.page(session)
        self.assertEqual(told["steps"], [])
        (running,) = told["running"]
        self.assertEqual((running["number"], running["command_id"], running["status"]), (None, command, "running"))
        self.assertEqual(self.export(session)[-1]["status"], "running")
        self.admin.expect(204, "POST", f"{session}/commands/{command}/stdin", {"data": "fed\n", "eof": True})
        self.admin.expect(200, "GET", f"{session}/commands/{command}", wait_s=30)
        self.assertTrue(until(lambda: self.steps(session)))
        told = self.page(session)
        self.assertEqual(told["running"], [])
        (step,) = told["steps"]
        self.assertEqual((step["stdout"], step["stdin_bytes"], step["stdin_open"], step["background"]),
                         ("fed\n", 4, True, True))

    def test_bytes_that_are_no_text(self):
        session = self.session()
        self.admin.start(session, r"printf 'a\377b'")
        (step,) = self.steps(session)
        self.assertEqual((step["stdout"], step["stdout_base64"]), ("a�b", "Yf9i"))

    def test_many_at_the_same_time(self):
        session = self.session(limits={"pids": 256})
        in_parallel(20, lambda number: self.admin.start(session, f"echo {number}"))
        self.assertTrue(until(lambda: len(self.steps(session)) == 20))
        steps = self.steps(session)
        self.assertEqual([step["number"] for step in steps], list(range(1, 21)))
        self.assertEqual(sorted(int(step["stdout"]) for step in steps), list(range(20)))


class Reading(HistoryCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.box = cls.admin.create()
        cls.addClassCleanup(cls.admin.delete, cls.box)
        for number in range(25):
            cls.admin.start(cls.box, f"echo {number}; head -c {number * 100} /dev/zero | tr '\\0' x")

    def test_pages(self):
        numbers, start = [], 1
        while start is not None:
            told = self.page(self.box, limit=7, **{"from": start})
            self.assertLessEqual(len(told["steps"]), 7)
            numbers += [step["number"] for step in told["steps"]]
            start = told["next"]
        self.assertEqual(numbers, list(range(1, 26)))
        self.assertEqual((told["first"], told["last"], told["dropped"]), (1, 25, 0))
        self.assertEqual([step["number"] for step in self.page(self.box, **{"from": 25})["steps"]], [25])
        self.assertEqual(self.page(self.box, **{"from": 26})["steps"], [])
        self.assertEqual(self.page(self.box, **{"from": 2**62})["steps"], [])

    def test_lines(self):
        by_accept = self.admin.expect(200, "GET", self.box + "/history", headers={"Accept": "application/jsonl"})
        self.assertEqual(by_accept.header("content-type"), "application/jsonl")
        by_parameter = self.admin.expect(200, "GET", self.box + "/history", format="jsonl")
        self.assertEqual(by_accept.body, by_parameter.body)
        head, *steps = lines_of(by_accept)
        self.assertEqual((head["number"], head["kind"], head["format"], head["dropped"]), (0, "session", 1, 0))
        self.assertEqual(head["environment"], "host")
        self.assertEqual(steps, self.steps(self.box))

    def test_only_its_head(self):
        answer = self.admin.expect(200, "HEAD", self.box + "/history", format="jsonl")
        self.assertEqual(answer.body, b"")
        self.assertGreater(int(answer.header("content-length")), 25 * 100)

    def test_wrong_parameters(self):
        for query in ({"from": -1}, {"from": "x"}, {"limit": 0}, {"limit": 1001}, {"from": 2**64}, {"format": "xml"}):
            self.assert_refused(self.admin.get(self.box + "/history", **query), 400)

    def test_who_may_read(self):
        owner, other = self.admin.make_key(), self.admin.make_key()
        session = self.session(owner)
        owner.start(session, "true")
        self.assert_refused(other.get(session + "/history"), 404, "no such session")
        self.assert_refused(other.get("/api/sessions/" + "a" * 33 + "/history"), 404, "no such session")
        self.assert_refused(other.get(session + "/history", format="jsonl"), 404)
        owner.expect(204, "POST", session + "/shares", {"key_id": other.key_id, "access": "read"})
        self.assertEqual(len(self.steps(session, other)), 1)

    def test_it_is_off_or_on_only(self):
        for value in ("no", 1, None):
            self.assert_refused(self.admin.post("/api/sessions", {"history": value}), 400, "/history")


class Secrets(HistoryCase):
    def test_values_input_and_contents_are_in_no_file(self):
        session = self.session(env={"SESSION_SECRET": "canary-1"}, files=[{"path": "/workspace/f", "content": "canary-2"}])
        self.admin.run(session, "true", env={"COMMAND_SECRET": "canary-3"}, stdin="canary-4")
        self.cell(session, "1", env={"CELL_SECRET": "canary-5"}, files=[{"path": "/workspace/g", "content": "canary-6"}])
        self.admin.expect(200, "PUT", session + "/files", b"canary-7", path="/workspace/h")
        self.admin.run(session, "echo canary-8", history=False)
        self.cell(session, "print('canary-9')", history=False)
        waiting = self.admin.start(session, "cat > /dev/null", background=True, stdin_open=True)["command_id"]
        self.admin.expect(204, "POST", f"{session}/commands/{waiting}/stdin", {"data": "canary-10", "eof": True})
        self.assertTrue(until(lambda: len(self.steps(session)) == 6))
        answer = self.admin.expect(200, "GET", session + "/history", format="jsonl")
        self.assertNotIn(b"canary", answer.body)
        head, command, cell, upload, command_left_out, cell_left_out, *_ = lines_of(answer)
        self.assertEqual(head["env"], ["SESSION_SECRET"])
        self.assertEqual((command["env"], command["stdin_bytes"]), (["COMMAND_SECRET"], 8))
        self.assertEqual(cell["env"], ["CELL_SECRET"])
        self.assertEqual(upload["size"], 8)
        self.assertEqual((command_left_out["exit_code"], "argv" in command_left_out), (0, False))
        self.assertEqual((cell_left_out["status"], "code" in cell_left_out, "stdout" in cell_left_out), ("ok", False, False))
        folder = os.path.join(self.server.storage, "sessions", session.rsplit("/", 1)[1])
        with open(os.path.join(folder, "history"), "rb") as file:
            self.assertNotIn(b"canary", file.read())
            self.assertEqual(os.fstat(file.fileno()).st_mode & 0o777, 0o600)

    def test_a_session_without_a_history(self):
        session = self.session(history=False)
        self.admin.run(session, "true")
        self.cell(session, "1")
        self.assert_refused(self.admin.get(session + "/history"), 404, "keeps no history")
        time.sleep(6)  # Before that nothing has files of its own.
        folder = os.path.join(self.server.storage, "sessions", session.rsplit("/", 1)[1])
        self.assertEqual(os.listdir(folder), ["commands"])


class Bounds(HistoryCase):
    FLAGS = ("--history-max-bytes", "1M")

    def test_of_one_step(self):
        session = self.session()
        self.admin.start(session, "seq 50000; seq 50000 >&2")
        self.cell(session, "print('x' * 1000000); 'y' * 100000")
        command, cell = self.steps(session)
        self.assertEqual(len(command["stdout"]) + command["stdout_cut"], 288894)
        self.assertLessEqual(len(command["stdout"]), 65536)
        self.assertTrue(command["stdout"].endswith("\n50000\n"))
        self.assertEqual(command["output_bytes"], 2 * 288894)
        self.assertEqual((len(cell["stdout"]), cell["stdout_cut"]), (65536, 1000001 - 65536))
        told = cell["results"][0]["text/plain"]["left_out"]
        self.assertEqual((told["size"], told["sha256"]), (100002, sha(b"'" + b"y" * 100000 + b"'")))

    def test_code_that_is_too_long_is_left_out(self):
        session = self.session()
        self.cell(session, "x = '" + "a" * 300000 + "'")
        (step,) = self.steps(session)
        self.assertEqual((step["left_out"], step["status"], "code" in step), ("it was too large", "ok", False))

    def test_of_all_and_the_oldest_go(self):
        session = self.session(files=[{"path": "/workspace/f", "content": "x"}])
        folder = os.path.join(self.server.storage, "sessions", session.rsplit("/", 1)[1])
        for _ in range(40):
            self.admin.start(session, "head -c 60000 /dev/zero | tr '\\0' x")
            size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder) if "history" in name)
            self.assertLessEqual(size, 1 << 20)
        told = self.page(session, limit=1000)
        self.assertEqual(told["last"], 40)
        self.assertGreater(told["dropped"], 20)
        self.assertEqual(told["first"], told["dropped"] + 1)
        self.assertEqual([step["number"] for step in told["steps"]], list(range(told["first"], 41)))
        head, *steps = self.export(session)
        self.assertEqual((head["dropped"], len(head["files"]), len(steps)), (told["dropped"], 1, 40 - told["dropped"]))

    def test_a_page_is_bounded_too(self):
        session = self.session()
        for _ in range(12):
            self.admin.start(session, "head -c 60000 /dev/urandom")
        told = self.page(session, limit=1000)
        self.assertTrue(told["steps"])


class Off(HistoryCase):
    FLAGS = ("--history-enabled", "false")

    def test_nothing_is_kept(self):
        session = self.session(history=True)
        self.admin.run(session, "true")
        self.assert_refused(self.admin.get(session + "/history"), 404, "keeps no history")


class Restart(HistoryCase, RestartCase):
    def history_file(self, server, session):
        return os.path.join(server.storage, "sessions", session.rsplit("/", 1)[1], "history")

    def test_goes_on_after_the_server_was_killed(self):
        first = self.first()
        admin = first.admin
        session = admin.create(files=[{"path": "/workspace/f", "content": "x"}], env={"A": "secret"})
        admin.run(session, "echo before")
        self.cell(session, "x = 1", admin)
        long = admin.start(session, "while [ ! -e go ]; do sleep 0.05; done; echo late", background=True,
                           cwd="/workspace", env={"B": "secret"})["command_id"]
        self.next(first)
        self.assertEqual([step["number"] for step in self.steps(session, admin)], [1, 2])
        self.cell(session, "x + 1", admin)
        admin.run(session, "touch go")
        admin.expect(200, "GET", f"{session}/commands/{long}", wait_s=30)
        self.assertTrue(until(lambda: len(self.steps(session, admin)) == 5))
        told = self.page(session, admin)
        self.assertEqual([step["number"] for step in told["steps"]], [1, 2, 3, 4, 5])
        self.assertEqual(told["steps"][2]["results"][0]["text/plain"], "2")
        late = told["steps"][4]
        self.assertEqual((late["stdout"], late["cwd"], late["env"], late["background"]),
                         ("late\n", "/workspace", ["B"], True))
        self.assertLess(late["started_us"], told["steps"][2]["started_us"])
        self.assertEqual((told["session"]["files"][0]["path"], told["session"]["env"]), ("/workspace/f", ["A"]))

    def test_what_is_left_out_stays_so(self):
        first = self.first()
        admin = first.admin
        session = admin.create()
        waiting = admin.start(session, "read line; echo canary", background=True, stdin_open=True, history=False)["command_id"]
        self.next(first)
        admin.expect(204, "POST", f"{session}/commands/{waiting}/stdin", {"data": "x\n", "eof": True})
        admin.expect(200, "GET", f"{session}/commands/{waiting}", wait_s=30)
        self.assertTrue(until(lambda: self.steps(session, admin)))
        self.assertNotIn("canary", json.dumps(self.steps(session, admin)))

    def test_a_torn_line_is_dropped(self):
        first = self.first()
        admin = first.admin
        session = admin.create()
        for number in range(3):
            admin.run(session, f"echo {number}")
        self.assertTrue(until(lambda: len(self.steps(session, admin)) == 3))
        first.end_now()
        with open(self.history_file(first, session), "r+b") as file:
            file.truncate(os.path.getsize(file.name) - 10)
        self.next(first)
        self.assertEqual([step["stdout"] for step in self.steps(session, admin)], ["0\n", "1\n"])
        admin.run(session, "echo next")
        self.assertTrue(until(lambda: len(self.steps(session, admin)) == 3))
        self.assertEqual([(step["number"], step["stdout"]) for step in self.steps(session, admin)],
                         [(1, "0\n"), (2, "1\n"), (3, "next\n")])

    def test_a_damaged_one_harms_nothing_else(self):
        first = self.first()
        admin = first.admin
        session = admin.create()
        admin.run(session, "true")
        self.assertTrue(until(lambda: self.steps(session, admin)))
        first.end_now()
        with open(self.history_file(first, session), "ab") as file:
            file.write(b"\xff\x00 rubbish\n" * 3)
        after = self.next(first)
        answer = admin.get(session + "/history")
        self.assertEqual((answer.status, answer.error["code"]), (500, "internal"))
        after.problems.clear()  # It says that the server failed, which it did.
        self.assertEqual(admin.run(session, "echo well"), "well\n")

    def test_a_full_disk_harms_nothing_else(self):
        first = self.first()
        admin = first.admin
        session = admin.create()
        path = self.history_file(first, session)
        os.makedirs(path)  # Nothing can be written there.
        self.assertEqual(admin.run(session, "echo well"), "well\n")
        self.assertTrue(until(lambda: "cannot be kept" in first.log()))
        os.rmdir(path)
        self.assertEqual(admin.run(session, "echo again"), "again\n")
        self.assertTrue(until(lambda: self.steps(session, admin)))
        first.stop()


class Gone(HistoryCase):
    def test_it_goes_with_the_session(self):
        session = self.session()
        self.admin.run(session, "true")
        self.admin.expect(204, "DELETE", session)
        self.assert_refused(self.admin.get(session + "/history"), 404, "went with it")
        self.assertFalse(os.path.exists(os.path.join(self.server.storage, "sessions", session.rsplit("/", 1)[1])))

    def test_it_stays_with_the_artifacts(self):
        owner, other = self.admin.make_key(), self.admin.make_key()
        session = self.session(owner, keep_artifacts=True)
        owner.run(session, "echo kept")
        owner.start(session, "exec sleep 1000", background=True)
        owner.expect(204, "DELETE", session)
        told = self.page(session, owner)
        self.assertEqual([step["status"] for step in told["steps"]], ["exited", "running"])
        self.assertEqual((told["steps"][0]["stdout"], told["running"]), ("kept\n", []))
        self.assertEqual(len(self.export(session, owner)), 3)
        self.assertEqual(owner.expect(200, "GET", session + "/artifacts").json["artifacts"], [])
        self.assert_refused(other.get(session + "/history"), 404, "no such session")

    def test_a_session_of_no_steps_may_be_kept(self):
        session = self.session()
        self.admin.expect(204, "DELETE", session, keep_artifacts="true")
        self.assertEqual(self.page(session)["steps"], [])

    def test_one_that_ended_with_the_server_is_kept_too(self):
        server = Server(storage=os.path.join(self.scratch(), "storage"))
        self.addCleanup(server.kill)
        admin = server.admin
        session = admin.create(keep_artifacts=True)
        admin.run(session, "echo kept")
        self.assertTrue(until(lambda: len(self.steps(session, admin)) == 1))  # It is written behind the answer.
        family = server.end_now()
        for pid, name in server.alive_of(family):  # As if the machine had ended.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        after = self.other_server(storage=server.storage)
        admin.server = after
        self.assertEqual(admin.state(session), "gone")
        self.assertEqual([step["stdout"] for step in self.steps(session, admin)], ["kept\n"])


if __name__ == "__main__":
    unittest.main()
