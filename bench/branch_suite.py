"""Sessions that are saved, brought back, branched and merged: how soon, and how that grows with what they hold.

What is compared is measured in turns within rounds, so that a disturbance of the machine meets both sides. Times are
nanoseconds.
"""
import contextlib

import plot
import sessions_suite
from branch_peers import Copy, DockerCommit, State
from sessions_suite import WarmServer, in_quiet, quiet_rounds
from stats import Target, flat, ms, p50, p99, ratio_of_rounds, table

FULL = {"rounds": 12, "yardstick": 200, "checkpoints": 40, "rollbacks": 40, "forks": 30, "tens": 6, "merges": 15, "effects": 150,
        "copies": 10, "docker": 2, "manys": 5, "many": 100, "mib": [0, 64, 512], "growths": 3, "again": 5}
QUICK = {"rounds": 2, "yardstick": 50, "checkpoints": 20, "rollbacks": 10, "forks": 10, "tens": 2, "merges": 4, "effects": 30,
         "copies": 3, "docker": 1, "manys": 1, "many": 20, "mib": [0, 16, 64], "growths": 1, "again": 2}
REFILL_MS = 20  # before each: what the pool needs to fill again
REST_MS = 200  # before many, and before what is big
MERGED = 100  # files that a branch has changed
ALL_CORES = '{"limits":{"cpus":64}}'
BIG = '{"limits":{"memory":"3G","disk":"1200M","cpus":64}}'

# A handful of files, and a few variables.
SMALL = State("""
for number in range(5):
    with open(f"{number}.txt", "w") as file:
        file.write(f"line {number}\\n" * 100)
""", "kept = [number * number for number in range(1000)]")
CHANGE = """
import os
changes = globals().get("changes", 0) + 1
with open("changes.txt", "w") as file:
    file.write(f"{changes}\\n" * 10)
"""
LOOK = "changes if 'changes' in globals() else 0, len(kept), len(__import__('os').listdir('.'))"

MANY_FILES = """
import hashlib, os
os.makedirs("many", exist_ok=True)
def write():
    for number in range(MERGED):
        with open(f"many/{number}", "wb") as file:
            file.write(os.urandom(1000))
def look():
    return hashlib.sha256(b"".join(open(f"many/{number}", "rb").read() for number in range(MERGED))).hexdigest()
write()
""".replace("MERGED", str(MERGED))

# What a session may hold much of.
OBJECTS, BYTES, FILES = "small objects", "one bytearray", "files of 1 MiB"
KINDS = (OBJECTS, BYTES, FILES)
STEPS = {"first checkpoint": "first_ns", "checkpoint again": "again_ns", "rollback": "rollback_ns", "fork": "fork_ns"}
REPLAY = "copy and replay"


def big(kind, mib):
    if kind == FILES:
        return State(f"""
import os
for number in range({mib}):
    with open(f"big{{number}}", "wb") as file:
        file.write(os.urandom(1 << 20))
""", "kept = []")
    if kind == BYTES:
        return State("", f"""
import os
kept, block = bytearray(), os.urandom(1 << 20)
for _ in range({mib}):
    kept += block
""")
    return State("", f"""
def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
kept, before = [], pages()
while pages() - before < {mib} << 8:
    kept.extend({{"number": n, "name": f"name {{n}}", "parts": [n, n + 1]}} for n in range(len(kept), len(kept) + 1000))
""")


class Programs(sessions_suite.Programs):
    """As for sessions, with a client that branches them."""

    def __init__(self, folder, engine_options):
        super().__init__(folder, engine_options)
        self.client_path = folder / "branch_bench"


# ---- what is measured


def measure(programs, sizes, say):
    """Everything there is to measure, as plain values. What is missing has an empty list."""
    names = ("first checkpoint", "checkpoint", "rollback", "rollback cell", "fork", "fork cell", "ten", "merge")
    data = {"sizes": sizes, "ours": {name: [] for name in names}, "yardstick": [], "peers": {}, "many": [],
            "effects": {what: {"missing": "", "without": [], "with": []} for what in ("command", "cell")},
            "growth": {kind: {str(mib): [] for mib in sizes["mib"]} for kind in KINDS},
            "replay": {kind: {str(mib): [] for mib in sizes["mib"]} for kind in KINDS}}
    with contextlib.ExitStack() as stack:
        running = {}
        for peer in (Copy(), DockerCommit(SMALL)):
            stack.enter_context(peer)
            data["peers"][peer.name] = {"version": peer.version, "note": peer.note, "missing": peer.missing, "times": []}
            say(f"{peer.name}: {peer.missing or peer.version}")
            if not peer.missing:
                running[peer.name] = peer
        server = stack.enter_context(WarmServer(programs.server_path))
        measure_rounds(programs, sizes, data, running, server, say)
        measure_many(programs, sizes, data, server, say)
        measure_growth(programs, sizes, data, running.get(Copy.name), server, say)
    data["problems"] = programs.problems
    return data


def measure_rounds(programs, sizes, data, running, server, say):
    small = {"setup": SMALL.everything(), "change": CHANGE, "look": LOOK, "pause_ms": REFILL_MS}
    many_files = {"setup": MANY_FILES, "change": "write()", "look": "look()", "pause_ms": REFILL_MS}
    for number in range(1, sizes["rounds"] + 1):
        say(f"round {number} of {sizes['rounds']}")
        alone = programs.engine("exec", count=sizes["yardstick"]).get("exec_ns")
        saved = programs.client_of(server, "checkpoint", count=sizes["checkpoints"], **small)
        back = programs.client_of(server, "rollback", count=sizes["rollbacks"], **small)
        forked = programs.client_of(server, "fork", count=sizes["forks"], **small)
        ten = programs.client_of(server, "fork", count=sizes["tens"], children=10, **{**small, "pause_ms": REST_MS})
        merged = programs.client_of(server, "merge", count=sizes["merges"], files=MERGED, **many_files)
        effects = programs.client_of(server, "effects", count=sizes["effects"], session=ALL_CORES)
        if not (alone and saved and back and forked and ten and merged and effects):
            continue  # A round is whole, or it is none.
        data["yardstick"].append(alone)
        for name, values in (("first checkpoint", saved["first_ns"]), ("checkpoint", saved["first_ns"] + saved["again_ns"]),
                             ("rollback", back["rollback_ns"]), ("rollback cell", back["cell_ns"]), ("fork", forked["fork_ns"]),
                             ("fork cell", forked["cell_ns"]), ("ten", ten["fork_ns"]), ("merge", merged["merge_ns"])):
            data["ours"][name].append(values)
        keep_effects(data["effects"], effects)
        for name, peer in running.items():
            data["peers"][name]["times"] += peer_times(programs, sizes, peer)


def keep_effects(kept, effects):
    for what, result in effects.items():
        kept[what]["missing"] = result.get("missing", "")
        if not kept[what]["missing"]:
            kept[what]["without"].append(result["without_ns"])
            kept[what]["with"].append(result["with_ns"])


def peer_times(programs, sizes, peer):
    """One list of a round, or none."""
    if isinstance(peer, Copy):
        peer.hold(SMALL)
        times = programs.peer(peer, "spawn", sizes["copies"]).get("ns")
        peer.tidy()
    else:
        times = programs.peer(peer, "spawn", sizes["docker"]).get("ns")
    return [times] if times else []


def measure_many(programs, sizes, data, server, say):
    for number in range(1, sizes["manys"] + 1):
        say(f"{sizes['many']} children at once, {number} of {sizes['manys']}")
        result = programs.client_of(server, "fork_many", children=sizes["many"], setup=SMALL.everything(), look=LOOK, pause_ms=REST_MS)
        if result:
            data["many"].append(result)


def measure_growth(programs, sizes, data, copy, server, say):
    for kind in KINDS:
        for mib in sizes["mib"]:
            say(f"{mib} MiB: {kind}")
            state = big(kind, mib)
            for _ in range(sizes["growths"]):
                result = programs.client_of(server, "growth", count=sizes["again"], setup=state.everything(), change=CHANGE, look=LOOK,
                                            session=BIG, pause_ms=REST_MS)
                if result:
                    data["growth"][kind][str(mib)].append(result)
            if not copy:
                continue
            copy.hold(state)
            data["replay"][kind][str(mib)] += programs.peer(copy, "spawn", sizes["growths"]).get("ns", [])
            copy.tidy()


# ---- what was promised


def judge(data):
    return [*judge_small(data), *judge_many(data), *judge_effects(data)]


def within(data, name, of, most, divided=1):
    """A target in milliseconds for the p50 of quiet rounds."""
    target, times = Target(name, f"p50 ≤ {most} ms"), [value / divided for value in in_quiet(data, of)]
    if times:
        target.measured, target.p99, target.passed = ms(p50(times)), ms(p99(times)), p50(times) <= most * 1e6
    return target


def judge_small(data):
    def also(name):
        return ms(p50(in_quiet(data, name))) if data["yardstick"] else "–"

    saved = within(data, "a checkpoint", "checkpoint", 10)
    saved.note = f"{len(quiet_rounds(data)) if data['yardstick'] else 0} of {len(data['yardstick'])} rounds were quiet; the first of a session {also('first checkpoint')}"
    back = within(data, "a rollback after a small change", "rollback", 3)
    back.note = f"with the first cell after it {also('rollback cell')}"
    forked = within(data, "a fork", "fork", 5)
    forked.note = f"with the first cell in the child {also('fork cell')}"
    for target in (saved, back, forked):
        target.note = target.note if target.passed is not None else ""
    return [saved, back, forked, within(data, "each child of a fork of 10", "ten", 5, divided=10),
            within(data, f"a merge of {MERGED} files", "merge", 10)]


def judge_many(data):
    size, runs = data["sizes"]["many"], data["many"]
    target = Target(f"{size} children at once", "≤ 1 s")
    if runs:
        times, errors = [run["fork_ns"] for run in runs], sum(run["errors"] for run in runs)
        target.measured, target.p99, target.passed = ms(p50(times)), ms(p99(times)), p50(times) <= 1e9 and errors == 0
        target.note = f"all have answered a cell after {ms(p50([run['cells_ns'] for run in runs]))}; {errors} errors"
    yield target


def judge_effects(data):
    for what, name in (("command", "effects of /bin/true"), ("cell", "effects of 1+1 in a live interpreter")):
        target, kept = Target(name, "≤ 1.1× without"), data["effects"][what]
        if kept["missing"]:
            target.passed, target.note = False, kept["missing"]
        elif kept["with"]:
            ratio = ratio_of_rounds(kept["with"], kept["without"])
            times = flat(kept["with"])
            target.measured, target.p99, target.reference = ms(p50(times)), ms(p99(times)), ms(p50(flat(kept["without"])))
            target.ratio, target.passed = f"{ratio:.2f}×", ratio <= 1.1
        yield target


# ---- as tables and pictures

PUBLISHED = ("Published by others, not measured here, on other machines: sandboxes that are virtual machines branch in 50 to 220 ms "
             "and need KVM (forkd, which is built on Firecracker, says 56 ms); DeltaBox, a research prototype, says 11 ms for a "
             "checkpoint and 2 ms for a rollback ([arXiv 2605.22781](https://arxiv.org/abs/2605.22781)).")


def tables(data, targets, markdown):
    promised = table(["", "target", "p50 or value", "p99", "against", "ratio", "verdict", ""],
                     [[t.name, t.target, t.measured, t.p99, t.reference, t.ratio, t.verdict(), t.note] for t in targets], markdown)
    parts = [promised, compared(data, markdown), PUBLISHED, grown(data, markdown)]
    if markdown:
        parts.append("![How checkpoint, rollback and fork grow with what a session holds](plots/branch.svg)")
    return "\n\n".join(parts) + "\n"


def compared(data, markdown):
    ours = data["ours"]["fork cell"]
    rows = [["a fork and a cell in it", *(half_and_most(flat(ours))), "", "all cells of the session are kept, and none is run again"]]
    for name, peer in data["peers"].items():
        ratio = f"{1 / ratio_of_rounds(ours, peer['times']):.1f}×" if ours and peer["times"] else "–"
        rows.append([name, *half_and_most(flat(peer["times"])), ratio, peer["missing"] or peer["note"]])
    return table(["a second computer in the same state", "p50", "p99", "ours is faster", ""], rows, markdown)


def half_and_most(times):
    return (ms(p50(times)), ms(p99(times))) if times else ("–", "–")


def grown(data, markdown):
    rows = []
    for kind in KINDS:
        for mib in data["sizes"]["mib"]:
            rows.append([kind, str(mib), *(shown(data, kind, mib, step) for step in
                                           ("first_ns", "again_ns", "rollback_ns", "rollback_cell_ns", "fork_ns", "fork_cell_ns")),
                         typical(data["replay"][kind][str(mib)])])
    return table(["what a session holds", "MiB", "first checkpoint", "again", "rollback", "and a cell", "fork", "and a cell", REPLAY],
                 rows, markdown)


def values_of(data, kind, mib, step):
    """All that was measured of a step: one value of a run, or several."""
    found = [run[step] for run in data["growth"][kind][str(mib)]]
    return flat(found) if found and isinstance(found[0], list) else found


def typical(values):
    return ms(p50(values)) if values else "–"


def shown(data, kind, mib, step):
    return typical(values_of(data, kind, mib, step))


def panels(data):
    result = []
    times = {"fork": data["ours"]["fork cell"], **{name.split(" +")[0].removesuffix(" commit"): peer["times"] for name, peer in data["peers"].items()}}
    times = {name: flat(values) for name, values in times.items() if values}
    if times:
        result.append(plot.bars("A second computer in the same state, with an answer", "ms, p50 with p99 as the mark; logarithmic",
                                {n: p50(v) / 1e6 for n, v in times.items()}, {n: p99(v) / 1e6 for n, v in times.items()}))
    for kind in KINDS:
        series = {name: {mib: values_of(data, kind, mib, step) for mib in data["sizes"]["mib"]} for name, step in STEPS.items()}
        series[REPLAY] = {mib: data["replay"][kind][str(mib)] for mib in data["sizes"]["mib"]}
        series = {name: {mib: p50(v) / 1e6 for mib, v in points.items() if v} for name, points in series.items()}
        series = {name: points for name, points in series.items() if points}
        if series:
            result.append(plot.lines(f"A session that holds much: {kind}", "MiB; logarithmic upwards", series, " ms"))
    return result
