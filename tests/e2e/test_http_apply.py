"""POST …/apply: changes of a session that come into a folder of the host's, never outside it, never through a link."""
import ctypes
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import unittest

from http_harness import HttpCase, until

AT_FDCWD, RENAME_EXCHANGE = -100, 2
FOLDERS = tempfile.mkdtemp(prefix="agent-sandbox-apply-")
ALLOWED = os.path.join(FOLDERS, "allowed")
SECRET = os.path.join(FOLDERS, "outside")
unittest.addModuleCleanup(shutil.rmtree, FOLDERS, ignore_errors=True)


def read(path):
    with open(path, "rb") as file:
        return file.read()


class ApplyCase(HttpCase):
    FLAGS = ("--apply-folders", ALLOWED)

    def setUp(self):
        super().setUp()
        for folder in (ALLOWED, SECRET):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
        with open(os.path.join(SECRET, "canary"), "w") as file:
            file.write("canary")
        self.target = os.path.join(ALLOWED, "project")
        os.mkdir(self.target)
        self.box = self.session()

    def tearDown(self):
        self.assertEqual(os.listdir(SECRET), ["canary"])
        self.assertEqual(read(os.path.join(SECRET, "canary")), b"canary")
        super().tearDown()

    def sh(self, script, user="user"):
        done = self.admin.start(self.box, "cd /workspace; " + script, user=user)
        self.assertEqual(done["exit_code"], 0, done)

    def put(self, name, data=b"before"):
        path = os.path.join(self.target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def look(self):
        found = {}
        for top, folders, files in os.walk(self.target):
            for name in folders + files:
                path = os.path.join(top, name)
                info = os.lstat(path)
                found[os.path.relpath(path, self.target)] = (
                    "-> " + os.readlink(path) if stat.S_ISLNK(info.st_mode)
                    else "/" if stat.S_ISDIR(info.st_mode) else read(path).decode())
        return found

    def apply(self, status=200, client=None, **body):
        answer = (client or self.admin).post(self.box + "/apply", {"folder": self.target, **body})
        self.assertEqual(answer.status, status, answer)
        return answer.json if status == 200 else answer.error

    def actions(self, **body):
        return {entry["path"]: entry["action"] for entry in self.apply(**body)["files"]}


class Taking(ApplyCase):
    def test_everything(self):
        self.put("old")
        self.sh("mkdir -p d/e; echo new > d/e/f; chmod 755 d/e/f; echo after > old; ln -s d/e/f l; echo no > /tmp/elsewhere")
        self.assertEqual(self.actions(), {"d": "created", "d/e": "created", "d/e/f": "created", "l": "created",
                                          "old": "replaced"})
        self.assertEqual(self.look(), {"d": "/", "d/e": "/", "d/e/f": "new\n", "l": "-> d/e/f", "old": "after\n"})
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.target, "d/e/f")).st_mode), 0o755)
        # Again: the same once more, and nothing of ours is left beside.
        self.assertEqual(self.actions()["d/e/f"], "replaced")
        self.assertEqual(set(os.listdir(self.target)), {"d", "l", "old"})

    def test_what_was_chosen(self):
        self.sh("mkdir a ab; echo 1 > a/f; echo 2 > ab/f; echo 3 > c; echo 4 > d")
        self.assertEqual(set(self.actions(paths=["a", "/workspace/c"])), {"a", "a/f", "c"})
        self.assertEqual(self.look(), {"a": "/", "a/f": "1\n", "c": "3\n"})
        self.assertEqual(self.apply(404, paths=["c", "nowhere"])["code"], "not_found")
        self.apply(400, paths=[])
        # Folders on the way to it come along.
        shutil.rmtree(os.path.join(self.target, "a"))
        self.assertEqual(self.actions(paths=["a/f"]), {"a/f": "created"})

    def test_from_elsewhere(self):
        self.sh("mkdir -p /opt/x; echo y > /opt/x/y; echo other > /etc/hosts", user="root")
        self.assertEqual(self.actions(**{"from": "/opt"}), {"x": "created", "x/y": "created"})
        self.assertEqual(self.actions(**{"from": "/etc", "paths": ["hosts"]}), {"hosts": "created"})
        self.assertEqual(self.apply()["files"], [])

    def test_removed_only_if_it_is_asked_for(self):
        self.box = self.session(environment="host", files=[])
        self.put("services", b"mine")
        self.put("perl/deep/file", b"mine")
        self.sh("rm /etc/services; rm -rf /etc/perl; echo x > /etc/new", user="root")
        told = self.apply(**{"from": "/etc", "paths": ["services", "new"]})
        self.assertEqual([entry["path"] for entry in told["left"]], ["/etc/services"])
        self.assertEqual(self.look()["services"], "mine")
        self.assertEqual(self.actions(**{"from": "/etc", "remove": True}),
                         {"new": "replaced", "perl": "removed", "services": "removed"})
        self.assertEqual(self.look(), {"new": "x\n"})

    def test_kinds_change_only_if_things_may_be_removed(self):
        self.put("folder/f")
        self.put("file")
        self.sh("echo x > folder; mkdir file; echo y > file/g")
        before = self.look()
        error = self.apply(409)
        self.assertIn("folder is a folder there", error["message"])
        self.assertEqual(self.look(), before)
        self.assertEqual(self.actions(remove=True), {"file": "replaced", "file/g": "created", "folder": "replaced"})
        self.assertEqual(self.look(), {"file": "/", "file/g": "y\n", "folder": "x\n"})

    def test_everything_belongs_to_the_folders_owner(self):
        os.chown(self.target, 12345, 23456)
        self.sh("mkdir d; echo x > d/f; chmod 6711 d/f; ln -s d l", user="root")
        self.apply()
        for name in ("d", "d/f", "l"):
            info = os.lstat(os.path.join(self.target, name))
            self.assertEqual((info.st_uid, info.st_gid), (12345, 23456), name)
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.target, "d/f")).st_mode), 0o711)

    def test_what_the_owner_may_not_write_is_not_written(self):
        os.chown(self.target, 12345, 12345)
        self.put("closed/f")
        self.sh("mkdir closed; echo x > closed/f; echo y > a")
        error = self.apply(403)
        self.assertEqual((error["code"], self.look()), ("denied", {"closed": "/", "closed/f": "before"}))

    def test_the_audit_tells_of_it(self):
        self.sh("echo x > f")
        self.apply()
        id = self.box.rsplit("/", 1)[1]
        entries = self.admin.expect(200, "GET", "/api/audit", limit=1000).json["entries"]
        self.assertEqual([entry["target"] for entry in entries if entry["action"] == "session.apply"].count(id), 1)


class Refusing(ApplyCase):
    def test_folders_it_was_not_told_of(self):
        self.sh("echo x > f")
        os.symlink(SECRET, os.path.join(ALLOWED, "link"))
        for folder, status in [(SECRET, 403), ("/", 403), ("/etc", 403), (ALLOWED + "x", 403), (ALLOWED + "/../outside", 403),
                               (ALLOWED + "/project/../../outside", 403), (ALLOWED + "/./project", 403), ("relative", 400),
                               ("", 400), (ALLOWED + "/nowhere", 404), (ALLOWED + "/link", 403), (ALLOWED + "\0/x", 400)]:
            with self.subTest(folder=folder):
                self.apply(status, folder=folder)
        self.assertEqual(self.look(), {})
        self.assertEqual(self.actions(folder=ALLOWED + "/project/"), {"f": "created"})
        self.assertEqual(self.actions(folder=ALLOWED), {"f": "created"})

    def test_links_that_lead_out(self):
        for number, target in enumerate(["/etc/passwd", "../outside/canary", "..", "d/../../outside", ".", SECRET]):
            with self.subTest(target=target):
                self.box = self.session()
                self.sh(f"mkdir d; ln -s '{target}' bad; echo x > good{number}")
                if target == ".":
                    self.apply()
                    continue
                before = self.look()
                self.assertIn("bad is a link that leads out", self.apply(409)["message"])
                self.assertEqual(self.look(), before, "nothing was done")
                told = self.apply(partial=True)
                self.assertEqual([entry["path"] for entry in told["left"]], ["/workspace/bad"])
                self.assertIn(f"good{number}", self.look())

    def test_nothing_is_written_through_links_of_the_folder(self):
        os.symlink(SECRET, os.path.join(self.target, "way"))
        os.symlink(os.path.join(SECRET, "canary"), os.path.join(self.target, "file"))
        os.link(os.path.join(SECRET, "canary"), os.path.join(self.target, "same"))
        self.sh("mkdir way; echo x > way/canary; echo y > file; echo z > same")
        self.apply(409)
        self.assertEqual(set(self.actions(paths=["file", "same"])), {"file", "same"})
        self.assertEqual((self.look()["file"], self.look()["same"], self.look()["way"]), ("y\n", "z\n", "-> " + SECRET))

    def test_devices_sockets_and_pipes(self):
        self.sh("mkfifo pipe; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"; echo x > f")
        self.assertIn("no file, folder or link", self.apply(409)["message"])
        told = self.apply(partial=True)
        self.assertEqual({entry["path"] for entry in told["left"]}, {"/workspace/pipe", "/workspace/socket"})
        self.assertEqual(self.look(), {"f": "x\n"})

    def test_names_of_every_kind(self):
        self.sh("touch -- '-rf' '..x' ' ' '~' '$(id)' '%2e%2e%2f'; touch \"$(printf 'a\\nb')\" \"$(printf '\\377')\"; "
                "mkdir -p ...; touch .../f")
        self.apply()
        self.assertEqual({os.fsencode(name) for name in os.listdir(self.target)},
                         {b"-rf", b"..x", b" ", b"~", b"$(id)", b"%2e%2e%2f", b"a\nb", b"\xff", b"..."})

    def test_too_much_at_once(self):
        self.box = self.session(limits={"memory": "4G", "disk": "2G"})
        self.sh("truncate -s 1100M f")
        error = self.apply(507)
        self.assertEqual((error["code"], self.look()), ("exhausted", {}))

    def test_a_file_that_grows_meanwhile(self):
        """What a program does meanwhile is a conflict, or none at all; never half a change."""
        command = self.admin.start(self.box, "cd /workspace; echo a > a; while :; do head -c $((RANDOM * 30)) /dev/zero > z; done",
                                   background=True)
        for _ in range(40):
            answer = self.admin.post(self.box + "/apply", {"folder": self.target})
            self.assertIn(answer.status, (200, 404, 409), answer)
            self.assertLessEqual(set(os.listdir(self.target)), {"a", "z"})
        # Another file's changes are no matter.
        self.apply(paths=["a"])
        self.assertEqual(self.look()["a"], "a\n")
        self.admin.expect(204, "POST", f"{self.box}/commands/{command['command_id']}/signal", {"signal": "KILL"})

    def test_files_that_are_replaced_meanwhile(self):
        """By others of the same length: what comes out is what there was at one moment, or nothing does."""
        program = ("import os, time\nfor n in range(10 ** 7, 10 ** 8):\n for name in 'xy':\n  open('t', 'w').write(str(n))\n"
                   "  os.replace('t', name)\n if n % 20 == 0: time.sleep(0.05)\n")
        self.sh("echo 10000000 | tee x > y")
        command = self.admin.start(self.box, f"cd /workspace; python3 -c \"{program}\"", background=True)
        for last in [False] * 60 + [True]:
            if last:
                self.admin.expect(204, "POST", f"{self.box}/commands/{command['command_id']}/signal", {"signal": "KILL"})
                until(lambda: self.admin.get(f"{self.box}/commands/{command['command_id']}").json["status"] != "running")
            answer = self.admin.post(self.box + "/apply", {"folder": self.target, "paths": ["x", "y"]})
            self.assertIn(answer.status, (200,) if last else (200, 409), answer)
            if answer.status == 409:
                self.assertIn("changed while it was copied", answer.error["message"])
                self.assertEqual(os.listdir(self.target), [])
                continue
            x, y = (int(read(os.path.join(self.target, name))) for name in "xy")
            self.assertIn(x - y, (0, 1))
            for name in "xy":
                os.remove(os.path.join(self.target, name))

    def test_no_mount_is_emptied(self):
        self.box = self.session(environment="host", files=[])
        self.put("perl/deep/far/file", b"mine")
        place = os.path.join(self.target, "perl/deep/far")
        for words in (["-t", "tmpfs", "tmpfs"], ["--bind", SECRET]):
            with self.subTest(words=words):
                subprocess.run(["mount", *words, place], check=True)
                try:
                    self.put("perl/deep/far/canary", b"canary")
                    self.sh("rm -rf /etc/perl; echo x > /etc/new", user="root")
                    before = self.look()
                    error = self.apply(409, remove=True, **{"from": "/etc"})
                    self.assertIn("perl/deep/far is another file system there", error["message"])
                    self.assertEqual(self.look(), before)
                    self.assertEqual(self.actions(remove=True, partial=True, **{"from": "/etc", "paths": ["new", "perl"]}),
                                     {"new": "created"})
                    self.assertEqual(read(os.path.join(place, "canary")), b"canary")
                finally:
                    subprocess.run(["umount", place], check=True)
                os.remove(os.path.join(self.target, "new"))
        self.assertEqual(self.look()["perl/deep/far/file"], "mine")

    def test_what_lies_in_a_refused_folder_is_left_too(self):
        self.put("g", b"a file")
        self.sh("mkdir g; echo x > g/h; echo y > k")
        told = self.apply(partial=True)
        self.assertEqual([entry["path"] for entry in told["left"]], ["/workspace/g", "/workspace/g/h"])
        self.assertEqual(self.look(), {"g": "a file", "k": "y\n"})

    def test_the_folders_own_special_bits_stay(self):
        shared = os.path.join(self.target, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o2775)
        self.sh("mkdir shared; chmod 755 shared; echo x > shared/f")
        self.apply()
        self.assertEqual(stat.S_IMODE(os.stat(shared).st_mode), 0o2755)

    def test_a_folder_that_becomes_a_link_meanwhile(self):
        """Somebody on the host exchanges a folder and a link all the time: nothing may come out beside the folder."""
        self.sh("mkdir d; for i in $(seq 50); do echo x > d/canary$i; done; echo x > d/canary")
        os.mkdir(os.path.join(self.target, "d"))
        os.symlink(SECRET, os.path.join(self.target, "e"))
        over = threading.Event()
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        one, other = (os.fsencode(os.path.join(self.target, name)) for name in "de")

        def exchange():
            while not over.is_set():
                rename(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE)
        thread = threading.Thread(target=exchange)
        thread.start()
        try:
            for _ in range(60):
                answer = self.admin.post(self.box + "/apply", {"folder": self.target})
                self.assertIn(answer.status, (200, 404, 409), answer)
        finally:
            over.set()
            thread.join()
        # tearDown looks at what lies outside.


class Callers(ApplyCase):
    def test_users_may_not(self):
        owner = self.admin.make_key()
        self.box = self.session(owner)
        self.assertEqual(self.apply(403, owner)["code"], "denied")
        self.apply(200, self.admin.make_key(role="operator"))

    def test_users_may_if_the_server_says_so(self):
        server = self.other_server("--apply-folders", ALLOWED, "--apply-users")
        owner = server.admin.make_key()
        session = owner.create(files=[{"path": "/workspace/f", "content": "x"}])
        owner.expect(200, "POST", session + "/apply", {"folder": self.target})
        self.assertEqual(self.look(), {"f": "x"})
        viewer = server.admin.make_key(role="viewer")
        owner.expect(204, "POST", session + "/shares", {"key_id": viewer.key_id, "access": "read-write"})
        viewer.expect(403, "POST", session + "/apply", {"folder": self.target})

    def test_no_folder_at_all(self):
        server = self.other_server()
        session = server.admin.create()
        answer = server.admin.expect(403, "POST", session + "/apply", {"folder": self.target})
        self.assertIn("--apply-folders", answer.error["hint"])


if __name__ == "__main__":
    unittest.main()
