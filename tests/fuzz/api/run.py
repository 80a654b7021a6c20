#!/usr/bin/python3
"""Lets schemathesis make requests up from the server's own /openapi.json: no answer may be a failure of the server, or
other than the document says.

    tests/fuzz/api/run.py PROGRAM SCHEMATHESIS [seconds]
"""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

KEY = "key-of-the-fuzzing"
CHECKS = ("not_a_server_error,content_type_conformance,response_schema_conformance,status_code_conformance,"
          "unsupported_method,negative_data_rejection")
# Streams have no end, and archives no schema.
LEFT_OUT = "/stream|/watch|/files/archive"
SETTINGS = """
parameters = {{ "path.id" = "{session}", "path.command" = "{command}", "path.volume" = "data" }}

[[operations]]
include-operation-id-regex = "^(deleteSession|pauseSession|compatCleanup)$"
parameters = {{ "path.id" = "0000000000000000000000000000000" }}
"""


def call(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def made(port, path, body):
    status, data = call(port, "POST", path, body)
    if status not in (201, 202):
        sys.exit(f"POST {path}: {status} {data[:300]!r}")
    return json.loads(data)


def fuzz(schemathesis, port, folder, seconds):
    session = made(port, "/api/sessions", {"ttl_s": 0, "network": {"mode": "none"}})["session_id"]
    command = made(port, f"/api/sessions/{session}/commands", {"command": "cat", "stdin_open": True, "background": True})
    made(port, "/api/volumes", {"name": "data", "size": "16M"})
    settings = folder / "schemathesis.toml"
    settings.write_text(SETTINGS.format(session=session, command=command["command_id"]))
    done = subprocess.run(
        [schemathesis, "--config-file", settings, "run", f"http://127.0.0.1:{port}/openapi.json",
         "-H", f"Authorization: Bearer {KEY}", "--checks", CHECKS, "--exclude-path-regex", LEFT_OUT,
         "--request-timeout", "30", "--max-time", str(seconds), "--suppress-health-check", "all", "--no-shrink",
         "--warnings", "off", "--continue-on-failure"], cwd=folder)
    return done.returncode == 0


def main():
    program, schemathesis = (os.path.abspath(path) for path in sys.argv[1:3])
    seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    with tempfile.TemporaryDirectory(prefix="agent-sandbox-fuzz-") as scratch:
        folder = pathlib.Path(scratch)
        with open(folder / "log", "wb") as log:
            server = subprocess.Popen(
                [program, "serve", "--listen", "127.0.0.1:0", "--storage", folder / "storage", "--rate-per-key", "0",
                 "--rate-per-address", "0", "--log-level", "warning"],
                env={**os.environ, "AGENT_SANDBOX_ADMIN_KEY": KEY, "HOME": scratch}, cwd=folder,
                stdout=subprocess.PIPE, stderr=log)
        try:
            port = int(re.search(rb":([0-9]+)\n", server.stdout.readline())[1])
            while call(port, "GET", "/ready")[0] != 200:
                time.sleep(0.1)
            well = fuzz(schemathesis, port, folder, seconds)
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(60)
        if code != 0:
            # A sanitizer's report is long, and its beginning tells most.
            text = (folder / "log").read_text(errors="replace")
            report = text.find("==ERROR")
            print(text[report:][:12000] if report >= 0 else text[-4000:])
    sys.exit(0 if well and code == 0 else f"failed; the server ended with {code}")


if __name__ == "__main__":
    main()
