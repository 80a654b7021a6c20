"""Sessions that run code: how soon the first answer comes, how soon the next, what an idle one costs, and batches.

What is compared is measured in turns within rounds, so that a disturbance of the machine meets both sides. Times are
nanoseconds.
"""
import contextlib
import ctypes
import http.client
import json
import os
import pathlib
import re
import time

import http_suite
import peers
import plot
from http_suite import KEY, Server, timed
from stats import Target, flat, ms, p50, p99, ratio_of_rounds, table

FULL = {"rounds": 12, "firsts": 40, "lives": 200, "restarts": 20, "yardstick": 200, "bubblewrap": 15, "docker": 2, "jupyter": 60,
        "crowd": 100, "crowds": 3, "idle": 20, "alive": 3000, "alive_seconds": 150, "items": [1, 10, 100, 1000, 10000], "batches": 3}
QUICK = {"rounds": 2, "firsts": 10, "lives": 40, "restarts": 4, "yardstick": 50, "bubblewrap": 4, "docker": 1, "jupyter": 10,
         "crowd": 20, "crowds": 1, "idle": 4, "alive": 60, "alive_seconds": 30, "items": [1, 10, 100], "batches": 1}
REFILL_MS = 20  # between two creates: what the pool needs to fill again
EVERY_MS = 20  # between two of the staggered ones
POOL = 8
IMPORTS = "numpy,pandas"
CORES = 2  # that a batch may use
ALIVE_NEEDS = 5 << 20  # bytes of the machine that one of many sessions is given; fewer are made where there is less


class Programs(http_suite.Programs):
    """As for the server, with a client that runs code."""

    def __init__(self, folder, engine_options):
        super().__init__(folder, engine_options)
        self.client_path = folder / "sessions_bench"

    def client_of(self, server, mode, **options):
        self.port = server.port
        return self.client(mode, **options)


class WarmServer(Server):
    """One whose interpreters come from an image, and whose pool knows that they are wanted."""

    def __init__(self, path, *flags, pool=POOL):
        super().__init__(path, "--pool-size", str(pool), *flags)
        try:
            self.warm_up(2 * pool)
        except BaseException:
            self.__exit__()
            raise

    def warm_up(self, uses):
        with Asking(self) as asking:
            deadline = time.monotonic() + 60
            while not re.search(r"^agent_sandbox_interpreter_images [1-9]", asking.open("GET", "/metrics").read().decode(), re.M):
                if time.monotonic() > deadline:
                    raise RuntimeError("no image of an interpreter after a minute")
                time.sleep(0.1)
            for _ in range(uses):
                session = asking.session()
                asking.cell(session, "1+1")
                asking.remove([session])
        time.sleep(1)


class Asking:
    """One kept connection, for what is not timed to the microsecond."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.connection.close()

    def open(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Accept": "application/x-ndjson, application/json"}
        self.connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self.connection.getresponse()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read()[:300]!r}")
        return answer

    def call(self, method, path, body=None):
        data = self.open(method, path, body).read()
        return json.loads(data) if data else {}

    def cell(self, session, code):
        """The text of its result."""
        answer = self.call("POST", f"/api/sessions/{session}/execute", {"code": code})
        if answer["error"] or not answer["results"]:
            raise RuntimeError(f"{code}: {answer['error']}")
        return answer["results"][-1]["text/plain"]

    def session(self):
        return self.call("POST", "/api/sessions", {})["session_id"]

    def remove(self, sessions):
        for session in sessions:
            self.call("DELETE", f"/api/sessions/{session}")


# ---- what is measured


def measure(programs, sizes, say):
    """Everything there is to measure, as plain values. What is missing has an empty list."""
    data = {"sizes": sizes, "ours": {"first": [], "create": [], "live": [], "restart": []},
            "imports": {"first": [], "restart": [], "missing": "", "is_warm": None}, "yardstick": [],
            "peers": {}, "staggered": [], "burst": [], "idle": {}, "alive": {}, "batch": {"missing": "", "runs": {}}}
    with contextlib.ExitStack() as stack:
        running = {}
        for make in (peers.BubblewrapPython, peers.DockerPython, peers.Jupyter):
            peer = stack.enter_context(make())
            data["peers"][peer.name] = {"version": peer.version, "note": peer.note, "missing": peer.missing, "times": []}
            say(f"{peer.name}: {peer.missing or peer.version}")
            if not peer.missing:
                running[peer.name] = peer
        server = stack.enter_context(WarmServer(programs.server_path))
        warm = imports_server(programs, data, stack, say)
        measure_rounds(programs, sizes, data, running, server, warm, say)
        measure_crowds(programs, sizes, data, server, say)
    measure_idle(programs, sizes, data, say)
    measure_alive(programs, sizes, data, say)
    measure_batches(programs, sizes, data, say)
    data["problems"] = programs.problems
    return data


def imports_server(programs, data, stack, say):
    """One whose interpreters have imported before anybody asks for them."""
    say(f"a server with {IMPORTS} imported")
    try:
        server = stack.enter_context(WarmServer(programs.server_path, "--interpreters-imports", IMPORTS))
        with Asking(server) as asking:
            session = asking.session()
            data["imports"]["is_warm"] = asking.cell(session, "import sys; 'pandas' in sys.modules") == "True"
            asking.remove([session])
    except RuntimeError as problem:
        data["imports"]["missing"] = str(problem).splitlines()[-1]
        return None
    return server


def measure_rounds(programs, sizes, data, running, server, warm, say):
    def keep(lists, name, values):
        if values:
            lists[name].append(values)

    for number in range(1, sizes["rounds"] + 1):
        say(f"round {number} of {sizes['rounds']}")
        alone = programs.engine("exec", count=sizes["yardstick"]).get("exec_ns")
        first = programs.client_of(server, "first", count=sizes["firsts"], pause_ms=REFILL_MS)
        imported = programs.client_of(warm, "first", count=sizes["firsts"], pause_ms=REFILL_MS) if warm else {}
        live = programs.client_of(server, "live", count=sizes["lives"])
        restart = programs.client_of(server, "restart", count=sizes["restarts"], pause_ms=REFILL_MS)
        again = programs.client_of(warm, "restart", count=sizes["restarts"], pause_ms=REFILL_MS) if warm else {}
        if not (alone and first and live and restart):
            continue  # A round is whole, or it is none.
        data["yardstick"].append(alone)
        for name, values in (("first", first["first_ns"]), ("create", first["create_ns"]), ("live", live["live_ns"]),
                             ("restart", restart["restart_ns"])):
            data["ours"][name].append(values)
        keep(data["imports"], "first", imported.get("first_ns"))
        keep(data["imports"], "restart", again.get("restart_ns"))
        for name, peer in running.items():
            keep(data["peers"][name], "times", peer_times(programs, sizes, peer))


def peer_times(programs, sizes, peer):
    if isinstance(peer, peers.Jupyter):
        for _ in range(3):
            peer.run_cell("1+1")
        times = [timed(peer.run_cell, "1+1") for _ in range(sizes["jupyter"])]
        if any(text != "2" for _, text in times):
            programs.problems.append(f"{peer.name}: 1+1 is not 2")
            return []
        return [took for took, _ in times]
    count = sizes["docker"] if isinstance(peer, peers.Docker) else sizes["bubblewrap"]
    return programs.peer(peer, "spawn", count).get("ns")


def measure_crowds(programs, sizes, data, server, say):
    """As public benchmarks of sandboxes measure the time to the first answer: beginning one by one, and all at once."""
    for number in range(1, sizes["crowds"] + 1):
        say(f"{sizes['crowd']} sessions, one every {EVERY_MS} ms and all at once, {number} of {sizes['crowds']}")
        for name, options in (("staggered", {"every_ms": EVERY_MS}), ("burst", {})):
            result = programs.client_of(server, name, count=sizes["crowd"], **options)
            if result:
                data[name].append(result)
            time.sleep(1)  # The pool fills again.


# ---- memory


def namespace_of(process):
    try:
        return os.readlink(process / "ns/pid")
    except OSError:
        return None


def proportional_bytes(process):
    """Its own pages, and its share of those that others have, too."""
    try:
        return 1024 * int(re.search(r"^Pss:\s+([0-9]+)", (process / "smaps_rollup").read_text(), re.M)[1])
    except (OSError, TypeError):
        return 0


def kernel_bytes(process):
    """What the kernel keeps for the process's group: page tables, stacks, sockets, names. None where it does not tell."""
    groups = [line.split(":", 2)[1:] for line in (process / "cgroup").read_text().splitlines()]
    for names, path in groups:
        if "memory" in names.split(","):
            file = pathlib.Path("/sys/fs/cgroup/memory" + path, "memory.kmem.usage_in_bytes")
            return int(file.read_text()) if file.exists() else None
    unified = [path for names, path in groups if not names]
    stat = pathlib.Path("/sys/fs/cgroup" + unified[0], "memory.stat") if unified else None
    found = re.search(r"^kernel ([0-9]+)", stat.read_text(), re.M) if stat and stat.exists() else None
    return int(found[1]) if found else None


def memory_of(namespaces):
    """By the process namespaces of sessions: (proportional set size of all processes, kernel memory, processes) of each."""
    found = {name: [0, None, 0] for name in namespaces}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        name = namespace_of(process)
        if name not in found:
            continue
        entry = found[name]
        entry[0] += proportional_bytes(process)
        entry[2] += 1
        with contextlib.suppress(OSError):
            entry[1] = max(entry[1] or 0, kernel_bytes(process) or 0) or None
    return list(found.values())


def namespace_inside(asking, session):
    """A session's own word for it, so that nothing here depends on how the server keeps its sandboxes."""
    return asking.cell(session, "__import__('os').readlink('/proc/self/ns/pid')").strip("'")


def measure_idle(programs, sizes, data, say):
    """Alone first: shared pages are divided by the number of sharers, so the first session costs most."""
    say(f"memory of idle sessions, 1 and {sizes['idle']}")
    with WarmServer(programs.server_path, pool=1) as server, Asking(server) as asking:
        spaces, sessions = [], []
        for number in range(sizes["idle"]):
            sessions.append(asking.session())
            spaces.append(namespace_inside(asking, sessions[-1]))
            if number == 0:
                time.sleep(1)
                data["idle"]["alone"] = memory_of(spaces)[0]
        time.sleep(1)
        data["idle"]["together"] = memory_of(spaces)
        asking.remove(sessions)


def available_bytes():
    return 1024 * int(re.search(r"MemAvailable:\s+([0-9]+)", pathlib.Path("/proc/meminfo").read_text())[1])


def touch_memory(size):
    """A virtual machine gets its memory when it touches it first, which is slow and no matter of ours."""
    block = 64 << 20
    held = []
    for _ in range(size // block):
        held.append(ctypes.create_string_buffer(block))
        ctypes.memset(held[-1], 1, block)


def measure_alive(programs, sizes, data, say):
    before = available_bytes()
    count = min(sizes["alive"], before // ALIVE_NEEDS)
    say(f"{count} sessions alive at once")
    touch_memory(count * ALIVE_NEEDS)
    with WarmServer(programs.server_path) as server, Asking(server) as asking:
        result = programs.client_of(server, "alive", count=count, seconds=sizes["alive_seconds"])
        ids = result.pop("ids", [])
        result["machine_bytes"] = before - available_bytes()
        answered = 0
        for session in ids:
            with contextlib.suppress(RuntimeError):
                answered += asking.cell(session, "1+1") == "2"
        data["alive"] = {**result, "asked": count, "answered": answered}
        asking.remove(ids)


# ---- batches


def run_batch(asking, count):
    """One-liners that are right; gives how long all verdicts took, and how many there were."""
    items = [{"id": f"i{n}", "language": "python", "code": f"print({n} + 1)", "expect": {"stdout": f"{n + 1}\n"}} for n in range(count)]
    start = time.monotonic_ns()
    verdicts = {}
    for line in asking.open("POST", "/api/batch", {"items": items}):
        event = json.loads(line)
        if "verdict" in event:
            verdicts[event["id"]] = event["verdict"]
    took = time.monotonic_ns() - start
    return {"ns": took, "verdicts": len(verdicts), "kinds": sorted(set(map(str, verdicts.values())))}


def measure_batches(programs, sizes, data, say):
    batch = data["batch"]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:CORES])  # The server has what its parent has.
    try:
        with WarmServer(programs.server_path) as server, Asking(server) as asking:
            run_batch(asking, 20)  # What is made once is not counted.
            for number in range(1, sizes["batches"] + 1):
                say(f"batches of {sizes['items'][0]} to {sizes['items'][-1]}, {number} of {sizes['batches']}")
                for count in sizes["items"]:
                    batch["runs"].setdefault(str(count), []).append(run_batch(asking, count))
    except (RuntimeError, http.client.HTTPException, OSError, ValueError) as problem:
        batch["missing"] = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        programs.problems.append(f"batch: {batch['missing']}")
    finally:
        os.sched_setaffinity(0, cores)


# ---- what was promised


def judge(data):
    return [*judge_first(data), *judge_crowds(data), *judge_live(data), *judge_imports(data), *judge_memory(data), *judge_batch(data)]


def quiet_rounds(data):
    """Which rounds count: judged by the engine alone, which is not what is on trial. Targets in milliseconds mean little
    while somebody else has the processors."""
    floors = [p50(times) for times in data["yardstick"]]
    return [number for number, floor in enumerate(floors) if floor <= http_suite.QUIET * min(floors)]


def in_quiet(data, name):
    return flat([data["ours"][name][number] for number in quiet_rounds(data)])


def faster_than(name, ours, peer, peer_name, least):
    """How many times faster: the median over rounds of theirs / ours."""
    result = Target(name, f"≥ {least}× faster than {peer_name}", note=peer["missing"])
    if ours and peer["times"]:
        ratio = 1 / ratio_of_rounds(ours, peer["times"])
        result.measured, result.p99 = ms(p50(flat(ours))), ms(p99(flat(ours)))
        result.reference, result.ratio, result.passed = ms(p50(flat(peer["times"]))), f"{ratio:.1f}×", ratio >= least
    return result


def judge_first(data):
    made = Target("a session and 1+1 from it, warm pool", "p50 ≤ 2 ms")
    times = in_quiet(data, "first")
    if times:
        made.measured, made.p99, made.passed = ms(p50(times)), ms(p99(times)), p50(times) <= 2_000_000
        made.note = f"{len(quiet_rounds(data))} of {len(data['yardstick'])} rounds were quiet; the create of it {ms(p50(in_quiet(data, 'create')))}"
    yield made
    for name, least in (("bubblewrap + python3 -c", 10), ("Docker + python3 -c", 100)):
        yield faster_than("the same", data["ours"]["first"], data["peers"][name], name, least)


def judge_crowds(data):
    size = data["sizes"]["crowd"]
    for name, title in (("staggered", f"{size} of them, one every {EVERY_MS} ms"), ("burst", f"{size} of them at once")):
        target, runs = Target(title, "all succeed"), data[name]
        if runs:
            times, errors = flat([run["first_ns"] for run in runs]), sum(run["errors"] for run in runs)
            last = p50([run["last_ns"] for run in runs])
            target.measured, target.p99, target.passed = ms(p50(times)), ms(p99(times)), errors == 0
            target.note = f"{errors} errors; the last after {ms(last)}, with a pool of {POOL}"
        yield target


def judge_live(data):
    live, times = Target("1+1 in a live interpreter", "p50 ≤ 0.4 ms"), in_quiet(data, "live")
    if times:
        live.measured, live.p99, live.passed = ms(p50(times)), ms(p99(times)), p50(times) <= 400_000
    yield live
    yield faster_than("the same", data["ours"]["live"], data["peers"]["Jupyter"], "a Jupyter kernel", 15)


def judge_imports(data):
    imports = data["imports"]
    for name, title in (("first", f"a session and 1+1 with {IMPORTS} imported"), ("restart", f"a new interpreter and 1+1 with {IMPORTS}")):
        target, ours = Target(title, "≤ 2× without"), data["ours"][name]
        if imports["missing"]:
            target.passed, target.note = False, imports["missing"]
        elif ours and imports[name]:
            ratio = ratio_of_rounds(imports[name], ours)
            times = flat(imports[name])
            target.measured, target.p99, target.reference = ms(p50(times)), ms(p99(times)), ms(p50(flat(ours)))
            target.ratio, target.passed = f"{ratio:.2f}×", ratio <= 2 and bool(imports["is_warm"])
            target.note = "" if imports["is_warm"] else "pandas is not in sys.modules before it is imported"
        yield target


def mib(count):
    return f"{count / (1 << 20):.2f} MiB"


def judge_memory(data):
    idle = Target("memory of an idle session with an interpreter", "≤ 3 MiB")
    if data["idle"]:
        each = [(own + (kernel or 0)) for own, kernel, _ in data["idle"]["together"]]
        own, kernel, processes = data["idle"]["alone"]
        mean = sum(each) / len(each)
        idle.measured, idle.passed = mib(mean), mean <= 3 << 20
        known = "kernel memory of its group included" if kernel else "the kernel does not tell what it keeps itself"
        idle.note = (f"each of {len(each)}; the only one {mib(own + (kernel or 0))}, of which the kernel's {mib(kernel or 0)}; {known}; "
                     f"{processes} processes")
    yield idle
    alive = data["alive"]
    times = alive.get("live_ns", [])
    later = Target(f"1+1 in the last of {len(times) or 'many'} alive", "≤ 2× the first")
    answers = Target(f"{alive.get('asked', 'many')} sessions alive at once", "all answer")
    if len(times) >= 2:
        part = min(100, len(times) // 2)
        first, last = times[:part], times[-part:]
        later.measured, later.p99, later.reference = ms(p50(last)), ms(p99(last)), ms(p50(first))
        later.ratio, later.passed = f"{p50(last) / p50(first):.2f}×", p50(last) <= 2 * p50(first)
        later.note = f"p50 of the last and of the first {part}"
    if alive:
        answers.measured = f"{alive['answered']} of {alive['asked']}"
        answers.passed = alive["answered"] == alive["asked"]
        if times:
            answers.note = f"{mib(alive['machine_bytes'] / len(times))} of the machine's memory each"
    yield later
    yield answers


def rates(batch):
    """Verdicts a second by the number of items: the median of all runs."""
    return {int(count): p50([run["verdicts"] / run["ns"] * 1e9 for run in runs]) for count, runs in batch["runs"].items() if runs}


def judge_batch(data):
    batch, most = data["batch"], max(data["sizes"]["items"])
    target = Target(f"verdicts on Python one-liners, {CORES} cores", "≥ 150 /s, all right")
    if batch["missing"]:
        target.passed, target.note = False, batch["missing"]
    elif batch["runs"].get(str(most)):
        runs = [run for all_of_one in batch["runs"].values() for run in all_of_one]
        wanted = sum(int(count) * len(all_of_one) for count, all_of_one in batch["runs"].items())
        given, kinds = sum(run["verdicts"] for run in runs), sorted({kind for run in runs for kind in run["kinds"]})
        rate = rates(batch)[most]
        target.measured, target.passed = f"{rate:,.0f} /s", rate >= 150 and given == wanted and len(kinds) == 1
        target.note = f"of {most} items; {given} of {wanted} verdicts, {', '.join(kinds)}"
    yield target


def tables(data, targets, markdown):
    promised = table(["", "target", "p50 or value", "p99", "against", "ratio", "verdict", ""],
                     [[t.name, t.target, t.measured, t.p99, t.reference, t.ratio, t.verdict(), t.note] for t in targets], markdown)
    notes = table(["compared with", "p50", "p99", ""],
                  [[name, *((ms(p50(flat(peer["times"]))), ms(p99(flat(peer["times"])))) if peer["times"] else ("–", "–")),
                    peer["missing"] or peer["note"]] for name, peer in data["peers"].items()], markdown)
    result = f"{promised}\n\n{notes}\n"
    if data["batch"]["runs"]:
        rows = [[str(count), ms(p50([run["ns"] for run in data["batch"]["runs"][str(count)]])), f"{rate:,.0f} /s"]
                for count, rate in rates(data["batch"]).items()]
        result += "\n" + table(["items in a batch", "all verdicts after", "verdicts"], rows, markdown) + "\n"
    return result


def panels(data):
    result = []
    times = {"a session": flat(data["ours"]["first"]), **{name: flat(peer["times"]) for name, peer in data["peers"].items() if name != "Jupyter"}}
    times = {name.replace(" + python3 -c", ""): values for name, values in times.items() if values}
    if times:
        result.append(plot.bars("From nothing to the answer of 1+1", "ms, p50 with p99 as the mark; logarithmic",
                                {n: p50(v) / 1e6 for n, v in times.items()}, {n: p99(v) / 1e6 for n, v in times.items()}))
    live = {"live": flat(data["ours"]["live"]), "Jupyter": flat(data["peers"]["Jupyter"]["times"])}
    live = {name: values for name, values in live.items() if values}
    if live:
        result.append(plot.bars("1+1 in a live interpreter", "ms, p50 with p99 as the mark; logarithmic",
                                {n: p50(v) / 1e6 for n, v in live.items()}, {n: p99(v) / 1e6 for n, v in live.items()}))
    crowds = {"one by one": flat(data["ours"]["first"]), "staggered": flat([run["first_ns"] for run in data["staggered"]]),
              "at once": flat([run["first_ns"] for run in data["burst"]])}
    crowds = {name: [v / 1e6 for v in values] for name, values in crowds.items() if values}
    if crowds:
        result.append(plot.distribution(f"{data['sizes']['crowd']} sessions: share whose first answer took at most …", "ms", crowds))
    alive = [v / 1e6 for v in data["alive"].get("live_ns", [])]
    if len(alive) >= 100:
        result.append(plot.growth("1+1 in the newest while more and more are alive", "sessions alive; dashed: the target", alive,
                                  2 * p50(alive[:100])))
    if len(data["batch"]["runs"]) > 1:
        result.append(plot.scaling("Batches of Python one-liners", "items in the batch; dashed: the target; logarithmic", rates(data["batch"]), 150,
                                   " /s"))
    return result
