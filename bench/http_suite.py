"""The server against the engine it stands on, and against Docker's API.

What is compared is measured in turns within rounds, so that a disturbance of the machine meets both sides. Times are
nanoseconds.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import engine_suite
import peers
import plot
from stats import Target, flat, ms, p50, p99, table

FULL = {"rounds": 12, "creates": 60, "spawns": 200, "churns": 5, "churn": 10, "burst": 1000, "bytes": 1 << 30, "transfers": 3,
        "idle": 20, "docker": 20}
QUICK = {"rounds": 3, "creates": 30, "spawns": 60, "churns": 2, "churn": 3, "burst": 100, "bytes": 128 << 20, "transfers": 1,
         "idle": 5, "docker": 3}
CLIENTS = 64
REFILL_MS = 5  # between two creates: what the pool needs to fill again
REST_MS = 20  # so long that caches are cold and processors asleep
QUIET = 1.15  # a round counts if the engine alone was at most so much slower in it than in the best one
KEY = "key-of-the-benchmark"


class Programs(engine_suite.Programs):
    """As for the engine, with a client beside it."""

    def __init__(self, folder, engine_options):
        super().__init__(folder, engine_options)
        self.client_path, self.server_path = folder / "http_bench", folder.parent / "bin" / "agent-sandbox"
        self.port = None

    def client(self, mode, **options):
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        return self.call([self.client_path, mode, "--port", self.port, *words])


class Server:
    """agent-sandbox serve with a storage of its own, on a port the kernel chooses."""

    def __init__(self, path, *flags):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="asr-bench-"))
        os.environ["AGENT_SANDBOX_ADMIN_KEY"] = KEY
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [str(path), "serve", "--listen", "127.0.0.1:0", "--storage", str(self.folder / "storage"),
             "--rate-per-key", "0", "--rate-per-address", "0", "--sessions-max-per-key", "5000", "--log-level", "warning",
             *flags],
            env={**os.environ, "HOME": str(self.folder)}, stdout=subprocess.PIPE, stderr=self.log, cwd=self.folder)
        listens = re.search(rb":([0-9]+)\n", self.process.stdout.readline())
        if not listens:
            self.process.wait()
            raise RuntimeError("the server did not start: " + (self.folder / "log").read_text().strip()[-500:])
        self.port = int(listens[1])
        deadline = time.monotonic() + 30
        while self.status("/ready") != 200:
            if time.monotonic() > deadline:
                raise RuntimeError("the server is not ready: " + (self.folder / "log").read_text()[-500:])
            time.sleep(0.05)

    def status(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def memory(self, word="VmRSS"):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(rf"{word}:\s+([0-9]+)", text)[1])

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def wake_ups(self):
        """Of all its threads since they began."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            text = (task / "status").read_text()
            total += sum(map(int, re.findall(r"ctxt_switches:\s+([0-9]+)", text)))
        return total


class DockerApi:
    """What a client of Docker's own API meets: a container created and started, and a command run in it."""

    def __init__(self, peer):
        self.socket = str(peer.scratch / "socket")

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("localhost", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.socket)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {data[:200]!r}")
            return json.loads(data) if data.startswith(b"{") else {}
        finally:
            connection.close()

    def create(self):
        config = {"Image": "true", "Cmd": ["/bin/busybox", "sleep", "1000"], "HostConfig": {"NetworkMode": "none"}}
        name = self.call("POST", "/containers/create", config)["Id"]
        self.call("POST", f"/containers/{name}/start")
        return name

    def run_true(self, name):
        command = self.call("POST", f"/containers/{name}/exec", {"Cmd": ["/bin/true"], "AttachStdout": True})["Id"]
        self.call("POST", f"/exec/{command}/start", {"Detach": False})

    def remove(self, name):
        self.call("DELETE", f"/containers/{name}?force=1")


def timed(work, *arguments):
    start = time.monotonic_ns()
    result = work(*arguments)
    return time.monotonic_ns() - start, result


def measure(programs, sizes, say):
    """Everything there is to measure, as plain values. What is missing has an empty list."""
    data = {"sizes": sizes, "http": {"create": [], "rested": [], "delete": [], "exec": [], "churn": []},
            "engine": {"exec": [], "rate": []}, "docker": {"create": [], "exec": [], "burst": None, "missing": ""}}
    measure_idle(programs, sizes, data, say)
    with Server(programs.server_path, "--pool-size", "8") as server:
        programs.port = server.port
        measure_rounds(programs, sizes, data, say)
        say(f"{sizes['burst']} creates at once")
        data["burst"] = programs.client("burst", count=sizes["burst"])
    with Server(programs.server_path, "--pool-size", "8") as server:
        programs.port = server.port
        measure_transfers(programs, server, sizes, data, say)
    measure_docker(sizes, data, say)
    data["problems"] = programs.problems
    return data


def measure_idle(programs, sizes, data, say):
    say(f"an idle server, {sizes['idle']} s")
    with Server(programs.server_path) as server:
        time.sleep(3)
        before = server.wake_ups()
        time.sleep(sizes["idle"])
        data["idle"] = {"rss_bytes": server.memory(), "wake_ups": server.wake_ups() - before,
                        "seconds": sizes["idle"]}


def measure_rounds(programs, sizes, data, say):
    for number in range(1, sizes["rounds"] + 1):
        say(f"round {number} of {sizes['rounds']}")
        made = programs.client("create", count=sizes["creates"], pause_ms=REFILL_MS)
        rested = programs.client("create", count=sizes["creates"], pause_ms=REST_MS)
        ran = programs.client("exec", count=sizes["spawns"])
        alone = programs.engine("exec", count=sizes["spawns"])
        if made and rested and ran and alone:
            data["http"]["create"].append(made["create_ns"])
            data["http"]["rested"].append(rested["create_ns"])
            data["http"]["delete"].append(made["delete_ns"])
            data["http"]["exec"].append(ran["exec_ns"])
            data["engine"]["exec"].append(alone["exec_ns"])
    for number in range(1, sizes["churns"] + 1):
        say(f"{CLIENTS} clients, {number} of {sizes['churns']}")
        alone = programs.engine("sustained", seconds=sizes["churn"], concurrency=CLIENTS)
        churn = programs.client("churn", clients=CLIENTS, seconds=sizes["churn"])
        if churn and alone:
            data["http"]["churn"].append(churn)
            data["engine"]["rate"].append(alone["per_second"])


def pipe_times(folder, size):
    """A file of zeros from memory through a pipe to nobody, and from a pipe into a file in memory."""
    path = f"{folder}/data"
    into, _ = timed(subprocess.run, ["sh", "-c", f"head -c {size} /dev/zero | cp /dev/stdin {path}"])
    out, _ = timed(subprocess.run, ["sh", "-c", f"cp {path} /dev/stdout | cat > /dev/null"])
    os.unlink(path)
    return into, out


def measure_transfers(programs, server, sizes, data, say):
    data["transfer"] = {"up": [], "down": [], "pipe_in": [], "pipe_out": [], "memory": []}
    programs.client("transfer", bytes=64 << 20)  # What it keeps for the next one is not counted twice.
    for number in range(sizes["transfers"]):
        say(f"{sizes['bytes'] >> 20} MiB up and down, {number + 1} of {sizes['transfers']}")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            into, out = pipe_times(folder, sizes["bytes"])
        before = server.memory()
        server.forget_peak()
        result = programs.client("transfer", bytes=sizes["bytes"])
        if not result:
            continue
        kept = data["transfer"]
        kept["up"].append(result["up_ns"])
        kept["down"].append(result["down_ns"])
        kept["pipe_in"].append(into)
        kept["pipe_out"].append(out)
        kept["memory"].append(server.memory("VmHWM") - before)


def measure_docker(sizes, data, say):
    docker = data["docker"]
    with peers.Docker() as peer:
        docker["missing"] = peer.missing
        say(f"Docker: {peer.missing or peer.version}")
        if peer.missing:
            return
        api = DockerApi(peer)
        names = []
        for _ in range(min(5, sizes["docker"])):
            took, name = timed(api.create)
            docker["create"].append(took)
            names.append(name)
            docker["exec"].append(timed(api.run_true, name)[0])
        for name in names:
            api.remove(name)
        names.clear()
        threads = [threading.Thread(target=lambda: names.append(api.create())) for _ in range(sizes["docker"])]

        def together():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        docker["burst"] = timed(together)[0]
        with contextlib.suppress(RuntimeError):
            for name in names:
                api.remove(name)


def judge(data):
    return [*judge_calls(data), *judge_load(data), *judge_transfers(data), *judge_idle(data)]


def quiet_rounds(data):
    """Which rounds count: judged by the engine alone, which is not what is on trial. Targets in milliseconds mean little
    while somebody else has the processors."""
    floors = [p50(times) for times in data["engine"]["exec"]]
    return [number for number, floor in enumerate(floors) if floor <= QUIET * min(floors)]


def judge_calls(data):
    quiet = quiet_rounds(data)
    http = {name: [rounds[n] for n in quiet] for name, rounds in data["http"].items() if name != "churn"}
    engine = [data["engine"]["exec"][n] for n in quiet]
    made = Target("POST /api/sessions, warm pool", "p50 ≤ 1 ms")
    slowest = Target("the same", "p99 ≤ 5 ms")
    times, docker = flat(http["create"]), data["docker"]["create"]
    if times:
        made.measured = ms(p50(times))
        made.note = f"after {REST_MS} ms of rest {ms(p50(flat(http['rested'])))}"
        slowest.note = f"{len(quiet)} of {len(data['engine']['exec'])} rounds were quiet"
        slowest.measured = slowest.p99 = made.p99 = ms(p99(times))
        made.passed, slowest.passed = p50(times) <= 1_000_000, p99(times) <= 5_000_000
        if docker:
            made.reference, made.ratio = f"Docker {ms(p50(docker))}", f"{p50(times) / p50(docker):.4f}×"
    yield made
    yield slowest
    ran = Target("/bin/true, request to exit status", "≤ engine + 0.3 ms")
    if http["exec"]:
        above = sorted(p50(a) - p50(b) for a, b in zip(http["exec"], engine))
        above = above[len(above) // 2]
        times, alone = flat(http["exec"]), flat(engine)
        ran.measured, ran.p99, ran.reference = ms(p50(times)), ms(p99(times)), ms(p50(alone))
        ran.ratio, ran.passed = f"+{ms(above)}", above <= 300_000
        if data["docker"]["exec"]:
            ran.note = f"Docker {ms(p50(data['docker']['exec']))}"
    yield ran


def judge_load(data):
    churn = Target(f"create + run + delete, {CLIENTS} clients", "≥ 70 % of the engine, no errors")
    rounds = data["http"]["churn"]
    if rounds and data["engine"]["rate"]:
        ratios = sorted(a["per_second"] / b for a, b in zip(rounds, data["engine"]["rate"]))
        ratio = ratios[len(ratios) // 2]
        errors = sum(one["errors"] for one in rounds)
        rate = sum(one["per_second"] for one in rounds) / len(rounds)
        alone = sum(data["engine"]["rate"]) / len(data["engine"]["rate"])
        churn.measured, churn.reference = engine_suite.per_second(rate), engine_suite.per_second(alone)
        churn.p99 = ms(p99(flat([one["cycle_ns"] for one in rounds])))
        churn.ratio, churn.passed = f"{ratio:.2f}×", ratio >= 0.7 and errors == 0
        churn.note = f"{errors} errors"
    yield churn
    burst = Target(f"{data['sizes']['burst']} creates at once", "all succeed")
    if data.get("burst"):
        errors, times = data["burst"]["errors"], data["burst"]["create_ns"]
        burst.measured, burst.p99 = f"last after {ms(data['burst']['last_ns'])}", ms(p99(times))
        burst.passed, burst.note = errors == 0, f"{errors} errors; p50 {ms(p50(times))}"
        if data["docker"]["burst"]:
            burst.reference = f"Docker {data['sizes']['docker']}: {ms(data['docker']['burst'])}"
    yield burst


def judge_transfers(data):
    kept = data["transfer"]
    for word, name, pipe in (("upload", "up", "pipe_in"), ("download", "down", "pipe_out")):
        target = Target(f"{word} of {data['sizes']['bytes'] >> 20} MiB", "≥ 60 % of cp through a pipe")
        if kept[name]:
            ratios = sorted(b / a for a, b in zip(kept[name], kept[pipe]))
            ratio = ratios[len(ratios) // 2]

            def speed(times):
                return f"{data['sizes']['bytes'] / p50(times):.2f} GB/s"
            target.measured, target.reference = speed(kept[name]), speed(kept[pipe])
            target.ratio, target.passed = f"{ratio:.2f}×", ratio >= 0.6
        yield target
    memory = Target("the server's memory meanwhile", "≤ idle + 32 MiB")
    if kept["memory"]:
        most = max(kept["memory"])
        memory.measured, memory.passed = f"+{most / (1 << 20):.1f} MiB", most <= 32 << 20
    yield memory


def judge_idle(data):
    idle = data["idle"]
    memory = Target("memory of an idle server (RSS)", "≤ 30 MiB")
    memory.measured, memory.passed = f"{idle['rss_bytes'] / (1 << 20):.1f} MiB", idle["rss_bytes"] <= 30 << 20
    yield memory
    wakes = Target("wake-ups of an idle server", "≤ 1 /s")
    rate = idle["wake_ups"] / idle["seconds"]
    wakes.measured, wakes.passed = f"{rate:.2f} /s", rate <= 1
    yield wakes


def tables(data, targets, markdown):
    return table(
        ["", "target", "p50 or value", "p99", "against", "ratio", "verdict", ""],
        [[t.name, t.target, t.measured, t.p99, t.reference, t.ratio, t.verdict(), t.note] for t in targets],
        markdown) + "\n"


def panels(data):
    result = []
    create, docker = flat(data["http"]["create"]), data["docker"]["create"]
    if create:
        times = {"POST /api/sessions": create, **({"Docker's API": docker} if docker else {})}
        result.append(plot.bars("A session, ready to be used", "ms, p50 with p99 as the mark; logarithmic",
                                {n: p50(v) / 1e6 for n, v in times.items()}, {n: p99(v) / 1e6 for n, v in times.items()}))
    ran, alone = flat(data["http"]["exec"]), flat(data["engine"]["exec"])
    if ran and alone:
        result.append(plot.distribution("/bin/true in a live session: share that took at most …", "ms",
                                        {"over HTTP": [v / 1e6 for v in ran], "engine": [v / 1e6 for v in alone]}))
    burst = sorted(v / 1e6 for v in (data.get("burst") or {}).get("create_ns", []))
    if len(burst) >= 100:
        result.append(plot.distribution(f"{len(burst)} creates at once: share that took at most …", "ms",
                                        {"over HTTP": burst}))
    return result
