"""The engine against its floor and its peers.

What is compared is measured in turns within rounds, so that a disturbance of the machine meets both sides. Times are
nanoseconds.
"""
import contextlib
import json
import os
import statistics
import subprocess

import peers
import plot
from stats import Target, flat, ms, p50, p99, ratio_of_rounds, table

FULL = {"rounds": 5, "cycles": 200, "spawns": 400, "hand_outs": 80, "peer": 60, "docker": 5,
        "sustained": 30, "beside": 10, "idle": 20, "alive": 2000}
QUICK = {"rounds": 2, "cycles": 40, "spawns": 100, "hand_outs": 24, "peer": 15, "docker": 2,
         "sustained": 4, "beside": 2, "idle": 5, "alive": 200}
WORKERS = os.cpu_count() or 1
LONGEST = 300  # Seconds for one call: something hangs after that.


class Programs:
    """The floor and the engine's own program, run as children. What fails is kept, not raised."""

    def __init__(self, folder, engine_options):
        self.floor_path, self.engine_path = folder / "floor", folder / "engine_bench"
        self.engine_options, self.problems = engine_options, []

    def call(self, argv):
        name = f"{os.path.basename(argv[0])} {argv[1]}"
        try:
            done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            self.problems.append(f"{name}: not done after {LONGEST} s")
            return {}
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])  # What commands printed that were timed stands before it.
        said = done.stderr.strip().splitlines()
        self.problems.append(f"{name}: {said[-1] if said else done.returncode}")
        return {}

    def floor(self, *arguments):
        return self.call([self.floor_path, *arguments])

    def engine(self, mode, **options):
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        return self.call([self.engine_path, mode, *words, *self.engine_options])

    def peer(self, peer, *arguments):
        return self.call([*peer.within, self.floor_path, *arguments, *peer.argv])


def measure(programs, sizes, say):
    """Everything there is to measure, as plain values. What is missing has an empty list."""
    data = {"floor": {}, "engine": {}, "peers": {}, "sizes": sizes, "workers": WORKERS}
    with contextlib.ExitStack() as stack:
        running = []
        for make in peers.ALL:
            peer = stack.enter_context(make())
            data["peers"][peer.name] = {"version": peer.version, "note": peer.note, "missing": peer.missing,
                                        "cycle": [], "rate": []}
            say(f"{peer.name}: {peer.missing or peer.version}")
            if not peer.missing:
                running.append(peer)
        measure_rounds(programs, sizes, data, running, say)
        measure_rates(programs, sizes, data, running, say)
    say("memory of idle sandboxes")
    data["engine"]["idle"] = programs.engine("idle", count=sizes["idle"])
    say(f"{sizes['alive']} alive at once")
    data["engine"]["alive"] = programs.engine("alive", count=sizes["alive"])
    data["problems"] = programs.problems
    return data


def measure_rounds(programs, sizes, data, running, say):
    floor = {"create": [], "cycle": [], "steps": [], "cycle_exec": [], "spawn": []}
    engine = {"cold": [], "destroy": [], "warm": [], "warm_served": [], "exec": [], "cycle": []}

    def keep(lists, name, values):
        if values:
            lists[name].append(values)

    for number in range(1, sizes["rounds"] + 1):
        say(f"round {number} of {sizes['rounds']}")
        result = programs.floor("create", sizes["cycles"])
        keep(floor, "create", result.get("until_byte_ns"))
        keep(floor, "cycle", result.get("cycle_ns"))
        keep(floor, "steps", result.get("steps_ns"))
        result = programs.engine("cold", count=sizes["cycles"])
        keep(engine, "cold", result.get("create_ns"))
        keep(engine, "destroy", result.get("destroy_ns"))
        keep(floor, "spawn", programs.floor("spawn", sizes["spawns"]).get("ns"))
        keep(engine, "exec", programs.engine("exec", count=sizes["spawns"]).get("exec_ns"))
        result = programs.engine("warm", count=sizes["hand_outs"])
        keep(engine, "warm", result.get("hand_out_ns"))
        keep(engine, "warm_served", {k: v for k, v in result.items() if k.startswith("served")})
        keep(floor, "cycle_exec", programs.floor("cycle-exec", sizes["cycles"]).get("cycle_ns"))
        keep(engine, "cycle", programs.engine("cycle", count=sizes["cycles"]).get("cycle_ns"))
        for peer in running:
            count = sizes["docker"] if peer.name == "Docker" else sizes["peer"]
            keep(data["peers"][peer.name], "cycle", programs.peer(peer, "spawn", count).get("ns"))
    data["floor"].update(floor)
    data["engine"].update(engine)


def measure_rates(programs, sizes, data, running, say):
    """The floor and the peers before and after the engine, whose long run is in the middle."""
    beside = sizes["beside"]
    rates = {"floor": [], "floor_exec": [], "engine": []}

    def others():
        rates["floor"].append(programs.floor("sustained", beside, WORKERS).get("per_second"))
        rates["floor_exec"].append(programs.floor("sustained", beside, WORKERS, "--exec").get("per_second"))
        for peer in running:
            data["peers"][peer.name]["rate"].append(programs.peer(peer, "rate", beside, WORKERS).get("per_second"))

    say("sustained: floor and peers")
    others()
    say(f"sustained: engine, {sizes['sustained']} s")
    result = programs.engine("sustained", seconds=sizes["sustained"])
    rates["engine"].append(result.get("per_second"))
    data["engine"]["sustained"] = result
    say("sustained: floor and peers again")
    others()
    for peer in data["peers"].values():
        peer["rate"] = [rate for rate in peer["rate"] if rate]
    data["rates"] = {name: [rate for rate in values if rate] for name, values in rates.items()}


def mean_rate(values):
    return statistics.mean(values) if values else None


def per_second(rate):
    return f"{rate:,.0f} /s" if rate >= 100 else f"{rate:.1f} /s"


def judge_times(floor, engine):
    def compared(name, target, ours, theirs, most):
        result = Target(name, target)
        if ours and theirs:
            ratio = ratio_of_rounds(ours, theirs)
            ours, theirs = flat(ours), flat(theirs)
            result.measured, result.p99, result.reference = ms(p50(ours)), ms(p99(ours)), ms(p50(theirs))
            result.ratio, result.passed = f"{ratio:.2f}×", ratio <= most
        return result

    yield compared("cold create until the guest answers", "≤ 2× floor", engine["cold"], floor["create"], 2)
    warm = Target("hand-out from the warm pool", "≤ 0.2 ms")
    if engine["warm"]:
        times = flat(engine["warm"])
        cold = sum(served.get("served_cold", 0) for served in engine["warm_served"])
        warm.measured, warm.p99, warm.passed = ms(p50(times)), ms(p99(times)), p50(times) <= 200_000
        warm.note = f"{cold} of {len(times)} were cold" if cold else ""
    yield warm
    yield compared("/bin/true in a live sandbox", "≤ 2× posix_spawn + wait", engine["exec"], floor["spawn"], 2)


def judge_rates(rates, peer_data):
    ours = mean_rate(rates["engine"])

    def compared(target, other, passes, why_not=""):
        result = Target("create + exec + destroy, sustained", target, note=why_not)
        if ours and other:
            result.measured, result.reference = per_second(ours), per_second(other)
            result.ratio, result.passed = f"{ours / other:.2f}×", passes(ours / other)
        return result

    yield compared("≥ 0.5× floor", mean_rate(rates["floor"]), lambda ratio: ratio >= 0.5)
    docker, bubblewrap = peer_data["Docker"], peer_data["bubblewrap"]
    yield compared("≥ 20× Docker", mean_rate(docker["rate"]), lambda ratio: ratio >= 20, docker["missing"])
    yield compared("> bubblewrap", mean_rate(bubblewrap["rate"]), lambda ratio: ratio > 1, bubblewrap["missing"])


def judge_many(engine):
    idle = Target("memory of an idle sandbox (PSS)", "≤ 1 MiB")
    if engine["idle"]:
        alone = engine["idle"]["alone_pss_bytes"]
        idle.measured, idle.passed = f"{alone / 1024:.0f} KiB", alone <= 1 << 20
        idle.note = (f"{engine['idle']['mean_pss_bytes'] / 1024:.0f} KiB each with {engine['idle']['sandboxes']} alive; "
                     f"{engine['idle']['mean_charged_bytes'] / 1024:.0f} KiB charged to its group")
    yield idle
    alive = engine["alive"]
    count = len(alive.get("create_ns", []))
    slower = Target(f"creation of the last of {count or 'many'} alive", "≤ 2× the first")
    answers = Target(f"{count or 'many'} alive at once", "all answer")
    if count:
        part = min(100, count // 2)
        first, last = alive["create_ns"][:part], alive["create_ns"][-part:]
        slower.measured, slower.p99, slower.reference = ms(p50(last)), ms(p99(last)), ms(p50(first))
        slower.ratio, slower.passed = f"{p50(last) / p50(first):.2f}×", p50(last) <= 2 * p50(first)
        slower.note = f"p50 of the last and of the first {part}"
        answered = min(alive["answered"], alive["executed"])
        answers.measured, answers.passed = f"{answered} of {count}", answered == count
        answers.note = f"ping all {ms(alive['ping_all_ns'])}, /bin/true in all {ms(alive['exec_all_ns'])}"
    yield slower
    yield answers


def judge(data):
    return [*judge_times(data["floor"], data["engine"]), *judge_rates(data["rates"], data["peers"]),
            *judge_many(data["engine"])]


def cycles_by_name(data):
    """create + run /bin/true + destroy, one after the other, and as a rate."""
    rows = {"floor": (flat(data["floor"]["cycle_exec"]), mean_rate(data["rates"]["floor_exec"])),
            "engine": (flat(data["engine"]["cycle"]), mean_rate(data["rates"]["engine"]))}
    for name, peer in data["peers"].items():
        rows[name] = (flat(peer["cycle"]), mean_rate(peer["rate"]))
    return rows


def tables(data, targets, markdown):
    promised = table(
        ["", "target", "p50 or value", "p99", "against", "ratio", "verdict", ""],
        [[t.name, t.target, t.measured, t.p99, t.reference, t.ratio, t.verdict(), t.note] for t in targets], markdown)
    rows = []
    for name, (times, rate) in cycles_by_name(data).items():
        note = data["peers"][name]["missing"] or data["peers"][name]["note"] if name in data["peers"] else ""
        note = "with /bin/true inside; no protocol, no filter" if name == "floor" else note
        rows.append([name, ms(p50(times)) if times else "–", ms(p99(times)) if times else "–",
                     per_second(rate) if rate else "–", note])
    compared = table(["create + exec + destroy", "p50", "p99", f"{data['workers']} workers", ""], rows, markdown)
    return f"{promised}\n\n{compared}\n" + steps_table(data, markdown)


def steps_table(data, markdown):
    """Where the floor spends its time: medians since the start, and since the step before."""
    steps = data["floor"]["steps"]
    if not steps:
        return ""
    rows, before = [], 0
    for name in steps[0]:
        at = statistics.median(step[name] for step in steps)
        if name != "child_exec":  # Nothing is run inside in these cycles.
            rows.append([name.replace("_", " "), f"{at / 1000:.0f} µs", f"{(at - before) / 1000:+.0f} µs"])
            before = at
    return "\n" + table(["steps of the floor", "at", "step"], rows, markdown) + "\n"


def panels(data):
    rows = cycles_by_name(data)
    times = {name: values for name, (values, _) in rows.items() if values}
    rates = {name: rate for name, (_, rate) in rows.items() if rate}
    result = []
    if times:
        result.append(plot.bars("Create, run /bin/true, destroy", "ms, p50 with p99 as the mark; logarithmic",
                                {n: p50(v) / 1e6 for n, v in times.items()}, {n: p99(v) / 1e6 for n, v in times.items()}))
    if rates:
        result.append(plot.bars(f"The same, sustained by {data['workers']} workers", "per second; logarithmic", rates))
    series = {"floor": flat(data["floor"]["create"]), "engine": flat(data["engine"]["cold"])}
    series = {name: [v / 1e6 for v in values] for name, values in series.items() if values}
    if series:
        result.append(plot.distribution("Cold create: share that took at most …", "ms", series))
    create = [v / 1e6 for v in data["engine"]["alive"].get("create_ns", [])]
    if len(create) >= 100:
        limit = 2 * p50(create[:100])
        result.append(plot.growth("Creation time while more and more are alive", "sandboxes alive; dashed: the target",
                                  create, limit))
    return result
