"""Attacks that tests of single parts stand for: run once more, to be in the record with the others."""
import os
import pathlib
import re
import subprocess
import unittest

import attacks

PROGRAMS = pathlib.Path(os.environ["AGENT_SANDBOX"]).parent


class Elsewhere(unittest.TestCase):
    def test_what_no_test_can_try(self):
        attacks.keep_reasons()
        tried = set(attacks.CASES) | set(attacks.ELSEWHERE)
        self.assertFalse(tried & set(attacks.NOT_APPLICABLE))

    def test_every_case(self):
        for case, (_, *runs) in attacks.ELSEWHERE.items():
            for run in runs:
                program, pattern = run.split(" ", 1)
                with self.subTest(case=case, run=run):
                    done = subprocess.run([PROGRAMS / program, f"--gtest_filter={pattern}"], capture_output=True, timeout=300,
                                          encoding="utf-8", errors="replace", check=False)
                    went = re.findall(r"^\[ +(OK|FAILED) +\] (\S+) \(", done.stdout, re.M)
                    for word, name in went:
                        attacks.keep(case, f"{program} {name}", word == "OK")
                    self.assertTrue(went, f"{run}: no such test\n{done.stdout[-500:]}")
                    self.assertEqual(done.returncode, 0, done.stdout[-3000:])


if __name__ == "__main__":
    unittest.main()
