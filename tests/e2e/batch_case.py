"""Batches as tests send them: items, somebody who reads verdicts as they come, and what every answer must look like."""
import json

from harness import PATIENCE
from http_harness import HttpCase
from http_raw import request
from http_schema import check

HELLO = {
    "python": "print('hello', input())",
    "javascript": "console.log('hello', require('fs').readFileSync(0, 'utf8').trim())",
    "bash": "read -r name; echo hello $name",
    "c": '#include <stdio.h>\nint main(void) { char name[9]; return scanf("%8s", name) != 1 || printf("hello %s\\n", name) < 0; }',
    "cpp": "#include <iostream>\nint main() { std::string name; std::cin >> name; std::cout << \"hello \" << name << '\\n'; }",
}
ENDLESS = "import time\ntime.sleep(300)"
PATIENT = {"wall_s": 300}


def item(id, code, language="python", **more):
    return {"id": id, "code": code, "language": language, **more}


def sleepers(count, seconds=300, **more):
    """Programs that the machine shows as sleep."""
    return [item(f"s{number}", f"exec sleep {seconds}", "bash", limits=PATIENT, **more) for number in range(count)]


class Following:
    """Somebody who reads verdicts as they come."""

    def __init__(self, client, method, target, body=None, room=None, timeout=PATIENCE):
        self.connection = client.server.connect(timeout, room=room)
        headers = client.headers([("Content-Type", "application/json")] if body is not None else [])
        self.connection.send(request(method, target, headers, json.dumps(body).encode() if body is not None else b""))
        self.answer = self.connection.read_head()
        assert self.answer.status == 200, self.answer
        self.batch = "/api/batch/" + self.answer.header("batch-id")
        self._rest = b""

    def next(self):
        """The next verdict; None when all have come."""
        while b"\n" not in self._rest:
            chunk = self.connection.read_chunk()
            if not chunk:
                assert not self._rest, "a line without an end"
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def rest(self):
        return list(iter(self.next, None))

    def drop(self):
        self.connection.reset()


class BatchCase(HttpCase):
    def lines(self, answer):
        """The verdicts of an answer, each as it is described, numbered without a gap."""
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(answer.header("content-type"), "application/x-ndjson")
        verdicts = [json.loads(line) for line in answer.body.splitlines()]
        for verdict in verdicts:
            check(verdict, {"$ref": "#/components/schemas/BatchVerdict"}, self.server.contract.document)
        return verdicts

    def judge(self, *items, client=None):
        """Verdicts by id; there is one for each item."""
        client = client or self.admin
        answer = client.post("/api/batch", {"items": list(items)})
        verdicts = self.lines(answer)
        self.assertEqual([verdict["number"] for verdict in verdicts], list(range(len(items))))
        self.assertEqual(sorted(verdict["id"] for verdict in verdicts), sorted(each["id"] for each in items))
        return {verdict["id"]: verdict for verdict in verdicts}

    def judge_one(self, code, language="python", **more):
        return self.judge(item("one", code, language, **more))["one"]

    def follow(self, client, method, target, body=None, **more):
        following = Following(client, method, target, body, **more)
        self.addCleanup(following.connection.close)
        return following

    def assert_verdict(self, expected, verdict):
        self.assertEqual(verdict["verdict"], expected, verdict)

    def submit(self, items, client=None, **more):
        """A batch that nobody reads: its address."""
        answer = (client or self.admin).expect(202, "POST", "/api/batch", {"items": items, "background": True}, **more)
        batch = "/api/batch/" + answer.json["batch_id"]
        self.addCleanup(self.admin.delete, batch)
        return batch

    def metric(self, name, server=None, **labels):
        text = (server or self.server).admin.expect(200, "GET", "/metrics").body.decode()
        wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
        for line in text.splitlines():
            if line.startswith(wanted + " "):
                return float(line.rpartition(" ")[2])
        return 0.0
