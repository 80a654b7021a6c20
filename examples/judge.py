#!/usr/bin/python3
"""Judges programs with a running server: judge.py TESTS PROGRAM…

TESTS is a folder with pairs of files, NAME.in and NAME.out. Each program is run with each input, in a sandbox of its own,
and a line is printed for each verdict as it is reached. AGENT_SANDBOX_URL and AGENT_SANDBOX_API_KEY say where the server is.
"""
import http.client
import json
import os
import pathlib
import sys
import urllib.parse

LANGUAGES = {".py": "python", ".js": "javascript", ".sh": "bash", ".c": "c", ".cpp": "cpp"}


class Server:
    def __init__(self):
        self.url = urllib.parse.urlsplit(os.environ.get("AGENT_SANDBOX_URL", "http://127.0.0.1:8000"))
        self.key = os.environ["AGENT_SANDBOX_API_KEY"]

    def ask(self, method, path, body=None):
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.netloc)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"{answer.status}: {answer.read().decode()}")
        return answer

    def verdicts(self, items):
        """Each verdict once, over as many connections as it takes."""
        answer = self.ask("POST", "/api/batch", {"items": items})
        batch, seen = answer.headers["Batch-Id"], 0
        while seen < len(items):
            try:
                for line in answer:
                    seen += 1
                    yield json.loads(line)
            except (OSError, http.client.HTTPException):
                answer = self.ask("GET", f"/api/batch/{batch}/verdicts?from={seen}")
                continue
            break


def main(tests, *programs):
    items = []
    for program in map(pathlib.Path, programs):
        for given in sorted(pathlib.Path(tests).glob("*.in")):
            items.append({"id": f"{program.name} {given.stem}", "language": LANGUAGES[program.suffix],
                          "code": program.read_text(), "stdin": given.read_text(),
                          "expect": {"stdout": given.with_suffix(".out").read_text()}})
    good = True
    for verdict in Server().verdicts(items):
        good = good and verdict["verdict"] == "accepted"
        print(verdict["id"], verdict["verdict"], verdict.get("reason", ""), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 2 else __doc__)
