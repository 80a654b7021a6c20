"""agent-sandbox judge: datasets in three shapes, verdicts, a summary, interrupts, and servers that go away."""
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import unittest

from harness import BINARY, PATIENCE, PLATFORM_ERROR, USAGE_ERROR, needs, run
from http_harness import ADMIN_KEY, HttpCase, environment, until
from test_terminal import Session as Terminal

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "judge")


class CuttingProxy:
    """Passes connections on to a server, and cuts the first after a few verdicts, in the middle of a line."""

    def __init__(self, address):
        self.address = address
        self.requests = []  # their first lines
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = []

    def __enter__(self):
        self.start(self.accept)
        return self

    def __exit__(self, *unused):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(PATIENCE)

    def start(self, work, *arguments):
        self.threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self.threads[-1].start()

    def accept(self):
        for number in itertools.count():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.start(self.serve, client, number)

    def serve(self, client, number):
        with client, socket.create_connection(self.address) as server:
            self.start(self.pass_on, client, server)
            seen = b""
            while piece := server.recv(4096):
                seen += piece
                if number == 0 and seen.count(b'"verdict"') > 3:
                    client.sendall(piece[:-20])
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(piece)
            client.shutdown(socket.SHUT_RDWR)

    def pass_on(self, client, server):
        try:
            piece = client.recv(65536)
            self.requests.append(piece.split(b"\r\n")[0].decode())
            while piece:
                server.sendall(piece)
                piece = client.recv(65536)
            server.shutdown(socket.SHUT_WR)  # Or the server waits for a next request.
        except OSError:
            pass


class JudgeCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.folder = self.scratch()

    def settings(self, server=None):
        return environment(AGENT_SANDBOX_URL=f"http://127.0.0.1:{(server or self.server).port}",
                           AGENT_SANDBOX_API_KEY=ADMIN_KEY)

    def file(self, name, *rows):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
        return path

    def judge(self, dataset, *words):
        return run("judge", "--dataset", dataset, *words, env=self.settings(), cwd=self.folder)

    def summary(self, dataset, *words):
        done = self.judge(dataset, "--json", *words)
        self.assert_ran(done)
        return json.loads(done.stdout)

    def started(self, *words, server=None):
        process = subprocess.Popen([BINARY, "judge", *words], env=self.settings(server), cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(), process.stderr.close()))
        return process

    def verdicts(self, path):
        with open(path) as file:
            return [json.loads(line) for line in file]


class Shapes(JudgeCase):
    def test_human_eval(self):
        told = self.summary(os.path.join(EXAMPLES, "human_eval_shaped.jsonl"))
        self.assertEqual((told["total"], told["tasks"], told["complete"], told["verdicts"]), (4, 4, True, {"accepted": 4}))
        self.assertEqual((told["pass_rate"], told["pass_at_1"], told["unsolved"]), (1, 1, 0))

    def test_solutions_of_others(self):
        out = os.path.join(self.folder, "verdicts.jsonl")
        told = self.summary(os.path.join(EXAMPLES, "human_eval_shaped.jsonl"), "--solutions",
                            os.path.join(EXAMPLES, "samples.jsonl"), "--out", out)
        self.assertEqual((told["total"], told["unsolved"], told["verdicts"]), (6, 2, {"accepted": 5, "runtime_error": 1}))
        self.assertAlmostEqual(told["pass_at_1"], (2 / 3 + 1) / 2)
        rows = {row["id"]: row for row in self.verdicts(out)}
        self.assertEqual(set(rows), {f"Own/{task}#{sample}" for task in (2, 3) for sample in (1, 2, 3)})
        wrong = rows["Own/2#2"]
        self.assertEqual((wrong["verdict"], wrong["task_id"]), ("runtime_error", "Own/2"))
        self.assertIn("AssertionError", wrong["stderr"])
        self.assertIn("usage", wrong)

    def test_mbpp(self):
        told = self.summary(os.path.join(EXAMPLES, "mbpp_shaped.jsonl"))
        self.assertEqual((told["total"], told["verdicts"]), (3, {"accepted": 3}))

    @needs("node", "gcc")
    def test_items(self):
        out = os.path.join(self.folder, "verdicts.jsonl")
        self.summary(os.path.join(EXAMPLES, "items.jsonl"), "--out", out)
        for row in self.verdicts(out):
            self.assertEqual(row["verdict"], row["id"].partition("-")[0], row)

    def test_limits_and_language_for_those_that_name_none(self):
        dataset = self.file("a.jsonl", {"id": "slow", "code": "sleep 20"},
                            {"id": "own", "code": "print('x')", "language": "python"})
        out = os.path.join(self.folder, "verdicts.jsonl")
        self.summary(dataset, "--language", "bash", "--wall", "0.5", "--out", out)
        self.assertEqual({row["id"]: row["verdict"] for row in self.verdicts(out)}, {"slow": "time_limit", "own": "accepted"})
        dataset = self.file("b.jsonl", {"id": "large", "code": "x = bytearray(200 << 20)\nx[:] = b'1' * len(x)"})
        told = self.summary(dataset, "--memory", "64")
        self.assertEqual(told["verdicts"], {"memory_limit": 1})

    def test_many_in_several_batches(self):
        dataset = self.file("many.jsonl", *({"id": f"n{i}", "language": "bash", "code": f"echo {i}",
                                             "expect": {"stdout": str(i)}} for i in range(40)))
        out = os.path.join(self.folder, "verdicts.jsonl")
        before = self.admin.expect(200, "GET", "/api/batch").json["batches"]
        told = self.summary(dataset, "--at-once", "16", "--out", out)
        self.assertEqual((told["total"], told["verdicts"]), (40, {"accepted": 40}))
        self.assertEqual(sorted(row["id"] for row in self.verdicts(out)), sorted(f"n{i}" for i in range(40)))
        after = self.admin.expect(200, "GET", "/api/batch").json["batches"]
        self.assertEqual(sorted(batch["total"] for batch in after[:len(after) - len(before)]), [8, 16, 16])


class Words(JudgeCase):
    def test_the_summary_for_people(self):
        done = self.judge(self.file("a.jsonl", {"id": "good", "code": "1"}, {"id": "bad", "code": "1 / 0"}))
        self.assert_ran(done)
        self.assertRegex(done.stdout.decode(), r"(?s)^VERDICT +COUNT +SHARE\naccepted +1 +50\.0 %\nruntime_error +1 +50\.0 %\n"
                                               r"\n50\.0 % of the programs passed; pass@1 over 2 tasks: 50\.0 %\n"
                                               r"2 of 2 verdicts in .*, [0-9.]+ a second\n$")
        self.assertNotIn(b"\033", done.stdout + done.stderr)

    def test_progress_on_a_terminal(self):
        dataset = self.file("a.jsonl", *({"id": str(i), "code": "sleep 0.3", "language": "bash"} for i in range(20)))
        session = Terminal("judge", "--dataset", dataset, env={**self.settings(), "TERM": "xterm"})
        session.expect(rb"\[#+ *\] \d+ of 20, [0-9.]+/s, .* left, \d+ accepted")
        session.expect(rb"20 of 20 verdicts")
        self.assertEqual(session.wait(), 0)

    def test_lines_that_are_wrong(self):
        good = {"id": "a", "code": "1"}
        for rows, words in (((good, "{"), (b"bad.jsonl:2: ",)), ((good, {"question": 1}), (b"bad.jsonl:2: ", b"HumanEval")),
                            ((good, good), (b"bad.jsonl:2: ", b"line 1")), ((), (b"holds no task",)),
                            ((good, {**good, "id": "b", "language": "cobol"}), (b"bad.jsonl:2: ", b"language")),
                            ((good, {**good, "id": "b", "surprise": 1}), (b"bad.jsonl:2: ", b"surprise")),
                            ((good, {**good, "id": "b", "limits": {"wall_s": -1}}), (b"bad.jsonl:2: ",))):
            done = self.judge(self.file("bad.jsonl", *rows))
            self.assertEqual(done.returncode, USAGE_ERROR, (rows, done.stderr))
            for word in words:
                self.assertIn(word, done.stderr)
            self.assertEqual(done.stdout, b"")

    def test_errors_as_json(self):
        done = self.judge(self.file("bad.jsonl", "{"), "--json")
        self.assertEqual(json.loads(done.stdout)["error"]["code"], "invalid")

    def test_what_cannot_be_read_or_written(self):
        self.assertEqual(self.judge("nowhere.jsonl").returncode, USAGE_ERROR)
        good = self.file("a.jsonl", {"id": "a", "code": "1"})
        self.assertEqual(self.judge(good, "--solutions", "nowhere.jsonl").returncode, USAGE_ERROR)
        self.assertNotEqual(self.judge(good, "--out", "/no/such/folder/x").returncode, 0)
        done = run("judge", "--dataset", good, env={**self.settings(), "AGENT_SANDBOX_URL": "http://127.0.0.1:9"}, timeout=30)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"agent-sandbox serve", done.stderr)

    def test_names_from_a_dataset_cannot_speak_to_the_terminal(self):
        done = self.judge(self.file("a.jsonl", {"id": "\x1b]0;owned\x07", "code": "1"}, {"id": "\x1b]0;owned\x07", "code": "1"}))
        self.assertEqual(done.returncode, USAGE_ERROR)
        self.assertNotIn(b"\x1b", done.stderr)


class Ends(JudgeCase):
    def slow(self, count=60, seconds=0.3):
        return self.file("slow.jsonl", *({"id": str(i), "code": f"sleep {seconds}", "language": "bash"} for i in range(count)))

    def batches(self, state):
        return [batch for batch in self.admin.expect(200, "GET", "/api/batch").json["batches"] if batch["state"] == state]

    def test_an_interrupt_cancels_and_tells_what_is_known(self):
        out = os.path.join(self.folder, "verdicts.jsonl")
        before = len(self.batches("cancelled"))
        process = self.started("--dataset", self.slow(400, 0.5), "--json", "--out", out)
        self.assertTrue(until(lambda: self.batches("running")))
        self.assertTrue(until(lambda: any(batch["done"] for batch in self.batches("running")), PATIENCE))
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 128 + signal.SIGINT)
        told = json.loads(stdout)
        self.assertEqual((told["total"], told["complete"]), (400, False))
        self.assertEqual(len(self.verdicts(out)), told["done"])
        self.assertEqual(len(self.batches("cancelled")), before + 1)
        self.assertEqual(self.batches("running"), [])

    def test_a_server_that_stops_and_comes_back(self):
        server = self.other_server("--stop-patience", "1s")
        process = self.started("--dataset", self.slow(), "--json", server=server)
        self.assertTrue(until(lambda: any(batch["done"] > 3 for batch in server.admin.expect(
            200, "GET", "/api/batch").json["batches"]), PATIENCE))
        port, storage = server.port, server.storage
        server.end_well()
        again = self.other_server("--stop-patience", "1s", port=port, storage=storage)
        stdout, stderr = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, stderr)
        told = json.loads(stdout)
        self.assertEqual((told["done"], told["verdicts"]), (60, {"accepted": 60}))
        self.assertTrue(again.admin.expect(200, "GET", "/api/batch").json["batches"])

    def test_a_batch_that_somebody_cancels(self):
        process = self.started("--dataset", self.slow(400, 0.5), "--json")
        self.assertTrue(until(lambda: any(batch["done"] for batch in self.batches("running")), PATIENCE))
        for batch in self.batches("running"):
            self.admin.expect(204, "DELETE", f"/api/batch/{batch['batch_id']}")
        stdout, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, PLATFORM_ERROR)
        told = json.loads(stdout)
        self.assertEqual((told["complete"], told["error"]["code"]), (False, "gone"))

    def test_a_connection_that_is_lost(self):
        before = len(self.admin.expect(200, "GET", "/api/batch").json["batches"])
        out = os.path.join(self.folder, "verdicts.jsonl")
        with CuttingProxy(self.server.address) as proxy:
            settings = {**self.settings(), "AGENT_SANDBOX_URL": f"http://127.0.0.1:{proxy.port}"}
            done = run("judge", "--dataset", self.slow(seconds=0.1), "--json", "--out", out, env=settings)
        self.assert_ran(done)
        told = json.loads(done.stdout)
        self.assertEqual((told["done"], told["verdicts"]), (60, {"accepted": 60}))
        self.assertEqual(sorted(int(row["id"]) for row in self.verdicts(out)), list(range(60)))
        # The batch went on meanwhile: it was neither sent again nor read from its beginning.
        self.assertEqual(len(self.admin.expect(200, "GET", "/api/batch").json["batches"]), before + 1)
        self.assertRegex(proxy.requests[0], r"^POST /api/batch ")
        found = re.match(r"GET /api/batch/\w+/verdicts\?from=(\d+) ", proxy.requests[1])
        self.assertTrue(0 < int(found[1]) < 60, proxy.requests)


if __name__ == "__main__":
    unittest.main()
