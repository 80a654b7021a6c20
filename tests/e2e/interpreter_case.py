"""What every attack of a program on its own interpreter must leave as it was: the server up and within its bounds, answers typed,
other sessions untouched, and a next cell that runs, with a new interpreter at worst, which is told.
"""
import os
import re
import shutil
import tempfile

from http_harness import HttpCase, in_parallel
from plain_python import TOOLS, Plain

MIB = 1 << 20
TOO_MUCH = 300 * MIB  # that the server may need for one attack, sanitized as it is
MOST_KEPT = 256 * MIB  # of artifacts, by docs/kernels.md
LIMITS = {"cpus": 2, "memory": "1G", "disk": "400M"}
STATUSES = {"ok", "error", "timeout", "interrupted", "out_of_memory"}


class AttackCase(HttpCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.neighbour = cls.admin.create()
        cls.admin.expect(200, "POST", cls.neighbour + "/execute", {"code": "x = 42"})

    @classmethod
    def tearDownClass(cls):
        cls.admin.delete(cls.neighbour)

    def setUp(self):
        super().setUp()
        self.attempts = self.proven = 0
        self.box = self.session(limits=LIMITS)
        self.before = self.server.resident_bytes()
        with open(f"/proc/{self.server.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # forgets the peak

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), self.server.log()[-3000:])
        answer = self.admin.expect(200, "POST", self.neighbour + "/execute", {"code": "x"}).json
        self.assertEqual([r["text/plain"] for r in answer["results"]], ["42"], "the neighbour noticed")
        self.assertLess(self.grown(), TOO_MUCH, "the server grew")
        kept = [os.path.join(folder, name) for folder, _, names in os.walk(self.server.storage) for name in names
                if os.path.basename(folder) == "artifacts" or "/artifacts/" in folder]
        self.assertLessEqual(sum(os.lstat(path).st_size for path in kept), MOST_KEPT + MIB)
        for path in kept:
            self.assertRegex(os.path.basename(path), r"\Aa[0-9]+(\.json)?\Z")
        super().tearDown()

    def grown(self):
        """Bytes that the server has needed since the test began, at most."""
        with open(f"/proc/{self.server.pid}/status", encoding="ascii") as file:
            return 1024 * int(re.search(r"VmHWM:\s+([0-9]+)", file.read())[1]) - self.before

    def beside_each_other(self, programs, work):
        """work(program, box) for each, in sessions of their own and at once: they are waited for most of the time."""
        boxes = [self.session(limits=LIMITS) for _ in programs]
        in_parallel(len(programs), lambda number: work(programs[number], boxes[number]))

    def prove(self, truth):
        """That the attack does outside what it means to."""
        self.assertTrue(truth, "the attack does not work on a plain python3 either")
        self.proven += 1

    def outside(self, program, **more):
        folder = tempfile.mkdtemp(prefix="agent-sandbox-plain-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        os.chmod(folder, 0o777)
        return Plain(program, folder, **more)

    def execute(self, code, box=None, **fields):
        return self.admin.expect(200, "POST", (box or self.box) + "/execute", {"code": code, **fields}).json

    def attack(self, program, timeout_s=30, box=None, **fields):
        """Its answer, which is one whatever the program did."""
        self.attempts += 1
        answer = self.execute(TOOLS + program, box, timeout_s=timeout_s, **fields)
        self.assertIn(answer["status"], STATUSES)
        self.assertEqual(answer["error"] is None, answer["status"] == "ok", answer["error"])
        self.assertLessEqual(len(answer["artifacts"]), 200)
        return answer

    def goes_on(self, box=None):
        """The next cell runs; where the program has spoilt its interpreter, it does after a restart."""
        answer = self.execute("1+1", box, timeout_s=20)
        self.assertIn(answer["status"], STATUSES)
        if [r.get("text/plain") for r in answer["results"]] != ["2"]:
            self.admin.expect(200, "POST", (box or self.box) + "/contexts/python/restart")
            self.works(box)

    def works(self, box=None):
        """The next cell runs, and gives its own result and nothing else."""
        answer = self.execute("1+1", box, timeout_s=20)
        self.assertEqual(([r.get("text/plain") for r in answer["results"]], answer["error"]), (["2"], None))

    def broke(self, answer):
        """The server saw that its interpreter cannot be trusted any more."""
        self.assertEqual((answer["error"]["name"], answer["restarted"], answer["fault"]), ("InterpreterBroken", True, "program"))
