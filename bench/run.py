#!/usr/bin/python3
"""Runs a benchmark suite, compares it with its targets and keeps the numbers. Builds nothing.

    bench/run.py engine|http|sessions|branch|e2b [--quick] [--out DIR] [--no-gate] [--update-docs]

Exits with 1 if a target is missed or could not be measured for a reason that is ours.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import platform
import sys

sys.dont_write_bytecode = True  # The source tree stays clean.
import branch_suite
import e2b_suite
import engine_suite
import http_suite
import plot
import sessions_suite

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUITES = {"engine": engine_suite, "http": http_suite, "sessions": sessions_suite, "branch": branch_suite,
          "e2b": e2b_suite}


def machine():
    """What the numbers depend on, without what would identify the machine."""
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) // (1 << 20)
    cpu = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.machine())
    kernel = ".".join(platform.release().split(".")[:2])
    groups = "cgroup v2" if os.path.exists("/sys/fs/cgroup/cgroup.controllers") else "cgroup v1 beside v2"
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": memory, "kernel": kernel, "cgroups": groups}


def describe(facts):
    return (f"{facts['cores']} cores ({facts['cpu']}), {facts['memory_gib']} GiB, Linux {facts['kernel']}, "
            f"{facts['cgroups']}")


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def update_docs(suite, text, picture):
    """Replaces what stands between the suite's markers in docs/performance.md, and the plot."""
    page = ROOT / "docs" / "performance.md"
    begin, end = f"<!-- bench:{suite}:begin -->", f"<!-- bench:{suite}:end -->"
    old = page.read_text() if page.exists() else ""
    if begin not in old or end not in old:
        sys.exit(f"run.py: {page.relative_to(ROOT)} has no lines {begin} and {end}")
    head, tail = old.split(begin)[0], old.split(end, 1)[1]
    page.write_text(f"{head}{begin}\n{text}\n{end}{tail}")
    plots = ROOT / "docs" / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    (plots / f"{suite}.svg").write_text(picture)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--quick", action="store_true", help="small numbers: to see that it works, not to publish")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="build/release by default")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench", help="build/bench by default")
    parser.add_argument("--no-gate", action="store_true", help="exit with 0 whatever was measured")
    parser.add_argument("--update-docs", action="store_true", help="write docs/performance.md and docs/plots")
    parser.add_argument("--engine-option", action="append", default=[], metavar="--NAME=VALUE",
                        help="passed on to engine_bench")
    return parser.parse_args()


def main():
    options = arguments()
    suite = SUITES[options.suite]
    programs = suite.Programs(options.build / "bench", options.engine_option)
    if not (programs.floor_path.exists() and programs.engine_path.exists()):
        sys.exit("run.py: build first: cmake --build --preset release --target bench")
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"the load average is {load:.1f}: something else is running, and the numbers will show it")
    data = suite.measure(programs, suite.QUICK if options.quick else suite.FULL, say)
    targets = suite.judge(data)
    data.update(machine=machine(), load_before=load, quick=options.quick, targets=[dataclasses.asdict(t) for t in targets])

    print(f"\n{describe(data['machine'])}\n\n{suite.tables(data, targets, markdown=False)}")
    for problem in data["problems"]:
        print(f"problem: {problem}")
    picture = plot.page(suite.panels(data))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{options.suite}.json").write_text(json.dumps(data, indent=1) + "\n")
    (options.out / f"{options.suite}.svg").write_text(picture)
    print(f"kept in {os.path.relpath(options.out)}/{options.suite}.json and .svg")
    if options.update_docs:
        text = f"Measured on {describe(data['machine'])}.\n\n{suite.tables(data, targets, markdown=True)}"
        update_docs(options.suite, text, picture)
    # A peer that cannot be started here is no fault of ours.
    missed = [t for t in targets if t.passed is False or (t.passed is None and not t.note)]
    if missed and not options.no_gate:
        sys.exit(f"{len(missed)} of {len(targets)} targets missed")


if __name__ == "__main__":
    main()
