"""Attacks that tests of single parts stand for: run once more, to be in the record with the others.

Those that take long are not run again when ctest has just run them: what they wrote about it is taken.
"""
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import unittest

import attacks

PROGRAMS = pathlib.Path(os.environ["AGENT_SANDBOX"]).parent
EARLIER = pathlib.Path(os.environ.get("ASR_EARLIER_RUNS", "/nowhere"))


def earlier_run(program):
    """Tests by name, and whether they went well, as the program wrote it down; nothing if it is another by now.

    Each run is told of once: whoever asks again wants them to run again.
    """
    told = EARLIER / f"{program}.json"
    try:
        if told.stat().st_mtime < (PROGRAMS / program).stat().st_mtime:
            return {}
        suites = json.loads(told.read_text())["testsuites"]
    except FileNotFoundError:
        return {}
    finally:
        told.unlink(missing_ok=True)
    return {f"{suite['name']}.{test['name']}": "failures" not in test
            for suite in suites for test in suite["testsuite"] if test["result"] == "COMPLETED"}


class Elsewhere(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.earlier = {}

    def run_of(self, program, pattern):
        """Tests by name, and whether they went well; then whether all did, and what there is to say if not."""
        if program not in self.earlier:
            self.earlier[program] = earlier_run(program)
        went = {name: well for name, well in self.earlier[program].items()
                if any(fnmatch.fnmatchcase(name, part) for part in pattern.split(":"))}
        if went:
            return went, all(went.values()), "the test of the same name tells more"
        done = subprocess.run([PROGRAMS / program, f"--gtest_filter={pattern}"], capture_output=True, timeout=300,
                              encoding="utf-8", errors="replace", check=False)
        went = {name: word == "OK" for word, name in re.findall(r"^\[ +(OK|FAILED) +\] (\S+) \(", done.stdout, re.M)}
        return went, done.returncode == 0, done.stdout[-3000:]

    def test_what_no_test_can_try(self):
        attacks.keep_reasons()
        tried = set(attacks.CASES) | set(attacks.ELSEWHERE)
        self.assertFalse(tried & set(attacks.NOT_APPLICABLE))

    def test_every_case(self):
        for case, (_, *runs) in attacks.ELSEWHERE.items():
            for run in runs:
                program, pattern = run.split(" ", 1)
                with self.subTest(case=case, run=run):
                    went, well, words = self.run_of(program, pattern)
                    for name, went_well in went.items():
                        attacks.keep(case, f"{program} {name}", went_well)
                    self.assertTrue(went, f"{run}: no such test\n{words}")
                    self.assertTrue(well, words)


if __name__ == "__main__":
    unittest.main()
