"""Other ways to get an isolated process, each as a command line that creates, runs /bin/true or python3 and destroys; and a
Jupyter kernel, which lives on between cells.

A peer is a context manager. Inside it, `argv` is what to run ({} becomes a number used once) and `within` is what to
run it under; `missing` says why there is none.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import time

DEBIAN_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # A peer from elsewhere on the PATH may be another version.
GROUP = "agent-sandbox-bench"


def find(program):
    return shutil.which(program, path=DEBIAN_PATH)


def version(*argv):
    text = subprocess.run(argv, capture_output=True, text=True).stdout.strip()
    return text.splitlines()[0] if text else ""


class Peer:
    name = ""
    note = ""  # What a reader of the numbers must know.
    program = ["/bin/true"]  # what is run inside

    def __init__(self):
        self.argv, self.within, self.missing, self.version = [], [], "", ""
        self.scratch = None

    def __enter__(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="asr-bench-"))
        try:
            self.start()
        except Exception as error:
            self.missing = str(error) or type(error).__name__
        return self

    def __exit__(self, *unused):
        self.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def start(self):
        raise NotImplementedError

    def stop(self):
        pass

    def need(self, program):
        path = find(program)
        if not path:
            raise FileNotFoundError(f"{program} is not installed")
        return path


class Bubblewrap(Peer):
    name = "bubblewrap"
    note = "no control groups, no limits"

    def start(self):
        bwrap = self.need("bwrap")
        self.version = version(bwrap, "--version")
        self.argv = [bwrap, "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
                     "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc",
                     "--dev", "/dev", "--tmpfs", "/tmp", *self.program]


class Crun(Peer):
    name = "crun"
    note = "what `crun spec` writes, with /usr bound read-only and limits for memory, pids and cpu"

    def start(self):
        crun = self.need("crun")
        self.version = version(crun, "--version")
        rootfs = self.scratch / "rootfs"
        for folder in ("usr", "proc", "dev", "sys", "tmp"):
            (rootfs / folder).mkdir(parents=True)
        for link in ("bin", "lib", "lib64"):
            (rootfs / link).symlink_to(f"usr/{link}")
        subprocess.run([crun, "spec"], cwd=self.scratch, check=True)
        file = self.scratch / "config.json"
        config = json.loads(file.read_text())
        config["process"].update(terminal=False, args=["/bin/true"])
        config["mounts"].append({"destination": "/usr", "type": "bind", "source": "/usr",
                                 "options": ["bind", "ro", "nosuid", "nodev"]})
        config["linux"]["resources"].update(memory={"limit": 512 << 20}, pids={"limit": 256},
                                            cpu={"quota": 50000, "period": 100000})
        file.write_text(json.dumps(config))
        self.argv = [crun, f"--root={self.scratch}/state", "--cgroup-manager=cgroupfs", "run",
                     f"--bundle={self.scratch}", "asr-bench-{}"]
        # crun refuses a v2 tree beside v1 when it has any controller, so it does not get to see it.
        unified = "/sys/fs/cgroup/unified"
        if os.path.ismount(unified):
            self.within = [self.need("unshare"), "--mount", "--propagation", "private", "sh", "-c",
                           f'umount {unified} && exec "$@"', "sh"]


class Docker(Peer):
    name = "Docker"
    note = "`docker run --rm --network none` of a busybox image; an engine of its own, started for this"

    def __init__(self):
        super().__init__()
        self.engine = None

    def start(self):
        docker, dockerd = self.need("docker"), self.need("dockerd")
        socket = f"unix://{self.scratch}/socket"
        environment = {"PATH": DEBIAN_PATH, "HOME": str(self.scratch)}
        log = self.scratch / "log"
        with open(log, "wb") as out:
            self.engine = subprocess.Popen(
                [dockerd, "--iptables=false", "--ip6tables=false", "--bridge=none", "--group=root", f"--host={socket}",
                 f"--data-root={self.scratch}/data", f"--exec-root={self.scratch}/exec",
                 f"--pidfile={self.scratch}/pid", f"--cgroup-parent=/{GROUP}"],
                env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        client = [docker, f"--host={socket}", f"--config={self.scratch}"]
        self.wait_until_ready(client, log)
        image = self.scratch / "image.tar"
        with tarfile.open(image, "w") as tar:
            self.fill(tar)
        subprocess.run(client + ["import", str(image), "true"], check=True, capture_output=True)
        image.unlink()
        self.argv = client + ["run", "--rm", "--network", "none", "true", *self.program]
        self.version = version(dockerd, "--version")
        tried = subprocess.run(self.argv, capture_output=True, text=True)
        if tried.returncode != 0:
            raise RuntimeError(tried.stderr.strip() or "a container could not be run")

    def fill(self, tar):
        """What the image holds."""
        tar.add(self.need("busybox"), "bin/busybox")
        link = tarfile.TarInfo("bin/true")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)

    def wait_until_ready(self, client, log):
        deadline = time.monotonic() + 30
        while subprocess.run(client + ["info"], capture_output=True).returncode != 0:
            if self.engine.poll() is not None or time.monotonic() > deadline:
                lines = log.read_text(errors="replace").strip().splitlines()
                raise RuntimeError("no engine could be started: " + (lines[-1] if lines else "it said nothing"))
            time.sleep(0.2)

    def wait_until_gone(self):
        """The engine's own children end a little after it."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and any(map(self.mentions_scratch, pathlib.Path("/proc").glob("[0-9]*"))):
            time.sleep(0.2)

    def mentions_scratch(self, process):
        try:
            return str(self.scratch).encode() in (process / "cmdline").read_bytes()
        except OSError:
            return False

    def stop(self):
        if self.engine:
            self.engine.terminate()
            try:
                self.engine.wait(30)
            except subprocess.TimeoutExpired:
                self.engine.kill()
                self.engine.wait()
            self.wait_until_gone()
        for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
            point = line.split()[1]
            if point.startswith(f"{self.scratch}/"):
                subprocess.run([self.need("umount"), "--lazy", point], check=False)
        for group in [*pathlib.Path("/sys/fs/cgroup").glob(GROUP), *pathlib.Path("/sys/fs/cgroup").glob(f"*/{GROUP}")]:
            try:
                group.rmdir()
            except OSError:
                pass


# The sum that sessions are asked for, by those who start an interpreter for it.
SUM = ["/usr/bin/python3", "-c", "print(1+1)"]


class BubblewrapPython(Bubblewrap):
    name = "bubblewrap + python3 -c"
    program = SUM


class DockerPython(Docker):
    name = "Docker + python3 -c"
    note = "`docker run --rm --network none` of an image with the machine's own python3; an engine of its own, started for this"
    program = SUM

    def fill(self, tar):
        """The interpreter, what it is linked with, and its standard library with what was compiled of it."""
        python = os.path.realpath(self.need("python3"))
        facts = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"], capture_output=True,
                               text=True, check=True).stdout.strip()
        linked = subprocess.run(["ldd", python], capture_output=True, text=True, check=True).stdout
        files = {word for line in linked.splitlines() for word in line.split() if word.startswith("/")}
        files |= {str(path) for path in pathlib.Path(facts, "lib-dynload").glob("*.so")}
        for path in sorted(files):
            tar.add(os.path.realpath(path), path.lstrip("/"))
        tar.add(python, SUM[0].lstrip("/"))
        tar.add(facts, facts.lstrip("/"), filter=lambda entry: None if self.is_left_out(entry.name) else entry)

    @staticmethod
    def is_left_out(name):
        return any(part in ("lib-dynload", "test", "dist-packages", "idlelib", "lib2to3", "ensurepip") for part in name.split("/"))


class Jupyter(Peer):
    """A live kernel and a client of it, over the sockets the two have between them."""
    name = "Jupyter"
    note = "ipykernel through jupyter_client: execute_request until the reply and the status idle are back"

    def __init__(self):
        super().__init__()
        self.manager = self.client = None

    def start(self):
        os.environ.update(IPYTHONDIR=str(self.scratch), JUPYTER_RUNTIME_DIR=str(self.scratch), PYDEVD_DISABLE_FILE_VALIDATION="1")
        try:
            import jupyter_client
        except ImportError:
            raise FileNotFoundError("jupyter_client is not installed") from None
        self.manager = jupyter_client.KernelManager(kernel_name="python3")
        environment = {**os.environ, "PATH": DEBIAN_PATH}
        self.manager.start_kernel(env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.version = f"jupyter_client {jupyter_client.__version__}"

    def run_cell(self, code):
        """Until all of it is back; gives its result as text."""
        asked, text = self.client.execute(code), None
        while True:
            heard = self.client.get_iopub_msg(timeout=30)
            if heard["parent_header"].get("msg_id") != asked:
                continue
            if heard["msg_type"] == "execute_result":
                text = heard["content"]["data"]["text/plain"]
            if heard["msg_type"] == "status" and heard["content"]["execution_state"] == "idle":
                break
        while self.client.get_shell_msg(timeout=30)["parent_header"].get("msg_id") != asked:
            pass
        return text

    def stop(self):
        if self.client:
            self.client.stop_channels()
        if self.manager and self.manager.has_kernel:
            self.manager.shutdown_kernel(now=True)
        self.client = self.manager = None


ALL = (Bubblewrap, Crun, Docker)
