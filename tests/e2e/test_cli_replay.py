"""session history and replay: the same again, what goes another way, what is missing, and histories that are none."""
import io
import json
import os
import subprocess
import tarfile
import unittest

from harness import BINARY, PATIENCE, USAGE_ERROR, run
from http_harness import ADMIN_KEY, HttpCase, environment, until
from test_terminal import Session as Terminal


EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "replay.sh")


class ReplayCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.folder = self.scratch()
        self.box = self.session()

    def settings(self):
        return environment(AGENT_SANDBOX_URL=f"http://127.0.0.1:{self.server.port}", AGENT_SANDBOX_API_KEY=ADMIN_KEY)

    def call(self, *words):
        return run(*words, env=self.settings(), cwd=self.folder)

    def cell(self, code, session=None, **more):
        return self.admin.expect(200, "POST", (session or self.box) + "/execute", {"code": code, **more}).json

    def command(self, command, **more):
        return self.admin.start(self.box, command, **more)

    def history(self, session=None, steps=None):
        """Exported to a file, when it has as many steps."""
        session = session or self.box
        if steps is not None:
            last = lambda: self.admin.get(session + "/history").json["last"]
            self.assertTrue(until(lambda: last() == steps), last())
        path = os.path.join(self.folder, "steps.jsonl")
        self.assert_ran(self.call("session", "history", session.rsplit("/", 1)[1], "--jsonl", path))
        return path

    def replay(self, *words, code=0):
        done = self.call("replay", *words, "--json")
        self.assertEqual(done.returncode, code, done.stdout.decode() + done.stderr.decode())
        return json.loads(done.stdout)

    def outcomes(self, told):
        return [(step["number"], step["outcome"]) for step in told["steps"]]

    def file(self, name, content):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def alive(self):
        return {each["session_id"] for each in self.admin.get("/api/sessions", limit=1000).json["sessions"]}


class History(ReplayCase):
    def test_as_a_table(self):
        self.command("echo one; exit 3")
        self.cell("x = 1\nx + 1")
        self.admin.expect(204, "POST", self.box + "/files/mkdir", {"path": "/workspace/d"})
        self.command("exec sleep 1000", background=True)
        done = self.call("session", "history", self.box.rsplit("/", 1)[1])
        self.assert_ran(done)
        titles, one, two, three, running = done.stdout.decode().splitlines()
        self.assertEqual(titles.split(), ["STEP", "AT", "TOOK", "STATUS", "WHAT"])
        self.assertRegex(one, r"^1 .* exited 3 +echo one; exit 3$")
        self.assertRegex(two, r"^2 .* ok +python: x = 1 …$")
        self.assertRegex(three, r"^3 .* file: make_directory /workspace/d$")
        self.assertRegex(running, r"^ .* running +exec sleep 1000$")

    def test_as_json_over_pages(self):
        for number in range(12):
            self.command(["true", str(number)])
        done = self.call("session", "history", self.box.rsplit("/", 1)[1], "--json", "--from", "3")
        self.assert_ran(done)
        self.assertEqual([step["number"] for step in json.loads(done.stdout)["steps"]], list(range(3, 13)))

    def test_lines_to_stdout_and_to_a_file(self):
        self.command("echo one")
        path = self.history(steps=1)
        with open(path, "rb") as file:
            content = file.read()
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertEqual(os.listdir(self.folder), ["steps.jsonl"])
        done = self.call("session", "history", self.box.rsplit("/", 1)[1], "--jsonl", "-")
        self.assertEqual(done.stdout, content)
        self.assertEqual(len(content.splitlines()), 2)

    def test_what_speaks_to_terminals_does_not(self):
        self.command(["echo", "\x1b[2J"])
        done = self.call("session", "history", self.box.rsplit("/", 1)[1])
        self.assertNotIn(b"\x1b", done.stdout)

    def test_of_nothing(self):
        done = self.call("session", "history", "a" * 33, "--jsonl", "file")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"no such session", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])
        none = self.session(history=False)
        self.assertIn(b"keeps no history", self.call("session", "history", none.rsplit("/", 1)[1]).stderr)

    def test_sessions_without_one(self):
        done = self.call("session", "create", "--no-history")
        self.assert_ran(done)
        session = "/api/sessions/" + done.stdout.decode().strip()
        self.addCleanup(self.admin.delete, session)
        self.admin.expect(404, "GET", session + "/history")


class Same(ReplayCase):
    def test_every_kind_of_step(self):
        self.command("echo hello > file; cat file; echo err >&2; exit 3")
        self.cell("x = 41\nprint('out')")
        self.cell("x + 1")
        self.cell("1 / 0")
        self.cell("object()")  # at another address each time
        other = self.admin.expect(201, "POST", self.box + "/contexts", {"language": "python", "cwd": "/tmp"}).json["context_id"]
        self.cell("import os; os.getcwd()", context=other)
        self.admin.expect(200, "POST", f"{self.box}/contexts/{other}/restart")
        self.cell("'os' in dir()", context=other)
        self.cell("Y=5; echo $Y", language="bash")
        self.admin.expect(204, "POST", self.box + "/files/mkdir", {"path": "/workspace/d"})
        self.admin.expect(204, "POST", self.box + "/files/copy", {"from": "/workspace/file", "to": "/workspace/d/copy"})
        self.admin.expect(204, "POST", self.box + "/files/move", {"from": "/workspace/d/copy", "to": "/workspace/d/moved"})
        self.admin.expect(204, "DELETE", self.box + "/files", path="/workspace/file")
        self.command("find . | sort", cwd="/workspace")
        self.command("tty; stty size", pty={"rows": 11, "columns": 22})
        self.command("kill -9 $$")
        self.command("id -un", user="root")
        path = self.history(steps=18)
        before = self.alive()
        told = self.replay(path)
        self.assertEqual(self.outcomes(told), [(number, "same") for number in range(1, 19)])
        self.assertEqual((told["diverged"], told["first_divergence"], told["complete"], told["lacks"]), (False, None, True, []))
        self.assertEqual(self.alive(), before, "the new session is gone")

    def test_in_words(self):
        self.command("echo one")
        self.cell("6 * 7")
        done = self.call("replay", self.history(steps=2))
        self.assert_ran(done, b"same         1  echo one\nsame         2  python: 6 * 7\n2 steps: 2 the same, 0 differ\n")

    def test_a_server_and_its_clients(self):
        """Begun first and ended last, by a signal."""
        server = self.command("mkfifo p; exec 3<> p; while read line <&3; do echo got $line; done", background=True)["command_id"]
        self.command("until [ -p p ]; do sleep 0.01; done; echo a > p")
        self.command("echo b > p")
        self.assertTrue(until(lambda: self.admin.get(f"{self.box}/commands/{server}").json["output_bytes"] == 12))
        self.admin.expect(204, "POST", f"{self.box}/commands/{server}/signal", {"signal": "KILL"})
        path = self.history(steps=4)
        told = self.replay(path)
        self.assertEqual({step["outcome"] for step in told["steps"]}, {"same"}, told)
        self.assertEqual(len(told["steps"]), 4)

    def test_one_that_runs_on(self):
        self.command("mkfifo p; exec 3<> p; while read line <&3; do echo $line > $line; done", background=True)
        self.command("until [ -p p ]; do sleep 0.01; done; echo made > p; until [ -e made ]; do sleep 0.01; done; cat made")
        told = self.replay(self.history(steps=1))
        self.assertEqual(self.outcomes(told), [(None, "begun"), (1, "same")])

    def test_an_interrupted_cell(self):
        self.cell("x = 1")
        with self.admin.events(self.box + "/execute", body={"code": "print('begun', flush=True)\nwhile True: x += 1"}) as events:
            events.wait_for("stdout")
            self.admin.expect(204, "POST", self.box + "/contexts/python/interrupt")
            events.wait_for("done")
        self.cell("x > 1")
        told = self.replay(self.history(steps=3))
        self.assertEqual(self.outcomes(told), [(1, "same"), (2, "same"), (3, "same")], told)

    def test_long_output_and_long_results(self):
        self.command("seq 100000; seq 300000 >&2")
        self.cell("print('x' * 1000000)\n'y' * 100000")
        told = self.replay(self.history(steps=2))
        self.assertEqual(self.outcomes(told), [(1, "same"), (2, "same")], [s["differences"] for s in told["steps"]])

    def test_limits_hold_again(self):
        session = self.session(limits={"memory": "64M", "disk": "16M"}, preset="strict")
        self.admin.start(session, "exec sleep 100", timeout_s=0.3)
        self.admin.start(session, "head -c 20000000 /dev/zero > file; ls -l file | cut -d' ' -f5")
        told = self.replay(self.history(session, steps=2))
        self.assertEqual(self.outcomes(told), [(1, "same"), (2, "same")], told)

    def test_in_a_session_that_is_there(self):
        self.command("cat given")
        path = self.history(steps=1)
        other = self.session(files=[{"path": "/workspace/given", "content": ""}])
        told = self.replay(path, "--session", other.rsplit("/", 1)[1], code=1)
        self.assertEqual(told["steps"][0]["differences"][0]["what"], "exit_code")
        self.assertEqual(self.admin.state(other), "ready")
        self.admin.expect(204, "DELETE", other + "/files", path="/workspace/given")
        self.assertFalse(self.replay(path, "--session", other.rsplit("/", 1)[1])["diverged"])

    def test_until_a_step_and_the_session_stays(self):
        for number in (1, 2, 3):
            self.command(f"echo {number} >> file")
        told = self.replay(self.history(steps=3), "--until", "2", "--keep")
        self.assertEqual(self.outcomes(told), [(1, "same"), (2, "same")])
        session = "/api/sessions/" + told["session_id"]
        self.addCleanup(self.admin.delete, session)
        self.assertEqual(self.admin.run(session, "cat file"), "1\n2\n")

    def test_states_that_were_saved_and_returned_to(self):
        session = self.session(auto_checkpoint=True)
        self.cell("x = 1", session)
        self.admin.expect(201, "POST", session + "/checkpoint", {"name": "one"})
        self.cell("x = 2; open('/workspace/made', 'w').close()", session)
        self.admin.expect(200, "POST", session + "/rollback", {"name": "one"})
        self.cell("import os; x, os.listdir('/workspace')", session)
        self.cell("x = 3", session)
        self.admin.expect(200, "POST", session + "/undo")
        self.cell("x", session)
        path = self.history(session, steps=8)
        told = self.replay(path)
        self.assertEqual(self.outcomes(told), [(number, "same") for number in range(1, 9)], told)
        with open(path) as file:
            self.assertIn('"(1, [])"', file.read())

    def test_a_branch_lacks_what_it_began_with(self):
        self.cell("x = 1")
        made = self.admin.expect(201, "POST", self.box + "/fork", {"count": 1}).json["sessions"][0]["session_id"]
        branch = "/api/sessions/" + made
        self.addCleanup(self.admin.delete, branch)
        self.cell("x", branch)
        path = self.history(branch, steps=1)
        told = self.replay(path, code=1)
        self.assertEqual(told["lacks"], [f"the state of {self.box.rsplit('/', 1)[1]}, of which it is a branch"])
        other = self.admin.expect(201, "POST", self.box + "/fork", {"count": 1}).json["sessions"][0]["session_id"]
        self.addCleanup(self.admin.delete, "/api/sessions/" + other)
        self.assertFalse(self.replay(path, "--session", other)["diverged"])

    def test_a_replay_can_be_replayed(self):
        self.command("echo one")
        self.cell("6 * 7")
        told = self.replay(self.history(steps=2), "--keep")
        session = "/api/sessions/" + told["session_id"]
        self.addCleanup(self.admin.delete, session)
        self.assertFalse(self.replay(self.history(session, steps=2))["diverged"])


class Differs(ReplayCase):
    def test_a_program_that_reads_the_clock(self):
        self.command("echo before")
        self.command("echo the time; date +%s%N; echo is late")
        self.command("echo after")
        told = self.replay(self.history(steps=3), code=1)
        self.assertEqual(self.outcomes(told), [(1, "same"), (2, "differs")])
        self.assertEqual(told["first_divergence"], 2)
        (difference,) = told["steps"][1]["differences"]
        self.assertEqual(difference["what"], "stdout")
        self.assertRegex(difference["diff"], r"(?m)^ the time\n-\d+\n\+\d+\n is late$")
        self.assertNotEqual(difference["before"], difference["after"])

    def test_one_that_draws_lots_and_on_it_goes(self):
        self.cell("import random")
        self.cell("random.random()")
        self.cell("print('after')")
        path = self.history(steps=3)
        told = self.replay(path, "--continue", code=1)
        self.assertEqual(self.outcomes(told), [(1, "same"), (2, "differs"), (3, "same")])
        self.assertEqual(told["steps"][1]["differences"][0]["what"], "result 1 text/plain")
        self.assertEqual(self.outcomes(self.replay(path, "--stop-at-divergence", code=1)), [(1, "same"), (2, "differs")])
        self.assertEqual(self.call("replay", path, "--continue", "--stop-at-divergence").returncode, USAGE_ERROR)

    def test_in_words_and_in_colour(self):
        self.command("date +%N; printf '\\033[2J'; exit $(( $(date +%N | tail -c 3 | sed 's/^0//') % 2 + 7 ))")
        path = self.history(steps=1)
        done = self.call("replay", path)
        self.assertEqual(done.returncode, 1)
        text = done.stdout.decode()
        self.assertIn("differs      1  date", text)
        self.assertIn("The first to differ is step 1", text)
        self.assertRegex(text, r"(?m)^  -\d+$\n^  \+\d+$")
        self.assertNotIn("\x1b", text)
        terminal = Terminal("replay", path, env={**self.settings(), "TERM": "xterm"})
        self.assertEqual(terminal.wait(), 1)
        self.assertIn(b"\x1b[31m-", terminal.seen)
        self.assertNotIn(b"\x1b[2J", terminal.seen)

    def test_what_others_made_is_missing(self):
        """A state that no step made."""
        self.command("cat /workspace/file")
        path = self.history(steps=1)
        with open(path) as file:
            head, step = map(json.loads, file)
        step.update(stdout="content\n", stderr="", exit_code=0)
        self.file("changed.jsonl", (json.dumps(head) + "\n" + json.dumps(step) + "\n").encode())
        told = self.replay("changed.jsonl", code=1)
        self.assertEqual({each["what"] for each in told["steps"][0]["differences"]}, {"exit_code", "stdout", "stderr"})

    def test_what_the_server_refuses(self):
        self.cell("1", context=self.admin.expect(201, "POST", self.box + "/contexts", {}).json["context_id"])
        path = self.history(steps=2)
        with open(path) as file:
            head, _, cell = file
        self.file("changed.jsonl", (head + cell).encode())
        told = self.replay("changed.jsonl", code=1)
        self.assertEqual(told["steps"][0]["differences"][0]["what"], "answer")
        self.assertIn("no such context", told["steps"][0]["differences"][0]["after"])


class Example(ReplayCase):
    def test_it_finds_the_clock(self):
        done = subprocess.run(["sh", EXAMPLE], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE,
                              env={**self.settings(), "AGENT_SANDBOX": os.path.abspath(BINARY)})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertRegex(done.stdout, r"(?s)same +1 .*same +2 .*differs +3  date \+%N\n.*first to differ is step 3.*ends with 1")


class Lacks(ReplayCase):
    def archive(self):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            info = tarfile.TarInfo("packed")
            info.size = 7
            tar.addfile(info, io.BytesIO(b"packed\n"))
        return data.getvalue()

    def make_history(self):
        box = self.session(files=[{"path": "/workspace/initial", "content": "initial\n"}], env={"OF_SESSION": "one"})
        self.admin.expect(200, "PUT", box + "/files", b"uploaded\n", path="/workspace/up", mode=0o755)
        self.admin.expect(200, "PUT", box + "/files/archive", self.archive(), path="/workspace")
        self.cell("open('/workspace/brought').read()", box, files=[{"path": "/workspace/brought", "content": "brought"}])
        self.admin.start(box, "cat initial up packed; stat -c %a up; echo $OF_SESSION $OF_COMMAND; cat",
                         env={"OF_COMMAND": "two"}, stdin="three\n")
        return self.history(box, steps=4)

    def test_nothing_is_brought(self):
        path = self.make_history()
        told = self.replay(path, "--continue", code=1)
        self.assertFalse(told["complete"])
        self.assertEqual(told["lacks"], ["the value of OF_SESSION", "the file /workspace/initial of 8 bytes"])
        first, second, third, fourth = told["steps"]
        self.assertEqual((first["outcome"], first["lacks"]), ("lacks", ["the file /workspace/up of 9 bytes"]))
        self.assertEqual((second["outcome"], second["lacks"]), ("lacks", [f"the archive of {len(self.archive())} bytes"]))
        self.assertEqual((third["outcome"], third["lacks"]), ("differs", ["the file /workspace/brought of 7 bytes"]))
        self.assertEqual((fourth["outcome"], fourth["lacks"]),
                         ("differs", ["the value of OF_COMMAND", "its input of 6 bytes"]))
        text = self.call("replay", path, "--continue").stdout.decode()
        self.assertIn("lacks    the value of OF_SESSION\n", text)
        self.assertIn("lacks the file /workspace/up of 9 bytes\n", text)

    def test_everything_is_brought(self):
        path = self.make_history()
        for name, content in [("a/one", b"initial\n"), ("a/b/two", b"uploaded\n"), ("three", b"brought"),
                              ("four.tar", self.archive()), ("same-size", b"Uploaded\n")]:
            self.file("files/" + name, content)
        input = self.file("input", b"three\n")
        told = self.replay(path, "--files", "files", "--env", "OF_SESSION=one", "--env", "OF_COMMAND=two",
                           "--input", f"4={input}")
        self.assertEqual(self.outcomes(told), [(number, "same") for number in range(1, 5)])
        self.assertTrue(told["complete"])
        other = self.replay(path, "--files", "files", "--env", "OF_SESSION=one", "--env", "OF_COMMAND=other",
                            "--input", f"4={input}", code=1)
        self.assertEqual(other["first_divergence"], 4)

    def test_what_was_left_out(self):
        self.command("echo secret", history=False)
        self.cell("x = 'secret'", history=False)
        self.command("echo known")
        told = self.replay(self.history(steps=3))
        self.assertEqual(self.outcomes(told), [(1, "lacks"), (2, "lacks"), (3, "same")])

    def test_steps_that_were_dropped(self):
        server = self.other_server("--history-max-bytes", "64K")
        session = server.admin.create()
        for _ in range(20):
            server.admin.start(session, "head -c 10000 /dev/zero | tr '\\0' x")
        lines = server.admin.expect(200, "GET", session + "/history", format="jsonl").body
        self.file("steps.jsonl", lines)
        told = self.replay("steps.jsonl")
        self.assertIn("the first", told["lacks"][0])
        self.assertLess(len(told["steps"]), 10)


class Wrong(ReplayCase):
    def test_files_that_are_none(self):
        self.file("empty", b"")
        self.file("text", b"hello\n")
        self.file("torn", b'{"number":0,"kind":"session","format":1}\n{"number":1,"ki')
        self.file("later", b'{"number":0,"kind":"session","format":99}\n')
        for name, word in [("empty", b"no history"), ("text", b"text:1"), ("torn", b"torn:2"), ("later", b"later version")]:
            done = self.call("replay", name)
            self.assertNotIn(done.returncode, (0, 1), name)
            self.assertIn(word, done.stderr)
        self.assertEqual(self.call("replay", "nowhere").returncode, USAGE_ERROR)
        self.assertIn("error", json.loads(self.call("replay", "text", "--json").stdout))

    def test_words_that_make_no_sense(self):
        self.command("true")
        path = self.history(steps=1)
        for words in (["--until", "9"], ["--env", "novalue"], ["--input", "x=y"], ["--files", "nowhere"],
                      ["--session", "a", "--environment", "host"], ["--until", "x"]):
            done = self.call("replay", path, *words)
            self.assertNotIn(done.returncode, (0, 1), words)
            self.assertTrue(done.stderr, words)

    def test_a_session_that_is_not_there(self):
        self.command("true")
        told = self.replay(self.history(steps=1), "--session", "a" * 33, code=1)
        self.assertIn("no such session", told["steps"][0]["differences"][0]["after"])

    def test_lines_of_somebody_else_harm_nothing(self):
        rubbish = [{"number": 0, "kind": "session", "format": 1, "env": "x", "files": [1, {}], "limits": 5, "volumes": [1]},
                   {"number": 1, "kind": "command", "started_us": 5, "duration_ms": "x", "argv": 7, "env": [1], "limits": []},
                   {"number": 2, "kind": "cell", "started_us": 6, "files": [1, {"path": 1}], "results": 7},
                   {"number": 3, "kind": "signal", "started_us": 7}, {"number": 4, "kind": "nothing", "started_us": 8},
                   {"number": 5, "kind": "file", "operation": "x", "started_us": 9},
                   {"number": 6, "kind": "context", "started_us": 10}, {"number": 7, "kind": "state", "started_us": 11},
                   {"number": -1, "kind": "command", "argv": ["true", 1], "started_us": 12, "terminal": 5}]
        self.file("steps.jsonl", b"\n".join(json.dumps(line).encode() for line in rubbish))
        done = self.call("replay", "steps.jsonl", "--continue", "--json", "--session", self.box.rsplit("/", 1)[1])
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["steps"]), 8)


if __name__ == "__main__":
    unittest.main()
