"""Branching sessions whose programs are against it: each operation works, or fails in a way that is told."""
import concurrent.futures
import os
import unittest

from http_harness import HttpCase, until

ROUNDS = int(os.environ.get("ROUNDS", "15"))  # of three forks and a rollback each
FOLDERS = int(os.environ.get("FOLDERS", "100"))  # of two hundred files each


class HostileCase(HttpCase):
    def cell(self, box, code, **fields):
        answer = self.admin.expect(200, "POST", box + "/execute", {"code": code, **fields}).json
        if answer["status"] != "interrupted":
            self.assertIsNone(answer["error"], answer)
        return answer

    def shell(self, box, text, **fields):
        return self.admin.expect(200, "POST", box + "/commands", {"command": text, **fields}).json

    def fork(self, box, **fields):
        made = self.admin.expect(201, "POST", box + "/fork", fields).json
        return ["/api/sessions/" + session["session_id"] for session in made["sessions"]]


class Programs(HostileCase):
    def test_a_cell_that_runs_is_in_the_way_and_told(self):
        box = self.session()
        self.cell(box, "x = 1")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.cell, box, "import time\nfor _ in range(600): time.sleep(0.05)")
            self.assertTrue(until(lambda: self.admin.get(box + "/contexts").json["contexts"][0]["state"] == "busy"))
            for path, body in (("/checkpoint", {"name": "a"}), ("/fork", {}), ("/snapshot", {"name": "busy"})):
                answer = self.admin.expect(409, "POST", box + path, body).json
                self.assertIn("a cell runs", answer["error"]["message"])
            self.admin.expect(204, "POST", box + "/contexts/python/interrupt")
            self.assertEqual(running.result()["status"], "interrupted")
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "a"})

    def test_threads_and_children_that_never_rest(self):
        box = self.session(limits={"cpus": 2, "pids": 200})
        self.cell(box, "import threading, subprocess, os\nstop = False\ndef spin():\n    while not stop: pass\n"
                       "for _ in range(4): threading.Thread(target=spin, daemon=True).start()\n"
                       "child = subprocess.Popen(['/bin/sh', '-c', 'while :; do :; done'])\nkept = 'kept'")
        saved = self.admin.expect(201, "POST", box + "/checkpoint", {"name": "busy"}).json
        self.assertIn("4 threads", saved["contexts"][0]["lost"])
        child, = self.fork(box)
        self.assertEqual(self.cell(child, "print(kept, threading.active_count())")["stdout"], "kept 1\n")
        self.admin.expect(200, "POST", box + "/rollback", {"name": "busy"})
        self.assertEqual(self.cell(box, "print(kept)")["stdout"], "kept\n")
        self.assertEqual(self.shell(box, "pgrep -c sh || true")["stdout"].strip(), "1")

    def test_an_interpreter_that_lies(self):
        """A program can say in its interpreter's name what it likes: it harms only itself."""
        lies = ("{'event': 'saved', 'id': number}", "{'event': 'saving', 'id': number}", "{'event': 'nonsense'}",
                "{'event': 'saved', 'id': number, 'threads': -1, 'files': [1, None, 'x' * 100000] * 1000, 'loop': 'x'}")
        for lie in lies:
            box = self.session()
            self.cell(box, "import sys, json, os\nkernel = display.__self__\n"
                           "space = type(kernel).serve.__globals__\n"
                           "def save(kernel, number, payload):\n"
                           f"    os.write(kernel.channel.descriptor, json.dumps({lie}).encode() + b'\\n')\n"
                           f"    os.write(kernel.channel.descriptor, json.dumps({{'event': 'saved', 'id': number}}).encode() + b'\\n')\n"
                           "space['save'] = save")
            answer = self.admin.call("POST", box + "/checkpoint", {"name": "lie"})
            self.assertLess(answer.status, 500, answer)
            if answer.status == 201:
                self.assertEqual(answer.json["contexts"][0]["memory"], "lost", answer.json)
            self.admin.expect(200, "GET", box)

    def test_an_image_that_was_tampered_with_comes_to_nothing(self):
        box = self.session()
        self.cell(box, "import os\nkernel = display.__self__\n"
                       "space = type(kernel).serve.__globals__\n"
                       "def garble(descriptor, layer, below, flags):\n"
                       "    head = bytearray(4096 * 4)\n"
                       "    done = real(descriptor, layer, below, flags)\n"
                       "    if not done:\n"
                       "        size = os.fstat(descriptor).st_size\n"
                       "        os.pwrite(descriptor, b'\\xff' * 4096, 4096)\n"
                       "    return done\n"
                       "real, space['write_memory'] = space['write_memory'], garble")
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "bad"})
        answer = self.admin.call("POST", box + "/rollback", {"name": "bad"})
        self.assertLess(answer.status, 500, answer)
        # Whoever asks for that memory is told; nobody else is harmed, and a new interpreter may begin.
        refused = self.admin.call("POST", box + "/execute", {"code": "print(1)"})
        self.assertEqual(refused.status // 100, 4, refused)
        self.admin.expect(200, "POST", box + "/contexts/python/restart")
        self.assertEqual(self.cell(box, "print(1)")["stdout"], "1\n")


class Files(HostileCase):
    def test_a_full_disk(self):
        box = self.session(limits={"memory": "256M", "disk": "32M"})
        self.shell(box, "head -c 100M /dev/zero > full; echo x > /tmp/y || true")
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "full"})
        child, = self.fork(box)
        look = "stat -c %s full"
        self.assertEqual(self.shell(child, look)["stdout"], self.shell(box, look)["stdout"])
        self.shell(box, "rm full")
        self.admin.expect(200, "POST", box + "/rollback", {"name": "full"})

    def test_very_many_files_and_strange_ones(self):
        box = self.session(limits={"memory": "1G", "disk": "400M", "inodes": 200000, "cpus": 2, "timeout_s": 120})
        self.shell(box, "python3 -c \"\nimport os\nfor a in range(%d):\n    os.makedirs(f'many/{a}')\n"
                        "    for b in range(200): open(f'many/{a}/{b}', 'w').close()\n\"\n" % FOLDERS +
                        "mkfifo fifo; ln -s /etc/shadow out; ln -s loop loop; ln many/0/0 hard; truncate -s 300M sparse\n"
                        "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.bind('sock')\"\n"
                        "mkdir -m 000 closed; touch $'new\\nline' $'\\xff\\xfe'")
        child, = self.fork(box)
        look = "find . | wc -l; readlink out; stat -c '%s %b' sparse; stat -c %h hard; stat -c %a closed; test -p fifo && echo fifo"
        ours, theirs = self.shell(box, look)["stdout"].splitlines(), self.shell(child, look)["stdout"].splitlines()
        self.assertEqual(int(ours[0]) - 1, int(theirs[0]))  # A socket does not come along.
        self.assertEqual(ours[1:], theirs[1:])
        self.assertEqual(theirs[2], "314572800 0")

    def test_links_lead_nowhere(self):
        """What a branch restores stays in it, however names were arranged meanwhile."""
        box = self.session()
        self.shell(box, "rm -rf d; mkdir d; echo inside > d/f")
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "a"})
        self.shell(box, "rm -r d; ln -s /etc d", user="root")
        self.admin.expect(200, "POST", box + "/rollback", {"name": "a"})
        self.assertEqual(self.shell(box, "cat d/f; test -e /etc/f || echo clean")["stdout"], "inside\nclean\n")


class Apart(HostileCase):
    def test_branches_do_not_reach_each_other(self):
        box = self.session()
        self.cell(box, "secret = 'of the parent'")
        one, two = self.fork(box, count=2)
        self.cell(one, "import os, subprocess\nsecret = 'of one'\nopen('/tmp/mine', 'w').write('x')\n"
                       "sleeper = subprocess.Popen(['sleep', '1000'])")
        seen = self.shell(two, "ls /tmp; pgrep sleep; echo end")
        self.assertEqual(seen["stdout"].split(), ["end"])
        # Memory that both came from is shared until one writes to it, and never after.
        self.assertEqual(self.cell(two, "print(secret)")["stdout"], "of the parent\n")
        killed = self.shell(two, "kill -9 -1; sleep 0.1; echo alive", timeout_s=5)
        self.assertNotEqual(killed["status"], "timeout")
        self.assertEqual(self.cell(one, "print(secret, sleeper.poll())")["stdout"], "of one None\n")

    def test_nobody_writes_to_what_was_saved(self):
        """The file with its memory was in the interpreter's hands: once it is saved, nobody changes it."""
        box = self.session()
        self.cell(box, "import os\nkernel = display.__self__\n"
                       "space = type(kernel).serve.__globals__\nheld = []\nvalue = 'before'\n"
                       "def keep(channel):\n    held.append(os.dup(real(channel)))\n    return os.dup(held[0])\n"
                       "real, space['receive_descriptor'] = space['receive_descriptor'], keep")
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "a"})
        tried = self.cell(box, "for what in (lambda: os.pwrite(held[0], b'x' * 100, 0), lambda: os.ftruncate(held[0], 0)):\n"
                               "    try: print('did', what())\n    except OSError as problem: print(problem.errno)")
        self.assertEqual(tried["stdout"], "1\n1\n")
        child, = self.fork(box, checkpoint="a")
        self.assertEqual(self.cell(child, "print(value)")["stdout"], "before\n")


class Leaks(HostileCase):
    def marks(self):
        """What the server holds."""
        pid = self.server.pid
        with open(f"/proc/{pid}/mountinfo") as mounts:
            count = len(mounts.readlines())
        return len(os.listdir(f"/proc/{pid}/fd")), count, len(os.listdir(self.server.storage + "/layers"))

    def test_forks_and_rollbacks_leave_nothing(self):
        box = self.session()
        self.cell(box, "x = list(range(1000))")
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "a"})

        def round():
            child, other = self.fork(box, count=2)
            self.cell(child, "x.append(1)")
            self.fork(child)
            self.admin.expect(200, "POST", box + "/rollback", {"name": "a"})
            self.admin.expect(201, "POST", box + "/checkpoint", {"name": "b"})
            self.admin.expect(204, "DELETE", box + "/checkpoints/b")
            for session in self.admin.get("/api/sessions?limit=1000").json["sessions"]:
                if session["session_id"] not in box and session["state"] != "gone":
                    self.admin.expect(204, "DELETE", "/api/sessions/" + session["session_id"])
        for _ in range(3):
            round()
        before = self.marks()
        for _ in range(ROUNDS):
            round()
        self.assertTrue(until(lambda: all(a <= b + 3 for a, b in zip(self.marks(), before)), 20), (before, self.marks()))


if __name__ == "__main__":
    unittest.main()
