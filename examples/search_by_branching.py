#!/usr/bin/python3
"""Sorts a stack of pancakes by turning over its top, with a session for every state that is tried.

The first session prepares what every step needs: a table of how far small stacks are from sorted, which takes a while to
count. From then on each promising session is forked once for every turn there is; each child takes its own turn and says
how good its stack looks; the best go on, the others are removed. What it would have cost without branches is measured,
too: a fresh session that runs all cells again, once for every length of a way. AGENT_SANDBOX_URL and AGENT_SANDBOX_API_KEY say where the server is.

    search_by_branching.py [STACK]          such as 4,10,1,6,8,3,7,9,2,5
"""
import http.client
import json
import os
import sys
import time
import urllib.parse

BEST = 3  # that go on after each step
PREPARE = """
from collections import deque
def turned(stack, top): return stack[:top][::-1] + stack[top:]
def distances(size):
    "From every stack of so many pancakes to the sorted one."
    goal = tuple(range(1, size + 1))
    known, waiting = {goal: 0}, deque([goal])
    while waiting:
        stack = waiting.popleft()
        for top in range(2, size + 1):
            new = turned(stack, top)
            if new not in known:
                known[new] = known[stack] + 1
                waiting.append(new)
    return known
table = distances(min(8, SIZE))
def promise(stack):
    "Nothing if it is sorted; otherwise by neighbours that do not belong together, and by how far the small ones are."
    gaps = sum(abs(a - b) != 1 for a, b in zip(stack, stack[1:] + (len(stack) + 1,)))
    return gaps and 2 * gaps + table[tuple(one for one in stack if one <= 8)]
"""
TURN = "stack = turned(stack, {top}); print({top}, file=open('/workspace/way', 'a')); print(promise(stack))"


class Server:
    def __init__(self):
        self.url = urllib.parse.urlsplit(os.environ.get("AGENT_SANDBOX_URL", "http://127.0.0.1:8000"))
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        self.connection, self.key = kind(self.url.netloc), os.environ["AGENT_SANDBOX_API_KEY"]

    def ask(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        self.connection.request(method, "/api/sessions" + path, json.dumps(body) if body is not None else None, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            sys.exit(f"{answer.status}: {text.decode()}")
        return json.loads(text) if text else None


class Try:
    """A session, and how it came about."""

    def __init__(self, server, session, cells):
        self.server, self.session, self.cells = server, session, cells

    @classmethod
    def fresh(cls, server):
        return cls(server, server.ask("POST", "", {"ttl_s": 600})["session_id"], [])

    def run(self, code):
        self.cells = self.cells + [code]
        answer = self.server.ask("POST", f"/{self.session}/execute", {"code": code})
        if answer["error"]:
            sys.exit(answer["error"]["traceback"] if "traceback" in answer["error"] else str(answer["error"]))
        return answer["stdout"].strip()

    def fork(self, count):
        made = self.server.ask("POST", f"/{self.session}/fork", {"count": count})["sessions"]
        return [Try(self.server, one["session_id"], self.cells) for one in made]

    def remove(self):
        self.server.ask("DELETE", f"/{self.session}")


def search(first, size):
    """The session whose stack is sorted, and how many were tried after so many turns."""
    tried, going_on = [], [(int(first.run("print(promise(stack))")), first)]
    while going_on[0][0] > 0:
        if len(tried) == 2 * size:
            sys.exit("not found: more than the best few would have to go on")
        found = []
        for _, one in going_on:
            for top, child in enumerate(one.fork(size - 1), 2):
                found.append((int(child.run(TURN.format(top=top))), child))
        tried.append(len(found))
        found.sort(key=lambda pair: pair[0])
        for _, one in going_on + found[BEST:]:
            if one is not first:
                one.remove()
        going_on = found[:BEST]
    for _, one in going_on[1:]:
        one.remove()
    return going_on[0][1], tried


def seconds_again(server, cells):
    """How long a fresh session takes to get to the same state."""
    begun = time.monotonic()
    again = Try.fresh(server)
    for cell in cells:
        again.run(cell)
    took = time.monotonic() - begun
    again.remove()
    return took


def main(text="4,10,1,6,8,3,7,9,2,5"):
    stack = tuple(map(int, text.split(",")))
    if sorted(stack) != list(range(1, len(stack) + 1)) or len(stack) < 2:
        sys.exit("a stack is the numbers from 1 on, each once, in any order")
    server = Server()
    begun = time.monotonic()
    first = Try.fresh(server)
    first.run(PREPARE.replace("SIZE", str(len(stack))))
    first.run(f"stack = {stack}")
    prepared = time.monotonic() - begun
    found, tried = search(first, len(stack))
    took = time.monotonic() - begun
    way = found.run("print(*open('/workspace/way').read().split())").split() if tried else []
    print(f"{text}: sorted by turning over the top {', '.join(way) or 'nothing'}")
    print(f"{sum(tried)} states were tried, each in a session of its own, in {took:.2f} s; {prepared:.2f} s of it to prepare the first")
    setup = 3  # cells that come before the first turn
    again = sum(count * seconds_again(server, found.cells[:setup + turns]) for turns, count in enumerate(tried, 1))
    print(f"the same by running all cells again for each of them: {again:.2f} s, which is {again / took:.1f} times as long")
    for one in {found, first}:
        one.remove()


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    main(*sys.argv[1:])
