"""Runs the built program as people do. AGENT_SANDBOX names it; it is the only thing these tests know of the build."""
import json
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

import attacks

BINARY = os.environ.get("AGENT_SANDBOX", "build/agent-sandbox")
IN_CI = os.environ.get("CI") == "true"
PATIENCE = int(os.environ.get("PATIENCE", "120"))  # seconds: a sanitized binary on a busy machine

USAGE_ERROR = 125
PLATFORM_ERROR = 124
NOBODY = 65534


def run(*words, stdin=b"", timeout=PATIENCE, **more):
    """A finished call; its output is bytes."""
    if stdin is not None and "stdin" not in more:
        more["input"] = stdin
    return subprocess.run([BINARY, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, **more)


def start(*words, **more):
    more.setdefault("stdin", subprocess.PIPE)
    return subprocess.Popen([BINARY, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def takes_more(process):
    """Whether the pipe that it writes to has room for more."""
    end = os.open(f"/proc/{process.pid}/fd/1", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return bool(select.select([], [end], [], 0)[1])
    finally:
        os.close(end)


def exec_json(*words, **more):
    done = run("exec", "--json", *words, **more)
    return json.loads(done.stdout)


def needs(*programs):
    """Skips a test when a program is not installed. In CI that is a failure: ./dev installs them."""
    missing = [name for name in programs if shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin") is None]
    if not missing:
        return lambda test: test
    if not IN_CI:
        return unittest.skip(f"not installed: {', '.join(missing)}")

    def fail(_):
        def failing(self):
            self.fail(f"not installed, although this is CI: {', '.join(missing)}")
        return failing
    return fail


class Case(unittest.TestCase):
    """Adds words for what most tests ask, and keeps how those went that stand for an attack."""

    attempts, proven = 1, 0  # of the attack: how often it was tried inside, and how often it worked outside

    def run(self, result=None):
        result = result if result is not None else self.defaultTestResult()
        before = len(result.failures) + len(result.errors), len(result.skipped)
        super().run(result)
        after = len(result.failures) + len(result.errors), len(result.skipped)
        if after[1] == before[1]:
            module = os.path.splitext(os.path.basename(sys.modules[type(self).__module__].__file__))[0]
            for case in attacks.cases_of(module, self._testMethodName):
                attacks.keep(case, self._testMethodName, after == before, self.attempts, self.proven)
        return result

    def assert_ran(self, done, out=None):
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace"))
        if out is not None:
            self.assertEqual(done.stdout, out)

    def scratch(self, owner=None):
        folder = tempfile.mkdtemp(prefix="agent-sandbox-e2e-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        if owner is not None:
            os.chown(folder, owner, owner)
        return folder


class OrdinaryUser:
    """Calls the program as somebody without privileges, who has a home and nothing else."""

    def __init__(self, case, uid=NOBODY):
        self.home = case.scratch(owner=uid)
        os.chmod(self.home, 0o700)
        self.uid = uid
        # The build folder may be closed to others.
        self.binary = os.path.join(case.scratch(), "agent-sandbox")
        shutil.copy(BINARY, self.binary)
        os.chmod(os.path.dirname(self.binary), 0o755)
        os.chmod(self.binary, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)

    def run(self, *words, stdin=b""):
        kept = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS") or name == "PATH"}
        return subprocess.run([self.binary, *words], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              user=self.uid, group=self.uid, extra_groups=[], cwd="/", timeout=PATIENCE,
                              env={**kept, "HOME": self.home, "XDG_RUNTIME_DIR": self.home})
