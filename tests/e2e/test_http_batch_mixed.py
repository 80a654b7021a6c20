"""A batch in which good programs, wrong ones and attacks are mixed: each gets the verdict that is its own, and a neighbour's live
interpreter answers all the while.

ITEMS says how many programs (300; ./dev leaks judges 10,000). MOST_SLOWER, if it is set, is how many times slower the neighbour
may be meanwhile: time is measured on an optimised build only.
"""
import collections
import http.client
import json
import os
import random
import statistics
import threading
import time
import unittest

from harness import needs
from http_harness import HttpCase, descendants, until

ITEMS = int(os.environ.get("ITEMS", "300"))
MOST_SLOWER = float(os.environ.get("MOST_SLOWER", "0"))
QUIET_SAMPLES = 100
SHORT = {"wall_s": 1}
SMALL = {"wall_s": 10, "memory_mb": 64}
QUIET = {"wall_s": 10, "output_mb": 0.1}

# What a program does: how often, the verdict, its limits, and the program in each language. {n} is a number of its own; the right
# answer is {n} + 1.
KINDS = {
    "good": (12, "accepted", {}, {
        "python": "print({n} + 1)", "bash": "echo $(({n} + 1))", "javascript": "console.log({n} + 1)",
        "c": '#include <stdio.h>\nint main(void) {{ printf("%d\\n", {n} + 1); return 0; }}'}),
    "wrong": (4, "wrong_answer", {}, {
        "python": "print({n})", "bash": "echo {n}", "javascript": "console.log({n})",
        "c": '#include <stdio.h>\nint main(void) {{ puts("{n}"); return 0; }}'}),
    "half": (1, "wrong_answer", {}, {"python": "pass", "bash": ":", "javascript": "", "c": "int main(void) {{ return 0; }}"}),
    "crashing": (2, "runtime_error", {}, {
        "python": "print({n} + 1, flush=True)\nimport ctypes; ctypes.string_at(0)", "bash": "echo $(({n} + 1)); kill -SEGV $$",
        "javascript": "console.log({n} + 1); process.abort()", "c": "int main(void) {{ return *(volatile int*)0; }}"}),
    "failing": (2, "runtime_error", {}, {
        "python": "print({n} + 1)\nraise SystemExit(3)", "bash": "echo $(({n} + 1)); exit 3",
        "javascript": "console.log({n} + 1); throw new Error('x')", "c": "int main(void) {{ return 3; }}"}),
    "looping": (1, "time_limit", SHORT, {
        "python": "print({n} + 1, flush=True)\nwhile True: pass", "bash": "while :; do :; done", "javascript": "for (;;) {{}}",
        "c": "int main(void) {{ for (volatile int i = 0;; ++i) {{}} }}"}),
    "sleeping": (1, "time_limit", SHORT, {
        "python": "import signal, time\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except OSError: pass\n"
                  "while True: time.sleep(1)",
        "bash": "trap '' INT TERM HUP; sleep 1000", "javascript": "setInterval(() => 0, 1000)",
        "c": "#include <unistd.h>\nint main(void) {{ for (;;) pause(); }}"}),
    "flooding": (2, "output_limit", QUIET, {
        "python": "while True: print('x' * 1000)", "bash": "yes", "javascript": "for (;;) require('fs').writeSync(1, 'x'.repeat(1000))",
        "c": '#include <stdio.h>\nint main(void) {{ for (;;) puts("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"); }}'}),
    "hungry": (1, "memory_limit", SMALL, {
        "python": "x = []\nwhile True: x.append(b'x' * (1 << 20) + b'y')", "bash": "x=x; while :; do x=$x$x; done",
        "javascript": "const x = []; for (;;) x.push(Buffer.alloc(1 << 20, 1))",
        "c": "#include <stdlib.h>\n#include <string.h>\nint main(void) {{ for (;;) memset(malloc(1 << 20), 1, 1 << 20); }}"}),
    "forking": (1, "time_limit", SHORT, {
        "python": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "bash": "f() {{ f | f & f; }}; while :; do f; done 2>/dev/null",
        "javascript": "for (;;) try {{ require('child_process').spawn('sleep', ['1000']).on('error', () => 0) }} catch {{}}",
        "c": "#include <unistd.h>\nint main(void) {{ for (;;) fork(); }}"}),
    "leaving": (1, "accepted", {}, {
        "python": "import os, time\nfor _ in range(10):\n    if os.fork() == 0: time.sleep(1000)\nprint({n} + 1)",
        "bash": "for i in 1 2 3; do sleep 1000 & done; setsid sleep 1000 & echo $(({n} + 1))",
        "javascript": "require('child_process').spawn('sleep', ['1000'], {{detached: true}}); console.log({n} + 1); process.exit(0)",
        "c": '#include <stdio.h>\n#include <unistd.h>\nint main(void) {{ printf("%d\\n", {n} + 1); fflush(stdout);'
             " for (int i = 0; i < 5; ++i) if (!fork()) sleep(1000); }}"}),
    "unbuilt": (1, "compile_error", {}, {"c": "int main(void) {{ return {n} }}"}),
}
SOURCES = 20  # of C, so that most are built once: compilers are not what is tried


def items_of(count):
    """The same every time: item k's kind and language depend on k alone."""
    choices = [(kind, language) for kind, (often, _, _, programs) in KINDS.items() for language in programs for _ in range(often)]
    dice = random.Random(1)
    items, wanted = [], {}
    for number in range(count):
        kind, language = choices[number] if number < len(choices) else dice.choice(choices)
        _, verdict, limits, programs = KINDS[kind]
        n = number % SOURCES if language == "c" else number
        # A JavaScript engine alone is larger than what the others are allowed.
        limits = {**limits, "memory_mb": 256} if language == "javascript" and kind == "hungry" else limits
        name = f"{number}-{kind}-{language}"
        items.append({"id": name, "language": language, "code": programs[language].format(n=n), "expect": {"stdout": f"{n + 1}\n"},
                      **({"limits": limits} if limits else {})})
        wanted[name] = verdict
    return items, wanted


class Neighbour:
    """Somebody whose interpreter lives in the same server: asks it for 1+1 on a kept connection."""

    def __init__(self, admin):
        self.admin, self.times, self.wrong = admin, [], []
        self.session = admin.create()
        self.connection = http.client.HTTPConnection(*admin.server.address, timeout=120)
        self.over = threading.Event()

    def ask(self):
        began = time.monotonic()
        self.connection.request("POST", self.session + "/execute", b'{"code": "1+1"}',
                                {**dict(self.admin.headers()), "Content-Type": "application/json"})
        answer = json.loads(self.connection.getresponse().read())
        if [result.get("text/plain") for result in answer.get("results", [])] != ["2"]:
            self.wrong.append(answer)
        return time.monotonic() - began

    def ask_until_over(self):
        while not self.over.wait(0.02):
            self.times.append(self.ask())


class Mixed(HttpCase):
    @needs("node", "gcc")
    def test_each_gets_its_own_verdict(self):
        server = self.other_server("--rate-per-key", "0", "--rate-per-address", "0")
        items, wanted = items_of(ITEMS)
        neighbour = Neighbour(server.admin)
        self.addCleanup(neighbour.connection.close)
        neighbour.ask()
        self.settle(server)
        at_rest = len(descendants(server.pid))
        quiet = [neighbour.ask() for _ in range(QUIET_SAMPLES)]
        asking = threading.Thread(target=neighbour.ask_until_over)
        asking.start()
        try:
            began = time.monotonic()
            verdicts = self.judge(server, items)
            took = time.monotonic() - began
        finally:
            neighbour.over.set()
            asking.join()
        self.assertEqual(len(verdicts), len(items))
        got = {line["id"]: line["verdict"] for line in verdicts}
        unlike = collections.Counter((name.split("-", 1)[1], wanted[name], got.get(name)) for name in wanted if got.get(name) != wanted[name])
        about = [{**line, "stdout": line["stdout"][:200]} for line in verdicts if line["verdict"] != wanted[line["id"]]][:5]
        self.assertFalse(unlike, f"{dict(unlike)}: {about}")
        self.assertEqual(neighbour.wrong, [])
        self.assertGreater(len(neighbour.times), 5)
        # What programs left running has gone with their sandboxes.
        self.assertTrue(until(lambda: len(descendants(server.pid)) <= at_rest + 10, 30), "processes are left")
        slower = statistics.median(neighbour.times) / statistics.median(quiet)
        print(f"{len(items)} programs in {took:.1f} s; a neighbour's 1+1 took {1000 * statistics.median(quiet):.2f} ms before and "
              f"{1000 * statistics.median(neighbour.times):.2f} ms meanwhile ({slower:.1f} times; worst {1000 * max(neighbour.times):.0f} ms)")
        if MOST_SLOWER:
            self.assertLessEqual(slower, MOST_SLOWER, "the neighbour noticed")

    def judge(self, server, items):
        answer = server.admin.expect(200, "POST", "/api/batch", {"items": items}, timeout=max(300, len(items)))
        return [json.loads(line) for line in answer.body.splitlines()]

    @staticmethod
    def settle(server):
        """Until the pool is full."""
        seen = []
        while len(seen) < 5 or len(set(seen[-5:])) > 1:
            seen.append(len(descendants(server.pid)))
            time.sleep(0.2)


if __name__ == "__main__":
    unittest.main()
