"""A Python that has done its imports and is frozen: how it gets there, and what it does when it wakes up.

Runs after the others in the same namespace. become_frozen() writes the whole process to its channel; in every process that
is made from it, it goes on behind that call as if nothing had been: with the arguments, the environment and
the descriptors of the new process, and with random numbers of its own.
"""
import atexit
import gc
import random
import tempfile
import threading


def import_all(names):
    """What cannot be imported is told to whoever started us, and does not stop the others."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as problem:  # noqa: BLE001  whatever a module does when it is imported
            os.write(2, f"{name}: {type(problem).__name__}: {problem}\n".encode("utf-8", "replace"))


def check_alone(channel):
    """Neither threads nor files come along."""
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("an import has started a thread")
    known = {0, 1, 2, channel.descriptor}
    if len({int(name) for name in os.listdir("/proc/self/fd")} - known) > 1:  # the folder's own
        raise RuntimeError("an import has left files open")


def rehearse(kernel, imported):
    """Runs what every interpreter will run: what it makes on the way is then in the image, and shared."""
    freshen(imported)
    channel, space = kernel.channel, dict(kernel.main.__dict__)
    write, channel.write = channel.write, lambda descriptor, data: len(data)
    for _ in range(12):  # The interpreter adapts to what it runs often.
        for code in ("1+1", "x = [1]\nx", "import sys", "1/0", "1+"):
            kernel.execute(0, code)
    channel.write = write
    kernel.main.__dict__.clear()
    kernel.main.__dict__.update(space, In=[""], Out={})
    kernel.count, kernel.told = 0, {}
    linecache.clearcache()


def freeze(channel, layer, library):
    """False in the process that calls it, True in each that wakes up."""
    load_native(library)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    sys.path_importer_cache.clear()  # What it says of folders may be wrong in another sandbox.
    gc.collect()
    gc.freeze()
    check_alone(channel)
    return write_memory(channel.descriptor, layer, [], 0)


def words_of(path):
    """Without the machinery of files, whose pages would no longer be shared."""
    descriptor, text = os.open(path, os.O_RDONLY), b""
    while part := os.read(descriptor, 1 << 16):
        text += part
    os.close(descriptor)
    return [word for word in text.split(b"\0") if word]


def take_environment():
    wanted = dict(word.split(b"=", 1) for word in words_of("/proc/self/environ") if b"=" in word)
    known = os.environ._data
    for name in known.keys() - wanted.keys():
        os.unsetenv(name)
        del known[name]
    for name, value in wanted.items():
        if known.get(name) != value:
            os.putenv(name, value)
            known[name] = value


def freshen(imported):
    """What must not be the same in two processes. `imported`: more than what this file needs."""
    take_environment()
    random.seed()
    tempfile._name_sequence = None
    threading.main_thread()._set_native_id()
    if not imported:
        return
    numbers = sys.modules.get("numpy.random")
    if numbers:
        numbers.seed()
    secure = sys.modules.get("_ssl")
    if secure:
        secure.RAND_add(os.urandom(48), 48.0)
    processes = sys.modules.get("multiprocessing.process")
    if processes:
        processes.current_process().authkey = os.urandom(32)


def open_streams():
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


def without_us(trace):
    while trace and trace.tb_frame.f_code.co_filename.startswith("<"):
        trace = trace.tb_next
    return trace


def run_script(words):
    """As `python3 <words>` would: the file is __main__, and how it ends is how the process ends."""
    path, sys.argv = os.path.abspath(words[0]), words
    sys.path.insert(0, os.path.dirname(path))
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main
    try:
        with open(path, "rb") as file:
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
        return 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xff
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        return 130
    except BaseException as problem:  # noqa: BLE001  the program's own
        sys.excepthook(type(problem), problem.with_traceback(without_us(problem.__traceback__)), problem.__traceback__)
        return 1


def leave(status):
    """What an interpreter does at its end, as far as anybody can see it."""
    for last in (threading._shutdown, atexit._run_exitfuncs, sys.modules["__main__"].__dict__.clear, sys.stdout.flush):
        try:
            last()
        except BaseException:  # noqa: BLE001  of the program
            status = status or 1
            if last != sys.stdout.flush:
                traceback.print_exc()
    try:
        sys.stderr.flush()
    finally:
        os._exit(status)


def wake_up(kernel, imported):
    freshen(imported)
    words = [os.fsdecode(word) for word in words_of("/proc/self/cmdline")]
    if words[1:] == ["--kernel"]:
        kernel.channel.move(0)
        close_input()
        os.environ.setdefault("MPLBACKEND", "agg")
        kernel.serve()
        leave(0)
    kernel.step_aside()
    open_streams()
    leave(run_script(words[1:]))


def become_frozen(names, layer, library):
    kernel = prepare()
    import_all(names)
    rehearse(kernel, bool(names))
    if freeze(kernel.channel, layer, base64.b64decode(library)):
        wake_up(kernel, bool(names))
