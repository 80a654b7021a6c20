"""The data plane through the published Python SDK: commands, terminals, files, watchers, code, errors.

Needs E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL, and e2b and e2b-code-interpreter where Python finds them.
`python data.py [part of a name …]` runs only the cases whose names have one of these.
"""
import asyncio
import base64
import hashlib
import importlib.metadata
import inspect
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import e2b
import e2b_code_interpreter

VERSION = importlib.metadata.version("e2b")
INTERPRETER = importlib.metadata.version("e2b-code-interpreter")
# Before 2.9 its address is https://49999-<sandbox>.<domain> and no other.
HAS_CODE = "sandbox_url" in inspect.getsource(e2b_code_interpreter.Sandbox)
Sandbox, AsyncSandbox = ((e2b_code_interpreter.Sandbox, e2b_code_interpreter.AsyncSandbox) if HAS_CODE
                         else (e2b.Sandbox, e2b.AsyncSandbox))
# Old ones have one class for everything that is not there.
SandboxGone = getattr(e2b, "SandboxNotRunningException", e2b.TimeoutException)
FileMissing = getattr(e2b, "FileNotFoundException", e2b.NotFoundException)

TELLS_END = hasattr(e2b, "SandboxNotRunningException")

CASES = []
LACKING = []
LOOP = asyncio.new_event_loop()  # One for all: old SDKs keep connections, which belong to a loop.


def case(function):
    CASES.append(function)
    return function


def case_if(can, what):
    """For SDKs that can do it; of others it is said that they cannot."""
    def take(function):
        if can:
            return case(function)
        LACKING.append((function.__name__, what))
        return function
    return take


code_case = case_if(HAS_CODE, f"way to lead e2b-code-interpreter {INTERPRETER} to a server")
git_case = case_if(hasattr(e2b.Sandbox, "git"), f"git in e2b {VERSION}")


def same(got, wanted):
    assert got == wanted, f"wanted {wanted!r}, got {got!r}"


def fails(kind, work, *args, **named):
    try:
        value = work(*args, **named)
    except kind as problem:
        return problem
    except Exception as problem:
        raise AssertionError(f"wanted {kind}, got {type(problem).__name__}: {problem}") from problem
    raise AssertionError(f"wanted {kind}, got {value!r}")


def until(check, what):
    for _ in range(200):
        if check():
            return
        time.sleep(0.05)
    raise AssertionError("never: " + what)


# ---- commands


@case
def run_output(box):
    done = box.commands.run("echo out; echo err >&2")
    same((done.exit_code, done.stdout, done.stderr), (0, "out\n", "err\n"))
    heard = []
    box.commands.run("echo ä; echo b", on_stdout=heard.append)
    same("".join(heard), "ä\nb\n")


@case
def run_failure(box):
    problem = fails(e2b.CommandExitException, box.commands.run, "echo no >&2; exit 7")
    same((problem.exit_code, problem.stderr), (7, "no\n"))


@case
def run_folder_user_variables(box):
    same(box.commands.run("pwd; whoami").stdout, "/home/user\nuser\n")
    same(box.commands.run("pwd; whoami", cwd="/tmp", user="root").stdout, "/tmp\nroot\n")
    same(box.commands.run("echo $A", envs={"A": "x y"}).stdout, "x y\n")
    assert "does not exist" in str(fails(e2b.InvalidArgumentException, box.commands.run, "pwd", cwd="/no/such"))
    fails(e2b.AuthenticationException, box.commands.run, "true", user="nobody-here")


@case
def run_timeout(box):
    fails(e2b.TimeoutException, box.commands.run, "sleep 30", timeout=1)
    until(lambda: box.commands.run("pgrep -c sleep || true").stdout == "0\n", "sleep is over")


@case
def background(box):
    handle = box.commands.run("echo one; sleep 30", background=True, timeout=0)
    assert handle.pid in [each.pid for each in box.commands.list()]
    handle.disconnect()
    again = box.commands.connect(handle.pid)
    assert again.kill()
    fails(e2b.CommandExitException, again.wait)
    assert not box.commands.kill(handle.pid)
    fails(e2b.NotFoundException, box.commands.connect, 999999)


@case
def reconnect(box):
    """Who comes back hears what was missed."""
    handle = box.commands.run("echo a; sleep 0.8; echo b; sleep 0.8; echo c", background=True)
    for out, _, _ in handle:
        same(out, "a\n")
        break
    handle.disconnect()
    time.sleep(1.1)
    heard = []
    done = box.commands.connect(handle.pid).wait(on_stdout=heard.append)
    same((done.exit_code, "".join(heard)), (0, "b\nc\n"))


@case
def variables_of_the_sandbox(_):
    other = Sandbox.create(timeout=60, envs={"OF_BOX": "box"})
    same(other.commands.run("echo $OF_BOX $E2B_SANDBOX $E2B_SANDBOX_ID").stdout, f"box true {other.sandbox_id}\n")
    assert other.kill()


@case
def stdin(box):
    handle = box.commands.run("read line; echo got $line", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "ä\n")
    same(handle.wait().stdout, "got ä\n")
    fails(e2b.NotFoundException, box.commands.send_stdin, 999999, "x")


@case_if(hasattr(e2b.sandbox_sync.commands.command.Commands, "close_stdin"), f"close_stdin in e2b {VERSION}")
def stdin_closed(box):
    handle = box.commands.run("cat; echo end", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "all\n")
    box.commands.close_stdin(handle.pid)
    same(handle.wait().stdout, "all\nend\n")


@case_if(hasattr(e2b.sandbox_sync.commands.command.Commands, "stream_input"), f"stream_input in e2b {VERSION}")
def stdin_streamed(box):
    handle = box.commands.run("head -n 100 | wc -lc", background=True, stdin=True)
    box.commands.stream_input(handle.pid, (f"{i:07}\n" for i in range(100)))
    same(handle.wait().stdout.split(), ["100", "800"])
    fails(e2b.NotFoundException, box.commands.stream_input, 999999, ["x"])


@case
def pty(box):
    handle = box.pty.create(e2b.PtySize(rows=24, cols=80), timeout=0)
    box.pty.resize(handle.pid, e2b.PtySize(rows=30, cols=90))
    box.pty.send_stdin(handle.pid, b"stty size; exit 0\n")
    seen = []
    handle.wait(on_pty=lambda data: seen.append(data.decode("utf-8", "replace")))
    assert "30 90" in "".join(seen), seen
    assert not box.pty.kill(handle.pid)


@case_if(hasattr(e2b.sandbox_sync.commands.pty.Pty, "connect"), f"pty.connect in e2b {VERSION}")
def pty_joined(box):
    first = box.pty.create(e2b.PtySize(rows=24, cols=80), timeout=0)
    box.pty.send_stdin(first.pid, b"kept=yes\n")
    first.disconnect()
    second = box.pty.connect(first.pid, timeout=30)
    box.pty.send_stdin(first.pid, b'echo "[$kept]"; exit 4\n')
    seen = []
    problem = fails(e2b.CommandExitException, second.wait, on_pty=lambda data: seen.append(data.decode("utf-8", "replace")))
    same(problem.exit_code, 4)
    assert "[yes]" in "".join(seen), seen
    fails(e2b.NotFoundException if TELLS_END else Exception, box.pty.resize, first.pid, e2b.PtySize(rows=1, cols=1))


# ---- files


@case
def files_round(box):
    same(box.files.write("a.txt", "grüße").path, "/home/user/a.txt")
    same(box.files.read("a.txt"), "grüße")
    data = bytes(range(256)) * 500
    box.files.write("b.bin", data)
    same(bytes(box.files.read("b.bin", format="bytes")), data)
    same(b"".join(box.files.read("b.bin", format="stream")), data)
    box.files.write("empty", "")
    same(box.files.read("empty"), "")
    written = box.files.write_files([{"path": "m/1.txt", "data": "1"}, {"path": "m/2.txt", "data": "2"}])
    same([each.path for each in written], ["/home/user/m/1.txt", "/home/user/m/2.txt"])


@case
def files_of_root(box):
    box.files.write("/0/x.txt", "mine")
    same(box.commands.run("stat -c %U /0 /0/x.txt").stdout, "user\nuser\n")


@case
def files_errors(box):
    fails(FileMissing, box.files.read, "/no/such")
    fails(FileMissing, box.files.get_info, "/no/such")
    fails(e2b.AuthenticationException, box.files.read, "a.txt", user="nobody-here")
    fails(e2b.InvalidArgumentException, box.files.read, "/tmp")
    fails(e2b.NotFoundException, box.files.list, "/no/such")
    fails(e2b.NotFoundException, box.files.rename, "/no/such", "/x")
    fails(e2b.InvalidArgumentException, box.files.list, "/etc/passwd")


@case
def files_told(box):
    assert box.files.make_dir("d/e")
    assert not box.files.make_dir("d/e")
    box.files.write("d/f.txt", "12345")
    info = box.files.get_info("d/f.txt")
    same((info.name, info.type, info.size, info.mode, info.permissions, info.owner, info.group),
         ("f.txt", e2b.FileType.FILE, 5, 0o644, "-rw-r--r--", "user", "user"))
    same([each.name for each in box.files.list("d", depth=2)], ["e", "f.txt"])
    same(box.files.rename("d/f.txt", "d/g.txt").path, "/home/user/d/g.txt")
    assert box.files.exists("d/g.txt") and not box.files.exists("d/f.txt")
    box.files.remove("d")
    assert not box.files.exists("d")


@case
def files_signed(box):
    box.files.write("signed.txt", "by address")
    with urllib.request.urlopen(box.download_url("signed.txt")) as answer:
        same(answer.read(), b"by address")
    with urllib.request.urlopen(box.download_url("signed.txt", use_signature_expiration=100)) as answer:
        same(answer.read(), b"by address")
    problem = fails(urllib.error.HTTPError, urllib.request.urlopen, box.download_url("signed.txt", use_signature_expiration=-10))
    same(problem.code, 401)


@case
def files_large(_):
    """500 MB up and down, and more than there is room for."""
    large = Sandbox.create(timeout=300)
    block = hashlib.sha256(b"x").digest() * 31250  # a megabyte
    with tempfile.TemporaryFile() as source:
        sent = hashlib.sha256()
        for _ in range(500):
            source.write(block)
            sent.update(block)
        source.seek(0)
        large.files.write("/tmp/large.bin", source, request_timeout=300)
        same(large.files.get_info("/tmp/large.bin").size, 500_000_000)
        got = hashlib.sha256()
        for piece in large.files.read("/tmp/large.bin", format="stream", request_timeout=300):
            got.update(piece)
        same(got.hexdigest(), sent.hexdigest())
        source.seek(0)
        fails(e2b.NotEnoughSpaceException, large.files.write, "/tmp/too-large.bin", source, request_timeout=300)
    large.kill()


@case_if("metadata" in inspect.signature(e2b.sandbox_sync.filesystem.filesystem.Filesystem.write).parameters, f"metadata of files in e2b {VERSION}")
def files_metadata(box):
    same(box.files.write("meta.txt", "x", metadata={"author": "me"}).metadata, {"author": "me"})
    same(box.files.get_info("meta.txt").metadata, {"author": "me"})


@case
def watcher(box):
    box.files.make_dir("w")
    handle = box.files.watch_dir("w", recursive=True)
    box.files.write("w/n.txt", "1")
    box.files.make_dir("w/sub")
    time.sleep(0.3)
    box.files.write("w/sub/m.txt", "2")
    box.files.remove("w/n.txt")
    seen = []

    def complete():
        seen.extend((each.type, each.name) for each in handle.get_new_events())
        kinds = e2b.FilesystemEventType
        return {(kinds.CREATE, "n.txt"), (kinds.WRITE, "n.txt"), (kinds.REMOVE, "n.txt"), (kinds.CREATE, "sub"),
                (kinds.WRITE, "sub/m.txt")} <= set(seen)
    until(complete, f"all of them in {seen}")
    handle.stop()
    fails(e2b.SandboxException, handle.get_new_events)
    fails(e2b.NotFoundException, box.files.watch_dir, "/no/such")


# ---- code


@code_case
def code(box):
    box.run_code("x = 41")
    done = box.run_code("x + 1")
    same((done.text, done.error), ("42", None))
    done = box.run_code("print('ä€')\n1 / 0")
    same(("".join(done.logs.stdout), done.error.name), ("ä€\n", "ZeroDivisionError"))
    lines = []
    box.run_code("print('a'); print('b')", on_stdout=lambda message: lines.append(message.line))
    same("".join(lines), "a\nb\n")
    same(box.run_code("[1, 2]").results[0].json, [1, 2])
    same(box.run_code("echo $V", language="bash", envs={"V": "v"}).logs.stdout, ["v\n"])
    same(box.run_code("6 * 7", language="js").text, "42")


@code_case
def code_chart(box):
    drawn = box.run_code("import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2])\nplt.show()")
    assert not drawn.error, drawn.error
    same(base64.b64decode(drawn.results[0].png)[1:4], b"PNG")
    same([(each.label, each.value) for each in drawn.results[0].chart.elements], [("a", 1.0), ("b", 2.0)])


@code_case
def code_contexts(box):
    languages = [each.language for each in box.list_code_contexts()]
    assert "python" in languages and "javascript" in languages, languages
    context = box.create_code_context(cwd="/tmp")
    box.run_code("y = 1", context=context)
    same(box.run_code("y", context=context).text, "1")
    box.restart_code_context(context)
    same(box.run_code("y", context=context).error.name, "NameError")
    box.remove_code_context(context)
    assert context.id not in [each.id for each in box.list_code_contexts()]


@code_case
def code_interrupted(box):
    fails(e2b.TimeoutException, box.run_code, "import time\nwhile True: time.sleep(0.1)", timeout=1)
    began = time.monotonic()
    same(box.run_code("1 + 1").text, "2")
    assert time.monotonic() - began < 5


# ---- the other kind of client, and ends


@git_case
def git(box):
    box.commands.run("rm -rf /tmp/git && mkdir -p /tmp/git && git init -q --bare -b main /tmp/git/r.git && git daemon --reuseaddr"
                     " --base-path=/tmp/git --export-all --enable=receive-pack --detach --listen=127.0.0.1 --port=9418")
    box.git.clone("git://127.0.0.1/r.git", path="/home/user/r")
    box.git.configure_user("Me", "me@example.org")
    box.files.write("r/f.txt", "tracked")
    box.git.add("/home/user/r")
    box.git.commit("/home/user/r", "first")
    assert box.git.status("/home/user/r").is_clean
    box.git.push("/home/user/r", remote="origin", branch="main")
    same(box.commands.run("git -C /tmp/git/r.git log --format=%s main").stdout, "first\n")
    box.git.clone("git://127.0.0.1/r.git", path="/home/user/other")
    box.commands.run("cd r && echo more > g.txt")
    box.git.add("/home/user/r")
    box.git.commit("/home/user/r", "second", author_name="You", author_email="you@example.org")
    box.git.push("/home/user/r", remote="origin", branch="main")
    box.git.pull("/home/user/other")
    same(box.files.read("other/g.txt"), "more\n")
    box.git.create_branch("/home/user/r", "alone")
    same(sorted(box.git.branches("/home/user/r").branches), ["alone", "main"])
    fails(e2b.GitUpstreamException, box.git.push, "/home/user/r", set_upstream=False)
    fails(e2b.GitUpstreamException, box.git.pull, "/home/user/r")


PRIVATE = """
import http.server
class Private(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.send_header('WWW-Authenticate', 'Basic realm="private"')
        self.send_header('Content-Length', '0')
        self.end_headers()
http.server.HTTPServer(('127.0.0.1', 9419), Private).serve_forever()
"""


@git_case
def git_password(box):
    box.files.write("/tmp/private.py", PRIVATE)
    server = box.commands.run("python3 /tmp/private.py", background=True, timeout=0)
    asked = "curl -s -o /dev/null -w %{http_code} http://127.0.0.1:9419/ || true"
    until(lambda: box.commands.run(asked).stdout == "401", "the server")
    fails(e2b.GitAuthException, box.git.clone, "http://127.0.0.1:9419/private.git", path="/home/user/never")
    fails(e2b.InvalidArgumentException, box.git.clone, "http://127.0.0.1:9419/private.git", path="/home/user/never", password="alone")
    server.kill()


# ---- the other kind of client


async def settles(check, what):
    for _ in range(200):
        if check():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("never: " + what)


async def async_fails(kind, work):
    try:
        value = await work
    except kind as problem:
        return problem
    raise AssertionError(f"wanted {kind}, got {value!r}")


@case
def async_commands(_):
    async def work():
        box = await AsyncSandbox.create(timeout=120, envs={"A": "b"})
        assert await box.is_running()
        same((await box.commands.run("echo $A; echo e >&2")).stdout, "b\n")
        all_of_them = await asyncio.gather(*(box.commands.run(f"echo {i}") for i in range(20)))
        same([each.stdout for each in all_of_them], [f"{i}\n" for i in range(20)])
        same((await async_fails(e2b.CommandExitException, box.commands.run("exit 3"))).exit_code, 3)
        # It says something now and then: old SDKs stop reading at the same moment as the server ends it.
        await async_fails(e2b.TimeoutException, box.commands.run("while sleep 0.3; do echo x; done", timeout=1))
        await async_fails(e2b.InvalidArgumentException, box.commands.run("pwd", cwd="/no/such"))
        heard = []
        handle = await box.commands.run("read x; echo got $x; sleep 30", background=True, stdin=True, on_stdout=heard.append, timeout=0)
        await box.commands.send_stdin(handle.pid, "it\n")
        await settles(lambda: heard == ["got it\n"], f"the line in {heard}")
        assert handle.pid in [each.pid for each in await box.commands.list()]
        again = await box.commands.connect(handle.pid)
        assert await again.kill()
        await async_fails(e2b.CommandExitException, again.wait())
        assert not await box.commands.kill(handle.pid)
        assert await box.kill()
        assert not await box.is_running()
        await async_fails((SandboxGone, e2b.SandboxException), box.commands.run("true"))
    LOOP.run_until_complete(work())


@case
def async_files(box):
    async def work():
        other = await AsyncSandbox.connect(box.sandbox_id)
        await other.files.make_dir("af/deep")
        await other.files.write("af/x", "grüße")
        same(await other.files.read("af/x"), "grüße")
        data = bytes(range(256)) * 5000
        await other.files.write("af/b", data)
        same(b"".join([piece async for piece in await other.files.read("af/b", format="stream")]), data)
        same([each.name for each in await other.files.list("af")], ["b", "deep", "x"])
        same((await other.files.rename("af/x", "af/y")).path, "/home/user/af/y")
        assert await other.files.exists("af/y") and not await other.files.exists("af/x")
        await async_fails(FileMissing, other.files.read("/no/such"))
        events = []
        handle = await other.files.watch_dir("af", events.append, recursive=True)
        await other.files.make_dir("af/later")
        await asyncio.sleep(0.3)
        await other.files.write("af/later/z", "1")
        await settles(lambda: any(each.name == "later/z" for each in events), f"the file below in {events}")
        await handle.stop()
        await other.files.remove("af")
        assert not await other.files.exists("af")
    LOOP.run_until_complete(work())


@case
def async_pty(box):
    async def work():
        other = await AsyncSandbox.connect(box.sandbox_id)
        screen = []
        handle = await other.pty.create(e2b.PtySize(rows=24, cols=80), on_data=lambda data: screen.append(bytes(data)), timeout=0)
        await other.pty.resize(handle.pid, e2b.PtySize(rows=40, cols=100))
        await other.pty.send_stdin(handle.pid, b"stty size\n")
        await settles(lambda: b"40 100" in b"".join(screen), f"the size in {screen}")
        assert await other.pty.kill(handle.pid)
        await async_fails(e2b.CommandExitException, handle.wait())
    LOOP.run_until_complete(work())


@code_case
def async_code(box):
    async def work():
        other = await AsyncSandbox.connect(box.sandbox_id)
        same((await other.run_code("40 + 2")).text, "42")
        context = await other.create_code_context(language="python")
        same((await other.run_code("z = 1; z", context=context)).text, "1")
        await other.remove_code_context(context)
    LOOP.run_until_complete(work())


# ---- ends


@case
def ended_while_running(_):
    doomed = Sandbox.create(timeout=60)
    threading.Timer(1, doomed.kill).start()
    began = time.monotonic()
    problem = fails(e2b.SandboxNotRunningException if TELLS_END else Exception, doomed.commands.run, "sleep 60")
    assert time.monotonic() - began < 20
    if TELLS_END:  # Old SDKs pass on what their HTTP client says of a connection that broke off.
        assert "end of life" in str(problem), repr(problem)
    assert not doomed.is_running()


@case
def ended(_):
    doomed = Sandbox.create(timeout=60)
    assert doomed.is_running()
    doomed.kill()
    assert not doomed.is_running()
    fails((e2b.NotFoundException, e2b.TimeoutException), doomed.commands.run, "true")
    fails(SandboxGone, doomed.commands.list)
    fails(SandboxGone, doomed.files.read, "a.txt")
    fails(SandboxGone, doomed.files.list, "/")


@code_case
def ended_while_code_runs(_):
    doomed = Sandbox.create(timeout=60)
    threading.Timer(1, doomed.kill).start()
    began = time.monotonic()
    fails(Exception, doomed.run_code, "import time; time.sleep(60)")
    assert time.monotonic() - began < 20
    fails(e2b.SandboxException, doomed.run_code, "1")


@case
def paused(_):
    other = Sandbox.create(timeout=60)
    other.files.write("kept.txt", "kept")
    (getattr(other, "pause", None) or other.beta_pause)()
    assert not other.is_running()
    again = Sandbox.connect(other.sandbox_id)
    assert again.is_running()
    same(again.files.read("kept.txt"), "kept")
    assert again.kill()


def main():
    wanted, failed, count = sys.argv[1:], 0, 0
    box = Sandbox.create(timeout=600)
    for each in CASES:
        if wanted and not any(part in each.__name__ for part in wanted):
            continue
        began, count = time.monotonic(), count + 1
        try:
            each(box)
            print(f"ok    {each.__name__} ({(time.monotonic() - began) * 1000:.0f} ms)", flush=True)
        except Exception as problem:  # noqa: BLE001  every kind of failure is one line
            failed += 1
            print(f"FAIL  {each.__name__}: {type(problem).__name__}: {problem}", flush=True)
    box.kill()
    for name, what in LACKING:
        if not wanted or any(part in name for part in wanted):
            print(f"skip  {name}: there is no {what}")
    print(f"{count - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
