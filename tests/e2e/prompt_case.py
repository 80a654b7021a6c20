"""A prompt of agent-sandbox python, node or bash on a real terminal, and what tests of them need."""
import fcntl
import os
import pty
import signal
import struct
import termios

from harness import BINARY, run
from http_harness import ADMIN_KEY, HttpCase, environment
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
