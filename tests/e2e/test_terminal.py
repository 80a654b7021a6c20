"""exec --tty and shell on a real terminal: keys, size, job control, and that the caller's terminal is given back."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from harness import BINARY, PATIENCE, Case, run
from http_harness import running, until


class Session:
    """The program on a terminal of its own, as a person would use it."""

    def __init__(self, *words, rows=30, columns=100, env=None):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execvpe(BINARY, [BINARY, *words], {**os.environ, "TERM": "xterm", **(env or {})})
        self.seen = b""

    def type(self, text):
        os.write(self.terminal, text.encode())

    def resize(self, rows, columns):
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def expect(self, pattern):
        """Reads until `pattern` was seen; returns the match, and forgets all up to it."""
        end = time.monotonic() + PATIENCE
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            if time.monotonic() > end or not self._more(end):
                raise AssertionError(f"{pattern!r} did not come; seen: {self.seen!r}")

    def _more(self, end):
        ready, _, _ = select.select([self.terminal], [], [], max(0, end - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self.terminal, 65536)
        except OSError:
            return False
        self.seen += data
        return bool(data)

    def rest(self):
        end = time.monotonic() + PATIENCE
        while self._more(end):
            pass
        return self.seen

    def wait(self):
        seen = self.rest()
        process = os.pidfd_open(self.pid)
        ended, _, _ = select.select([process], [], [], PATIENCE)
        os.close(process)
        os.close(self.terminal)
        if not ended:
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        if not ended:
            raise AssertionError(f"it did not end; seen: {seen!r}")
        return os.waitstatus_to_exitcode(status)


class Terminal(Case):
    def test_program_has_a_terminal_of_the_callers_size(self):
        session = Session("exec", "-T", "sh", "-c", "tty; stty size; echo $TERM; exit 4", rows=33, columns=77)
        session.expect(rb"/dev/pts/\d+\r\n33 77\r\nxterm\r\n")
        self.assertEqual(session.wait(), 4)

    def test_without_tty_it_has_none(self):
        session = Session("exec", "sh", "-c", "tty; test -t 1 || echo none")
        session.expect(rb"not a tty\r?\n(.*\n)*none")
        self.assertEqual(session.wait(), 0)

    def test_size_follows_the_window(self):
        session = Session("exec", "-T", "sh", "-c", "trap 'stty size; exit 5' WINCH; echo ready; sleep 60 & wait")
        session.expect(rb"ready")
        session.resize(11, 55)
        session.expect(rb"11 55")
        self.assertEqual(session.wait(), 5)

    def test_keys_reach_the_program(self):
        session = Session("exec", "-T", "python3", "-q", "-i", "-c", "print('up')")
        session.expect(rb"up\r\n>>> ")
        session.type("6 * 7\r")
        session.expect(rb"\r\n42\r\n>>> ")
        session.type("while True: pass\r\r")
        time.sleep(1)
        session.type("\x03")
        session.expect(rb"KeyboardInterrupt")
        session.type("import os; os._exit(7)\r")
        self.assertEqual(session.wait(), 7)

    def test_control_z_stays_inside(self):
        session = Session("shell", "-q")
        session.expect(rb"[$#] ")
        session.type("sleep 100\r")
        self.assertTrue(until(lambda: running("sleep", session.pid)))
        session.type("\x1a")
        session.expect(rb"Stopped")
        session.type("kill -9 %1\r")
        session.expect(rb"\[1\]\+  Killed|[$#] (.*\n)*.*[$#] ")
        session.type("exit 6\rexit 6\r")  # Twice, should it still remember a stopped job.
        self.assertEqual(session.wait(), 6)

    def test_terminal_is_given_back(self):
        for words in (["exec", "-T", "true"], ["exec", "-T", "sh", "-c", "kill -9 $$"], ["exec", "-T", "nothing"]):
            master, slave = pty.openpty()
            before = termios.tcgetattr(slave)
            subprocess.run([BINARY, *words], stdin=slave, stdout=slave, stderr=slave, timeout=PATIENCE)
            self.assertEqual(termios.tcgetattr(slave), before)
            os.close(master), os.close(slave)

    def test_piped_input_ends_a_terminal(self):
        for text in (b"echo $((6 * 7))\n", b"echo $((6 * 7))\nexit"):
            done = run("exec", "-T", "sh", stdin=text)
            self.assertIn(b"42\r\n", done.stdout)
            self.assertEqual(done.returncode, 0)

    def test_interrupt_without_a_terminal_inside(self):
        session = Session("exec", "sh", "-c", "echo ready; exec sleep 100")
        session.expect(rb"ready")
        session.type("\x03")
        self.assertEqual(session.wait(), 128 + signal.SIGINT)

    def test_stops_and_goes_on_with_the_program(self):
        session = Session("exec", "sh", "-c", "for i in $(seq 200); do echo tick; sleep 0.1; done")
        session.expect(rb"tick")
        session.type("\x1a")
        _, status = os.waitpid(session.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        os.kill(session.pid, signal.SIGCONT)
        session.seen = b""
        session.expect(rb"tick(.*\n)+.*tick")
        session.type("\x03")
        self.assertEqual(session.wait(), 128 + signal.SIGINT)

    def test_colours_only_on_a_terminal(self):
        session = Session("doctor", env={"NO_COLOR": ""})
        self.assertIn(session.wait(), (0, 1))
        self.assertIn(b"\033[", session.seen)
        plain = Session("doctor", env={"NO_COLOR": "1"})
        self.assertIn(plain.wait(), (0, 1))
        self.assertNotIn(b"\033[", plain.seen)


if __name__ == "__main__":
    unittest.main()
