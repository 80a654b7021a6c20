"""agent-sandbox python on a real terminal: keys, history, completion, questions, interrupts, figures."""
import glob
import os
import pty
import signal
import stat
import subprocess
import termios
import unittest

from harness import BINARY, PATIENCE, PLATFORM_ERROR, USAGE_ERROR
from http_harness import until
from prompt_case import BEGIN, CONTROL_C, CONTROL_D, TAB, UP, PromptCase


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
        prompt.type("zz" + TAB + "q")
        prompt.expect(rb"q")  # Names have been asked for.
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


if __name__ == "__main__":
    unittest.main()
