"""session checkpoint, rollback, undo, fork, merge and tree, and snapshot: tables, JSON, warnings, exit codes."""
import datetime
import pathlib
import re
import unittest

from harness import USAGE_ERROR, run
from http_harness import ADMIN_KEY
from test_cli_session import CliCase

WIDE = {"LC_ALL": "C.UTF-8"}
PLAIN = {"LC_ALL": "C"}


class BranchCase(CliCase):
    def setUp(self):
        super().setUp()
        self.id = self.new_session()

    def settings(self, key=ADMIN_KEY, server=None, letters=PLAIN):
        return {**super().settings(key, server), **letters}

    def words(self, *words, code=0, warnings=(), **more):
        """What a command prints; on stderr are these warnings and nothing else."""
        done = self.cli(*words, **more)
        self.assertEqual(done.returncode, code, done.stdout.decode() + done.stderr.decode())
        said = done.stderr.decode().splitlines()
        self.assertEqual(len(said), len(warnings), said)
        for line, wanted in zip(said, warnings):
            self.assertRegex(line, r"^(agent-sandbox: |  )" + wanted)
        return done.stdout.decode()

    def run_code(self, session, code, **fields):
        answer = self.admin.expect(200, "POST", f"/api/sessions/{session}/execute", {"code": code, **fields}).json
        self.assertIsNone(answer["error"], answer)
        return answer["stdout"]

    def shell(self, session, command):
        return self.admin.run("/api/sessions/" + session, command)

    def fork(self, *words, session=None, **more):
        made = self.words("session", "fork", session or self.id, *words, **more).split()
        for one in made:
            self.addCleanup(self.admin.delete, "/api/sessions/" + one)
        return made


class Checkpoints(BranchCase):
    def test_back_and_forth(self):
        self.run_code(self.id, "x = 1")
        table = self.words("session", "checkpoint", self.id, "one")
        self.assertRegex(table, r"^NUMBER +AFTER +CREATED +FILES +MEMORY +KEPT +NAME\n1 .* KiB +.* (K|M)iB +on disk +one\n$")
        self.run_code(self.id, "x = 2")
        self.words("session", "checkpoint", self.id, "two")
        self.assertIn(" one\n", self.words("session", "rollback", self.id, "one"))
        self.assertEqual(self.run_code(self.id, "print(x)"), "1\n")
        lines = self.words("session", "checkpoints", self.id).splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["NUMBER", "1", "2"])
        self.assertRegex(lines[1], r" one  <-- now$")
        self.assertRegex(lines[2], r"^2 +1 .* two$")
        self.assertEqual(self.words("session", "checkpoint-rm", self.id, "two"), "")
        self.assertEqual(len(self.words("session", "checkpoints", self.id).splitlines()), 2)

    def test_as_json(self):
        made = self.cli_json("session", "checkpoint", self.id, "one")
        self.assertEqual((made["name"], made["survives_server"]), ("one", True))
        self.assertEqual(self.cli_json("session", "rollback", self.id, "one")["number"], made["number"])
        told = self.cli_json("session", "checkpoints", self.id)
        self.assertEqual((told["at"], [one["name"] for one in told["checkpoints"]]), (made["number"], ["one"]))

    def test_undo(self):
        self.id = self.words("session", "create", "--auto-checkpoint").strip()
        self.addCleanup(self.admin.delete, "/api/sessions/" + self.id)
        for number in range(3):
            self.run_code(self.id, f"x = {number}")
        self.assertIn("before: x = 2", self.words("session", "undo", self.id))
        self.assertIn("in memory  before: x = 1", self.words("session", "checkpoints", self.id))
        self.assertEqual(self.cli_json("session", "undo", self.id)["before"], "x = 1")
        self.assertEqual(self.run_code(self.id, "print(x)"), "0\n")

    def test_what_cannot_come_along_is_a_warning(self):
        self.run_code(self.id, "import threading, os\n"
                               "t = threading.Thread(target=threading.Event().wait, daemon=True); t.start()\n"
                               "r, w = os.pipe()")
        self.run_code(self.id, "1 + 1", language="javascript")
        self.admin.start("/api/sessions/" + self.id, "sleep 100", background=True)
        warnings = ["warning: javascript: its variables do not come along: .* cannot be saved",
                    "warning: programs that run and do not come along: 1",
                    r"warning: python: these do not come along: 1 threads, pipe \d+, pipe \d+"]
        said = self.cli("session", "checkpoint", self.id, "c").stderr.decode().splitlines()
        self.assertEqual(len(said), 3, said)
        for line, wanted in zip(sorted(said), warnings):
            self.assertRegex(line, "^agent-sandbox: " + wanted)
        for words in (("rollback", self.id, "c"), ("fork", self.id, "--checkpoint", "c")):
            self.assertEqual(self.cli("session", *words).stderr.decode().splitlines(), said)
        done = self.cli("session", "fork", self.id, "--checkpoint", "c", "--json")
        self.assert_ran(done)
        self.assertEqual(done.stderr, b"")

    def test_errors(self):
        self.assertEqual(self.cli("session", "checkpoint", self.id, "../x").returncode, USAGE_ERROR)
        self.assertIn(b"no checkpoint called", self.cli("session", "rollback", self.id, "none").stderr)
        self.assertEqual(self.cli("session", "checkpoint-rm", self.id, "none").returncode, USAGE_ERROR)
        self.assertIn(b"nothing to undo", self.cli("session", "undo", self.id).stderr)
        self.assertEqual(self.cli("session", "tree", "nobody").returncode, USAGE_ERROR)


class Forks(BranchCase):
    def test_go_on_from_here_or_from_a_checkpoint(self):
        self.run_code(self.id, "x = 1")
        self.words("session", "checkpoint", self.id, "one")
        self.run_code(self.id, "x = 2")
        here = self.fork("--count", "2", "--label", "role=try", "--ttl", "90")
        self.assertEqual(len(set(here)), 2)
        for one in here:
            self.assertEqual(self.run_code(one, "print(x)"), "2\n")
            told = self.admin.get("/api/sessions/" + one).json
            self.assertEqual(told["labels"], {"role": "try"})
            created, expires = (datetime.datetime.fromisoformat(told[name].rstrip("Z")) for name in ("created_at", "expires_at"))
            self.assertAlmostEqual((expires - created).total_seconds(), 90, delta=5)
        earlier, = self.fork("--checkpoint", "one")
        self.assertEqual(self.run_code(earlier, "print(x)"), "1\n")

    def test_refuses_what_makes_no_sense(self):
        for words in (("--count", "0"), ("--count", "101"), ("--count", "many"), ("--checkpoint", "none"),
                      ("--label", "role"), ("--ttl", "soon")):
            self.assertEqual(self.cli("session", "fork", self.id, *words).returncode, USAGE_ERROR, words)

    def test_are_merged(self):
        self.shell(self.id, "echo base > both; echo old > gone")
        branch, = self.fork()
        self.shell(branch, "echo new > added; rm gone")
        table = self.words("session", "merge", self.id, "--from", branch)
        self.assertEqual([line.split() for line in table.splitlines()],
                         [["CHANGE", "SIZE", "PATH"], ["added", "4", "B", "/workspace/added"],
                          ["removed", "/workspace/gone"]])
        self.assertEqual(self.shell(self.id, "ls"), "added\nboth\n")

    def test_conflicts_are_a_table_and_an_exit_code(self):
        self.shell(self.id, "echo base > both")
        branch, = self.fork()
        self.shell(branch, "echo theirs > both; echo new > added")
        self.shell(self.id, "rm both")
        table = self.words("session", "merge", self.id, "--from", branch, code=1, warnings=["both have changed"])
        self.assertEqual([line.split() for line in table.splitlines()],
                         [["HERE", "THERE", "PATH"], ["removed", "changed", "/workspace/both"]])
        done = self.cli("session", "merge", self.id, "--from", branch, "--json")
        self.assertEqual((done.returncode, done.stderr), (1, b""))
        self.assertIn(b'"path":"/workspace/both"', done.stdout)
        self.assertEqual(self.shell(self.id, "ls"), "")
        other = self.new_session()
        self.assertEqual(self.cli("session", "merge", other, "--from", branch).returncode, USAGE_ERROR)


class Trees(BranchCase):
    def draw(self, session, letters=PLAIN):
        done = run("session", "tree", session, env=self.settings(letters=letters))
        self.assert_ran(done)
        return re.sub(r" +\d{4}-[^ ]+Z  files \S+ \S+, memory \S+ \S+", " FACTS", done.stdout.decode())

    def test_is_drawn(self):
        for name in ("a", "b"):
            self.words("session", "checkpoint", self.id, name)
        self.words("session", "rollback", self.id, "a")
        self.words("session", "checkpoint", self.id, "c")
        child, = self.fork("--checkpoint", "b")
        self.words("session", "checkpoint", child, "d")
        self.assertEqual(self.draw(child, WIDE), f"""\
○ {self.id}  ready
● a FACTS
├──● b FACTS
│  └──◉ {child}  ready
│     ● d FACTS  ◀ now
● c FACTS  ◀ now
""")
        self.assertEqual(self.draw(self.id, PLAIN), f"""\
@ {self.id}  ready
* a FACTS
+--* b FACTS
|  `--o {child}  ready
|     * d FACTS  <-- now
* c FACTS  <-- now
""")
        tree = self.cli_json("session", "tree", child)
        self.assertEqual((tree["session_id"], tree["tree"]["session_id"]), (child, self.id))

    def test_branches_of_branches_may_go_deep(self):
        last = self.id
        for _ in range(40):
            last, = self.fork(session=last)
        lines = self.draw(last).splitlines()
        self.assertEqual(len(lines), 41)
        self.assertEqual(lines[-1], "   " * 39 + f"`--@ {last}  ready  <-- now")


class Snapshots(BranchCase):
    def test_are_environments(self):
        self.run_code(self.id, "x = 42; open('/workspace/file', 'w').write('kept')")
        name = "base-" + self.id[-6:]
        environment = self.words("snapshot", "create", self.id, name).strip()
        self.addCleanup(self.admin.delete, "/api/snapshots/" + name)
        self.assertEqual(environment, "snapshot:" + name)
        new = self.words("session", "create", "--environment", environment).strip()
        self.addCleanup(self.admin.delete, "/api/sessions/" + new)
        self.assertEqual(self.run_code(new, "print(x, open('/workspace/file').read())"), "42 kept\n")
        self.assertRegex(self.words("snapshot", "list"), rf"(?m)^{name} +{environment} +\d{{4}}-")
        self.assertIn(name, [one["name"] for one in self.cli_json("snapshot", "list")["snapshots"]])
        self.assertEqual(self.cli("snapshot", "create", self.id, name).returncode, USAGE_ERROR)
        self.assertEqual(self.words("snapshot", "rm", name), "")
        self.assertEqual(self.cli("snapshot", "rm", name).returncode, USAGE_ERROR)


class Changes(BranchCase):
    def test_diff(self):
        self.shell(self.id, "cd /workspace; echo 1 > changed; mkdir d; ln -s /x link; printf 'a\\0b' > binary")
        self.words("session", "checkpoint", self.id, "here")
        self.shell(self.id, "cd /workspace; echo 22 > changed; printf '\\033[31mred\\n' > $'odd\\033name'")
        told = self.words("session", "diff", self.id, "--since", "here")
        self.assertIn("--- a/workspace/changed\n+++ b/workspace/changed\n@@ -1 +1 @@\n-1\n+22\n", told)
        self.assertNotIn("\033", told)
        self.assertIn("\033[32m+22\033[0m", self.words("session", "diff", self.id, "--since", "here", "--color", "always"))
        whole = self.words("session", "diff", self.id)
        self.assertIn("added workspace/d (folder)\n", whole)
        self.assertIn("added workspace/link (link to /x)\n", whole)
        self.assertRegex(whole, r"added workspace/binary \(binary, 3 ")
        names = self.words("session", "diff", self.id, "--path", "/workspace/changed", "--names")
        self.assertRegex(names, r"^added workspace/changed \(3 [^\n]*\)\n$")
        self.assertEqual(self.cli_json("session", "diff", self.id, "--since", "here")["since"], "here")

    def test_diff_of_a_branch(self):
        self.shell(self.id, "echo 1 > /workspace/old")
        branch, = self.fork()
        self.shell(branch, "echo 1 > /workspace/new")
        self.assertEqual(self.cli_json("session", "diff", branch, "--since", "@fork")["added"], 1)

    def test_wrong_words(self):
        self.words("session", "diff", self.id, "--color", "blue", code=USAGE_ERROR,
                   warnings=["unknown --color blue", "use auto, always or never"])
        self.assertNotEqual(self.cli("session", "diff", self.id, "--since", "none").returncode, 0)
        refused = self.cli("session", "apply", self.id, "/tmp")
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(b"was not told that it may write to a folder", refused.stderr)


class Applying(BranchCase):
    def test_chosen_changes_come_into_a_folder(self):
        folder = self.scratch()
        server = self.other_server("--apply-folders", folder)
        box = server.admin.create()
        session = box.rsplit("/", 1)[1]
        server.admin.run(box, "mkdir d; echo 1 > d/a; echo 2 > b; mkfifo pipe")
        told = self.words("session", "apply", session, folder, "--path", "d", "--path", "b", server=server)
        self.assertEqual(sorted(line.split() for line in told.splitlines()[1:]),
                         [["created", "b"], ["created", "d"], ["created", "d/a"]])
        self.assertEqual(pathlib.Path(folder, "d/a").read_text(), "1\n")
        refused = self.cli("session", "apply", session, folder, server=server)
        self.assertNotEqual(refused.returncode, 0)
        self.assertRegex(refused.stderr.decode(), "nothing was done.*pipe.*\n.*partial")
        self.words("session", "apply", session, folder, "--partial", server=server, code=1, warnings=["left out /workspace/pipe"])


if __name__ == "__main__":
    unittest.main()
