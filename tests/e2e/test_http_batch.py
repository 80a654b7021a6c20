"""Batches: every verdict with real programs, fairness, limits, and what happens to those who leave."""
import base64
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import unittest

from harness import PATIENCE, needs
from http_harness import Client, HttpCase, Server, descendants, environment, in_parallel, name_of, until
from http_raw import Broken, request
from http_schema import check

HELLO = {
    "python": "print('hello', input())",
    "javascript": "console.log('hello', require('fs').readFileSync(0, 'utf8').trim())",
    "bash": "read -r name; echo hello $name",
    "c": '#include <stdio.h>\nint main(void) { char name[9]; return scanf("%8s", name) != 1 || printf("hello %s\\n", name) < 0; }',
    "cpp": "#include <iostream>\nint main() { std::string name; std::cin >> name; std::cout << \"hello \" << name << '\\n'; }",
}
ENDLESS = "import time\ntime.sleep(300)"
PATIENT = {"wall_s": 300}


def item(id, code, language="python", **more):
    return {"id": id, "code": code, "language": language, **more}


def sleepers(count, seconds=300, **more):
    """Programs that the machine shows as sleep."""
    return [item(f"s{number}", f"exec sleep {seconds}", "bash", limits=PATIENT, **more) for number in range(count)]


class Following:
    """Somebody who reads verdicts as they come."""

    def __init__(self, client, method, target, body=None, room=None, timeout=PATIENCE):
        self.connection = client.server.connect(timeout, room=room)
        headers = client.headers([("Content-Type", "application/json")] if body is not None else [])
        self.connection.send(request(method, target, headers, json.dumps(body).encode() if body is not None else b""))
        self.answer = self.connection.read_head()
        assert self.answer.status == 200, self.answer
        self.batch = "/api/batch/" + self.answer.header("batch-id")
        self._rest = b""

    def next(self):
        """The next verdict; None when all have come."""
        while b"\n" not in self._rest:
            chunk = self.connection.read_chunk()
            if not chunk:
                assert not self._rest, "a line without an end"
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def rest(self):
        return list(iter(self.next, None))

    def drop(self):
        self.connection.reset()


class BatchCase(HttpCase):
    def lines(self, answer):
        """The verdicts of an answer, each as it is described, numbered without a gap."""
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(answer.header("content-type"), "application/x-ndjson")
        verdicts = [json.loads(line) for line in answer.body.splitlines()]
        for verdict in verdicts:
            check(verdict, {"$ref": "#/components/schemas/BatchVerdict"}, self.server.contract.document)
        return verdicts

    def judge(self, *items, client=None):
        """Verdicts by id; there is one for each item."""
        client = client or self.admin
        answer = client.post("/api/batch", {"items": list(items)})
        verdicts = self.lines(answer)
        self.assertEqual([verdict["number"] for verdict in verdicts], list(range(len(items))))
        self.assertEqual(sorted(verdict["id"] for verdict in verdicts), sorted(each["id"] for each in items))
        return {verdict["id"]: verdict for verdict in verdicts}

    def judge_one(self, code, language="python", **more):
        return self.judge(item("one", code, language, **more))["one"]

    def follow(self, client, method, target, body=None, **more):
        following = Following(client, method, target, body, **more)
        self.addCleanup(following.connection.close)
        return following

    def assert_verdict(self, expected, verdict):
        self.assertEqual(verdict["verdict"], expected, verdict)

    def submit(self, items, client=None, **more):
        """A batch that nobody reads: its address."""
        answer = (client or self.admin).expect(202, "POST", "/api/batch", {"items": items, "background": True}, **more)
        batch = "/api/batch/" + answer.json["batch_id"]
        self.addCleanup(self.admin.delete, batch)
        return batch

    def metric(self, name, server=None, **labels):
        text = (server or self.server).admin.expect(200, "GET", "/metrics").body.decode()
        wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
        for line in text.splitlines():
            if line.startswith(wanted + " "):
                return float(line.rpartition(" ")[2])
        return 0.0


class Verdicts(BatchCase):
    @needs("python3", "node", "bash", "gcc", "g++")
    def test_every_language(self):
        for language, code in HELLO.items():
            with self.subTest(language=language):
                verdict = self.judge_one(code, language, stdin="you\n", expect={"stdout": "hello you"})
                self.assert_verdict("accepted", verdict)
                self.assertEqual((verdict["stdout"], verdict["exit_code"]), ("hello you\n", 0))
                self.assertGreater(verdict["usage"]["wall_ms"], 0)
                self.assertGreater(verdict["usage"]["max_rss_bytes"], 0)

    def test_wrong_answers(self):
        told = self.judge(item("right", "print(6 * 7)", expect={"stdout": "42"}),
                          item("wrong", "print(6 * 9)", expect={"stdout": "42"}),
                          item("blanks", "print('42  \\n\\n')", expect={"stdout": "42\n"}),
                          item("exact", "print(42)", expect={"stdout": "42", "exact": True}),
                          item("exactly", "print(42, end='')", expect={"stdout": "42", "exact": True}),
                          item("bytes", "import sys; sys.stdout.buffer.write(bytes([0, 255]))",
                               expect={"stdout_base64": base64.b64encode(b"\0\xff").decode(), "exact": True}))
        self.assertEqual({id: verdict["verdict"] for id, verdict in told.items()}, {
            "right": "accepted", "wrong": "wrong_answer", "blanks": "accepted", "exact": "wrong_answer",
            "exactly": "accepted", "bytes": "accepted"})
        self.assertEqual(told["wrong"]["stdout"], "54\n")
        self.assertEqual(base64.b64decode(told["bytes"]["stdout_base64"]), b"\0\xff")

    def test_failures_of_programs(self):
        told = self.judge(item("exit", "exit(3)"), item("raise", "1/0"), item("abort", "import os; os.abort()"),
                          item("bash", "exit 7", "bash"), item("js", "throw new Error('no')", "javascript"),
                          item("late", "print('x'); exit(1)", expect={"stdout": "x"}))
        for verdict in told.values():
            self.assert_verdict("runtime_error", verdict)
        self.assertEqual((told["exit"]["exit_code"], told["exit"]["reason"]), (3, "it exited with 3"))
        self.assertIn("ZeroDivisionError", told["raise"]["stderr"])
        self.assertIn('File "/workspace/main.py", line 1', told["raise"]["stderr"])
        self.assertEqual(told["abort"]["signal"], 6)
        self.assertEqual(told["bash"]["exit_code"], 7)
        self.assertIn("Error: no", told["js"]["stderr"])

    @needs("gcc", "g++")
    def test_built_programs(self):
        told = self.judge(
            item("segv", "int main(void) { volatile int *p = 0; return *p; }", "c"),
            item("code", "int main() { return 9; }", "c++"),
            item("warns", 'int main(void) { int number = "text"; return 0; }', "c"),
            item("broken", "int main(void) { return undeclared; }", "c"),
            item("empty", "", "cpp"),
            item("endless", '#include "/dev/zero"', "c"),
            item("maths", "#include <math.h>\n#include <stdlib.h>\n"
                          "int main(int n, char **v) { return (int)cos(atof(*v)) - 1; }", "c"),
            item("header", '#include "sub/a.h"\nint main(void) { return ANSWER - 42; }', "c",
                 files=[{"path": "sub/a.h", "content": "#define ANSWER 42\n"}]))
        self.assertEqual({id: verdict["verdict"] for id, verdict in told.items()}, {
            "segv": "runtime_error", "code": "runtime_error", "warns": "accepted", "broken": "compile_error",
            "empty": "compile_error", "endless": "compile_error", "maths": "accepted", "header": "accepted"})
        self.assertEqual((told["segv"]["signal"], told["code"]["exit_code"]), (11, 9))
        self.assertIn("undeclared", told["broken"]["stderr"])
        self.assertIsNone(told["broken"]["usage"])
        self.assertIn("main", told["empty"]["stderr"])

    def test_time(self):
        began = time.monotonic()
        told = self.judge(item("wall", ENDLESS, limits={"wall_s": 0.5}),
                          item("cpu", "while True: pass", limits={"cpu_s": 0.3, "wall_s": 30}),
                          item("child", "import os\nos.fork()\nwhile True: pass", limits={"cpu_s": 0.3, "wall_s": 30}),
                          item("deaf", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
                               limits={"wall_s": 0.5}))
        for verdict in told.values():
            self.assert_verdict("time_limit", verdict)
        self.assertLess(time.monotonic() - began, 20)
        self.assertLess(told["cpu"]["usage"]["cpu_user_ms"], 2000)

    def test_memory(self):
        hog = "x = []\nwhile True: x.append(bytearray(1 << 20))"
        child = "import os, sys\nif os.fork() == 0:\n    x = []\n    while True: x.append(bytearray(1 << 20))\n" \
                "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) != 0)"
        told = self.judge(item("hog", hog, limits={"memory_mb": 64}), item("child", child, limits={"memory_mb": 64}),
                          item("fits", "x = bytearray(100 << 20); print(len(x))", limits={"memory_mb": 256}),
                          item("files", "open('f', 'wb').write(bytes(100 << 20))", limits={"memory_mb": 64}))
        self.assert_verdict("memory_limit", told["hog"])
        self.assert_verdict("memory_limit", told["child"])
        self.assert_verdict("accepted", told["fits"])
        self.assertIn(told["files"]["verdict"], ("runtime_error", "memory_limit"))

    def test_output(self):
        told = self.judge(item("flood", "while True: print('x' * 1000)", limits={"output_mb": 1}),
                          item("stderr", "import sys\nwhile True: sys.stderr.write('x' * 1000)", limits={"output_mb": 0.5}),
                          item("much", "print('ä' * 100000)", expect={"stdout": "ä" * 100000}),
                          item("bytes", "import os\nos.write(1, b'\\xff' * 5)"))
        self.assert_verdict("output_limit", told["flood"])
        self.assert_verdict("output_limit", told["stderr"])
        self.assert_verdict("accepted", told["much"])
        self.assertEqual(told["much"]["stdout"], "ä" * (32 << 10))
        self.assertTrue(told["much"]["truncated"])
        self.assertLessEqual(len(told["flood"]["stdout"]), 64 << 10)
        self.assertEqual(base64.b64decode(told["bytes"]["stdout_base64"]), b"\xff" * 5)
        self.assertNotIn("truncated", told["bytes"])

    def test_bombs(self):
        told = self.judge(item("python", "import os\nwhile True: os.fork()", limits={"wall_s": 2}),
                          item("shell", "f() { f | f & }; f; sleep 60", "bash", limits={"wall_s": 1}),
                          item("after", "print('still here')", expect={"stdout": "still here"}))
        self.assertIn(told["python"]["verdict"], ("runtime_error", "time_limit", "memory_limit", "output_limit"))
        self.assert_verdict("time_limit", told["shell"])
        self.assert_verdict("accepted", told["after"])
        self.assert_verdict("accepted", self.judge_one("print(1)"))

    @needs("gcc")
    def test_what_is_forbidden_is_refused(self):
        code = "#include <unistd.h>\nint main(void) { return syscall(0x40000000 | 39) < 0; }"
        verdict = self.judge_one(code, "c")
        self.assert_verdict("refused", verdict)
        self.assertIn("forbidden", verdict["reason"])

    def test_files_and_input(self):
        code = "import os, sys\nprint(open('a').read(), open('/workspace/d/b', 'rb').read(), os.access('x', os.X_OK), " \
               "sorted(os.listdir('.')), sys.stdin.buffer.read())"
        told = self.judge(
            item("files", code, stdin_base64=base64.b64encode(b"\0in").decode(), files=[
                {"path": "a", "content": "text"}, {"path": "/workspace/d/b", "content_base64": "AAE="},
                {"path": "x", "mode": 0o755}], expect={"stdout": "text b'\\x00\\x01' True ['a', 'd', 'main.py', 'x'] b'\\x00in'"}),
            item("no input", "import sys; print(repr(sys.stdin.read()))", expect={"stdout": "''"}),
            item("unread", "print('did not read')", stdin="x" * 3_000_000),
            item("elsewhere", "pass", files=[{"path": "/etc/passwd", "content": "me"}]),
            item("twice", "pass", files=[{"path": "f", "content": ""}, {"path": "f/g", "content": ""}]))
        self.assert_verdict("accepted", told["files"])
        self.assert_verdict("accepted", told["no input"])
        self.assert_verdict("accepted", told["unread"])
        self.assert_verdict("refused", told["elsewhere"])
        self.assert_verdict("refused", told["twice"])
        self.assertIn("/etc/passwd", told["elsewhere"]["reason"])

    def test_each_has_a_computer_of_its_own(self):
        code = "import os\nfor place in ('/workspace/seen', '/tmp/seen', os.path.expanduser('~/seen')):\n" \
               "    assert not os.path.exists(place), place\n    open(place, 'w').close()"
        for verdict in self.judge(*(item(str(number), code) for number in range(8))).values():
            self.assert_verdict("accepted", verdict)
        network = "import socket\nfor host in ('127.0.0.1', '1.1.1.1'):\n    try:\n        socket.create_connection((host, 80), 1)\n" \
                  "    except OSError as problem:\n        print(problem.errno)"
        self.assertEqual(self.judge_one(network)["stdout"], "101\n101\n")


class Checkers(BatchCase):
    CHECKER = "import sys\nprint('seen by the checker')\nwanted = sorted(open('expected').read().split())\n" \
              "given = sorted(open('/workspace/stdout').read().split())\nassert open('stdin').read() == 'in'\n" \
              "sys.exit(0 if wanted == given else 1)"

    def check(self, checker, code="print('b a')", language="python", **more):
        return self.judge_one(code, stdin="in", checker={"code": checker, "language": language},
                              expect={"stdout": "a b"}, **more)

    def test_what_does_not_come_to_life_from_an_image_is_started(self):
        """It is told by an exit code that programs can have, too; whatever it is, nothing is lost with the first run."""
        started = "import os\nif 'frozen' in open('/proc/self/maps').read(): os._exit(112)\n"
        until(lambda: "agent_sandbox_interpreter_images 1" in self.admin.get("/metrics").body.decode(), 60)
        verdict = self.judge_one(started + "print(input())", stdin="in", expect={"stdout": "in"})
        self.assertEqual(verdict["verdict"], "accepted", verdict)
        checker = started + "raise SystemExit(open('stdout').read() + open('stdin').read() != 'b a\\nin')"
        self.assertEqual(self.check(checker)["verdict"], "accepted")
        always = self.judge_one("import os; os._exit(112)")
        self.assertEqual((always["verdict"], always["exit_code"]), ("runtime_error", 112))

    def test_decides(self):
        right = self.check(self.CHECKER)
        self.assert_verdict("accepted", right)
        self.assertEqual(right["checker"]["stdout"], "seen by the checker\n")
        self.assert_verdict("wrong_answer", self.check(self.CHECKER, "print('a c')"))

    def test_is_not_asked_about_what_failed(self):
        verdict = self.check("exit(0)", "exit(1)")
        self.assert_verdict("runtime_error", verdict)
        self.assertNotIn("checker", verdict)

    @needs("g++")
    def test_can_be_built(self):
        code = "#include <fstream>\nint main() { std::ifstream f(\"stdout\"); std::string w; f >> w; return w != \"b\"; }"
        self.assert_verdict("accepted", self.check(code, language="cpp"))
        self.assert_verdict("wrong_answer", self.check(code, "print('c')", language="cpp"))

    def test_one_that_fails_is_its_senders_fault(self):
        for checker, language, word in [
                ("exit(2)", "python", "it exited with 2"), ("import os; os.abort()", "python", "Abort"),
                ("import time; time.sleep(60)", "python", "longer"), ("int main( {", "c", "compile"),
                ("x = []\nwhile True: x.append(bytearray(1 << 20))", "python", "memory")]:
            with self.subTest(checker=checker):
                verdict = self.check(checker, language=language)
                self.assert_verdict("refused", verdict)
                self.assertIn("the checker", verdict["reason"])
                self.assertIn(word, verdict["reason"])
                self.assertNotIn("attempts", verdict)

    def test_an_exception_of_python_is_exit_code_1(self):
        verdict = self.check("1/0")
        self.assert_verdict("wrong_answer", verdict)
        self.assertIn("ZeroDivisionError", verdict["checker"]["stderr"])


class Builds(BatchCase):
    @needs("gcc")
    def test_equal_programs_are_built_once(self):
        before = self.metric("agent_sandbox_batch_builds_total", kind="built")
        code = f"#include <stdio.h>\n/* {time.time_ns()} */ int main(void) {{ int c = getchar(); return c != 'x'; }}"
        told = self.judge(*(item(str(number), code, "c", stdin="x" if number % 2 else "y") for number in range(20)))
        for id, verdict in told.items():
            self.assert_verdict("accepted" if int(id) % 2 else "runtime_error", verdict)

        def built():
            return self.metric("agent_sandbox_batch_builds_total", kind="built") - before
        self.assertEqual(built(), 1)
        self.assert_verdict("accepted", self.judge_one(code, "c", stdin="x"))
        self.assertEqual(built(), 1)
        # Not even that something was built before can be learned by somebody else.
        other = self.admin.make_key()
        self.assert_verdict("accepted", self.judge(item("other", code, "c", stdin="x"), client=other)["other"])
        self.assertEqual(built(), 2)
        self.assert_verdict("accepted", self.judge_one(code, "c", stdin="x", files=[{"path": "new", "content": ""}]))
        self.assertEqual(built(), 3)

    @needs("gcc")
    def test_what_does_not_compile_is_remembered_too(self):
        before = self.metric("agent_sandbox_batch_builds_total", kind="built")
        code = f"/* {time.time_ns()} */ int main(void) {{ return nothing; }}"
        for _ in range(3):
            self.assert_verdict("compile_error", self.judge_one(code, "c"))
        self.assertEqual(self.metric("agent_sandbox_batch_builds_total", kind="built") - before, 1)


class Streams(BatchCase):
    def test_verdicts_come_as_they_are_reached(self):
        following = self.follow(self.admin, "POST", "/api/batch", {"items": [*sleepers(1), item("quick", "print(1)")]})
        self.addCleanup(self.admin.delete, following.batch)
        self.assertEqual(following.next()["id"], "quick")
        state = self.admin.expect(200, "GET", following.batch).json
        self.assertEqual((state["state"], state["total"], state["done"], state["in_work"], state["verdicts"]),
                         ("running", 2, 1, 1, {"accepted": 1}))
        self.admin.expect(204, "DELETE", following.batch)
        self.assertEqual(following.rest(), [])

    def test_in_the_background(self):
        items = [item("a", "print(1)"), item("b", "exit(1)")]
        for body, headers in [({"items": items, "background": True}, ()), ({"items": items}, {"Prefer": "respond-async"})]:
            answer = self.admin.expect(202, "POST", "/api/batch", body, headers=headers)
            self.assertEqual(answer.header("preference-applied"), "respond-async" if headers else None)
            batch = answer.header("location")
            self.assertEqual(batch, "/api/batch/" + answer.json["batch_id"])
            verdicts = self.lines(self.admin.get(batch + "/verdicts"))  # waits for the end
            self.assertEqual({each["id"]: each["verdict"] for each in verdicts}, {"a": "accepted", "b": "runtime_error"})
            state = self.admin.expect(200, "GET", batch).json
            self.assertEqual((state["state"], state["verdicts"]), ("done", {"accepted": 1, "runtime_error": 1}))
            self.assertIsNotNone(state["ended_at"])
            self.assertIn(state["batch_id"], [each["batch_id"] for each in self.admin.get("/api/batch").json["batches"]])
            self.assertEqual(self.lines(self.admin.get(batch + "/verdicts", **{"from": 2})), [])
            self.assertEqual(self.lines(self.admin.get(batch + "/verdicts", **{"from": 1})), verdicts[1:])
            self.admin.expect(400, "GET", batch + "/verdicts", **{"from": 3})
            self.admin.expect(400, "GET", batch + "/verdicts", **{"from": "x"})

    def test_a_lost_connection_loses_nothing(self):
        items = [item(f"i{number}", f"import time\ntime.sleep(0.02)\nprint({number})") for number in range(40)]
        following = self.follow(self.admin, "POST", "/api/batch", {"items": items})
        seen = [following.next() for _ in range(3)]
        following.drop()
        again = self.follow(self.admin, "GET", f"{following.batch}/verdicts?from={len(seen)}")
        seen += [again.next() for _ in range(7)]
        again.drop()
        seen += self.lines(self.admin.get(following.batch + "/verdicts", **{"from": len(seen)}))
        self.assertEqual([verdict["number"] for verdict in seen], list(range(40)))
        self.assertEqual(sorted(verdict["id"] for verdict in seen), sorted(each["id"] for each in items))
        self.assertEqual({verdict["stdout"] for verdict in seen}, {f"{number}\n" for number in range(40)})

    def test_who_reads_slowly_waits_alone(self):
        large = [item(str(number), "print('x' * 60000)") for number in range(60)]
        slow = self.follow(self.admin, "POST", "/api/batch", {"items": large}, room=4096)
        other = self.admin.make_key()
        self.assert_verdict("accepted", self.judge(item("quick", "print(1)"), client=other)["quick"])
        self.assertTrue(until(lambda: self.admin.get(slow.batch).json["state"] == "done", 60))
        seen = slow.rest()
        self.assertEqual([verdict["number"] for verdict in seen], list(range(60)))
        self.assertTrue(all(len(verdict["stdout"]) == 60001 for verdict in seen))

    def test_a_revoked_key_reads_no_more(self):
        key = self.admin.make_key()
        following = self.follow(key, "POST", "/api/batch", {"items": sleepers(1)})
        self.addCleanup(self.admin.delete, following.batch)
        self.admin.expect(204, "DELETE", f"/api/keys/{key.key_id}")
        with self.assertRaises(Broken):
            following.rest()

    def test_200_of_all_kinds(self):
        kinds = [("print(1)", "python", {}, "accepted"), ("exit(1)", "python", {}, "runtime_error"),
                 ("echo 2", "bash", {"expect": {"stdout": "1"}}, "wrong_answer"),
                 ("while :; do :; done", "bash", {"limits": {"wall_s": 0.2}}, "time_limit"),
                 ("yes", "bash", {"limits": {"output_mb": 0.01}}, "output_limit"),
                 ("console.log(3)", "javascript", {"expect": {"stdout": "3"}}, "accepted"),
                 (HELLO["c"], "c", {"stdin": "c"}, "accepted"), (HELLO["cpp"], "cpp", {"stdin": "c"}, "accepted"),
                 ("int main( {", "c", {}, "compile_error"),
                 ("x = bytearray(200 << 20)", "python", {"limits": {"memory_mb": 32}}, "memory_limit")]
        items = [item(f"{number}", *kinds[number % 10][:2], **kinds[number % 10][2]) for number in range(200)]
        told = self.judge(*items)
        wrong = {id: verdict for id, verdict in told.items() if verdict["verdict"] != kinds[int(id) % 10][3]}
        self.assertEqual(wrong, {})


class Example(BatchCase):
    def test_examples_judge(self):
        folder = pathlib.Path(self.scratch())
        for name, given, wanted in [("small", "2", "4"), ("zero", "0", "0")]:
            (folder / f"{name}.in").write_text(given)
            (folder / f"{name}.out").write_text(wanted)
        (folder / "right.py").write_text("print(int(input()) * 2)")
        (folder / "lucky.sh").write_text("read -r n; echo $((n * n))")
        (folder / "worse.py").write_text("print(2 / int(input()))")
        example = pathlib.Path(__file__).parents[2] / "examples/judge.py"

        def judge(*programs):
            return subprocess.run([sys.executable, "-B", example, folder, *(folder / name for name in programs)],
                                  capture_output=True, text=True, timeout=PATIENCE, env=environment(
                                      AGENT_SANDBOX_URL=f"http://127.0.0.1:{self.server.port}",
                                      AGENT_SANDBOX_API_KEY=self.admin.key))
        done = judge("right.py", "lucky.sh")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(sorted(done.stdout.splitlines()), [
            "lucky.sh small accepted ", "lucky.sh zero accepted ", "right.py small accepted ", "right.py zero accepted "])
        done = judge("worse.py")
        self.assertEqual((done.returncode, sorted(done.stdout.splitlines())), (1, [
            "worse.py small wrong_answer it did not write what is expected",
            "worse.py zero runtime_error it exited with 1"]))


class Turns(BatchCase):
    FLAGS = ("--batch-at-once", "2", "--batch-most-queued", "100")

    def setUp(self):
        super().setUp()
        self.one, self.two = self.admin.make_key(), self.admin.make_key()

    def test_many_do_not_hold_up_few(self):
        many = self.submit([item(str(number), "import time; time.sleep(0.3)") for number in range(50)], self.one)
        self.judge(*(item(str(number), "print(1)") for number in range(5)), client=self.two)
        state = self.admin.expect(200, "GET", many).json
        self.assertEqual(state["state"], "running")
        self.assertGreater(state["waiting"], 15, state)

    def test_two_batches_of_one_share_his_turn(self):
        first = self.submit([item(str(number), "import time; time.sleep(0.3)") for number in range(30)], self.one)
        second = self.submit([item(str(number), "import time; time.sleep(0.1)") for number in range(4)], self.one)
        self.lines(self.one.get(second + "/verdicts"))
        self.assertEqual(self.admin.get(first).json["state"], "running")

    def test_what_takes_long_keeps_out_nobody(self):
        self.submit(sleepers(10), self.one)
        told = self.judge(*(item(str(number), "print(1)") for number in range(3)), client=self.two)
        self.assertEqual({verdict["verdict"] for verdict in told.values()}, {"accepted"})

    def test_a_full_queue_is_said_so(self):
        first = self.submit(sleepers(50), self.one)
        answer = self.one.post("/api/batch", {"items": sleepers(3)})
        self.assert_refused(answer, 429, "of this key")
        self.assertTrue(answer.error["hint"])
        self.submit(sleepers(50), self.two)
        three = self.admin.make_key()
        self.assert_refused(three.post("/api/batch", {"items": sleepers(10)}), 429, "as many programs wait")
        self.one.expect(204, "DELETE", first)
        self.assertEqual(len(self.judge(item("a", "print(1)"), client=three)), 1)

    def test_cancelling_ends_all_of_it(self):
        batch = self.submit([item("done", "print(1)"), *sleepers(20)], self.one)
        self.assertTrue(until(lambda: self.one.get(batch).json["done"] == 1 and self.one.get(batch).json["in_work"] > 0))
        self.assertTrue(until(lambda: self.programs() > 0))
        following = self.follow(self.one, "GET", batch + "/verdicts")
        self.assertEqual(following.next()["id"], "done")
        self.one.expect(204, "DELETE", batch)
        self.assertIsNone(following.next())
        state = self.one.expect(200, "GET", batch).json
        self.assertEqual((state["state"], state["done"], state["waiting"]), ("cancelled", 1, 0))
        self.assertTrue(until(lambda: self.one.get(batch).json["in_work"] == 0))
        self.assertTrue(until(lambda: self.programs() == 0), "programs outlive their batch")
        self.assertEqual(len(self.lines(self.one.get(batch + "/verdicts"))), 1)
        self.one.expect(204, "DELETE", batch)
        self.one.expect(404, "GET", batch)
        self.one.expect(404, "DELETE", batch)

    @needs("gcc")
    def test_a_build_can_be_cancelled(self):
        # So long that it would not end by itself in time.
        code = "".join(f"int f{n}(int x) {{ {'x = x * x + 1; ' * 200} return x; }}\n" for n in range(600))
        batch = self.submit([item("a", code + f"/* {time.time_ns()} */ int main(void) {{}}", "c")], self.one)
        self.assertTrue(until(lambda: self.programs("cc1") == 1), "the compiler does not run")
        self.one.expect(204, "DELETE", batch)
        self.assertTrue(until(lambda: self.programs("cc1") == 0))
        self.assertEqual(self.one.get(batch).json["in_work"], 0)

    def programs(self, name="sleep"):
        return sum(name_of(pid) == name for pid, _ in descendants(self.server.pid))


class Strangers(BatchCase):
    def test_foreign_batches_are_unknown(self):
        owner, other = self.admin.make_key(), self.admin.make_key()
        batch = self.submit([item("secret", "print('secret')")], owner)
        self.lines(owner.get(batch + "/verdicts"))
        unknown = "/api/batch/" + "a" * 26
        for method, tail in [("GET", ""), ("GET", "/verdicts"), ("DELETE", "")]:
            answers = []
            for address in (batch, unknown):
                answer = other.expect(404, method, address + tail)
                answers.append({**answer.error, "trace_id": None})
            self.assertEqual(answers[0], answers[1])
        self.assertEqual(other.get("/api/batch").json["batches"], [])
        self.admin.make_key(role="viewer").expect(404, "GET", batch)
        operator = self.admin.make_key(role="operator")
        self.assertEqual(self.lines(operator.get(batch + "/verdicts"))[0]["stdout"], "secret\n")
        self.assertIn(batch[len("/api/batch/"):], [each["batch_id"] for each in operator.get("/api/batch").json["batches"]])
        self.admin.make_key(role="viewer").expect(403, "POST", "/api/batch", {"items": [item("a", "")]})
        Client(self.server).expect(401, "GET", batch)

    def test_what_makes_no_sense_is_told_with_its_place(self):
        good = item("a", "print(1)")
        for body, word in [
                ({}, "items"), ({"items": []}, "/items"), ({"items": [1]}, "/items/0"), ({"items": [good], "x": 1}, "/x"),
                ({"items": [good, {"id": "b", "code": ""}]}, "/items/1"), ({"items": [good, good]}, "/items/1/id"),
                ({"items": [{**good, "id": ""}]}, "/items/0/id"), ({"items": [{**good, "id": 7}]}, "/items/0/id"),
                ({"items": [{**good, "language": "cobol"}]}, "/items/0/language"),
                ({"items": [{**good, "code": 7}]}, "/items/0/code"),
                ({"items": [{**good, "code": "a\0b"}]}, "/items/0/code"),
                ({"items": [{**good, "limits": {"wall_s": 0}}]}, "/items/0/limits/wall_s"),
                ({"items": [{**good, "limits": {"wall_s": 1e9}}]}, "/items/0/limits/wall_s"),
                ({"items": [{**good, "limits": {"memory_mb": 1}}]}, "/items/0/limits/memory_mb"),
                ({"items": [{**good, "limits": {"memory_mb": 32, "disk_mb": 32}}]}, "/items/0/limits"),
                ({"items": [{**good, "limits": {"fuel": 1}}]}, "/items/0/limits/fuel"),
                ({"items": [{**good, "files": {"a": "b"}}]}, "/items/0/files"),
                ({"items": [{**good, "files": [{"path": "x", "content_base64": "!"}]}]}, "/items/0/files/0"),
                ({"items": [{**good, "files": [{"path": "main.py"}]}]}, "/items/0/files/0/path"),
                ({"items": [{**good, "stdin": "a", "stdin_base64": "YQ=="}]}, "/items/0"),
                ({"items": [{**good, "expect": {}}]}, "/items/0/expect"),
                ({"items": [{**good, "expect": {"stdout": 1}}]}, "/items/0/expect/stdout"),
                ({"items": [{**good, "checker": {"code": "x"}}]}, "/items/0/checker"),
                ({"items": [{**good, "checker": {"code": "x", "language": "python", "files": []}}]}, "/items/0/checker/files")]:
            with self.subTest(body=body):
                self.assert_refused(self.admin.post("/api/batch", body), 400, word)
        self.assert_refused(self.admin.post("/api/batch", {"items": [item(str(n), "") for n in range(10001)]}), 400, "10000")
        self.assertEqual(self.metric("agent_sandbox_batch_programs", state="waiting"), 0)

    def test_long_bodies(self):
        stdin = "x" * (9 << 20)
        told = self.judge(*(item(str(number), "import sys; print(len(sys.stdin.read()))", stdin=stdin) for number in range(3)))
        self.assertEqual({verdict["stdout"] for verdict in told.values()}, {f"{9 << 20}\n"})
        answer = self.admin.post("/api/batch", {"items": [item("a", "", stdin="x" * (65 << 20))]})
        self.assert_refused(answer, 413)
        values = self.admin.post("/api/batch", b'{"items":[' + b"1," * 2_000_000 + b"1]}",
                                 headers={"Content-Type": "application/json"})
        self.assert_refused(values, 400, "values")
        # Elsewhere nothing has become longer.
        self.assert_refused(self.admin.post("/api/sessions", {"labels": {"a": "x" * (5 << 20)}}), 413)

    def test_many_long_bodies_take_turns(self):
        body = json.dumps({"items": [item("a", "", stdin="x" * (30 << 20)), {"id": "b"}]}).encode()
        keys = [self.admin.make_key() for _ in range(3)]
        peak = [0]

        def send(number):
            answer = keys[number % 3].post("/api/batch", body, headers={"Content-Type": "application/json"})
            peak[0] = max(peak[0], self.server.resident_bytes())
            return answer.status
        before = self.server.resident_bytes()
        self.assertEqual(set(in_parallel(9, send)), {400})
        self.assertLess(peak[0] - before, 600 << 20)


class Records(BatchCase):
    def test_it_is_written_down(self):
        key = self.admin.make_key()
        batch = self.submit([item("a", "print(1)"), item("b", "exit(1)")], key)
        self.lines(key.get(batch + "/verdicts"))
        id = batch.rsplit("/", 1)[1]

        def ends():
            return [event for event in key.get("/api/events", limit=1000).json["events"] if event["type"] == "batch.ended"]
        self.assertTrue(until(ends))
        (event,) = ends()
        self.assertEqual(event["data"], {"batch_id": id, "state": "done", "total": 2, "done": 2,
                                         "verdicts": {"accepted": 1, "runtime_error": 1}})
        entries = self.admin.get("/api/audit", limit=1000).json["entries"]
        self.assertEqual([entry["action"] for entry in entries if entry["target"] == id], ["batch.create"])
        self.assertEqual(entries[-1]["actor"] if entries[-1]["target"] == id else key.key_id, key.key_id)

    def test_verdicts_are_counted(self):
        names = ("accepted", "runtime_error", "wrong_answer")
        before = {name: self.metric("agent_sandbox_batch_verdicts_total", verdict=name) for name in names}
        self.judge(item("a", "print(1)"), item("b", "exit(1)"), item("c", "", expect={"stdout": "x"}))
        after = {name: self.metric("agent_sandbox_batch_verdicts_total", verdict=name) for name in names}
        self.assertEqual({name: after[name] - before[name] for name in names}, dict.fromkeys(names, 1))
        self.assertEqual(self.metric("agent_sandbox_batch_programs", state="in_work"), 0)

    def test_nothing_is_left_behind(self):
        self.judge(*(item(str(number), "print(1)") for number in range(10)))
        files = self.server.open_files_at_rest()
        family = len(descendants(self.server.pid))
        items = [item(f"p{number}", "import os\nos.fork()\nprint(1)") for number in range(30)]
        items += [item(f"k{number}", "while True: print('x')", limits={"output_mb": 0.1}) for number in range(5)]
        items += [item(f"t{number}", ENDLESS, limits={"wall_s": 0.1}) for number in range(5)]
        self.judge(*items)
        self.assertTrue(until(lambda: len(descendants(self.server.pid)) <= family))
        self.assertLessEqual(self.server.open_files_at_rest(), files + 3)


class Servers(BatchCase):
    def on(self, server):
        self.server, self.admin = server, server.admin
        return server

    def test_verdicts_are_kept_for_some_time(self):
        self.on(self.other_server("--batch-keep", "1s"))
        batch = self.submit([item("a", "print(1)")])
        self.lines(self.admin.get(batch + "/verdicts"))
        self.admin.expect(200, "GET", batch)
        self.assertTrue(until(lambda: self.admin.get(batch).status == 404))

    def test_memory_is_bounded(self):
        self.on(self.other_server("--batch-most-memory", "2M"))
        old = self.submit([item("a", "print('x' * 60000)")])
        self.lines(self.admin.get(old + "/verdicts"))
        told = self.judge(*(item(str(number), "print('x' * 60000)") for number in range(40)))
        lengths = sorted({len(verdict["stdout"]) for verdict in told.values()})
        self.assertEqual(lengths, [256, 60001])
        self.assertTrue(all(verdict.get("truncated", False) == (len(verdict["stdout"]) == 256) for verdict in told.values()))
        self.admin.expect(404, "GET", old)
        answer = self.admin.post("/api/batch", {"items": [item("a", "", stdin="x" * (3 << 20))]})
        self.assert_refused(answer, 429, "memory")

    def test_a_server_that_stops_takes_its_programs_along(self):
        server = Server("--stop-patience", "1s")
        self.addCleanup(server.kill)
        following = self.follow(server.admin, "POST", "/api/batch", {"items": [item("a", "print(1)"), *sleepers(5)]})
        self.assertEqual(following.next()["id"], "a")
        server.stop()

    def test_what_is_the_servers_fault_is_tried_again(self):
        server = self.on(self.other_server("--batch-at-once", "2", "--pool-size", "0"))
        items = [item("right", "print(1)", expect={"stdout": "1"}), item("wrong", "exit(3)")]
        self.judge(*items)
        zygotes = [pid for pid, _ in descendants(server.pid) if name_of(pid) == "asr-zygote"]
        limits = resource.prlimit(zygotes[0], resource.RLIMIT_NOFILE)

        def may_have(files):
            """Without descriptors they can make no sandboxes."""
            for pid in zygotes:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, limits[1]))

        def retries():
            return self.metric("agent_sandbox_batch_retries_total")
        may_have(4)
        batch = self.submit(items)
        self.assertTrue(until(lambda: retries() >= 2, every=0.01))
        may_have(limits[0])
        told = {verdict["id"]: verdict for verdict in self.lines(self.admin.get(batch + "/verdicts"))}
        self.assertEqual((told["right"]["verdict"], told["wrong"]["verdict"]), ("accepted", "runtime_error"))
        self.assertGreater(min(verdict["attempts"] for verdict in told.values()), 1)
        # And when it does not get better, it is told, and held against nobody.
        may_have(4)
        told = self.judge(*items)
        may_have(limits[0])
        for verdict in told.values():
            self.assertEqual((verdict["verdict"], verdict["attempts"], verdict["exit_code"], verdict["usage"]),
                             ("platform", 3, None, None))
            self.assertTrue(verdict["reason"])
        self.assertEqual(self.metric("agent_sandbox_batch_verdicts_total", verdict="platform"), 2)
        self.assert_verdict("accepted", self.judge_one("print(1)"))

    def test_a_lost_sandbox_is_not_the_programs_fault(self):
        server = self.on(self.other_server("--batch-at-once", "1", "--pool-size", "0"))

        def sandbox():
            """The first process of the sandbox that sleeps; none between two of them."""
            try:
                first = server.first_process_of("sleep")
            except (StopIteration, OSError):
                return None
            return first if name_of(first) == "sandbox-init" else None

        def lose(attempts):
            lost = [None]
            for _ in range(attempts):
                self.assertTrue(until(lambda: sandbox() not in lost), "nothing runs")
                lost.append(sandbox())
                os.kill(lost[-1], signal.SIGKILL)
        batch = self.submit([item("one", "exec sleep 1", "bash", expect={"stdout": "never"})])
        lose(1)
        (told,) = self.lines(self.admin.get(batch + "/verdicts"))
        self.assertEqual((told["verdict"], told["exit_code"], told["attempts"]), ("wrong_answer", 0, 2))
        batch = self.submit(sleepers(1))
        lose(3)
        (told,) = self.lines(self.admin.get(batch + "/verdicts"))
        self.assertEqual((told["verdict"], told["attempts"]), ("platform", 3))


if __name__ == "__main__":
    unittest.main()
