"""What a batch says of programs: every verdict with real ones, checkers, builds, and the example."""
import base64
import pathlib
import subprocess
import sys
import time
import unittest

from batch_case import ENDLESS, HELLO, BatchCase, item
from harness import PATIENCE, needs
from http_harness import environment, until


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
        wrong = [("exit(2)", "python", "it exited with 2"), ("import os; os.abort()", "python", "Abort"),
                 ("import time; time.sleep(60)", "python", "longer"), ("int main( {", "c", "compile"),
                 ("x = []\nwhile True: x.append(bytearray(1 << 20))", "python", "memory")]
        told = self.judge(*(item(word, "print('b a')", stdin="in", expect={"stdout": "a b"}, checker={"code": code, "language": language})
                            for code, language, word in wrong))
        for word, verdict in told.items():
            with self.subTest(word=word):
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


if __name__ == "__main__":
    unittest.main()
