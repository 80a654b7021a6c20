"""Files over HTTP: bytes in and out as they are, hostile names, full disks, lost clients."""
import gzip
import hashlib
import io
import os
import tarfile
import time
import unittest
from urllib.parse import unquote_to_bytes

from http_files import FULL, MEGABYTE, FileCase, name_of
from http_harness import in_parallel, needs_ability, until
from http_raw import request


class Bytes(FileCase):
    def test_round_trips(self):
        for size in (0, 1, 20_000_000):
            data = os.urandom(size)
            info = self.put("/workspace/data.html", data)
            self.assertEqual((info["size"], info["type"], info["mode"], info["path"]),
                             (size, "file", 0o644, "/workspace/data.html"))
            answer = self.get("/workspace/data.html")
            self.assertEqual(answer.status, 200)
            self.assertEqual(hashlib.sha256(answer.body).digest(), hashlib.sha256(data).digest())
        self.assertEqual(self.shell("sha256sum data.html").split()[0], hashlib.sha256(data).hexdigest())

    def test_no_browser_shows_it_as_a_page_of_ours(self):
        self.put("/workspace/x.html", b"<script>alert(1)</script>")
        answer = self.get("/workspace/x.html")
        self.assertEqual(answer.header("content-type"), "application/octet-stream")
        self.assertEqual(answer.header("x-content-type-options"), "nosniff")
        self.assertTrue(answer.header("content-disposition").startswith("attachment"))
        self.assertIn("sandbox", answer.header("content-security-policy"))

    def test_ranges(self):
        self.put("/workspace/f", b"0123456789")
        for value, status, body, place in [
                ("bytes=0-0", 206, b"0", "bytes 0-0/10"), ("bytes=3-5", 206, b"345", "bytes 3-5/10"),
                ("bytes=7-", 206, b"789", "bytes 7-9/10"), ("bytes=-4", 206, b"6789", "bytes 6-9/10"),
                ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"), ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
                ("bytes=5-3", 200, b"0123456789", None), ("lines=1-2", 200, b"0123456789", None),
                ("bytes=0-1,3-4", 200, b"0123456789", None), ("bytes=x", 200, b"0123456789", None)]:
            with self.subTest(range=value):
                answer = self.get("/workspace/f", Range=value)
                self.assertEqual((answer.status, answer.body, answer.header("content-range")), (status, body, place))
        for value in ("bytes=10-", "bytes=99-100", "bytes=-0"):
            with self.subTest(range=value):
                answer = self.get("/workspace/f", Range=value)
                self.assertEqual((answer.status, answer.header("content-range")), (416, "bytes */10"))

    def test_conditions(self):
        self.put("/workspace/f", b"0123456789")
        tag = self.get("/workspace/f").header("etag")
        changed = self.get("/workspace/f").header("last-modified")
        for headers, status in [
                ({"If_None_Match": tag}, 304), ({"If_None_Match": f'"a", {tag}'}, 304), ({"If_None_Match": "*"}, 304),
                ({"If_None_Match": '"other"'}, 200), ({"If_Match": tag}, 200), ({"If_Match": "*"}, 200),
                ({"If_Match": '"other"'}, 412), ({"If_Modified_Since": changed}, 304),
                ({"If_None_Match": '"other"', "If_Modified_Since": changed}, 200),
                ({"Range": "bytes=0-1", "If_Range": tag}, 206), ({"Range": "bytes=0-1", "If_Range": '"other"'}, 200)]:
            with self.subTest(headers=headers):
                self.assertEqual(self.get("/workspace/f", **headers).status, status)
        self.put("/workspace/f", b"9876543210")
        self.assertEqual(self.get("/workspace/f", If_None_Match=tag).body, b"9876543210")

    def test_conditions_of_a_write(self):
        self.put("/workspace/f", b"first")
        tag = self.get("/workspace/f").header("etag")
        self.put("/workspace/f", b"second")
        for headers in ({"If-Match": tag}, {"If-None-Match": "*"}):
            with self.subTest(headers=headers):
                answer = self.admin.put(self.files, b"lost update", path="/workspace/f", headers=headers)
                self.assertEqual((answer.status, self.get("/workspace/f").body), (412, b"second"))
        tag = self.get("/workspace/f").header("etag")
        self.admin.expect(200, "PUT", self.files, b"third", path="/workspace/f", headers={"If-Match": tag})
        self.admin.expect(200, "PUT", self.files, b"new", path="/workspace/g", headers={"If-None-Match": "*"})

    def test_head(self):
        self.put("/workspace/f", b"0123456789")
        answer = self.admin.call("HEAD", self.files, path="/workspace/f")
        self.assertEqual((answer.status, answer.header("content-length"), answer.body), (200, "10", b""))
        self.assertEqual(answer.header("etag"), self.get("/workspace/f").header("etag"))
        self.assertEqual(self.admin.call("HEAD", self.files, path="/workspace/none").status, 404)

    def test_mode(self):
        self.put("/workspace/tool", b"#!/bin/sh\necho ran\n", mode=0o755)
        self.assertEqual(self.shell("./tool"), "ran\n")
        for mode in ("512", "-1", "rwx"):
            self.assert_refused(self.admin.put(self.files, b"", path="/workspace/x", mode=mode), 400)

    def test_chunks_with_trailers(self):
        connection = self.upload("/workspace/f", [("Transfer-Encoding", "chunked")])
        connection.send(b"5\r\nhello\r\n" b"1;name=value\r\n \r\n"
                        b"000005\r\nworld\r\n" b"0\r\nX-Trailer: yes\r\n\r\n")
        self.assertEqual(connection.read_answer().status, 200)
        self.assertEqual(self.get("/workspace/f").body, b"hello world")

    def test_the_last_upload_wins_and_none_is_mixed(self):
        blocks = [bytes([65 + number]) * MEGABYTE for number in range(8)]
        in_parallel(8, lambda number: self.put("/workspace/same", blocks[number]))
        self.assertIn(self.get("/workspace/same").body, blocks)
        self.assertEqual(self.listed(), [b"same"])


class Uploads(FileCase):
    LIMITS = {"memory": "64M", "disk": "4M"}

    def assert_nothing_left(self, *names):
        self.assertTrue(until(lambda: sorted(self.listed()) == sorted(names)), self.listed())
        self.assertLess(self.admin.get(self.box + "/usage").json["disk_bytes"], MEGABYTE // 2)

    def test_too_large_is_said_before_it_is_sent(self):
        connection = self.upload("/workspace/f", [("Content-Length", str(10 << 30))])
        self.assertIn(connection.read_answer().status, FULL)
        self.assertIn(self.admin.put(self.files, b"x" * 8 * MEGABYTE, path="/workspace/f").status, FULL)
        self.assert_nothing_left()

    @needs_ability("limits")
    def test_full_half_way(self):
        self.put("/workspace/old", b"kept")
        answer = self.admin.put(self.files, (b"x" * 65536 for _ in range(200)), path="/workspace/old")
        self.assertIn(answer.status, FULL)
        self.assertEqual(answer.error["fault"], "limit")
        self.assertEqual(self.get("/workspace/old").body, b"kept")
        self.assert_nothing_left(b"old")

    def test_a_client_that_goes_away(self):
        self.put("/workspace/old", b"kept")
        for leave in ("close", "reset"):
            connection = self.upload("/workspace/old", [("Content-Length", str(2 * MEGABYTE))])
            connection.send(b"x" * MEGABYTE)
            self.assertTrue(until(lambda: len(self.listed()) == 2))  # It is being written.
            getattr(connection, leave)()
            self.assert_nothing_left(b"old")
        self.assertEqual(self.get("/workspace/old").body, b"kept")

    def test_the_session_ends_meanwhile(self):
        connection = self.upload("/workspace/f", [("Content-Length", "100")])
        connection.send(b"x" * 50)
        self.admin.expect(204, "DELETE", self.box)
        connection.send_while_heard(b"x" * 50)
        answer = connection.read_answer()
        self.assertTrue(answer is None or answer.status in (404, 409, 410), answer)

    def test_a_client_that_asks_first(self):
        connection = self.upload("/workspace/f", [("Content-Length", "5"), ("Expect", "100-continue")])
        self.assertEqual(connection.read_answer().status, 100)
        connection.send(b"hello")
        self.assertEqual(connection.read_answer().status, 200)
        self.assertEqual(self.get("/workspace/f").body, b"hello")

    def test_a_client_that_asks_first_and_is_refused(self):
        for path, size, statuses in [("/workspace/f", 10 << 30, FULL), ("relative", 5, (400,))]:
            connection = self.upload(path, [("Content-Length", str(size)), ("Expect", "100-continue")])
            self.assertIn(connection.read_answer().status, statuses)

    @needs_ability("file_rights")
    def test_a_client_that_asks_first_and_may_not(self):
        connection = self.upload("/etc/f", [("Content-Length", "5"), ("Expect", "100-continue")])
        self.assertEqual(connection.read_answer().status, 403)

    @needs_ability("limits")
    def test_a_bomb_is_stopped_by_the_disk(self):
        bomb = gzip.compress(self.tar_of_zeros(64 * MEGABYTE))
        self.assertLess(len(bomb), MEGABYTE)
        before, began = self.server.resident_bytes(), time.monotonic()
        answer = self.admin.put(self.files + "/archive", bomb)
        self.assertIn(answer.status, FULL)
        self.assertLess(time.monotonic() - began, 20)
        self.assertLess(self.server.resident_bytes() - before, 32 * MEGABYTE)
        self.shell("true")

    @staticmethod
    def tar_of_zeros(size):
        head = tarfile.TarInfo("zeros")
        head.size = size
        return head.tobuf() + bytes(size) + bytes(1024)


class Names(FileCase):
    HOSTILE = [b"a b", b"quote\"s'", b"new\nline", b"per%cent%41", "rtl\u202etxt.exe".encode(), b"\xff\xfe", b"-rf",
               b"*",
               b"back\\slash", b"x" * 255, b"...", b" ", b"\t", "😀".encode(), b"\x1b[31m", b"a&b=c?d#e;f", b"%n%s",
               b".hidden"]

    @needs_ability("byte_names")
    def test_round_trip(self):
        for name in self.HOSTILE:
            with self.subTest(name=name):
                path = b"/workspace/" + name
                info = self.put(path, name)
                self.assertEqual((name_of(info), name_of(info, "path")), (name, path))
                answer = self.get(path)
                self.assertEqual((answer.status, answer.body), (200, name))
                told = answer.header("content-disposition").split("filename*=UTF-8''")[1]
                self.assertEqual(unquote_to_bytes(told), name)
                self.assertEqual(name_of(self.admin.expect(200, "GET", self.files + "/stat", path=path).json), name)
        self.assertEqual(sorted(self.listed()), sorted(self.HOSTILE))
        for name in self.HOSTILE:
            self.admin.expect(204, "DELETE", self.files, path=b"/workspace/" + name)
        self.assertEqual(self.listed(), [])

    def test_what_is_not_there(self):
        missing = "/workspace/none"
        for method, path, body, query in [
                ("GET", "", None, {"path": missing}), ("DELETE", "", None, {"path": missing}),
                ("GET", "/stat", None, {"path": missing}), ("GET", "/list", None, {"path": missing}),
                ("GET", "/archive", None, {"path": missing}), ("GET", "/watch", None, {"path": missing}),
                ("POST", "/move", {"from": missing, "to": "/workspace/x"}, {}),
                ("POST", "/copy", {"from": missing, "to": "/workspace/x"}, {}),
                ("GET", "", None, {"path": "/etc/passwd/x"})]:
            with self.subTest(method=method, path=path):
                self.admin.expect(404, method, self.files + path, body, **query)

    def test_paths_that_are_none(self):
        for path in (None, "", "relative", "./x", b"/nul\0byte", "/" + "a" * 256, "/" + "a/" * 2500, "/workspace/..",
                     "/"):
            with self.subTest(path=str(path)[:30]):
                answer = self.admin.put(self.files, b"", **({} if path is None else {"path": path}))
                self.assertIn(answer.status, (400, 403, 414))
                self.assertEqual(self.listed(), [])

    def test_no_path_leads_out(self):
        canary = "canary-" + os.urandom(8).hex()
        outside = os.path.join(self.scratch(), "canary")
        with open(outside, "w") as file:
            file.write(canary)
        self.shell(f"ln -s {outside} link; ln -s ../../../../../../../..{outside} up; ln -s /proc/1/root{outside} proc;"
                   "ln -s / root; ln -s loop loop; ln -s /proc/self/cwd cwd; ln -s /nowhere dangling")
        ways = [outside, "/workspace/../.." + outside, "//" + outside, "/workspace/link", "/workspace/up",
                "/workspace/proc",
                "/workspace/root" + outside, "/workspace/loop", "/workspace/loop/x", "/proc/1/root" + outside,
                "/proc/self/root" + outside, "/proc/self/cwd" + outside, "/workspace/cwd" + outside,
                "/dev/fd/../.." + outside,
                "/workspace/%2e%2e/%2e%2e" + outside, "/workspace/..%c0%af.." + outside]
        for way in ways:
            with self.subTest(way=way):
                self.assertIn(self.get(way).status, (400, 403, 404))
                self.assertNotEqual(self.admin.get(self.files + "/list", path=os.path.dirname(way)).status, 500)
        archive = self.admin.expect(200, "GET", self.files + "/archive", path="/workspace").body
        self.assertNotIn(canary.encode(), archive)
        for way in ways[:8]:
            self.admin.put(self.files, b"overwritten", path=way)
            self.admin.delete(self.files, path=way)
        with open(outside) as file:
            self.assertEqual(file.read(), canary)

    def test_links_resolve_inside(self):
        self.put("/workspace/inside", b"here")
        self.shell("ln -s /workspace/inside absolute; ln -s ../../../../../../workspace/inside up;"
                   "mkdir a; ln -s ../inside a/b")
        for path in ("absolute", "up", "a/b"):
            self.assertEqual(self.get("/workspace/" + path).body, b"here")
        told = self.admin.get(self.files + "/stat", path="/workspace/absolute").json
        self.assertEqual((told["type"], told["target"]), ("symlink", "/workspace/inside"))

    @needs_ability("file_rights")
    def test_what_is_not_ones_own(self):
        self.shell("echo secret > /root/s; chmod 600 /root/s", user="root")
        self.admin.expect(403, "GET", self.files, path="/root/s")
        self.assertEqual(self.admin.expect(200, "GET", self.files, path="/root/s", user="root").body, b"secret\n")
        answer = self.admin.put(self.files, b"", path="/etc/mine")
        self.assert_refused(answer, 403, "/etc/mine")  # The path that was asked for, not that of a file of ours.
        self.assertIn(self.admin.get(self.files, path="/etc/passwd", user="nobody-knows").status, (400, 404))

    @needs_ability("file_rights")
    def test_root_writes_where_root_may(self):
        for path in ("/etc/deep/er/file", "/root/file"):
            self.assertIn(self.admin.put(self.files, b"mine", path=path).status, (403, 404))
            told = self.admin.expect(200, "PUT", self.files, b"roots", path=path, user="root").json
            self.assertEqual((told["uid"], told["gid"]), (0, 0))
        self.admin.expect(403, "DELETE", self.files, path="/etc/deep/er/file")
        self.assertEqual(self.admin.get(self.files, path="/etc/deep/er/file").body, b"roots")
        self.admin.expect(403, "GET", self.files + "/list", path="/root")
        self.assertEqual([entry["name"] for entry in self.admin.expect(
            200, "GET", self.files + "/list", path="/root", user="root").json["entries"] if entry["name"] == "file"],
            ["file"])
        self.admin.expect(204, "POST", self.files + "/move", {"from": "/root/file", "to": "/root/moved"}, user="root")
        self.admin.expect(204, "POST", self.files + "/mkdir", {"path": "/root/new"}, user="root")
        for path in ("/root/moved", "/root/new", "/etc/deep"):
            self.admin.expect(204, "DELETE", self.files, path=path, user="root")

    def test_things_that_are_no_files_do_not_hang(self):
        self.shell("mkfifo fifo; mkdir folder;"
                   "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'")
        for path in ("/workspace/fifo", "/workspace/folder", "/workspace/sock", "/dev/zero", "/dev/tty", "/dev/random",
                     "/proc/self/mem", "/proc/kmsg", "/proc/self/environ", "/proc/sysrq-trigger", "/proc/self/fd/0"):
            with self.subTest(path=path):
                answer = self.admin.get(self.files, path=path, timeout=10)
                self.assertIn(answer.status, (400, 403, 404, 409))
        names = tarfile.open(fileobj=io.BytesIO(self.admin.get(self.files + "/archive", timeout=10).body)).getnames()
        self.assertEqual(names, ["folder"])


class Moving(FileCase):
    @needs_ability("live_files")
    def test_a_file_that_shrinks_or_grows_while_it_is_read(self):
        self.put("/workspace/f", b"x" * 16 * MEGABYTE)
        connection = self.server.connect(room=4096)
        with connection:
            connection.send(request("GET", self.files + "?path=/workspace/f", self.admin.headers()))
            self.assertEqual(connection.read_head().header("content-length"), str(16 * MEGABYTE))
            self.shell("truncate -s 1000 f")
            connection.socket.settimeout(10)
            self.assertLess(len(connection.file.read()), 16 * MEGABYTE)  # Closed: that is how one sees it is not whole.
        self.shell("(while :; do echo more; done >> f) & sleep 0.2; kill $!")
        answer = self.get("/workspace/f")
        self.assertEqual(len(answer.body), int(answer.header("content-length")))

    def test_pages_of_a_large_folder(self):
        self.shell("mkdir many; cd many; seq -f %04g 1 2500 | xargs touch")
        names = self.listed("/workspace/many")
        self.assertEqual(len(names), 2500)
        self.assertEqual(sorted(names), [b"%04d" % number for number in range(1, 2501)])
        page = self.admin.get(self.files + "/list", path="/workspace/many", limit=7).json
        self.assertEqual(len(page["entries"]), 7)
        for query in ({"cursor": "x"}, {"cursor": "-1"}, {"limit": 0}, {"limit": 1001}):
            self.assert_refused(self.admin.get(self.files + "/list", path="/workspace/many", **query), 400)

    def test_move_copy_mkdir_remove(self):
        def post(verb, status=204, /, **body):
            self.admin.expect(status, "POST", f"{self.files}/{verb}", body)
        post("mkdir", path="/workspace/a/b/c")
        post("mkdir", path="/workspace/a/b/c")
        self.put("/workspace/a/f", b"one", mode=0o750)
        post("mkdir", 409, path="/workspace/a/f")
        post("copy", **{"from": "/workspace/a", "to": "/workspace/copy"})
        self.assertEqual(self.shell("cat copy/f; stat -c %a copy/f; ls copy/b"), "one750\nc\n")
        post("copy", 400, **{"from": "/workspace/a", "to": "/workspace/a/b/inner"})
        post("move", **{"from": "/workspace/a/f", "to": "/workspace/new/folder/g"})
        self.put("/workspace/other", b"two")
        post("move", **{"from": "/workspace/other", "to": "/workspace/new/folder/g"})
        self.assertEqual(self.get("/workspace/new/folder/g").body, b"two")
        post("move", 409, **{"from": "/workspace/new/folder/g", "to": "/workspace/a"})
        self.admin.expect(204, "DELETE", self.files, path="/workspace/a")
        self.admin.expect(404, "DELETE", self.files, path="/workspace/a")
        self.assertEqual(sorted(self.listed()), [b"copy", b"new"])
        self.admin.expect(400, "DELETE", self.files, path="/")


if __name__ == "__main__":
    unittest.main()
