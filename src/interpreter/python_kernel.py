"""The Python side of an interpreter: runs cells in one namespace and tells what they gave.

Speaks the protocol of docs/kernels.md on descriptor 0: requests come as a line "<op> <id> <length>" and that many bytes,
answers go as one JSON object per line. What programs print goes to descriptors 1 and 2 as always. How values are shown is
in python_values.py, which is run in the same namespace before prepare() is called.

Runs in the same process as the program, which can do to it what it likes: whoever reads the answers believes nothing.
"""
import sys

# What lies in the workspace is for programs to import, not for us; prepare() gives it its place back.
sys.path[:] = [place for place in sys.path if place]

import ast
import asyncio
import base64
import builtins
import importlib.util
import inspect
import json
import linecache
import os
import re
import signal
import socket
import subprocess
import time
import traceback
import types

MOST_FILES = 200  # that a cell made and are named in its answer
MOST_ENTRIES = 20_000  # of the workspace that are looked at
MOST_OF_A_CELL = 48 << 20


class Channel:
    """To whoever asked for the cells. Nothing here depends on what the program may replace in other modules."""

    def __init__(self, descriptor):
        # Out of the way of programs, and closed in those they start.
        self.descriptor = os.dup(descriptor)
        self.reader = os.fdopen(self.descriptor, "rb", 65536, closefd=False)
        self.encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode
        self.process = os.getpid
        self.owner = os.getpid()
        self.write = os.write

    def move(self, descriptor):
        """Goes on with another one, in another process."""
        os.dup2(descriptor, self.descriptor, inheritable=False)
        self.owner = os.getpid()

    def is_ours(self):
        """Not in a child of the program: what that has to say it prints."""
        return self.process() == self.owner

    def say(self, event, **fields):
        if not self.is_ours():
            return
        data = (self.encode({"event": event, **fields}) + "\n").encode("utf-8", "replace")
        while data:
            data = data[self.write(self.descriptor, data):]

    def hear(self):
        """The next request, or nothing when the other side is gone."""
        line = self.reader.readline(200)
        if not line:
            return None
        op, number, length = line.split()
        return op.decode(), int(number), self.reader.read(int(length))


class Cell:
    """What runs now: where its displays belong."""

    def __init__(self, number):
        self.number = number
        self.room = MOST_OF_A_CELL


# ---- lines that are not Python


MAGIC = re.compile(r"^(\s*)(?:([A-Za-z_]\w*)\s*=\s*)?([!%])(?!=)\s*(\S.*)$")


def python_of(source):
    """Cells may hold lines that begin with ! or %: they become calls. Others are left alone, strings included."""
    first, _, rest = source.lstrip("\n").partition("\n")
    if first.startswith("%%"):
        return f"__cell_magic__({first[2:].strip()!r}, {rest!r})\n"
    try:
        ast.parse(source)
        return source  # All of it is Python, whatever its lines begin with.
    except SyntaxError:
        pass
    lines = source.split("\n")
    for number, line in enumerate(lines):
        found = MAGIC.match(line)
        if not found:
            continue
        indent, name, kind, what = found.groups()
        call = f"__shell__({what!r}, {bool(name)})" if kind == "!" else f"__magic__({what!r})"
        lines[number] = indent + (f"{name} = " if name else "") + call
    return "\n".join(lines)


class Lines(list):
    """What `x = !command` gives."""

    @property
    def s(self):
        return " ".join(self)

    @property
    def n(self):
        return "\n".join(self)


class WhenImported:
    """Does something to a module when the program imports it, and costs nothing if it never does."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_more(module):
            execute(module)
            self.then(module)
        spec.loader.exec_module = execute_and_more
        return spec


class Kernel:
    def __init__(self, channel):
        self.channel = channel
        self.main = types.ModuleType("__main__")
        self.main.__dict__.update(__builtins__=builtins, display=self.display, __shell__=self.shell,
                                  __magic__=self.magic, __cell_magic__=self.cell_magic, In=[""], Out={})
        sys.modules["__main__"] = self.main
        self.count = 0
        self.cell = None
        self.told = {}  # files that were named before, and when they had changed
        self.loop = None
        self.workspace = os.environ.get("AGENT_SANDBOX_WORKSPACE", "/workspace")
        self.replaced = builtins.input
        builtins.input = self.input
        builtins.display = self.display
        sys.displayhook = self.displayhook
        os.environ.setdefault("MPLBACKEND", "agg")
        self.hook = WhenImported("matplotlib.pyplot", self.take_over_pyplot)
        sys.meta_path.insert(0, self.hook)

    def step_aside(self):
        """Leaves the process to a program that knows nothing of cells."""
        builtins.input, sys.displayhook = self.replaced, sys.__displayhook__
        del builtins.display
        sys.path.remove("")
        if self.hook in sys.meta_path:
            sys.meta_path.remove(self.hook)

    # ---- what programs call

    def display(self, *values, **unused):
        for value in values:
            self.show(bundle_of(value), False)

    def show(self, bundle, main):
        self.flush()
        cell = self.cell
        if cell:
            bundle, size = fitting(bundle, cell.room)
            cell.room -= size
            self.channel.say("result", id=cell.number, main=main, data=bundle)

    def displayhook(self, value):
        if value is None:
            return
        space = self.main.__dict__
        space["___"], space["__"], space["_"] = space.get("__"), space.get("_"), value
        space[f"_{self.count}"] = space["Out"][self.count] = value
        if self.is_shown_figure(value):
            return
        self.show(bundle_of(value), True)

    def input(self, prompt="", password=False):
        self.flush()
        if not self.cell or not self.channel.is_ours():
            raise EOFError("nobody is there to answer")
        self.channel.say("input", id=self.cell.number, prompt=str(prompt), password=password)
        heard = self.channel.hear()
        if heard is None or heard[0] != "input":
            raise EOFError("nobody is there to answer")
        return heard[2].decode("utf-8", "replace")

    def shell(self, command, wanted=False):
        self.flush()
        # {name} and $name are filled from the program's own variables, as notebooks do.
        space = self.main.__dict__
        command = re.sub(r"\{([A-Za-z_]\w*)\}", lambda m: str(space[m[1]]) if m[1] in space else m[0], command)
        done = subprocess.run(["/bin/bash", "-c", command] if os.path.exists("/bin/bash") else ["/bin/sh", "-c", command],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if wanted else None, check=False)
        space["_exit_code"] = done.returncode
        return Lines(done.stdout.decode("utf-8", "replace").splitlines()) if wanted else None

    def magic(self, line):
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        if name in ("pip", "conda"):
            self.flush()
            import shlex
            import site
            # Distributions guard their own folders against pip; here it breaks nothing but this session's.
            done = subprocess.run([sys.executable, "-m", "pip", *shlex.split(rest)], stdin=subprocess.DEVNULL, check=False,
                                  env={**os.environ, "PIP_BREAK_SYSTEM_PACKAGES": "1"})
            if os.path.isdir(site.getusersitepackages()) and site.getusersitepackages() not in sys.path:
                site.addsitedir(site.getusersitepackages())  # It is new.
            importlib.invalidate_caches()
            if done.returncode:
                raise RuntimeError(f"pip ended with {done.returncode}")
        elif name == "cd":
            os.chdir(os.path.expanduser(rest or "~"))
        elif name == "pwd":
            return os.getcwd()
        elif name == "env":
            key, found, value = rest.partition("=")
            if not rest:
                return dict(os.environ)
            if not found:
                return os.environ.get(key)
            os.environ[key.strip()] = value.strip()
        elif name == "time":
            began, cpu = time.perf_counter(), time.process_time()
            value = eval(rest, self.main.__dict__) if self.is_expression(rest) else exec(rest, self.main.__dict__)
            print(f"CPU time: {time.process_time() - cpu:.6f} s, wall time: {time.perf_counter() - began:.6f} s")
            return value
        elif name == "timeit":
            import timeit
            timer = timeit.Timer(rest, globals=self.main.__dict__)
            number, took = timer.autorange()
            print(f"{took / number * 1e6:.3f} µs per loop ({number} loops)")
        elif name in ("who", "whos"):
            hidden = ("In", "Out", "display", "exit", "quit")
            print("\t".join(n for n in self.main.__dict__ if not n.startswith("_") and n not in hidden))
        elif name == "run":
            import runpy
            self.main.__dict__.update(runpy.run_path(rest))
        elif name in ("matplotlib", "config", "load_ext", "autoreload", "precision"):
            pass  # Said to notebooks out of habit; here figures are shown anyway.
        else:
            raise NameError(f"there is no magic %{name}")
        return None

    def cell_magic(self, line, body):
        name, _, rest = line.partition(" ")
        if name in ("bash", "sh"):
            self.flush()
            done = subprocess.run(["/bin/" + name, "-s"], input=body.encode(), check=False)
            if done.returncode:
                raise subprocess.CalledProcessError(done.returncode, name)
        elif name == "writefile":
            with open(os.path.expanduser(rest.strip()), "w", encoding="utf-8") as file:
                file.write(body)
        elif name in ("time", "capture"):
            began = time.perf_counter()
            exec(compile(body, "<cell>", "exec"), self.main.__dict__)
            print(f"wall time: {time.perf_counter() - began:.6f} s")
        elif name in ("html", "markdown", "latex", "javascript", "svg"):
            mime = {"javascript": "application/javascript", "svg": "image/svg+xml"}.get(name, "text/" + name)
            self.show({mime: body}, False)
        else:
            raise NameError(f"there is no magic %%{name}")

    @staticmethod
    def is_expression(text):
        try:
            ast.parse(text, mode="eval")
            return True
        except SyntaxError:
            return False

    # ---- figures

    def is_shown_figure(self, value):
        """Its picture comes at the end of the cell anyway, and once is enough."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if not pyplot or type(value).__name__ != "Figure":
            return False
        return any(manager.canvas.figure is value for manager in
                   (pyplot._pylab_helpers.Gcf.get_all_fig_managers() if hasattr(pyplot, "_pylab_helpers") else []))

    def take_over_pyplot(self, pyplot):
        pyplot.show = lambda *unused, **ignored: self.show_figures()

    def show_figures(self):
        pyplot = sys.modules.get("matplotlib.pyplot")
        if not pyplot:
            return
        for number in pyplot.get_fignums():
            figure = pyplot.figure(number)
            try:
                if figure.get_axes() or figure.texts:
                    self.show({"text/plain": text_of(figure), **picture_of(figure)}, False)
            finally:
                pyplot.close(figure)

    # ---- a cell

    def flush(self):
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:  # noqa: BLE001  the program's own stream, or none
                pass

    def run(self, source, name):
        """Statements first; what the last one is worth, if it is an expression, is the result."""
        tree = ast.parse(source, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        if last is not None and source.rstrip().endswith(";"):
            tree.body.append(last)
            last = None
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if tree.body:
            self.evaluate(compile(tree, name, "exec", flags))
        if last is not None:
            value = self.evaluate(compile(ast.Expression(last.value), name, "eval", flags))
            sys.displayhook(value)

    def evaluate(self, code):
        if not code.co_flags & inspect.CO_COROUTINE:
            return eval(code, self.main.__dict__)
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(eval(code, self.main.__dict__))

    def execute(self, number, code):
        self.count += 1
        self.cell = Cell(number)
        name = f"<cell {self.count}>"
        self.main.__dict__["In"].append(code)
        began = time.time()
        try:
            source = python_of(code)
            linecache.cache[name] = (len(source), None, source.splitlines(True), name)
            self.run(source, name)
            self.show_figures()
        except BaseException as problem:  # noqa: BLE001  KeyboardInterrupt and SystemExit end the cell only
            self.report(number, problem)
        finally:
            self.finish(number, began)

    def finish(self, number, began):
        """An interrupt that comes late must not lose the answer."""
        for patience in range(3):
            try:
                self.flush()
                self.channel.say("done", id=number, count=self.count, files=self.files_since(began))
                break
            except KeyboardInterrupt:
                continue
        self.cell = None
        if not self.channel.is_ours():
            os._exit(0)  # A fork that came back: there is one interpreter, and it is the parent.

    def report(self, number, problem):
        for patience in range(3):
            try:
                self.flush()
                trace = problem.__traceback__
                while trace and trace.tb_frame.f_code.co_filename.startswith("<kernel"):
                    trace = trace.tb_next
                try:
                    lines = traceback.format_exception(type(problem), problem, trace)
                    value = str(problem)
                except KeyboardInterrupt:
                    raise
                except BaseException:  # noqa: BLE001  the program's own __str__
                    lines, value = [f"{type(problem).__name__}\n"], ""
                self.channel.say("error", id=number, name=type(problem).__name__, value=value[:MOST_REPR],
                                 traceback="".join(lines)[-MOST_REPR:])
                return
            except KeyboardInterrupt:
                continue

    def files_since(self, began):
        """Files of the workspace that are newer than the cell."""
        found, looked, folders, fresh = [], 0, [self.workspace], {}
        try:
            while folders and looked < MOST_ENTRIES and len(found) < MOST_FILES:
                with os.scandir(folders.pop()) as entries:
                    for entry in entries:
                        looked += 1
                        if entry.is_dir(follow_symlinks=False):
                            if entry.name not in (".git", "node_modules", "__pycache__", ".venv"):
                                folders.append(entry.path)
                        elif entry.is_file(follow_symlinks=False):
                            changed = entry.stat(follow_symlinks=False).st_ctime
                            # The clock of files is coarse.
                            if changed >= began - 0.02 and self.told.get(entry.path) != changed:
                                found.append(entry.path)
                                fresh[entry.path] = changed
        except OSError:
            pass
        self.told = fresh
        return sorted(found)[:MOST_FILES]

    def complete(self, number, text):
        """Names that could stand at the end of `text`."""
        found = []
        try:
            import rlcompleter
            word = re.search(r"[\w.]*$", text)[0]
            completer = rlcompleter.Completer(self.main.__dict__)
            for state in range(200):
                match = completer.complete(word, state)
                if match is None:
                    break
                found.append(text[:len(text) - len(word)] + match.rstrip("("))
        except Exception:  # noqa: BLE001
            pass
        self.channel.say("completions", id=number, matches=found)

    def serve(self):
        self.channel.say("ready", language="python", version=sys.version.split()[0], pid=os.getpid())
        while True:
            try:
                heard = self.channel.hear()
                if heard is None:
                    return
                op, number, payload = heard
                if op == "execute":
                    self.execute(number, payload.decode("utf-8", "replace"))
                elif op == "environ":
                    for name, value in json.loads(payload).items():
                        if value is None:
                            os.environ.pop(name, None)
                        else:
                            os.environ[name] = value
                elif op == "complete":
                    self.complete(number, payload.decode("utf-8", "replace"))
                elif op == "save":
                    save(self, number, payload)
            except KeyboardInterrupt:
                continue  # It was meant for a cell that had ended.


def close_input():
    """Programs read nothing from the descriptor that was ours."""
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def prepare():
    channel = Channel(0)
    close_input()
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    for name, number in (("stdout", 1), ("stderr", 2)):
        setattr(sys, name, open(number, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False))
    sys.argv = [""]
    sys.path.insert(0, "")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return Kernel(channel)
