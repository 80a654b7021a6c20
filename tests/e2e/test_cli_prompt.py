"""agent-sandbox python, node and bash: prompts on a real terminal, and code from a pipe."""
import fcntl
import glob
import os
import pty
import signal
import stat
import struct
import subprocess
import termios
import unittest

from harness import BINARY, PATIENCE, PLATFORM_ERROR, USAGE_ERROR, needs, run
from http_harness import ADMIN_KEY, HttpCase, environment, until
from test_terminal import Session as Terminal

PROMPTS = {"python": rb">>> ", "node": rb"> ", "bash": rb"\$ "}
MORE = {"python": rb"\.\.\. ", "node": rb"\.\.\. ", "bash": rb"> "}
BEGIN = rb"(?:\A|\n)"  # of a line; what was seen before is forgotten
CONTROL_C, CONTROL_D, TAB, UP = "\x03", "\x04", "\t", "\x1b[A"


class Prompt(Terminal):
    """A prompt on a terminal of its own, in a folder of its own."""

    def __init__(self, language, *words, folder, env):
        self.prompt, self.more = PROMPTS[language], MORE[language]
        program = os.path.abspath(BINARY)
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            os.chdir(folder)
            os.execvpe(program, [program, language, *words], {**env, "TERM": "xterm"})
        self.seen = b""

    def run(self, line, *expected):
        """Types a line and waits for what it gives, then for the next prompt."""
        self.type(line + "\r")
        for pattern in expected:
            self.expect(BEGIN + pattern)
        self.expect(BEGIN + self.prompt)

    def begin(self):
        found = self.expect(rb"in session (\S+);[^\n]*\n")
        self.expect(self.prompt)
        self.session = found[1].decode()
        return self


class PromptCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.home = self.scratch()
        self.folder = self.scratch()

    def settings(self, **more):
        return environment(AGENT_SANDBOX_URL=f"http://127.0.0.1:{self.server.port}", AGENT_SANDBOX_API_KEY=ADMIN_KEY,
                           **{"HOME": self.home, "NO_COLOR": "1", **more})

    def open(self, language, *words, **more):
        prompt = Prompt(language, *words, folder=self.folder, env=self.settings(**more))
        self.addCleanup(self.end, prompt)
        return prompt.begin()

    @staticmethod
    def end(prompt):
        """For tests that failed half-way; does no harm to one that has ended."""
        try:
            os.kill(prompt.pid, signal.SIGKILL)
            os.waitpid(prompt.pid, 0)
            os.close(prompt.terminal)
        except OSError:
            pass

    def leave(self, prompt, code=0):
        prompt.type(CONTROL_D)
        self.assertEqual(prompt.wait(), code)

    def pipe(self, language, code, *words, **more):
        return run(language, *words, stdin=code.encode(), env=self.settings(), cwd=self.folder, **more)

    def is_there(self, session):
        answer = self.admin.get(f"/api/sessions/{session}")
        return answer.status == 200 and answer.json["state"] != "gone"

    def sessions(self):
        return [one["session_id"] for one in self.admin.expect(200, "GET", "/api/sessions").json["sessions"]]


class Python(PromptCase):
    def test_variables_stay_and_the_session_goes(self):
        prompt = self.open("python")
        self.assertTrue(self.is_there(prompt.session))
        prompt.run("x = 20")
        prompt.run("x + 22", rb"42\r\n")
        prompt.run("print('no end', end='')", rb"no end\r\n")
        prompt.run("")
        prompt.run("'ä' * 3", "'äää'\r\n".encode())
        self.leave(prompt)
        self.assertFalse(self.is_there(prompt.session))

    def test_blocks_brackets_and_texts_go_on(self):
        prompt = self.open("python")
        prompt.type("def twice(n):\r")
        prompt.expect(prompt.more)
        prompt.type("    return 2 * n\r")
        prompt.expect(prompt.more)
        prompt.run("")
        prompt.run("twice(21)", rb"42\r\n")
        prompt.type("sum([1,\r")
        prompt.expect(prompt.more)
        prompt.run("2, 3])", rb"6\r\n")
        prompt.type("'''a\r")
        prompt.expect(prompt.more)
        prompt.run("b'''", rb"'a\\nb'\r\n")
        self.leave(prompt)

    def test_output_comes_as_it_is_written(self):
        prompt = self.open("python")
        prompt.type("import time; print('early'); time.sleep(30)\r")
        prompt.expect(rb"\nearly\r\n")  # and no prompt yet
        self.assertNotIn(b">>>", prompt.seen)
        prompt.type(CONTROL_C)
        prompt.expect(rb"KeyboardInterrupt\r\n" + prompt.prompt)
        self.leave(prompt)

    def test_an_interrupt_keeps_the_variables(self):
        prompt = self.open("python")
        prompt.run("x = 7")
        prompt.type("while True: pass\r")
        prompt.expect(prompt.more)
        prompt.type("\r")
        busy = lambda: [c["state"] for c in self.admin.expect(
            200, "GET", f"/api/sessions/{prompt.session}/contexts").json["contexts"]] == ["busy"]
        self.assertTrue(until(busy))
        prompt.type(CONTROL_C)
        prompt.expect(rb"KeyboardInterrupt\r\n" + prompt.prompt)
        prompt.run("x", rb"7\r\n")
        self.leave(prompt)

    def test_control_c_at_the_prompt_clears_the_line(self):
        prompt = self.open("python")
        prompt.type("raise SystemExit(9)" + CONTROL_C)
        prompt.expect(rb"\^C\r\n" + prompt.prompt)
        prompt.type("def f(:\r")
        prompt.expect(prompt.more)
        prompt.type(CONTROL_C)
        prompt.expect(rb"\^C\r\n" + prompt.prompt)
        prompt.run("6 * 7", rb"42\r\n")
        self.leave(prompt)

    def test_the_program_asks(self):
        prompt = self.open("python")
        prompt.type("name = input('who? ')\r")
        prompt.expect(rb"\nwho\? ")
        prompt.run("ann")
        prompt.run("name", rb"'ann'\r\n")
        prompt.type("print('and', end=' '); other = input('who? ')\r")
        prompt.expect(rb"\rand who\? ")
        prompt.run("bob")
        prompt.type("input('who? ')\r")
        prompt.expect(rb"\nwho\? ")
        prompt.type(CONTROL_C)
        prompt.expect(rb"KeyboardInterrupt\r\n" + prompt.prompt)
        prompt.run("name", rb"'ann'\r\n")
        # Answers are no lines of code: they are not in the history.
        prompt.type(UP + UP)
        prompt.expect(rb"input\('who\? '\)")
        self.leave_with_text(prompt)

    def test_a_password_is_not_shown(self):
        prompt = self.open("python")
        prompt.type("secret = input('key? ', password=True)\r")
        prompt.expect(rb"\nkey\? ")
        self.assertTrue(until(lambda: not termios.tcgetattr(prompt.terminal)[3] & termios.ECHO))
        prompt.type("hidden\r")
        prompt.expect(BEGIN + prompt.prompt)
        prompt.run("secret[::-1]", rb"'neddih'\r\n")
        self.leave(prompt)
        self.assertNotIn(b"hidden", prompt.seen)

    def leave_with_text(self, prompt):
        prompt.type(CONTROL_C)
        prompt.expect(rb"\^C\r\n" + prompt.prompt)
        self.leave(prompt)

    def test_a_question_is_dropped_when_its_cell_ends(self):
        prompt = self.open("python", "--timeout", "1")
        prompt.type("input('who? ')\r")
        prompt.expect(rb"\nwho\? ")
        prompt.expect(rb"longer than 1000 ms\r\n" + prompt.prompt)
        prompt.run("6 * 7", rb"42\r\n")
        self.leave(prompt)

    def test_tab_completes(self):
        prompt = self.open("python")
        prompt.run("alphabet = 'abc'")
        prompt.type("alphab" + TAB)
        prompt.expect(rb"alphab.*et")
        prompt.run(".upper()", rb"'ABC'\r\n")
        prompt.type("alphabet.is" + TAB)
        prompt.expect(rb"\nisalnum\(\) +[^\n]*isdigit[^\n]*\n")
        prompt.expect(rb">>> alphabet\.is")
        prompt.run("digit()", rb"False\r\n")
        prompt.type("alphabet.no_such" + TAB)
        prompt.expect(rb"\x07")
        prompt.type(CONTROL_C)
        prompt.expect(rb"\^C\r\n" + prompt.prompt)
        prompt.type("if True:\r")
        prompt.expect(prompt.more)
        prompt.type(TAB + "print('indented')\r")
        prompt.expect(prompt.more)
        prompt.run("", rb"indented\r\n")
        self.leave(prompt)

    def test_names_from_inside_cannot_speak_to_the_terminal(self):
        prompt = self.open("python")
        prompt.run("globals()['zz\\x1b]0;owned\\x07'] = 1")
        prompt.run("raise ValueError('\\x1b]0;owned\\x07')", rb"ValueError: \?\]0;owned\?\r\n")
        prompt.seen = b""
        prompt.run("open('/workspace/\\x1b]0;owned\\x07.txt', 'w').close()")
        prompt.type("zz" + TAB)
        prompt.type(CONTROL_C)
        prompt.expect(rb"\^C\r\n" + prompt.prompt)
        self.leave(prompt)
        self.assertNotIn(b"\x1b]0;", prompt.seen)
        self.assertEqual(os.listdir(os.path.join(self.folder, "figures")), ["_]0;owned_.txt"])

    def test_history_is_there_the_next_time(self):
        first = self.open("python")
        first.run("'remembered'", rb"'remembered'\r\n")
        self.leave(first)
        kept = os.path.join(self.home, ".local/state/agent-sandbox/history-python")
        self.assertEqual(stat.S_IMODE(os.stat(kept).st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.dirname(kept)).st_mode), 0o700)
        second = self.open("python")
        second.type(UP)
        second.expect(rb"'remembered'")
        second.run("", rb"'remembered'\r\n")
        self.leave(second)
        with open(kept) as file:
            self.assertEqual(file.read(), "'remembered'\n")

    def test_figures_and_files_land_here(self):
        prompt = self.open("python")
        prompt.run("1", rb"1\r\n")
        self.assertEqual(os.listdir(self.folder), [])  # no folder before there is something for it
        prompt.run("import matplotlib.pyplot as plt; _ = plt.plot([1, 2, 3])", rb"[^\n]*figures/\S+\.png")
        prompt.run("_ = plt.plot([3, 2, 1]); open('/workspace/a.csv', 'w').write('1,2')", rb"[^\n]*figures/a\.csv")
        prompt.run("open('/workspace/a.csv', 'w').write('3,4')", rb"[^\n]*figures/a-2\.csv")
        pictures = glob.glob(os.path.join(self.folder, "figures", "*.png"))
        self.assertEqual(len(pictures), 2)
        for picture in pictures:
            with open(picture, "rb") as file:
                self.assertEqual(file.read(8), b"\x89PNG\r\n\x1a\n")
        texts = {}
        for name in ("a.csv", "a-2.csv"):
            with open(os.path.join(self.folder, "figures", name)) as file:
                texts[name] = file.read()
        self.assertEqual(texts, {"a.csv": "1,2", "a-2.csv": "3,4"})
        self.leave(prompt)

    def test_another_folder_for_figures(self):
        prompt = self.open("python", "--keep", "made/here")
        prompt.run("open('/workspace/a.txt', 'w').close()", rb"[^\n]*made/here/a\.txt")
        self.assertEqual(os.listdir(self.folder), ["made"])
        self.leave(prompt)

    def test_a_session_that_was_there_stays(self):
        session = self.session().rpartition("/")[2]
        first = self.open("python", "--session", session)
        self.assertEqual(first.session, session)
        first.run("x = 5")
        self.leave(first)
        second = self.open("python", "--session", session)
        second.run("x", rb"5\r\n")
        self.leave(second)
        self.assertTrue(self.is_there(session))

    def test_a_session_that_ends_meanwhile(self):
        prompt = self.open("python")
        self.admin.expect(204, "DELETE", f"/api/sessions/{prompt.session}")
        prompt.type("1\r")
        self.assertIn(prompt.wait(), (PLATFORM_ERROR, USAGE_ERROR))
        self.assertIn(b"agent-sandbox: ", prompt.seen)

    def test_a_cell_that_takes_too_long(self):
        prompt = self.open("python", "--timeout", "0.5")
        prompt.run("x = 3")
        prompt.run("import time; time.sleep(60)", rb".*KeyboardInterrupt\r\n", rb"agent-sandbox: .*longer than 500 ms\r\n")
        prompt.run("x", rb"3\r\n")
        self.leave(prompt)

    def test_variables_that_are_lost_are_told_of(self):
        prompt = self.open("python")
        prompt.run("import os; os.kill(os.getpid(), 9)", rb"InterpreterEnded: .*signal 9\r\n",
                   rb"agent-sandbox: the interpreter begins anew")
        prompt.run("1", rb"1\r\n")
        self.leave(prompt)

    def test_colours(self):
        prompt = self.open("python", NO_COLOR="")
        prompt.run("1 / 0", rb"\x1b\[31mZeroDivisionError: division by zero\x1b\[0m\r\n")
        self.leave(prompt)
        self.assertNotIn(b"\x1b", self.pipe("python", "1 / 0").stderr)

    def test_exit_leaves(self):
        prompt = self.open("python")
        prompt.type("exit(3)\r")
        self.assertEqual(prompt.wait(), 3)
        self.assertFalse(self.is_there(prompt.session))

    def test_signals_remove_the_session(self):
        for busy in (False, True):
            for number in (signal.SIGTERM, signal.SIGHUP):
                prompt = self.open("python")
                if busy:
                    prompt.type("print('begun'); import time; time.sleep(60)\r")
                    prompt.expect(rb"\nbegun")
                os.kill(prompt.pid, number)
                self.assertEqual(prompt.wait(), 128 + number)
                self.assertFalse(self.is_there(prompt.session))

    def test_keys_that_come_early(self):
        prompt = self.open("python")
        prompt.type("print('begun'); import time; time.sleep(1)\r")
        prompt.expect(rb"\nbegun")
        prompt.type("6 * 7\r")
        prompt.expect(rb"\n42\r\n>>> ")
        prompt.type("print('begun'); time.sleep(1)\r")
        prompt.expect(rb"\nbegun")
        prompt.type(CONTROL_D)
        self.assertEqual(prompt.wait(), 0)

    def test_the_terminal_is_given_back(self):
        master, slave = pty.openpty()
        before = termios.tcgetattr(slave)
        process = subprocess.Popen([BINARY, "python"], stdin=slave, stdout=slave, stderr=slave, env=self.settings())
        self.addCleanup(lambda: (process.kill(), process.wait()))
        seen = b""
        while b">>> " not in seen:
            seen += os.read(master, 4096)
        self.assertTrue(until(lambda: termios.tcgetattr(slave) != before))
        os.write(master, b"\x04")
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(termios.tcgetattr(slave), before)
        os.close(master), os.close(slave)


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
