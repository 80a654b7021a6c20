"""A plain python3 outside of any sandbox that runs cells, believes its programs and has no server behind it.

Attacks on interpreters are proven on it: one that works nowhere proves nothing. Runs as nobody, in a folder of its own, and
ends with the test.
"""
import os
import resource
import signal
import socket
import subprocess
import threading
import time

from harness import NOBODY

PYTHON = "/usr/bin/python3"

# Says on its channel when a cell is done, as docs/kernels.md has it, and runs a second one.
KERNEL = r"""
import json, os, sys
channel = int(sys.argv[1])
def cell(number, code):
    try:
        exec(compile(code, "<cell>", "exec"), {"__name__": "__main__"})
    except BaseException as problem:
        print(type(problem).__name__)
    sys.stdout.flush()
    os.write(channel, json.dumps({"event": "done", "id": number}).encode() + b"\n")
code = sys.stdin.read()
cell(7, code)
cell(8, "print(1 + 1)")
"""
DONE = b'{"event": "done", "id": 7}\n{"event": "done", "id": 8}\n'

# What every attack begins with. Inside, the number of the cell is its interpreter's secret, and no secret at all.
TOOLS = r"""
import json, os, signal, stat, sys, threading, time
def channel_of_the_interpreter():
    for fd in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                return fd
        except OSError:
            pass
CHANNEL = channel_of_the_interpreter()
KERNEL = getattr(globals().get("display"), "__self__", None)
ID = KERNEL.cell.number if KERNEL else 7
WORKSPACE = os.environ.get("AGENT_SANDBOX_WORKSPACE", "/workspace")
def write(data):
    while data:
        data = data[os.write(CHANNEL, data):]
def say(**event):
    write(json.dumps({"id": ID, **event}).encode() + b"\n")
"""

KEPT = 1 << 20  # bytes of what was said that are kept; the rest is counted


def bounded():
    """Harmless whatever the program does."""
    for what, most in ((resource.RLIMIT_AS, 4 << 30), (resource.RLIMIT_FSIZE, 1 << 30), (resource.RLIMIT_NPROC, 300)):
        resource.setrlimit(what, (most, most))


class Plain:
    """A program that has run on it."""

    def __init__(self, program, folder, interrupt=False, within=60):
        """`interrupt`: once the program prints ready it is sent SIGINT; `went_on` if it prints on and on regardless."""
        ours, theirs = socket.socketpair()
        self.said, self.said_bytes, self.out, self.went_on = b"", 0, b"", False
        self.process = subprocess.Popen(
            [PYTHON, "-c", KERNEL, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=folder, start_new_session=True,
            user=NOBODY, group=NOBODY, extra_groups=[], preexec_fn=bounded,
            env={"PATH": "/usr/bin:/bin", "HOME": folder, "AGENT_SANDBOX_WORKSPACE": folder},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        theirs.close()
        threads = [threading.Thread(target=self.listen, args=[ours]), threading.Thread(target=self.read)]
        for thread in threads:
            thread.start()
        try:
            self.process.stdin.write((TOOLS + program).encode())
            self.process.stdin.close()
            if interrupt:
                self.interrupt(within)
            self.code = self.process.wait(within)
        finally:
            self.left = self.others_of_its_group()
            self.end()
            for thread in threads:
                thread.join(within)
            self.process.wait()
            self.process.stdout.close()
            ours.close()

    def listen(self, ours):
        while data := ours.recv(1 << 16):
            self.said += data[:KEPT - len(self.said)]
            self.said_bytes += len(data)

    def read(self):
        while data := self.process.stdout.read1(1 << 16):
            self.out += data[:KEPT - len(self.out)]

    def interrupt(self, within):
        self.wait_for(lambda: b"ready\n" in self.out, within)
        self.process.send_signal(signal.SIGINT)
        before = self.out.count(b"on\n")
        self.wait_for(lambda: self.out.count(b"on\n") > before + 5, within)
        self.went_on = self.process.poll() is None
        self.end()

    def wait_for(self, condition, within):
        end = time.monotonic() + within
        while not condition() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)

    def others_of_its_group(self):
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                if int(name) != self.process.pid and os.getpgid(int(name)) == self.process.pid:
                    found.append(int(name))
            except ProcessLookupError:
                pass
        return found

    def end(self):
        """With all it left, unless that went into a session of its own."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    @property
    def is_well(self):
        """Both cells ran, and nothing but that was told."""
        return self.said == DONE and self.out.endswith(b"2\n") and self.code == 0
