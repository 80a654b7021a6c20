"""Checkpoints, going back, branches, merging and snapshots: state in, state out."""
import os
import pathlib
import subprocess
import unittest

from http_harness import ADMIN_KEY, HttpCase, Server

STATE = """
import os, random, json
os.makedirs("/workspace/sub", exist_ok=True); os.chdir("/workspace/sub")
os.environ["OWN"] = "mine"
random.seed(5); random.random()
numbers = list(range(50000)); big = bytearray(b"x" * (8 << 20))
def steps():
    n = 0
    while True:
        n += 1
        yield n
g = steps(); next(g)
open("/workspace/lines", "w").write("one\\ntwo\\nthree\\n")
f = open("/workspace/lines"); f.readline()
"""
LOOK = ("print(sum(numbers), len(big), next(g), f.readline().strip(), os.getcwd(), os.environ['OWN'], round(random.random(), 6),"
        " json.__name__)")


class BranchCase(HttpCase):
    def run_code(self, box, code, **fields):
        answer = self.admin.expect(200, "POST", box + "/execute", {"code": code, **fields}).json
        self.assertIsNone(answer["error"], answer)
        return answer["stdout"]

    def shell(self, box, text):
        return self.admin.expect(200, "POST", box + "/commands", {"command": text}).json

    def fork(self, box, **fields):
        made = self.admin.expect(201, "POST", box + "/fork", fields).json
        return ["/api/sessions/" + session["session_id"] for session in made["sessions"]]

    def with_state(self):
        box = self.session()
        self.run_code(box, STATE)
        return box


class States(BranchCase):
    def test_back_to_a_checkpoint_as_often_as_one_likes(self):
        box = self.with_state()
        saved = self.admin.expect(201, "POST", box + "/checkpoint", {"name": "here"}).json
        self.assertEqual([c["memory"] for c in saved["contexts"]], ["saved"])
        self.assertEqual(saved["contexts"][0]["lost"], [])
        self.assertTrue(saved["survives_server"])
        expected = self.run_code(box, LOOK)
        for _ in range(2):
            self.run_code(box, "numbers.clear(); big[:] = b''; g.close(); os.chdir('/')")
            self.shell(box, "rm -rf /workspace/sub /workspace/lines; echo new > /workspace/new; rm /usr/bin/env")
            back = self.admin.expect(200, "POST", box + "/rollback", {"name": "here"}).json
            self.assertEqual(back["name"], "here")
            self.assertEqual(self.run_code(box, LOOK), expected)
            look = self.shell(box, "ls /workspace; test -x /usr/bin/env && echo env")
            self.assertEqual(look["stdout"].split(), ["lines", "sub", "env"])

    def test_branches_of_branches_go_on_for_themselves(self):
        box = self.with_state()
        children = self.fork(box, count=3)
        self.assertEqual(len(set(children)), 3)
        expected = self.run_code(box, LOOK)
        for child in children:
            self.assertEqual(self.run_code(child, LOOK), expected)
        self.run_code(children[0], "mine = 1; open('/workspace/mine', 'w').write('x')")
        grandchild, = self.fork(children[0])
        self.assertEqual(self.run_code(grandchild, "print(mine, next(g), os.path.exists('/workspace/mine'))"), "1 3 True\n")
        self.assertEqual(self.run_code(children[1], "print('mine' in globals(), os.path.exists('/workspace/mine'))"),
                         "False False\n")
        self.admin.expect(204, "DELETE", box)
        self.assertEqual(self.run_code(grandchild, "print(sum(numbers))"), "1249975000\n")

    def test_a_session_of_files_alone_branches_too(self):
        box = self.session()
        self.shell(box, "echo 1 > a; mkdir d; ln -s ../a d/l; rm -rf /etc/apt; chmod 700 d")
        child, = self.fork(box)
        look = "cat a d/l; ls -ld d | cut -c1-10; test -e /etc/apt || echo gone"
        self.assertEqual(self.shell(child, look)["stdout"], self.shell(box, look)["stdout"])

    def test_forks_from_a_checkpoint(self):
        box = self.with_state()
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "early"})
        self.run_code(box, "numbers.clear()")
        child, = self.fork(box, checkpoint="early", labels={"role": "try"})
        self.assertEqual(self.run_code(child, "print(len(numbers))"), "50000\n")
        self.assertEqual(self.admin.get(child).json["labels"], {"role": "try"})

    def test_undo_takes_back_one_after_the_other(self):
        box = self.session(auto_checkpoint=True)
        for n in range(3):
            answer = self.admin.expect(200, "POST", box + "/execute", {"code": f"x = {n}"}).json
            self.assertTrue(answer["undoable"], answer)
        self.shell(box, "echo lost > /workspace/file")
        self.admin.expect(200, "POST", box + "/undo")
        self.assertEqual(self.shell(box, "ls")["stdout"], "")
        self.admin.expect(200, "POST", box + "/undo")  # that ls
        self.admin.expect(200, "POST", box + "/undo")
        self.assertEqual(self.run_code(box, "print(x)"), "1\n")

    def test_snapshots_are_environments(self):
        box = self.with_state()
        expected = self.run_code(box, LOOK.replace("next(g)", "2"))
        kept = self.admin.expect(201, "POST", box + "/snapshot", {"name": "base"}).json
        self.assertEqual(kept["environment"], "snapshot:base")
        self.admin.expect(204, "DELETE", box)
        self.admin.expect(409, "POST", self.session() + "/snapshot", {"name": "base"})
        new = self.session(environment="snapshot:base")
        self.assertEqual(self.run_code(new, "print(sum(numbers), len(big), os.getcwd())"), "1249975000 8388608 /workspace/sub\n")
        self.assertEqual([s["name"] for s in self.admin.get("/api/snapshots").json["snapshots"]], ["base"])
        self.admin.expect(204, "DELETE", "/api/snapshots/base")
        self.admin.expect(404, "POST", "/api/sessions", {"environment": "snapshot:base"})
        self.assertIn("1249975000", expected)

    def test_what_was_promised_outlives_the_server(self):
        first = Server(storage=os.path.join(self.scratch(), "storage"))
        self.addCleanup(first.kill)
        self.admin = first.admin
        box = "/api/sessions/" + self.admin.expect(201, "POST", "/api/sessions", {}).json["session_id"]
        self.run_code(box, STATE)
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "kept"})
        self.admin.expect(201, "POST", box + "/snapshot", {"name": "kept-too"})
        expected = self.run_code(box, LOOK)
        self.run_code(box, "numbers.clear()")
        forked = self.admin.expect(201, "POST", box + "/fork").json
        self.assertFalse(forked["from"]["survives_server"])  # So it cannot be merged afterwards.
        before_kill = forked["sessions"][0]["session_id"]
        first.end_now()
        first.admin.server = self.other_server(storage=first.storage)
        self.admin.expect(200, "POST", box + "/rollback", {"name": "kept"})
        self.assertEqual(self.run_code(box, LOOK), expected)
        self.assertEqual(self.run_code(self.admin.create(environment="snapshot:kept-too"), LOOK), expected)
        child, = self.fork(box)
        self.assertEqual(self.run_code(child, "print(len(big))"), "8388608\n")
        refused = self.admin.expect(409, "POST", box + "/merge", {"from": before_kill}).json["error"]
        self.assertIn("began with", refused["message"])
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "again"})

    def test_what_cannot_come_along_is_told(self):
        box = self.session()
        self.run_code(box, "import threading, socket, os\n"
                           "t = threading.Thread(target=threading.Event().wait, daemon=True); t.start()\n"
                           "s = socket.socket(); r, w = os.pipe()")
        self.admin.expect(200, "POST", box + "/execute", {"code": "1 + 1", "language": "javascript"})
        self.admin.expect(202, "POST", box + "/commands", {"command": "sleep 100", "background": True})
        saved = self.admin.expect(201, "POST", box + "/checkpoint", {"name": "c"}).json
        python = next(c for c in saved["contexts"] if c["language"] == "python")
        node = next(c for c in saved["contexts"] if c["language"] == "javascript")
        self.assertEqual(len(python["lost"]), 4, python)
        self.assertEqual(node["memory"], "lost")
        self.assertIn("cannot be saved", node["why"])
        self.assertEqual(saved["programs_lost"], 1)
        child, = self.fork(box)
        answer = self.admin.expect(200, "POST", child + "/execute", {"code": "1 + 1", "language": "javascript"}).json
        self.assertTrue(answer["restarted"])
        self.assertEqual(self.run_code(child, "print(t.is_alive())"), "False\n")


    def test_memory_that_does_not_come_to_life_is_told_by_who_asks_for_it(self):
        box = self.session()
        # What lies there does not come along, and the interpreter has it mapped.
        self.run_code(box, "import mmap\nwith open('/dev/shm/mapped', 'wb') as f: f.write(b'x' * 4096)\n"
                           "with open('/dev/shm/mapped', 'rb') as f:\n"
                           "    m = mmap.mmap(f.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)\nx = 1")
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "here"})
        self.admin.expect(200, "POST", box + "/rollback", {"name": "here"})
        refused = self.admin.expect(409, "POST", box + "/execute", {"code": "x"}).json["error"]
        self.assertIn("does not come to life", refused["message"])
        self.admin.expect(409, "POST", box + "/checkpoint", {"name": "there"})
        self.admin.expect(409, "POST", box + "/execute", {"code": "x"})  # It is not forgotten.
        self.admin.expect(200, "POST", box + "/contexts/python/restart")
        self.assertEqual(self.run_code(box, "print(6 * 7)"), "42\n")

    def test_parts_of_a_second_count_as_a_whole_one(self):
        box = self.session()
        child = self.admin.expect(201, "POST", box + "/fork", {"ttl_s": 99.5}).json["sessions"][0]
        self.addCleanup(self.admin.delete, "/api/sessions/" + child["session_id"])
        self.admin.expect(404, "POST", box + "/fork", {"ttl_s": 99.5, "checkpoint": "none"})

    def test_a_branch_may_be_branched_before_its_interpreter_lives(self):
        box = self.with_state()
        self.run_code(box, "numbers.append(7)")
        for _ in range(3):
            box = self.fork(box)[0]
        self.assertIn("7", self.run_code(box, "print(numbers[-1])"))
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "here"})
        self.admin.expect(200, "POST", box + "/rollback", {"name": "here"})
        saved = self.admin.expect(201, "POST", box + "/checkpoint", {"name": "again"}).json
        self.assertEqual([c["memory"] for c in saved["contexts"]], ["saved"])
        self.admin.expect(200, "POST", box + "/rollback", {"name": "here"})
        self.admin.expect(204, "DELETE", box)  # while it comes to life


class Merging(BranchCase):
    def setUp(self):
        super().setUp()
        self.box = self.session()
        self.shell(self.box, "mkdir d; for n in 1 2 3 4; do echo $n > d/$n; done; echo base > both")
        self.branch, = self.fork(self.box)

    def merge(self, status):
        return self.admin.expect(status, "POST", self.box + "/merge", {"from": self.branch.rsplit("/", 1)[1]}).json

    def test_brings_what_the_branch_has_changed(self):
        self.shell(self.branch, "echo new > added; echo changed > d/1; rm d/2; mkdir -p e/f; ln -s x e/l; chmod 600 d/3")
        self.shell(self.box, "echo own > own; echo own > d/4")
        report = self.merge(200)
        changed = {file["path"].removeprefix("/workspace/"): file["change"] for file in report["files"]}
        self.assertEqual(changed, {"added": "added", "d/1": "changed", "d/2": "removed", "d/3": "changed", "e": "added",
                                   "e/f": "added", "e/l": "added"})
        look = self.shell(self.box, "cat added d/1 d/4 own; ls d; stat -c %a d/3; readlink e/l; test -d e/f && echo f")
        self.assertEqual(look["stdout"].split(), ["new", "changed", "own", "own", "1", "3", "4", "600", "x", "f"])

    def test_what_both_have_changed_stops_all_of_it(self):
        self.shell(self.branch, "echo theirs > both; echo new > added; rm -r d")
        self.shell(self.box, "echo ours > both; echo more > d/5")
        report = self.merge(409)
        paths = {conflict["path"] for conflict in report["conflicts"]}
        self.assertEqual(paths, {"/workspace/both", "/workspace/d/5"})
        self.assertEqual(self.shell(self.box, "cat both; ls")["stdout"].split(), ["ours", "both", "d"])

    def test_only_from_a_branch_of_its_own(self):
        other = self.session()
        self.admin.expect(400, "POST", other + "/merge", {"from": self.branch.rsplit("/", 1)[1]})
        self.admin.expect(404, "POST", other + "/merge", {"from": "nobody"})


class Trees(BranchCase):
    def test_shows_checkpoints_and_branches(self):
        box = self.session()
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "a"})
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "b"})
        self.admin.expect(200, "POST", box + "/rollback", {"name": "a"})
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "c"})
        child, = self.fork(box, checkpoint="b")
        tree = self.admin.get(child + "/tree").json["tree"]
        self.assertEqual(box, "/api/sessions/" + tree["session_id"])
        numbers = {c["name"]: (c["number"], c["parent"]) for c in tree["checkpoints"]}
        self.assertEqual(numbers["a"][1], None)
        self.assertEqual(numbers["b"][1], numbers["a"][0])
        self.assertEqual(numbers["c"][1], numbers["a"][0])
        self.assertEqual(tree["branches"][0]["from"]["checkpoint"], numbers["b"][0])
        self.admin.expect(204, "DELETE", box + "/checkpoints/b")
        self.admin.expect(404, "POST", box + "/rollback", {"name": "b"})
        self.assertEqual([c["name"] for c in self.admin.get(box + "/checkpoints").json["checkpoints"]], ["a", "c"])

    def test_bad_requests_are_told(self):
        box = self.session()
        for name in ("", "../x", "a/b", "x" * 65, " "):
            self.admin.expect(400, "POST", box + "/checkpoint", {"name": name})
        self.admin.expect(404, "POST", box + "/rollback", {"name": "none"})
        self.admin.expect(409, "POST", box + "/undo")
        self.admin.expect(400, "POST", box + "/fork", {"count": 0})
        self.admin.expect(400, "POST", box + "/fork", {"count": 101})
        self.admin.expect(404, "POST", box + "/fork", {"checkpoint": "none"})
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "a"})
        self.admin.expect(409, "POST", box + "/checkpoint", {"name": "a"})


class Example(BranchCase):
    def test_a_search_that_branches(self):
        example = pathlib.Path(__file__).parents[2] / "examples/search_by_branching.py"
        done = subprocess.run([example, "3,1,4,2,5"], capture_output=True, text=True, timeout=300,
                              env={"AGENT_SANDBOX_URL": f"http://127.0.0.1:{self.server.port}", "AGENT_SANDBOX_API_KEY": ADMIN_KEY})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        first, second, third = done.stdout.splitlines()
        stack = [3, 1, 4, 2, 5]
        for top in map(int, first.rsplit("the top ", 1)[1].split(", ")):
            stack[:top] = stack[:top][::-1]
        self.assertEqual(stack, [1, 2, 3, 4, 5], first)
        self.assertRegex(second, r"^[0-9]+ states were tried")
        self.assertRegex(third, r"times as long$")
        wrong = subprocess.run([example, "1,1"], capture_output=True, text=True, env={"AGENT_SANDBOX_API_KEY": ADMIN_KEY})
        self.assertIn("each once", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
