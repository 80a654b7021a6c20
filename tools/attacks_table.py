#!/usr/bin/env python3
"""Writes the table of attacks in docs/security.md from what the last run of tests/escape recorded.

    tools/attacks_table.py [build/dev/attacks.json]
"""
import json
import pathlib
import sys

BEGIN, END = "<!-- attacks:begin -->", "<!-- attacks:end -->"
ROOT = pathlib.Path(__file__).resolve().parent.parent


def rows(record):
    yield "| Case | Attack | Result | Attempts inside | Proven outside |"
    yield "|---|---|---|---|---|"
    for case in sorted(record, key=lambda case: (case["case"][0] != "R", case["case"])):
        result = case["result"] + (f": {case['reason']}" if case["reason"] else "")
        yield f"| {case['case']} | {case['title']} | {result} | {case['attempts']} | {case['proven']} |"


def main(path):
    page = ROOT / "docs/security.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"{page} has no place for the table: {BEGIN} and {END} mark it")
    table = "\n".join(rows(json.loads(path.read_text())))
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/dev/attacks.json")
