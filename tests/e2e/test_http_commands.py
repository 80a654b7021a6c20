"""Commands over HTTP: how they end, what they write and read, and that no byte is lost or told twice."""
import base64
import hashlib
import itertools
import signal
import time
import unittest

from http_harness import HttpCase, in_parallel, needs_ability, until

KEPT = 1 << 20  # bytes of a command's output that the server keeps


def bytes_of(chunk, name="data"):
    coded = chunk.get(name + "_base64")
    return base64.b64decode(coded) if coded is not None else chunk[name].encode()


class CommandCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.box = self.session(limits={"cpus": 2})

    def run_command(self, command, **fields):
        return self.admin.start(self.box, command, **fields)

    def background(self, command, **fields):
        """Address of a command that runs on."""
        return f"{self.box}/commands/{self.run_command(command, background=True, **fields)['command_id']}"

    def finished(self, address):
        done = self.admin.expect(200, "GET", address, wait_s=60).json
        self.assertNotEqual(done["status"], "running")
        return done

    def read_all(self, address, wait=20):
        """Output of both streams by its offsets, to the end; checks that they follow each other."""
        out, offset = {"stdout": b"", "stderr": b""}, 0
        while True:
            page = self.admin.expect(200, "GET", address + "/output", offset=offset, wait_s=wait).json
            self.assertEqual(page["lost_bytes"], 0)
            for chunk in page["chunks"]:
                self.assertEqual(chunk["offset"], offset)
                out[chunk["stream"]] += bytes_of(chunk)
                offset += len(bytes_of(chunk))
            self.assertEqual(page["next_offset"], offset)
            if page["complete"]:
                return out


class Ends(CommandCase):
    def assert_end(self, done, status, code, signal=None, fault=None, timeout=None):
        self.assertEqual((done["status"], done["exit_code"], done["signal"], done.get("fault"), done.get("timeout")),
                         (status, code, signal, fault, timeout), done)

    def test_exit_codes(self):
        self.assert_end(self.run_command("true"), "exited", 0)
        for code in (1, 42, 255):
            self.assert_end(self.run_command(f"exit {code}"), "exited", code, fault="program")

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
            self.assert_end(self.run_command(f"kill -{number} $$"), "signaled", 128 + number, number, "program")

    def test_times(self):
        began = time.monotonic()
        self.assert_end(self.run_command("sleep 60", timeout_s=0.3), "timeout", 137, 9, "limit", "wall_time")
        self.assert_end(self.run_command("while :; do :; done", cpu_time_s=0.3), "timeout", 137, 9, "limit", "cpu_time")
        self.assertLess(time.monotonic() - began, 20)
        usage = self.run_command("sleep 0.3")["usage"]
        self.assertGreaterEqual(usage["wall_ms"], 300)

    @needs_ability("limits")
    def test_out_of_memory(self):
        box = self.session(limits={"memory": "64M", "disk": "16M"})
        done = self.admin.start(box, ["python3", "-c", "x = b'x' * 500_000_000"])
        self.assert_end(done, "out_of_memory", 137, 9, "limit")
        self.assertGreaterEqual(done["usage"]["oom_kills"], 1)
        self.assertEqual(self.admin.run(box, "echo alive"), "alive\n")

    def test_too_much_output(self):
        done = self.run_command("yes", output_bytes=10000)
        self.assert_end(done, "output_limit", 137, 9, "limit")
        self.assertTrue(done["stdout"].startswith("y\ny\n"))
        self.assertLessEqual(len(done["stdout"]), 10000)
        box = self.session(limits={"output": "10K"})
        self.assertEqual(self.admin.start(box, "yes")["status"], "output_limit")

    def test_what_cannot_be_started(self):
        done = self.run_command(["no-such-program"])
        self.assert_end(done, "exited", 127, fault="program")
        self.assertIn("no-such-program", done["start_error"])
        self.assert_end(self.run_command("no-such-program"), "exited", 127, fault="program")
        self.assert_end(self.run_command(["/etc/passwd"]), "exited", 126, fault="program")
        self.assert_end(self.run_command(["true"], cwd="/nowhere"), "exited", 127, fault="program")

    def test_children_left_behind_are_not_waited_for(self):
        began = time.monotonic()
        self.assertEqual(self.run_command("sleep 60 & echo hi")["stdout"], "hi\n")
        self.assertLess(time.monotonic() - began, 10)

    def test_requests_that_cannot_work(self):
        for body, word in [
                ({}, "command"), ({"command": "a", "argv": ["a"]}, "argv"), ({"command": ""}, "/command"),
                ({"argv": []}, "/argv"), ({"argv": [""]}, ""), ({"argv": ["a", 1]}, "/argv/1"),
                ({"command": "a\0b"}, "/command"), ({"argv": ["a\0b"]}, "/argv/0"),
                ({"command": "a", "timeout_s": "1"}, "/timeout_s"), ({"command": "a", "env": {"1A": ""}}, "/env/1A"),
                ({"command": "a", "user": ""}, "/user"), ({"command": "a", "pty": {"rows": 0}}, "/pty/rows"),
                ({"command": "a", "output_bytes": -1}, "/output_bytes"),
                ({"command": "a", "stdin_base64": "?"}, "base64"),
                ({"command": "a", "privileged": True}, "/privileged"), ({"argv": ["x" * 120_000] * 4}, "longer")]:
            with self.subTest(body=str(body)[:80]):
                self.assert_refused(self.admin.post(self.box + "/commands", body), 400, word)

    def test_unknown_commands(self):
        self.run_command("true")
        for id in ("c2", "c0", "c01", "c1x", "1", "C1", "-1", "c99999999999999999999999"):
            for method, path, body in [("GET", "", None), ("GET", "/output", None), ("POST", "/stdin", {}),
                                       ("POST", "/signal", {"signal": 9}),
                                       ("POST", "/resize", {"rows": 1, "columns": 1})]:
                with self.subTest(id=id, path=path):
                    self.admin.expect(404, method, f"{self.box}/commands/{id}{path}", body)

    def test_fifty_at_once(self):
        done = in_parallel(50, lambda number: self.run_command(f"sleep 0.1; echo {number}; echo {-number} >&2"))
        self.assertEqual([(each["stdout"], each["stderr"]) for each in done],
                         [(f"{number}\n", f"{-number}\n") for number in range(50)])
        self.assertEqual(len({each["command_id"] for each in done}), 50)
        listed = self.admin.expect(200, "GET", self.box + "/commands").json["commands"]
        self.assertEqual({each["command_id"] for each in listed}, {each["command_id"] for each in done})


class Surroundings(CommandCase):
    def test_streams_are_apart_and_bytes_are_kept(self):
        done = self.run_command(r"printf 'a\303\244\n'; printf 'b\377\000' >&2")
        self.assertEqual((done["stdout"], bytes_of(done, "stderr")), ("aä\n", b"b\xff\0"))
        self.assertNotIn("stdout_base64", done)
        self.assertFalse(done["truncated"])

    def test_argv_is_not_a_shell(self):
        done = self.run_command(["printf", "%s|", "$HOME", "a b", "", "*", ";id"])
        self.assertEqual(done["stdout"], "$HOME|a b||*|;id|")

    def test_env_cwd_and_user(self):
        box = self.session(env={"A": "session", "B": "session"})
        self.assertEqual(self.admin.run(box, 'echo "$A $B $PWD $(id -un)"', env={"A": "own"}, cwd="/usr/lib"),
                         "own session /usr/lib user\n")
        self.assertEqual(self.admin.run(box, "id -u; pwd", user="root"), "0\n/workspace\n")
        self.assertEqual(self.admin.run(box, "id -u", user="1234"), "1234\n")
        self.assertIn(self.admin.post(box + "/commands", {"command": "id", "user": "nobody-knows"}).status, (400, 404))

    def test_stdin(self):
        data = bytes(range(256)) * 8000
        done = self.run_command("sha256sum", stdin_base64=base64.b64encode(data).decode())
        self.assertEqual(done["stdout"].split()[0], hashlib.sha256(data).hexdigest())
        self.assertEqual(self.run_command("cat", stdin="grüße")["stdout"], "grüße")
        self.assertEqual(self.run_command("cat")["stdout"], "")
        self.assertEqual(self.run_command("echo done", stdin="x" * 1_000_000)["stdout"], "done\n")

    def test_stdin_that_stays_open(self):
        cat = self.background("cat; echo end", stdin_open=True)
        self.admin.expect(204, "POST", cat + "/stdin", {"data": "one\n"})
        page = self.admin.expect(200, "GET", cat + "/output", wait_s=20).json
        self.assertEqual(page["chunks"][0]["data"], "one\n")
        self.admin.expect(204, "POST", cat + "/stdin", {"data_base64": base64.b64encode(b"\xff\n").decode()})
        self.assert_refused(self.admin.post(cat + "/stdin", {"data_base64": "?"}), 400, "base64")
        self.admin.expect(204, "POST", cat + "/stdin", {"eof": True})
        self.assertEqual(bytes_of(self.finished(cat), "stdout"), b"one\n\xff\nend\n")
        self.admin.expect(409, "POST", cat + "/stdin", {"data": "late"})

    def test_stdin_that_nobody_opened(self):
        sleep = self.background("sleep 20")
        self.assertIn(self.admin.post(sleep + "/stdin", {"data": "x"}).status, (400, 409))

    def test_processes(self):
        self.background(["sleep", "98765"])
        self.assertTrue(until(lambda: ["sleep", "98765"] in [
            each["argv"] for each in self.admin.get(self.box + "/processes").json["processes"]]))
        listed = self.admin.get(self.box + "/processes").json["processes"]
        self.assertEqual([each["uid"] for each in listed if each["argv"] == ["sleep", "98765"]], [1000])
        self.assertLess(len(listed), 5)  # Nothing of the host's.


class Background(CommandCase):
    def test_running_then_ended(self):
        body = {"command": "sleep 0.5; exit 5", "background": True}
        answer = self.admin.expect(202, "POST", self.box + "/commands", body)
        told = answer.json
        self.assertEqual((told["status"], told["exit_code"], told["usage"]), ("running", None, None))
        address = answer.header("location")
        self.assertEqual(self.admin.get(address).json["status"], "running")
        done = self.finished(address)
        self.assertEqual((done["status"], done["exit_code"]), ("exited", 5))

    def test_waiting_ends_in_time(self):
        address = self.background("sleep 60")
        began = time.monotonic()
        self.assertEqual(self.admin.expect(200, "GET", address, wait_s=1).json["status"], "running")
        self.assertTrue(0.9 < time.monotonic() - began < 10)
        for query in ({"wait_s": "-1"}, {"wait_s": "x"}, {"wait_s": "999999"}):
            self.assert_refused(self.admin.get(address, **query), 400)

    def test_output_by_offset(self):
        address = self.background("for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; sleep 0.1; done")
        out = self.read_all(address)
        self.assertEqual(out["stdout"], b"".join(b"out%d\n" % i for i in range(1, 6)))
        self.assertEqual(out["stderr"], b"".join(b"err%d\n" % i for i in range(1, 6)))
        page = self.admin.expect(200, "GET", address + "/output", offset=7).json
        self.assertEqual((page["chunks"][0]["offset"], page["offset"]), (7, 7))
        beyond = self.admin.expect(200, "GET", address + "/output", offset=10**12).json
        self.assertEqual((beyond["chunks"], beyond["complete"]), ([], True))
        for offset in ("-1", "x", "99999999999999999999"):
            self.assert_refused(self.admin.get(address + "/output", offset=offset), 400)

    def test_a_long_poll_returns_with_the_first_byte(self):
        address = self.background("sleep 0.3; echo now; sleep 60")
        began = time.monotonic()
        page = self.admin.expect(200, "GET", address + "/output", wait_s=60).json
        self.assertEqual((page["chunks"][0]["data"], page["complete"]), ("now\n", False))
        self.assertLess(time.monotonic() - began, 15)

    def test_bytes_that_are_no_text_at_the_seams(self):
        data = "äöü€😀".encode() * 20000  # Characters will be cut in two somewhere.
        self.admin.expect(200, "PUT", self.box + "/files", data, path="/workspace/data")
        self.assertEqual(self.read_all(self.background("cat data"))["stdout"], data)

    def follow(self, address, last_id, most):
        """Up to `most` chunks as they come, then the connection is cut; (bytes by place, next id, ended)."""
        seen, ended = [], False
        with self.admin.events(address + "/output", {"Last-Event-ID": last_id} if last_id else {}) as stream:
            while len(seen) < most and not ended:
                event = stream.next()
                last_id, ended = event["id"], event["event"] == "exit"
                if ended:
                    self.assertEqual(event["data"]["exit_code"], 3)
                    self.assertIsNone(stream.next())
                else:
                    seen.append((event["data"]["offset"], bytes_of(event["data"])))
        return seen, last_id, ended

    def test_events_can_be_taken_up_where_they_broke(self):
        address = self.background("for i in $(seq 1 400); do echo line $i; [ $((i % 40)) = 0 ] && sleep 0.05; done;"
                                  "exit 3")
        whole, last_id = b"", None
        for cuts, most in enumerate(itertools.cycle((1, 3, 2))):
            seen, last_id, ended = self.follow(address, last_id, most)
            for offset, data in seen:
                self.assertEqual(offset, len(whole))
                whole += data
            if ended:
                break
        self.assertEqual(whole, b"".join(b"line %d\n" % i for i in range(1, 401)))
        self.assertGreater(cuts, 1)

    def test_run_as_events(self):
        with self.admin.events(self.box + "/commands", body={"command": "echo out; echo err >&2; exit 3"}) as stream:
            first = stream.next()
            self.assertEqual((first["event"], first["data"]["status"]), ("command", "running"))
            seen = {}
            while (event := stream.next())["event"] == "output":
                seen[event["data"]["stream"]] = event["data"]["data"]
            self.assertEqual(seen, {"stdout": "out\n", "stderr": "err\n"})
            self.assertEqual((event["event"], event["data"]["exit_code"]), ("exit", 3))
            self.assertIsNone(stream.next())

    def test_a_slow_reader_of_events_loses_nothing(self):
        size = 8_000_000  # More than is kept, and than sockets hold.
        with self.admin.events(self.box + "/commands", body={"command": f"yes | head -c {size}"}) as stream:
            time.sleep(1)
            count = 0
            while (event := stream.next())["event"] != "exit":
                if event["event"] == "output":
                    self.assertEqual(event["data"]["offset"], count)
                    count += len(event["data"]["data"])
        self.assertEqual(count, size)

    def test_one_who_leaves_does_not_end_it(self):
        with self.admin.events(self.box + "/commands", body={"command": "echo begun; sleep 1; echo done"}) as stream:
            command = stream.next()["data"]["command_id"]
            stream.wait_for("output")
        self.assertEqual(self.finished(f"{self.box}/commands/{command}")["stdout"], "begun\ndone\n")

    def test_what_is_kept_is_bounded(self):
        address = self.background("yes | head -c 5000000")
        done = self.finished(address)
        self.assertTrue(done["truncated"])
        self.assertEqual((done["output_bytes"], done["truncated_bytes"]), (5_000_000, 5_000_000 - KEPT))
        self.assertEqual(len(done["stdout"]), KEPT)
        page = self.admin.expect(200, "GET", address + "/output", offset=0).json
        self.assertEqual(page["lost_bytes"], 5_000_000 - KEPT)
        self.assertEqual(page["chunks"][0]["offset"], 5_000_000 - KEPT)
        seen, _, _ = self.follow_from_start(address)
        self.assertEqual(sum(len(data) for _, data in seen), KEPT)

    def follow_from_start(self, address):
        with self.admin.events(address + "/output") as stream:
            events = stream.all()
        chunks = [(event["data"]["offset"], bytes_of(event["data"])) for event in events if event["event"] == "output"]
        return chunks, events[-1]["id"], events[-1]["event"] == "exit"

    def test_the_session_ends_while_output_is_followed(self):
        address = self.background("echo first; sleep 60")
        with self.admin.events(address + "/output") as stream:
            self.assertEqual(stream.next()["data"]["data"], "first\n")
            self.admin.expect(204, "DELETE", self.box)
            self.assertTrue(stream.ends(5))


class Signals(CommandCase):
    def test_by_name_and_number(self):
        for name in ("TERM", "SIGTERM", 15):
            address = self.background("sleep 60")
            self.admin.expect(204, "POST", address + "/signal", {"signal": name})
            self.assertEqual(self.finished(address)["signal"], 15)

    def test_children_get_it_too(self):
        address = self.background("sh -c 'sleep 60; :' | cat")
        self.assertTrue(until(lambda: len(self.admin.get(self.box + "/processes").json["processes"]) >= 3))
        self.admin.expect(204, "POST", address + "/signal", {"signal": "KILL"})
        self.finished(address)
        self.assertTrue(until(lambda: self.admin.get(self.box + "/processes").json["processes"] == []))

    def test_a_program_may_catch_it(self):
        address = self.background("trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done")
        self.admin.expect(200, "GET", address + "/output", wait_s=20)
        self.admin.expect(204, "POST", address + "/signal", {"signal": "SIGUSR1"})
        done = self.finished(address)
        self.assertEqual((done["exit_code"], done["stdout"]), (7, "ready\ncaught\n"))
        self.admin.expect(409, "POST", address + "/signal", {"signal": "TERM"})

    def test_signals_that_do_not_exist(self):
        address = self.background("sleep 60")
        for wrong in ("NOPE", "", "sigterm", 0, 65, -9, 1.5, None, [15]):
            with self.subTest(signal=wrong):
                self.assert_refused(self.admin.post(address + "/signal", {"signal": wrong}), 400)


class Terminals(CommandCase):
    def wait_for_output(self, address, text):
        self.assertTrue(until(lambda: text in self.admin.get(address).json["stdout"]), self.admin.get(address))

    def test_size_and_resize(self):
        address = self.background("stty size; read x; stty size; tty", pty={"rows": 12, "columns": 34})
        self.wait_for_output(address, "12 34")
        self.admin.expect(204, "POST", address + "/resize", {"rows": 50, "columns": 132})
        self.admin.expect(204, "POST", address + "/stdin", {"data": "\n"})
        done = self.finished(address)
        self.assertIn("50 132", done["stdout"])
        self.assertIn("/dev/pts/", done["stdout"])
        self.assertTrue(done["pty"])
        self.admin.expect(409, "POST", address + "/resize", {"rows": 1, "columns": 1})

    def test_keys_are_signals(self):
        address = self.background("echo go; sleep 60", pty={})
        self.wait_for_output(address, "go")
        self.admin.expect(204, "POST", address + "/stdin", {"data": "\x03"})
        self.assertEqual(self.finished(address)["exit_code"], 130)

    def test_bad_sizes(self):
        plain = self.background("sleep 60")
        self.assert_refused(self.admin.post(plain + "/resize", {"rows": 9, "columns": 9}), 400, "terminal")
        for size in ({"rows": 0, "columns": 9}, {"rows": 9}, {"rows": 9, "columns": 65536},
                     {"rows": "9", "columns": 9}):
            self.assert_refused(self.admin.post(plain + "/resize", size), 400)


if __name__ == "__main__":
    unittest.main()
