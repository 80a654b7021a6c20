"""Batches as they run: streams of verdicts, turns, limits, strangers, and what happens to those who leave or fail."""
import json
import os
import resource
import signal
import time
import unittest

from batch_case import ENDLESS, HELLO, BatchCase, item, sleepers
from harness import needs
from http_harness import Client, Server, descendants, in_parallel, name_of, until
from http_raw import Broken


class Streams(BatchCase):
    def test_verdicts_come_as_they_are_reached(self):
        following = self.follow(self.admin, "POST", "/api/batch", {"items": [*sleepers(1), item("quick", "print(1)")]})
        self.addCleanup(self.admin.delete, following.batch)
        self.assertEqual(following.next()["id"], "quick")
        state = self.admin.expect(200, "GET", following.batch).json
        self.assertEqual((state["state"], state["total"], state["done"], state["in_work"], state["verdicts"]),
                         ("running", 2, 1, 1, {"accepted": 1}))
        self.admin.expect(204, "DELETE", following.batch)
        self.assertEqual(following.rest(), [])

    def test_in_the_background(self):
        items = [item("a", "print(1)"), item("b", "exit(1)")]
        for body, headers in [({"items": items, "background": True}, ()), ({"items": items}, {"Prefer": "respond-async"})]:
            answer = self.admin.expect(202, "POST", "/api/batch", body, headers=headers)
            self.assertEqual(answer.header("preference-applied"), "respond-async" if headers else None)
            batch = answer.header("location")
            self.assertEqual(batch, "/api/batch/" + answer.json["batch_id"])
            verdicts = self.lines(self.admin.get(batch + "/verdicts"))  # waits for the end
            self.assertEqual({each["id"]: each["verdict"] for each in verdicts}, {"a": "accepted", "b": "runtime_error"})
            state = self.admin.expect(200, "GET", batch).json
            self.assertEqual((state["state"], state["verdicts"]), ("done", {"accepted": 1, "runtime_error": 1}))
            self.assertIsNotNone(state["ended_at"])
            self.assertIn(state["batch_id"], [each["batch_id"] for each in self.admin.get("/api/batch").json["batches"]])
            self.assertEqual(self.lines(self.admin.get(batch + "/verdicts", **{"from": 2})), [])
            self.assertEqual(self.lines(self.admin.get(batch + "/verdicts", **{"from": 1})), verdicts[1:])
            self.admin.expect(400, "GET", batch + "/verdicts", **{"from": 3})
            self.admin.expect(400, "GET", batch + "/verdicts", **{"from": "x"})

    def test_a_lost_connection_loses_nothing(self):
        items = [item(f"i{number}", f"import time\ntime.sleep(0.02)\nprint({number})") for number in range(40)]
        following = self.follow(self.admin, "POST", "/api/batch", {"items": items})
        seen = [following.next() for _ in range(3)]
        following.drop()
        again = self.follow(self.admin, "GET", f"{following.batch}/verdicts?from={len(seen)}")
        seen += [again.next() for _ in range(7)]
        again.drop()
        seen += self.lines(self.admin.get(following.batch + "/verdicts", **{"from": len(seen)}))
        self.assertEqual([verdict["number"] for verdict in seen], list(range(40)))
        self.assertEqual(sorted(verdict["id"] for verdict in seen), sorted(each["id"] for each in items))
        self.assertEqual({verdict["stdout"] for verdict in seen}, {f"{number}\n" for number in range(40)})

    def test_who_reads_slowly_waits_alone(self):
        large = [item(str(number), "print('x' * 60000)") for number in range(60)]
        slow = self.follow(self.admin, "POST", "/api/batch", {"items": large}, room=4096)
        other = self.admin.make_key()
        self.assert_verdict("accepted", self.judge(item("quick", "print(1)"), client=other)["quick"])
        self.assertTrue(until(lambda: self.admin.get(slow.batch).json["state"] == "done", 60))
        seen = slow.rest()
        self.assertEqual([verdict["number"] for verdict in seen], list(range(60)))
        self.assertTrue(all(len(verdict["stdout"]) == 60001 for verdict in seen))

    def test_a_revoked_key_reads_no_more(self):
        key = self.admin.make_key()
        following = self.follow(key, "POST", "/api/batch", {"items": sleepers(1)})
        self.addCleanup(self.admin.delete, following.batch)
        self.admin.expect(204, "DELETE", f"/api/keys/{key.key_id}")
        with self.assertRaises(Broken):
            following.rest()

    def test_200_of_all_kinds(self):
        kinds = [("print(1)", "python", {}, "accepted"), ("exit(1)", "python", {}, "runtime_error"),
                 ("echo 2", "bash", {"expect": {"stdout": "1"}}, "wrong_answer"),
                 ("while :; do :; done", "bash", {"limits": {"wall_s": 0.2}}, "time_limit"),
                 ("yes", "bash", {"limits": {"output_mb": 0.01}}, "output_limit"),
                 ("console.log(3)", "javascript", {"expect": {"stdout": "3"}}, "accepted"),
                 (HELLO["c"], "c", {"stdin": "c"}, "accepted"), (HELLO["cpp"], "cpp", {"stdin": "c"}, "accepted"),
                 ("int main( {", "c", {}, "compile_error"),
                 ("x = bytearray(200 << 20)", "python", {"limits": {"memory_mb": 32}}, "memory_limit")]
        items = [item(f"{number}", *kinds[number % 10][:2], **kinds[number % 10][2]) for number in range(200)]
        told = self.judge(*items)
        wrong = {id: verdict for id, verdict in told.items() if verdict["verdict"] != kinds[int(id) % 10][3]}
        self.assertEqual(wrong, {})


class Turns(BatchCase):
    FLAGS = ("--batch-at-once", "2", "--batch-most-queued", "100")

    def setUp(self):
        super().setUp()
        self.one, self.two = self.admin.make_key(), self.admin.make_key()

    def test_many_do_not_hold_up_few(self):
        many = self.submit([item(str(number), "import time; time.sleep(0.3)") for number in range(50)], self.one)
        self.judge(*(item(str(number), "print(1)") for number in range(5)), client=self.two)
        state = self.admin.expect(200, "GET", many).json
        self.assertEqual(state["state"], "running")
        self.assertGreater(state["waiting"], 15, state)

    def test_two_batches_of_one_share_his_turn(self):
        first = self.submit([item(str(number), "import time; time.sleep(0.3)") for number in range(30)], self.one)
        second = self.submit([item(str(number), "import time; time.sleep(0.1)") for number in range(4)], self.one)
        self.lines(self.one.get(second + "/verdicts"))
        self.assertEqual(self.admin.get(first).json["state"], "running")

    def test_what_takes_long_keeps_out_nobody(self):
        self.submit(sleepers(10), self.one)
        told = self.judge(*(item(str(number), "print(1)") for number in range(3)), client=self.two)
        self.assertEqual({verdict["verdict"] for verdict in told.values()}, {"accepted"})

    def test_a_full_queue_is_said_so(self):
        first = self.submit(sleepers(50), self.one)
        answer = self.one.post("/api/batch", {"items": sleepers(3)})
        self.assert_refused(answer, 429, "of this key")
        self.assertTrue(answer.error["hint"])
        self.submit(sleepers(50), self.two)
        three = self.admin.make_key()
        self.assert_refused(three.post("/api/batch", {"items": sleepers(10)}), 429, "as many programs wait")
        self.one.expect(204, "DELETE", first)
        self.assertEqual(len(self.judge(item("a", "print(1)"), client=three)), 1)

    def test_cancelling_ends_all_of_it(self):
        batch = self.submit([item("done", "print(1)"), *sleepers(20)], self.one)
        self.assertTrue(until(lambda: self.one.get(batch).json["done"] == 1 and self.one.get(batch).json["in_work"] > 0))
        self.assertTrue(until(lambda: self.programs() > 0))
        following = self.follow(self.one, "GET", batch + "/verdicts")
        self.assertEqual(following.next()["id"], "done")
        self.one.expect(204, "DELETE", batch)
        self.assertIsNone(following.next())
        state = self.one.expect(200, "GET", batch).json
        self.assertEqual((state["state"], state["done"], state["waiting"]), ("cancelled", 1, 0))
        self.assertTrue(until(lambda: self.one.get(batch).json["in_work"] == 0))
        self.assertTrue(until(lambda: self.programs() == 0), "programs outlive their batch")
        self.assertEqual(len(self.lines(self.one.get(batch + "/verdicts"))), 1)
        self.one.expect(204, "DELETE", batch)
        self.one.expect(404, "GET", batch)
        self.one.expect(404, "DELETE", batch)

    @needs("gcc")
    def test_a_build_can_be_cancelled(self):
        # So long that it would not end by itself in time.
        code = "".join(f"int f{n}(int x) {{ {'x = x * x + 1; ' * 200} return x; }}\n" for n in range(600))
        batch = self.submit([item("a", code + f"/* {time.time_ns()} */ int main(void) {{}}", "c")], self.one)
        self.assertTrue(until(lambda: self.programs("cc1") == 1), "the compiler does not run")
        self.one.expect(204, "DELETE", batch)
        self.assertTrue(until(lambda: self.programs("cc1") == 0))
        self.assertEqual(self.one.get(batch).json["in_work"], 0)

    def programs(self, name="sleep"):
        return sum(name_of(pid) == name for pid, _ in descendants(self.server.pid))


class Strangers(BatchCase):
    def test_foreign_batches_are_unknown(self):
        owner, other = self.admin.make_key(), self.admin.make_key()
        batch = self.submit([item("secret", "print('secret')")], owner)
        self.lines(owner.get(batch + "/verdicts"))
        unknown = "/api/batch/" + "a" * 26
        for method, tail in [("GET", ""), ("GET", "/verdicts"), ("DELETE", "")]:
            answers = []
            for address in (batch, unknown):
                answer = other.expect(404, method, address + tail)
                answers.append({**answer.error, "trace_id": None})
            self.assertEqual(answers[0], answers[1])
        self.assertEqual(other.get("/api/batch").json["batches"], [])
        self.admin.make_key(role="viewer").expect(404, "GET", batch)
        operator = self.admin.make_key(role="operator")
        self.assertEqual(self.lines(operator.get(batch + "/verdicts"))[0]["stdout"], "secret\n")
        self.assertIn(batch[len("/api/batch/"):], [each["batch_id"] for each in operator.get("/api/batch").json["batches"]])
        self.admin.make_key(role="viewer").expect(403, "POST", "/api/batch", {"items": [item("a", "")]})
        Client(self.server).expect(401, "GET", batch)

    def test_what_makes_no_sense_is_told_with_its_place(self):
        good = item("a", "print(1)")
        for body, word in [
                ({}, "items"), ({"items": []}, "/items"), ({"items": [1]}, "/items/0"), ({"items": [good], "x": 1}, "/x"),
                ({"items": [good, {"id": "b", "code": ""}]}, "/items/1"), ({"items": [good, good]}, "/items/1/id"),
                ({"items": [{**good, "id": ""}]}, "/items/0/id"), ({"items": [{**good, "id": 7}]}, "/items/0/id"),
                ({"items": [{**good, "language": "cobol"}]}, "/items/0/language"),
                ({"items": [{**good, "code": 7}]}, "/items/0/code"),
                ({"items": [{**good, "code": "a\0b"}]}, "/items/0/code"),
                ({"items": [{**good, "limits": {"wall_s": 0}}]}, "/items/0/limits/wall_s"),
                ({"items": [{**good, "limits": {"wall_s": 1e9}}]}, "/items/0/limits/wall_s"),
                ({"items": [{**good, "limits": {"memory_mb": 1}}]}, "/items/0/limits/memory_mb"),
                ({"items": [{**good, "limits": {"memory_mb": 32, "disk_mb": 32}}]}, "/items/0/limits"),
                ({"items": [{**good, "limits": {"fuel": 1}}]}, "/items/0/limits/fuel"),
                ({"items": [{**good, "files": {"a": "b"}}]}, "/items/0/files"),
                ({"items": [{**good, "files": [{"path": "x", "content_base64": "!"}]}]}, "/items/0/files/0"),
                ({"items": [{**good, "files": [{"path": "main.py"}]}]}, "/items/0/files/0/path"),
                ({"items": [{**good, "stdin": "a", "stdin_base64": "YQ=="}]}, "/items/0"),
                ({"items": [{**good, "expect": {}}]}, "/items/0/expect"),
                ({"items": [{**good, "expect": {"stdout": 1}}]}, "/items/0/expect/stdout"),
                ({"items": [{**good, "checker": {"code": "x"}}]}, "/items/0/checker"),
                ({"items": [{**good, "checker": {"code": "x", "language": "python", "files": []}}]}, "/items/0/checker/files")]:
            with self.subTest(body=body):
                self.assert_refused(self.admin.post("/api/batch", body), 400, word)
        self.assert_refused(self.admin.post("/api/batch", {"items": [item(str(n), "") for n in range(10001)]}), 400, "10000")
        self.assertEqual(self.metric("agent_sandbox_batch_programs", state="waiting"), 0)

    def test_long_bodies(self):
        stdin = "x" * (9 << 20)
        told = self.judge(*(item(str(number), "import sys; print(len(sys.stdin.read()))", stdin=stdin) for number in range(3)))
        self.assertEqual({verdict["stdout"] for verdict in told.values()}, {f"{9 << 20}\n"})
        answer = self.admin.post("/api/batch", {"items": [item("a", "", stdin="x" * (65 << 20))]})
        self.assert_refused(answer, 413)
        values = self.admin.post("/api/batch", b'{"items":[' + b"1," * 2_000_000 + b"1]}",
                                 headers={"Content-Type": "application/json"})
        self.assert_refused(values, 400, "values")
        # Elsewhere nothing has become longer.
        self.assert_refused(self.admin.post("/api/sessions", {"labels": {"a": "x" * (5 << 20)}}), 413)

    def test_many_long_bodies_take_turns(self):
        body = json.dumps({"items": [item("a", "", stdin="x" * (30 << 20)), {"id": "b"}]}).encode()
        keys = [self.admin.make_key() for _ in range(3)]
        peak = [0]

        def send(number):
            answer = keys[number % 3].post("/api/batch", body, headers={"Content-Type": "application/json"})
            peak[0] = max(peak[0], self.server.resident_bytes())
            return answer.status
        before = self.server.resident_bytes()
        self.assertEqual(set(in_parallel(9, send)), {400})
        self.assertLess(peak[0] - before, 600 << 20)


class Records(BatchCase):
    def test_it_is_written_down(self):
        key = self.admin.make_key()
        batch = self.submit([item("a", "print(1)"), item("b", "exit(1)")], key)
        self.lines(key.get(batch + "/verdicts"))
        id = batch.rsplit("/", 1)[1]

        def ends():
            return [event for event in key.get("/api/events", limit=1000).json["events"] if event["type"] == "batch.ended"]
        self.assertTrue(until(ends))
        (event,) = ends()
        self.assertEqual(event["data"], {"batch_id": id, "state": "done", "total": 2, "done": 2,
                                         "verdicts": {"accepted": 1, "runtime_error": 1}})
        entries = self.admin.get("/api/audit", limit=1000).json["entries"]
        self.assertEqual([entry["action"] for entry in entries if entry["target"] == id], ["batch.create"])
        self.assertEqual(entries[-1]["actor"] if entries[-1]["target"] == id else key.key_id, key.key_id)

    def test_verdicts_are_counted(self):
        names = ("accepted", "runtime_error", "wrong_answer")
        before = {name: self.metric("agent_sandbox_batch_verdicts_total", verdict=name) for name in names}
        self.judge(item("a", "print(1)"), item("b", "exit(1)"), item("c", "", expect={"stdout": "x"}))
        after = {name: self.metric("agent_sandbox_batch_verdicts_total", verdict=name) for name in names}
        self.assertEqual({name: after[name] - before[name] for name in names}, dict.fromkeys(names, 1))
        self.assertEqual(self.metric("agent_sandbox_batch_programs", state="in_work"), 0)

    def test_nothing_is_left_behind(self):
        self.judge(*(item(str(number), "print(1)") for number in range(10)))
        files = self.server.open_files_at_rest()
        family = len(descendants(self.server.pid))
        items = [item(f"p{number}", "import os\nos.fork()\nprint(1)") for number in range(30)]
        items += [item(f"k{number}", "while True: print('x')", limits={"output_mb": 0.1}) for number in range(5)]
        items += [item(f"t{number}", ENDLESS, limits={"wall_s": 0.1}) for number in range(5)]
        self.judge(*items)
        self.assertTrue(until(lambda: len(descendants(self.server.pid)) <= family))
        self.assertLessEqual(self.server.open_files_at_rest(), files + 3)


class Servers(BatchCase):
    def on(self, server):
        self.server, self.admin = server, server.admin
        return server

    def test_verdicts_are_kept_for_some_time(self):
        self.on(self.other_server("--batch-keep", "1s"))
        batch = self.submit([item("a", "print(1)")])
        self.lines(self.admin.get(batch + "/verdicts"))
        self.admin.expect(200, "GET", batch)
        self.assertTrue(until(lambda: self.admin.get(batch).status == 404))

    def test_memory_is_bounded(self):
        self.on(self.other_server("--batch-most-memory", "2M"))
        old = self.submit([item("a", "print('x' * 60000)")])
        self.lines(self.admin.get(old + "/verdicts"))
        told = self.judge(*(item(str(number), "print('x' * 60000)") for number in range(40)))
        lengths = sorted({len(verdict["stdout"]) for verdict in told.values()})
        self.assertEqual(lengths, [256, 60001])
        self.assertTrue(all(verdict.get("truncated", False) == (len(verdict["stdout"]) == 256) for verdict in told.values()))
        self.admin.expect(404, "GET", old)
        answer = self.admin.post("/api/batch", {"items": [item("a", "", stdin="x" * (3 << 20))]})
        self.assert_refused(answer, 429, "memory")

    def test_a_server_that_stops_takes_its_programs_along(self):
        server = Server("--stop-patience", "1s")
        self.addCleanup(server.kill)
        following = self.follow(server.admin, "POST", "/api/batch", {"items": [item("a", "print(1)"), *sleepers(5)]})
        self.assertEqual(following.next()["id"], "a")
        server.stop()

    def test_what_is_the_servers_fault_is_tried_again(self):
        server = self.on(self.other_server("--batch-at-once", "2", "--pool-size", "0"))
        items = [item("right", "print(1)", expect={"stdout": "1"}), item("wrong", "exit(3)")]
        self.judge(*items)
        zygotes = [pid for pid, _ in descendants(server.pid) if name_of(pid) == "asr-zygote"]
        limits = resource.prlimit(zygotes[0], resource.RLIMIT_NOFILE)

        def may_have(files):
            """Without descriptors they can make no sandboxes."""
            for pid in zygotes:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, limits[1]))

        def retries():
            return self.metric("agent_sandbox_batch_retries_total")
        may_have(4)
        batch = self.submit(items)
        self.assertTrue(until(lambda: retries() >= 2, every=0.01))
        may_have(limits[0])
        told = {verdict["id"]: verdict for verdict in self.lines(self.admin.get(batch + "/verdicts"))}
        self.assertEqual((told["right"]["verdict"], told["wrong"]["verdict"]), ("accepted", "runtime_error"))
        self.assertGreater(min(verdict["attempts"] for verdict in told.values()), 1)
        # And when it does not get better, it is told, and held against nobody.
        may_have(4)
        told = self.judge(*items)
        may_have(limits[0])
        for verdict in told.values():
            self.assertEqual((verdict["verdict"], verdict["attempts"], verdict["exit_code"], verdict["usage"]),
                             ("platform", 3, None, None))
            self.assertTrue(verdict["reason"])
        self.assertEqual(self.metric("agent_sandbox_batch_verdicts_total", verdict="platform"), 2)
        self.assert_verdict("accepted", self.judge_one("print(1)"))

    def test_a_lost_sandbox_is_not_the_programs_fault(self):
        server = self.on(self.other_server("--batch-at-once", "1", "--pool-size", "0"))

        def sandbox():
            """The first process of the sandbox that sleeps; none between two of them."""
            try:
                first = server.first_process_of("sleep")
            except (StopIteration, OSError):
                return None
            return first if name_of(first) == "sandbox-init" else None

        def lose(attempts):
            lost = [None]
            for _ in range(attempts):
                self.assertTrue(until(lambda: sandbox() not in lost), "nothing runs")
                lost.append(sandbox())
                os.kill(lost[-1], signal.SIGKILL)
        batch = self.submit([item("one", "exec sleep 1", "bash", expect={"stdout": "never"})])
        lose(1)
        (told,) = self.lines(self.admin.get(batch + "/verdicts"))
        self.assertEqual((told["verdict"], told["exit_code"], told["attempts"]), ("wrong_answer", 0, 2))
        batch = self.submit(sleepers(1))
        lose(3)
        (told,) = self.lines(self.admin.get(batch + "/verdicts"))
        self.assertEqual((told["verdict"], told["attempts"]), ("platform", 3))


if __name__ == "__main__":
    unittest.main()
