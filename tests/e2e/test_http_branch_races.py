"""Branching under rights, limits, at the same time, and with a server that is killed in the middle of it."""
import concurrent.futures
import os
import threading
import time
import unittest

from http_harness import HttpCase, Server, until

KILLS = int(os.environ.get("KILLS", "6"))


class RaceCase(HttpCase):
    def cell(self, box, code, **fields):
        answer = self.admin.expect(200, "POST", box + "/execute", {"code": code, **fields}).json
        self.assertIsNone(answer["error"], answer)
        return answer["stdout"]

    def statuses(self, *requests):
        """What requests are answered with that are sent at the same time."""
        with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
            return sorted(answer.status for answer in pool.map(lambda words: self.admin.call(*words), requests))


class Together(RaceCase):
    def test_one_name_is_given_once(self):
        box = self.session()
        self.assertEqual(self.statuses(*[("POST", box + "/checkpoint", {"name": "a"})] * 5), [201, 409, 409, 409, 409])
        self.assertEqual([c["name"] for c in self.admin.get(box + "/checkpoints").json["checkpoints"]], ["a"])
        name = "twice" + box[-6:]
        self.assertEqual(self.statuses(*[("POST", box + "/snapshot", {"name": name})] * 4), [201, 409, 409, 409])
        self.session(environment="snapshot:" + name)
        self.admin.expect(204, "DELETE", "/api/snapshots/" + name)

    def test_going_back_while_others_save_and_fork(self):
        box = self.session()
        self.cell(box, "x = 1")
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "a"})
        done = self.statuses(("POST", box + "/rollback", {"name": "a"}), ("POST", box + "/rollback", {"name": "a"}),
                             ("POST", box + "/checkpoint", {"name": "b"}), ("POST", box + "/fork", {}),
                             ("POST", box + "/rollback", {"name": "a"}))
        self.assertEqual(done, [200, 200, 200, 201, 201])
        self.assertEqual(self.cell(box, "print(x)"), "1\n")

    def test_pausing_while_it_goes_back(self):
        box = self.session()
        self.admin.expect(201, "POST", box + "/checkpoint", {"name": "a"})
        for status in self.statuses(("POST", box + "/rollback", {"name": "a"}), ("POST", box + "/pause")):
            self.assertIn(status, (200, 409))
        self.admin.call("POST", box + "/resume")
        self.assertEqual(self.admin.run(box, "echo alive"), "alive\n")

    def test_ending_while_it_is_saved_leaves_nothing(self):
        server = self.other_server()

        def left():
            folders = {name: os.path.join(server.storage, name) for name in ("sessions", "layers")}
            return {name: os.listdir(path) if os.path.isdir(path) else [] for name, path in folders.items()}
        for _ in range(8):
            box = server.admin.create()
            server.admin.expect(200, "POST", box + "/execute", {"code": "x = bytearray(b'x' * (4 << 20))"})
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                saving = pool.submit(server.admin.call, "POST", box + "/checkpoint", {"name": "a"})
                time.sleep(0.004)
                pool.submit(server.admin.call, "DELETE", box).result()
                self.assertLess(saving.result().status, 500)
            until(lambda: server.admin.get(box).status == 404)
        until(lambda: not left()["sessions"])
        self.assertEqual(left()["sessions"], [])
        # What all interpreters came out of stays for the next one; what they were themselves does not.
        self.assertLessEqual(len(left()["layers"]), 1, left())

    def test_a_file_that_is_written_all_the_time_is_never_overwritten(self):
        box = self.session()
        self.admin.start(box, "i=0; while :; do i=$((i + 1)); echo $i > /workspace/log; done", background=True)
        branch = "/api/sessions/" + self.admin.expect(201, "POST", box + "/fork").json["sessions"][0]["session_id"]
        self.admin.run(branch, "echo x > /workspace/new")
        merged = self.admin.call("POST", box + "/merge", {"from": branch.rsplit("/", 1)[1]})
        self.assertIn(merged.status, (200, 409), merged)
        if merged.status == 200:
            self.assertEqual([file["path"] for file in merged.json["files"]], ["/workspace/new"])


class Rights(RaceCase):
    def setUp(self):
        super().setUp()
        self.owner, self.guest = self.admin.make_key(), self.admin.make_key()
        self.box = self.owner.create()
        self.owner.expect(204, "POST", self.box + "/shares", {"key_id": self.guest.key_id, "access": "read-write"})

    def test_a_guest_saves_and_goes_back_but_makes_no_copies(self):
        self.guest.expect(201, "POST", self.box + "/checkpoint", {"name": "a"})
        self.guest.expect(200, "POST", self.box + "/rollback", {"name": "a"})
        refused = self.guest.expect(403, "POST", self.box + "/fork").json["error"]
        self.assertIn("owner", refused["message"])
        self.guest.expect(403, "POST", self.box + "/snapshot", {"name": "a"})
        self.guest.expect(404, "POST", "/api/sessions", {"environment": "snapshot:a"})

    def test_whoever_sees_a_branch_need_not_see_where_it_came_from(self):
        branch = "/api/sessions/" + self.owner.expect(201, "POST", self.box + "/fork").json["sessions"][0]["session_id"]
        reader = self.admin.make_key()
        self.owner.expect(204, "POST", branch + "/shares", {"key_id": reader.key_id, "access": "read"})
        told = reader.expect(200, "GET", branch + "/tree")
        self.assertEqual(told.json["tree"]["session_id"], branch.rsplit("/", 1)[1])
        self.assertNotIn(self.box.rsplit("/", 1)[1], told.body.decode())
        self.assertIn(self.box.rsplit("/", 1)[1], self.owner.expect(200, "GET", branch + "/tree").body.decode())

    def test_forks_count_as_sessions(self):
        few = self.admin.make_key(max_sessions=3)
        box = few.create()
        refused = few.expect(429, "POST", box + "/fork", {"count": 5}).json["error"]
        self.assertIn("as many as it may", refused["message"])
        self.assertEqual(len(few.get("/api/sessions").json["sessions"]), 1)
        few.expect(201, "POST", box + "/fork", {"count": 2})


class Budgets(HttpCase):
    def test_nobody_saves_more_than_he_may(self):
        server = self.other_server("--saved-max-per-key", "6M")
        key = server.admin.make_key()
        box = key.create()
        key.run(box, "head -c 4M /dev/urandom > /workspace/f")
        key.expect(201, "POST", box + "/checkpoint", {"name": "a"})
        refused = key.expect(429, "POST", box + "/checkpoint", {"name": "b"}).json["error"]
        self.assertEqual(refused["fault"], "limit")
        self.assertNotIn("b", [c["name"] for c in key.get(box + "/checkpoints").json["checkpoints"]])
        server.admin.expect(201, "POST", server.admin.create() + "/checkpoint", {"name": "a"})  # others may
        key.expect(204, "DELETE", box + "/checkpoints/a")
        key.expect(201, "POST", box + "/snapshot", {"name": "s"})
        key.expect(429, "POST", box + "/checkpoint", {"name": "b"})
        key.expect(204, "DELETE", "/api/snapshots/s")
        key.expect(201, "POST", box + "/checkpoint", {"name": "b"})

    def test_what_is_not_to_be_remembered_is_not(self):
        box = self.session(auto_checkpoint=True)
        secret = "sk-12345"
        self.admin.expect(200, "POST", box + "/execute", {"code": f"key = '{secret}'", "history": False})
        self.admin.start(box, f"true {secret}", history=False)
        self.assertNotIn(secret, self.admin.get(box + "/checkpoints").body.decode())

    def test_what_cannot_be_undone_is_told(self):
        box = self.session(auto_checkpoint=True)
        self.assertTrue(self.admin.start(box, "true")["undoable"])
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.admin.call, "POST", box + "/execute", {"code": "import time; time.sleep(1)"})
            self.assertTrue(until(lambda: any(c["state"] == "busy" for c in self.admin.get(box + "/contexts").json["contexts"])))
            self.assertFalse(self.admin.start(box, "echo x > /workspace/unsaved")["undoable"])
            running.result()
        refused = self.admin.expect(409, "POST", box + "/undo").json["error"]
        self.assertIn("could not be saved", refused["message"])
        self.admin.expect(400, "POST", "/api/sessions", {"persistent": True, "auto_checkpoint": True})


class Killed(RaceCase):
    def test_in_the_middle_of_going_back(self):
        """Afterwards it is where it was or where it was going to, files and variables alike."""
        server = Server(storage=os.path.join(self.scratch(), "storage"))
        self.addCleanup(lambda: server.kill())
        self.admin = server.admin
        box = server.admin.create()
        self.cell(box, "x = 'old'; open('/workspace/x', 'w').write(x)")
        server.admin.expect(201, "POST", box + "/checkpoint", {"name": "old"})
        look = "print(x, open('/workspace/x').read())"
        for number in range(KILLS):
            self.cell(box, "x = 'new'; open('/workspace/x', 'w').write(x)")

            def go_back():
                try:
                    server.admin.call("POST", box + "/rollback", {"name": "old"})
                except (OSError, AssertionError):
                    pass  # It was killed.
            rolling = threading.Thread(target=go_back)
            rolling.start()
            time.sleep(0.003 * number)
            server.end_now()
            rolling.join()
            server = Server(storage=server.storage)
            server.admin.server = server
            self.admin = server.admin
            self.assertIn(self.cell(box, look), ("old old\n", "new new\n"))
            self.assertEqual(len(server.admin.get("/api/sessions").json["sessions"]), 1)

    def test_what_was_half_written_is_no_state(self):
        storage = os.path.join(self.scratch(), "storage")
        server = Server(storage=storage)
        self.addCleanup(lambda: server.kill())
        box = server.admin.create()
        server.admin.expect(201, "POST", box + "/checkpoint", {"name": "whole"})
        server.admin.expect(201, "POST", box + "/checkpoint", {"name": "later"})
        server.admin.expect(200, "POST", box + "/rollback", {"name": "whole"})
        server.admin.expect(201, "POST", box + "/snapshot", {"name": "kept"})
        server.end_now()
        owner, = os.listdir(os.path.join(storage, "snapshots"))
        half = os.path.join(storage, "snapshots", owner, "half")
        os.mkdir(half)
        open(os.path.join(half, "files.tar"), "w").close()
        os.makedirs(os.path.join(storage, "sessions", box.rsplit("/", 1)[1], "checkpoints", "77"))
        server = Server(storage=storage)
        self.assertEqual([s["name"] for s in server.admin.get("/api/snapshots").json["snapshots"]], ["kept"])
        self.assertFalse(os.path.exists(half))
        listed = server.admin.get(box + "/checkpoints").json
        self.assertEqual([c["name"] for c in listed["checkpoints"]], ["whole", "later"])
        self.assertEqual(listed["at"], listed["checkpoints"][0]["number"])
        server.admin.expect(201, "POST", box + "/snapshot", {"name": "half"})
        server.stop()


if __name__ == "__main__":
    unittest.main()
