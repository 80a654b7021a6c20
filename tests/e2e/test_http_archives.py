"""Archives in and out, with entries that are up to no good; changes of files as they happen."""
import gzip
import io
import os
import tarfile
import unittest

from http_files import MEGABYTE, FileCase, name_of
from http_harness import needs_ability


class Archives(FileCase):
    @staticmethod
    def tar(*entries):
        """A tar of (name, type, content or link)."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, kind, text in entries:
                head = tarfile.TarInfo(name)
                head.type, head.mode = kind, 0o640
                if kind == tarfile.REGTYPE:
                    head.size = len(text)
                else:
                    head.linkname = text.decode()
                archive.addfile(head, io.BytesIO(text))
        return out.getvalue()

    def test_in_and_out(self):
        entries = [("d/f", tarfile.REGTYPE, b"text"), ("ü b", tarfile.REGTYPE, os.urandom(3_000_000)),
                   ("l", tarfile.SYMTYPE, b"d/f")]
        for pack in (bytes, gzip.compress):
            box = self.session()
            report = self.admin.expect(200, "PUT", box + "/files/archive", pack(self.tar(*entries)),
                                       path="/workspace/in").json
            self.assertEqual(report, {"entries": 3, "skipped": 0, "reasons": []})
            answer = self.admin.expect(200, "GET", box + "/files/archive", path="/workspace/in")
            out = tarfile.open(fileobj=io.BytesIO(answer.body))
            self.assertEqual({each.name for each in out}, {"d", "d/f", "ü b", "l"})
            self.assertEqual((out.extractfile("d/f").read(), out.getmember("d/f").mode), (b"text", 0o640))
            self.assertEqual((out.extractfile("ü b").read(), out.getmember("l").linkname), (entries[1][2], "d/f"))

    @needs_ability("archive_checks")
    def test_entries_that_lead_outside_are_left_out_and_told(self):
        report = self.admin.expect(200, "PUT", self.files + "/archive", self.tar(
            ("good", tarfile.REGTYPE, b"good"), ("../evil", tarfile.REGTYPE, b"evil"),
            ("a/../../evil", tarfile.REGTYPE, b"evil"),
            ("link", tarfile.SYMTYPE, b"/tmp"), ("link/evil", tarfile.REGTYPE, b"evil"),
            ("hard", tarfile.LNKTYPE, b"../../etc/passwd"),
            ("fifo", tarfile.FIFOTYPE, b""), ("device", tarfile.CHRTYPE, b""),
            ("/tmp/absolute", tarfile.REGTYPE, b"kept inside"))).json
        self.assertEqual((report["entries"], report["skipped"]), (3, 6))
        for name in ("../evil", "a/../../evil", "link/evil", "hard", "fifo", "device"):
            self.assertTrue(any(reason.startswith(name + ":") for reason in report["reasons"]), (name, report))
        self.assertEqual(sorted(self.listed()), [b"good", b"link", b"tmp"])
        self.assertEqual(self.listed("/tmp"), [])
        self.assertEqual(self.get("/workspace/tmp/absolute").body, b"kept inside")

    def test_what_is_no_archive(self):
        whole = self.tar(("f", tarfile.REGTYPE, b"x" * 100_000))
        for data in (b"nonsense" * 100, whole[:50_000], gzip.compress(whole)[:-20], b"\x1f\x8b" + b"\xff" * 500):
            with self.subTest(data=data[:20]):
                self.assert_refused(self.admin.put(self.files + "/archive", data), 400)
        self.shell("true")


class Watching(FileCase):
    @needs_ability("byte_names")
    def test_changes_are_told(self):
        self.shell("mkdir sub")
        with self.admin.events(self.files + "/watch") as stream:
            self.assertEqual(stream.next()["event"], "watching")
            self.shell(r"echo a > f; mv f g; rm g; mkdir new; sleep 0.3; echo b > new/deep;"
                       r"printf x > sub/$(printf '\377')")
            seen = set()
            while ("created", b"sub/\xff") not in seen:
                change = stream.next(10)["data"]
                seen.add((change["kind"], name_of(change, "path")))
        self.assertLessEqual({("created", b"f"), ("modified", b"f"), ("moved_from", b"f"), ("moved_to", b"g"),
                              ("removed", b"g"),
                              ("created", b"new"), ("created", b"new/deep")}, seen)

    def test_a_storm_is_bounded(self):
        before = self.server.resident_bytes()
        storm = ("import os; open('a', 'w')\n"
                 "for _ in range(10000): os.rename('a', 'b'), os.rename('b', 'a')")
        with self.admin.events(self.files + "/watch") as stream:
            stream.next()
            self.admin.start(self.box, ["python3", "-c", storm])  # Nobody reads meanwhile.
            self.shell("echo > last")
            while (change := stream.next(20)["data"])["path"] != "last" and change["kind"] != "overflow":
                pass
        self.assertLess(self.server.resident_bytes() - before, 32 * MEGABYTE)


if __name__ == "__main__":
    unittest.main()
