"""GET …/diff: what became of a session's files, with diffs of those that are text, and how much of it is told."""
import base64
import unittest

from http_harness import HttpCase


class Diff(HttpCase):
    def setUp(self):
        super().setUp()
        self.box = self.session()

    def sh(self, script, user="user"):
        done = self.admin.start(self.box, script, user=user)
        self.assertEqual(done["exit_code"], 0, done)

    def diff(self, status=200, **query):
        answer = self.admin.expect(status, "GET", self.box + "/diff", **query)
        return answer.json

    def files(self, **query):
        return {entry["path"]: entry for entry in self.diff(**query)["files"]}

    def test_nothing(self):
        self.assertEqual(self.diff(), {"since": None, "files": [], "added": 0, "changed": 0, "removed": 0,
                                       "complete": True, "truncated": False})

    def test_a_file_that_came(self):
        self.sh("printf 'one\\ntwo' > /workspace/f; chmod 640 /workspace/f")
        told = self.diff()
        self.assertEqual(told["files"], [{
            "path": "/workspace/f", "change": "added", "type": "file", "size": 7, "size_before": 0, "mode": 0o640,
            "added_lines": 2, "removed_lines": 0,
            "diff": "--- /dev/null\n+++ b/workspace/f\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"}])
        self.assertEqual((told["added"], told["changed"], told["removed"]), (1, 0, 0))

    def test_what_was_there_before(self):
        """The contents come from the environment below, however they were changed."""
        self.sh("sed -i 's/localhost sandbox/localhost other/' /etc/hosts; rm /etc/hostname; echo x >> /usr/bin/ldd; "
                "rm -r /usr/share/perl5 || true; mv /etc/services /etc/moved", user="root")
        files = self.files()
        self.assertIn("-127.0.0.1 localhost sandbox\n+127.0.0.1 localhost other\n", files["/etc/hosts"]["diff"])
        self.assertTrue(files["/etc/hosts"]["diff"].startswith("--- a/etc/hosts\n+++ b/etc/hosts\n@@ -1,2 +1,2 @@\n"))
        self.assertEqual(files["/etc/hostname"]["diff"], "--- a/etc/hostname\n+++ /dev/null\n@@ -1 +0,0 @@\n-sandbox\n")
        self.assertEqual((files["/etc/hostname"]["change"], files["/etc/hostname"]["size_before"]), ("removed", 8))
        self.assertTrue(files["/usr/bin/ldd"]["diff"].endswith("\n+x\n"))
        self.assertEqual((files["/etc/services"]["change"], files["/etc/moved"]["change"]), ("removed", "added"))

    def test_links_folders_and_pipes(self):
        self.sh("cd /workspace; mkdir -p d/e; ln -s ../x d/l; mkfifo p")
        files = self.files(path="/workspace")
        self.assertEqual({path: entry["type"] for path, entry in files.items()}, {
            "/workspace/d": "directory", "/workspace/d/e": "directory", "/workspace/d/l": "symlink", "/workspace/p": "other"})
        self.assertEqual(files["/workspace/d/l"]["target"], "../x")
        self.assertTrue(all("diff" not in entry and "no_diff" not in entry for entry in files.values()))

    def test_one_part_of_it(self):
        self.sh("mkdir -p /workspace/a /workspace/ab; echo 1 > /workspace/a/f; echo 2 > /workspace/ab/f; echo 3 > /tmp/f")
        self.assertEqual(set(self.files(path="/workspace/a")), {"/workspace/a", "/workspace/a/f"})
        self.assertEqual(set(self.files(path="/workspace/a/f")), {"/workspace/a/f"})
        self.assertEqual(self.files(path="/nowhere"), {})
        self.assertNotIn("diff", self.files(path="/tmp", text="false")["/tmp/f"])
        self.diff(400, text="perhaps")

    def test_what_is_no_text_or_too_much(self):
        self.sh("cd /workspace; printf 'a\\0b' > binary; head -c 300000 /dev/zero | tr '\\0' x > large; "
                "printf '\\377\\376\\n' > latin; : > empty")
        files = self.files(path="/workspace")
        self.assertEqual(files["/workspace/binary"]["no_diff"], "binary")
        self.assertEqual(files["/workspace/large"]["no_diff"], "too_large")
        self.assertEqual(files["/workspace/empty"]["diff"], "")
        self.assertIn(b"+\xff\xfe\n", base64.b64decode(files["/workspace/latin"]["diff_base64"]))
        self.assertFalse(self.diff()["truncated"])

    def test_diffs_end_where_they_are_too_many(self):
        self.sh("cd /workspace; for i in $(seq 30); do seq 40000 > f$i; done")  # some 230 kB each
        told = self.diff()
        self.assertTrue(told["truncated"])
        self.assertEqual((told["added"], told["complete"]), (30, True))
        with_diff = [entry for entry in told["files"] if "diff" in entry]
        self.assertTrue(10 < len(with_diff) < 20, len(with_diff))
        self.assertLess(sum(len(entry["diff"]) for entry in with_diff), 4 << 20)
        self.assertTrue(all(entry.get("no_diff") == "too_much" for entry in told["files"] if "diff" not in entry))

    def test_many_files(self):
        self.sh("mkdir /workspace/m; cd /workspace/m; python3 -c \"[open(f'f{i}', 'w').close() for i in range(12000)]\"")
        told = self.diff(text="false")
        self.assertEqual((len(told["files"]), told["truncated"]), (10000, True))
        self.assertFalse(self.diff(path="/workspace/m/f11")["truncated"])

    def test_names_that_are_no_text(self):
        self.sh("cd /workspace; printf x > \"$(printf 'n\\377')\"; printf x > \"$(printf 'a\\n+++ b')\"")
        files = self.diff(path="/workspace")["files"]
        self.assertEqual(base64.b64decode(files[1]["path_base64"]), b"/workspace/n\xff")
        self.assertIn('+++ "b/workspace/a\\012+++ b"\n', files[0]["diff"])

    def test_a_file_that_only_its_owner_reads(self):
        self.sh("echo secret > /workspace/s; chmod 600 /workspace/s", user="root")
        self.assertIn("+secret\n", self.files()["/workspace/s"]["diff"])

    def test_a_strict_session(self):
        self.box = self.session(preset="strict")
        self.sh("echo x > /workspace/f; echo y > /tmp/g; echo z > /home/user/h")
        self.assertEqual(set(self.files()), {"/workspace/f", "/tmp/g", "/home/user/h"})

    def test_while_the_files_change(self):
        command = self.admin.start(self.box, "cd /workspace; while :; do seq $((RANDOM % 3000)) > f; mv f g; ln -sf /etc/hosts f; "
                                   "rm -f f g; mkdir f; rmdir f; done", background=True)
        for _ in range(30):
            self.diff()
        self.admin.expect(204, "POST", f"{self.box}/commands/{command['command_id']}/signal", {"signal": "KILL"})

    def test_not_of_a_session_that_stands_still(self):
        self.admin.expect(200, "POST", self.box + "/pause")
        self.diff(409)
        self.admin.expect(200, "POST", self.box + "/resume")
        self.diff()

    def test_since_a_checkpoint(self):
        self.sh("cd /workspace; echo 1 > same; echo 1 > changed; echo 1 > gone")
        self.admin.expect(201, "POST", self.box + "/checkpoint", {"name": "here"})
        self.assertEqual(self.files(since="here"), {})
        self.sh("cd /workspace; echo 22 > changed; rm gone; echo 1 > new; echo x >> /etc/hosts", user="root")
        told = self.diff(since="here")
        self.assertEqual(told["since"], "here")
        self.assertEqual({entry["path"]: (entry["change"], entry["size_before"], entry["size"]) for entry in told["files"]
                          if entry["path"] != "/etc/hosts"},
                         {"/workspace/changed": ("changed", 2, 3), "/workspace/gone": ("removed", 2, 0),
                          "/workspace/new": ("added", 0, 2)})
        files = self.files(since="here")
        self.assertIn("+x\n", files["/etc/hosts"]["diff"])
        # What they held then is in the checkpoint alone.
        self.assertEqual(files["/workspace/changed"]["diff"],
                         "--- a/workspace/changed\n+++ b/workspace/changed\n@@ -1 +1 @@\n-1\n+22\n")
        self.assertIn("-1\n", files["/workspace/gone"]["diff"])
        self.diff(404, since="nowhere" * 9)  # longer than what needs no memory

    def test_since_a_checkpoint_that_the_session_went_back_to(self):
        self.sh("cd /workspace; echo 1 > same; echo 1 > changed; mkdir d; echo 1 > d/f")
        self.admin.expect(201, "POST", self.box + "/checkpoint", {"name": "here"})
        self.sh("cd /workspace; echo 22 > changed; rm -r d")
        self.admin.expect(200, "POST", self.box + "/rollback", {"name": "here"})
        self.assertEqual(self.files(since="here"), {})
        self.sh("cd /workspace; echo 333 > changed")
        self.assertEqual(set(self.files(since="here")), {"/workspace/changed"})

    def test_what_a_branch_did(self):
        self.sh("cd /workspace; echo 1 > same; echo 1 > changed")
        self.diff(404, since="@fork")
        made = self.admin.expect(201, "POST", self.box + "/fork").json["sessions"]
        self.box = "/api/sessions/" + made[0]["session_id"]
        self.assertEqual(self.files(since="@fork"), {})
        self.sh("cd /workspace; echo 22 > changed; echo 1 > new")
        files = self.files(since="@fork")
        self.assertEqual({path: entry["change"] for path, entry in files.items()},
                         {"/workspace/changed": "changed", "/workspace/new": "added"})
        self.assertIn("-1\n+22\n", files["/workspace/changed"]["diff"])


if __name__ == "__main__":
    unittest.main()
