"""agent-sandbox node and bash on a real terminal, and code from a pipe in all of them."""
import os
import signal
import subprocess
import unittest

from harness import BINARY, PATIENCE, USAGE_ERROR, needs, run
from http_harness import until
from prompt_case import CONTROL_C, TAB, UP, PromptCase


class OtherLanguages(PromptCase):
    @needs("node")
    def test_node(self):
        prompt = self.open("node")
        prompt.run("const x = 20")
        prompt.run("x + 22", rb"42\r\n")
        prompt.type("function twice(n) {\r")
        prompt.expect(prompt.more)
        prompt.type("  return 2 * n;\r")
        prompt.expect(prompt.more)
        prompt.run("}")
        prompt.run("twice(x)", rb"40\r\n")
        prompt.run("const wonderful = {inner: 1}")
        prompt.type("wonderf" + TAB)
        prompt.expect(rb"wonderf.*ul")
        prompt.run(".inner", rb"1\r\n")
        prompt.type("for (;;) {}\r")
        busy = lambda: [c["state"] for c in self.admin.expect(
            200, "GET", f"/api/sessions/{prompt.session}/contexts").json["contexts"]] == ["busy"]
        self.assertTrue(until(busy))
        prompt.type(CONTROL_C)
        prompt.expect(rb"nterrupted[^\n]*\n" + prompt.prompt)
        prompt.run("x", rb"20\r\n")
        prompt.type("const answer = await input('who? ')\r")
        prompt.expect(rb"\nwho\? ")
        prompt.run("ann")
        prompt.run("answer", rb"'ann'\r\n")
        self.leave(prompt)
        self.assertFalse(self.is_there(prompt.session))
        again = self.open("node")
        again.type(UP)
        again.expect(rb"answer")
        again.type(CONTROL_C)
        again.expect(rb"\^C\r\n" + again.prompt)
        again.type("process.exit(4)\r")
        self.assertEqual(again.wait(), 4)

    def test_bash(self):
        prompt = self.open("bash")
        prompt.run("X=5; cd /tmp")
        prompt.run("echo $X $PWD", rb"5 /tmp\r\n")
        prompt.type("for i in 1 2; do\r")
        prompt.expect(rb"\n" + prompt.more)
        prompt.type("echo n$i\r")
        prompt.expect(rb"\n" + prompt.more)
        prompt.run("done", rb"n1\r\n", rb"n2\r\n")
        prompt.type("echo 'a\r")
        prompt.expect(rb"\n" + prompt.more)
        prompt.run("b'", rb"a\r\n", rb"b\r\n")
        prompt.run("false", rb"[^\n]*ended with 1\r\n")
        prompt.type("prin" + TAB)
        prompt.expect(rb"prin.*t")
        prompt.run("f '%s\\n' completed", rb"completed\r\n")
        prompt.type("sleep 100\r")
        busy = lambda: [c["state"] for c in self.admin.expect(
            200, "GET", f"/api/sessions/{prompt.session}/contexts").json["contexts"]] == ["busy"]
        self.assertTrue(until(busy))
        prompt.type(CONTROL_C)
        prompt.expect(rb"\n" + prompt.prompt)
        prompt.run("echo $X", rb"5\r\n")
        self.leave(prompt)
        again = self.open("bash")
        again.type(UP)
        again.expect(rb"echo \$X")
        again.type(CONTROL_C)
        again.expect(rb"\^C\r\n" + again.prompt)
        again.type("exit 6\r")
        self.assertEqual(again.wait(), 6)
        self.assertFalse(self.is_there(again.session))


class Pipes(PromptCase):
    def test_streams_and_results(self):
        done = self.pipe("python", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7\n")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"out\n42\n", b"err\n"))
        done = self.pipe("bash", "printf 'no end'; echo err >&2")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"no end", b"err\n"))

    def test_exit_codes(self):
        for language, code, expected in (
                ("python", "x = 1", 0), ("python", "1 / 0", 1), ("python", "import sys; sys.exit(3)", 3),
                ("python", "raise SystemExit", 0), ("python", "import os; os._exit(5)", 5), ("bash", "exit 4", 4),
                ("bash", "(exit 7)", 7), ("bash", "true", 0), ("python", "", 0)):
            done = self.pipe(language, code)
            self.assertEqual(done.returncode, expected, (language, code, done.stderr))

    @needs("node")
    def test_exit_codes_of_node(self):
        for code, expected in (("1", 0), ("throw new Error('x')", 1), ("process.exit(6)", 6)):
            self.assertEqual(self.pipe("node", code).returncode, expected, code)

    def test_errors_are_on_stderr_with_their_traceback(self):
        done = self.pipe("python", "def f():\n    raise KeyError('gone')\nf()\n")
        self.assertEqual(done.stdout, b"")
        self.assertRegex(done.stderr, rb"(?s)Traceback.*line 2, in f.*KeyError: 'gone'\n$")

    def test_limits(self):
        done = self.pipe("python", "import time; time.sleep(60)", "--timeout", "0.5")
        self.assertEqual(done.returncode, 137)
        self.assertIn(b"longer than 500 ms", done.stderr)

    def test_nobody_to_ask(self):
        done = self.pipe("python", "input('who? ')")
        self.assertEqual(done.returncode, 130)
        self.assertIn(b"no terminal to ask", done.stderr)

    def test_what_it_made(self):
        done = self.pipe("python", "open('/workspace/a.txt', 'w').write('x')\nNone", "--keep", "made")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b"made/a.txt\n"))
        with open(os.path.join(self.folder, "made", "a.txt")) as file:
            self.assertEqual(file.read(), "x")

    def test_nothing_stays(self):
        before = self.sessions()
        self.pipe("python", "1 / 0")
        self.assertEqual(self.sessions(), before)

    def test_an_interrupt(self):
        before = set(self.sessions())
        process = subprocess.Popen([BINARY, "python"], env=self.settings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        process.stdin.write(b"print('begun', flush=True)\nimport time; time.sleep(60)")
        process.stdin.close()
        self.assertEqual(process.stdout.readline(), b"begun\n")
        process.send_signal(signal.SIGINT)
        self.assertIn(b"KeyboardInterrupt", process.stderr.read())
        self.assertEqual(process.wait(PATIENCE), 130)
        process.stdout.close(), process.stderr.close()
        self.assertEqual(set(self.sessions()), before)

    def test_a_reader_that_goes_away(self):
        before = set(self.sessions())
        process = subprocess.Popen([BINARY, "python"], env=self.settings(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.wait()))
        process.stdin.write(b"import time\nwhile True: print('y', flush=True); time.sleep(.01)")
        process.stdin.close()
        self.assertEqual(process.stdout.readline(), b"y\n")
        process.stdout.close()
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGPIPE)
        self.assertEqual(set(self.sessions()), before)

    def test_what_is_wrong_is_told(self):
        done = self.pipe("python", "1", "--session", "no-such-session")
        self.assertEqual(done.returncode, USAGE_ERROR)
        self.assertRegex(done.stderr, rb"^agent-sandbox: .*\n")
        self.assertEqual(self.pipe("python", "1", "--session", "").returncode, USAGE_ERROR)
        self.assertEqual(self.pipe("python", "1", "--timeout", "-1").returncode, USAGE_ERROR)
        done = run("python", stdin=b"1", env={**self.settings(), "AGENT_SANDBOX_URL": "http://127.0.0.1:9"})
        self.assertEqual(done.returncode, USAGE_ERROR)
        self.assertIn(b"agent-sandbox serve", done.stderr)


if __name__ == "__main__":
    unittest.main()
