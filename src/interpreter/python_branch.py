"""How an interpreter that lives is saved: its memory into a file that it is handed, and what else it has into its memory.

Run after python_kernel.py in the same namespace. Processes that are made from the file go on behind the call that wrote it,
with the folder, the open files at their places and the timers that the first one had. What cannot come along is told:
other threads, sockets, pipes, files that have no name any more.
"""
import os
import signal
import socket
import stat
import sys

LIVE, GIVE_UP = 1, 2  # as freeze takes them
MOST_LOST = 50  # that are told one by one
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
KINDS = {stat.S_IFSOCK: "socket", stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
NATIVE = {}


def load_native(library):
    """From memory: no file of the sandbox is involved."""
    import ctypes
    descriptor = os.memfd_create("freeze", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, library)
        native = ctypes.PyDLL(f"/proc/self/fd/{descriptor}")  # Keeps the lock of the interpreter.
    finally:
        os.close(descriptor)
    native.asr_freeze.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint32,
                                  ctypes.c_uint32)
    NATIVE.update(freeze=native.asr_freeze, numbers=ctypes.c_uint64)


def write_memory(descriptor, layer, below, flags):
    """False in the process that calls it, True in each that is made from what it wrote."""
    result = NATIVE["freeze"](descriptor, layer, (NATIVE["numbers"] * max(len(below), 1))(*below), len(below), flags)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result == 1


def text_of_file(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096).decode()
    finally:
        os.close(descriptor)


def count_threads():
    return len(os.listdir("/proc/self/task"))


class Belongings:
    """What a process has besides its memory."""

    def __init__(self, ours):
        """`ours`: descriptors that are not the program's."""
        try:
            self.folder = os.getcwd()
        except OSError:
            self.folder = None  # It was removed.
        self.mask = os.umask(0o77)
        os.umask(self.mask)
        self.timers = [(which, signal.getitimer(which)) for which in
                       (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)]
        self.files, self.lost = {}, {}
        for number in sorted(int(name) for name in os.listdir("/proc/self/fd")):
            if number > 2 and number not in ours:
                self.take_down(number)

    def take_down(self, number):
        try:
            info, path = os.fstat(number), os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            return  # It was the one that listed them.
        facts = dict(line.split(":\t", 1) for line in text_of_file(f"/proc/self/fdinfo/{number}").splitlines()
                     if ":\t" in line)
        kind = stat.S_IFMT(info.st_mode)
        if kind in (stat.S_IFREG, stat.S_IFDIR) or path in DEVICES:
            try:
                now = os.stat(path, follow_symlinks=False)
            except OSError:
                now = None
            if now and (now.st_dev, now.st_ino) == (info.st_dev, info.st_ino):
                self.files[number] = path, int(facts["flags"], 8), int(facts["pos"])
                return
            self.lost[number] = "file without a name"
            return
        self.lost[number] = KINDS.get(kind) or path.removeprefix("anon_inode:").strip("[]") or "something"

    def take_back(self):
        """In the process that goes on. What is lost stays taken, so that nothing else is mistaken for it."""
        os.umask(self.mask)
        try:
            os.chdir(self.folder or "/")
        except OSError:
            os.chdir("/")
        for number, (path, flags, place) in self.files.items():
            try:
                opened = os.open(path, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC))
            except OSError:
                self.lost[number] = "file that is not there"
                continue
            self.give(opened, number, not flags & os.O_CLOEXEC)
            if place:
                os.lseek(number, place, os.SEEK_SET)
        for number in self.lost:
            self.give(os.open("/dev/null", os.O_PATH), number, False)
        for which, (first, interval) in self.timers:
            if first:
                signal.setitimer(which, first, interval)

    @staticmethod
    def give(opened, number, inheritable):
        if opened == number:
            os.set_inheritable(number, inheritable)
            return
        os.dup2(opened, number, inheritable)
        os.close(opened)

    def told(self):
        names = [f"{kind} {number}" for number, kind in self.lost.items()]
        return names[:MOST_LOST]


def receive_descriptor(channel):
    """It comes with a byte of its own, once we have said that we wait for it."""
    with socket.socket(fileno=os.dup(channel.descriptor)) as sock:
        _, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
    if len(descriptors) != 1:
        raise OSError("no file to write to")
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


def save_alone(descriptor, layer, below):
    return write_memory(descriptor, layer, below, LIVE | GIVE_UP)


def save_as_child(descriptor, layer, below):
    """With other threads about, memory stands still only in a child, which has none: as fork() would have it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if write_memory(descriptor, layer, below, LIVE):
                return True
            status = 0
        except BaseException as problem:  # noqa: BLE001  there must not be two interpreters
            status = getattr(problem, "errno", None) or 1
        os._exit(min(status, 255))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise OSError(code if code > 0 else 12, os.strerror(code) if code > 0 else "the child that was to be saved ended")
    return False


class HeldSignals:
    """What would run handlers of the program, which may raise anywhere, waits. A mask would not do: a signal goes to another
    thread then, and its handler is run in this one all the same."""

    def __init__(self):
        self.handlers, self.noted, self.holding = {}, set(), True

    def hold(self):
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler):
                self.handlers[number] = handler
                signal.signal(number, self.handle)

    def handle(self, number, frame):
        if self.holding:
            self.noted.add(number)
        else:
            self.handlers[number](number, frame)  # It came while they are given back.

    def release(self):
        self.holding = False
        try:
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
        finally:
            self.catch_up()

    def catch_up(self):
        if self.noted:
            try:
                signal.raise_signal(self.noted.pop())
            finally:
                self.catch_up()


def save(kernel, number, payload):
    """Answers twice: that we wait for the file, and how it went. In a process made from it: with `ready`."""
    channel, descriptor, held = kernel.channel, None, HeldSignals()
    try:
        held.hold()
        wanted = json.loads(payload)
        if "library" in wanted:
            load_native(base64.b64decode(wanted["library"]))
        channel.say("saving", id=number)
        descriptor = receive_descriptor(channel)
        kernel.flush()
        threads = count_threads()
        belongings = Belongings((channel.descriptor, descriptor))
        how = save_alone if threads == 1 else save_as_child
        if how(descriptor, int(wanted["layer"]), [int(one) for one in wanted["below"]]):
            descriptor = None  # of the other process
            held.noted.clear()
            go_on(kernel, belongings)
            return
        channel.say("saved", id=number, threads=threads - 1, files=belongings.told(),
                    loop=kernel.loop is not None and not kernel.loop.is_closed())
    except BaseException as problem:  # noqa: BLE001  whatever stands in the way: the program goes on as it was
        channel.say("saved", id=number, problem=f"{type(problem).__name__}: {problem}"[:300])
    finally:
        if descriptor is not None and channel.is_ours():
            os.close(descriptor)
        held.release()  # The last: what was held may raise now.


def go_on(kernel, belongings):
    """In a process that was made from what another one has saved."""
    kernel.channel.move(0)
    close_input()
    belongings.take_back()
    if kernel.loop is not None:  # Its descriptors are gone.
        kernel.loop = None
        asyncio.set_event_loop(None)
    threading = sys.modules.get("threading")
    if threading:
        threading.main_thread()._set_native_id()
    # Numbers that were drawn to be repeated are; those that keep secrets are not.
    names = sys.modules.get("tempfile")
    if names:
        names._name_sequence = None
    secure = sys.modules.get("_ssl")
    if secure:
        secure.RAND_add(os.urandom(48), 48.0)
    kernel.channel.say("ready", language="python", version=sys.version.split()[0], pid=os.getpid())
