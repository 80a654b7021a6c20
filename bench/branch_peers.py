"""How others come to a second computer in the same state: copy the files, start an interpreter, and run all cells again.

Neither keeps the interpreter's memory, so both take as long as the cells do. Each ends when the cells are done, and
leaves its copy behind until the measurement is over.
"""
import pathlib
import subprocess

import peers

PYTHON = "/usr/bin/python3"
WAIT = "import time; time.sleep(1000000)"


class State:
    """What a session holds: code that makes its files, and code that makes its variables. Both run in the folder."""

    def __init__(self, files, cells):
        self.files, self.cells = files, cells

    def everything(self):
        return f"{self.files}\n{self.cells}"

    def place(self, folder):
        """The files into a new folder, and beside it the cells as a program; gives both."""
        folder.mkdir()
        subprocess.run([PYTHON, "-c", self.files], cwd=folder, check=True)
        program = pathlib.Path(f"{folder}.py")
        # Taking the variables apart again is no part of it.
        program.write_text(f"{self.cells}\nimport os\nos._exit(0)\n")
        return folder, program


class Copy(peers.Peer):
    name = "cp -a + python3"

    def start(self):
        self.need("python3")
        with peers.Bubblewrap() as other:
            self.bubblewrap, self.version = other.argv[:-len(other.program)], other.version
        self.note = ("`cp -a` of the folder, then a new python3 that runs the cells again, "
                     + ("in bubblewrap" if self.bubblewrap else "in no sandbox at all: bubblewrap is not installed"))

    def hold(self, state):
        """From now on it is this state that is copied."""
        self.tidy()
        folder, program = state.place(self.scratch / "state")
        inside = [*self.bubblewrap, "--bind", "COPY", "/workspace", "--chdir", "/workspace", "--ro-bind", str(program), "/cells.py",
                  PYTHON, "/cells.py"] if self.bubblewrap else [PYTHON, str(program)]
        line = " ".join('"$copy"' if word == "COPY" else f"'{word}'" for word in inside)
        self.argv = ["/bin/sh", "-c", f'copy="$0.$$"; cp -a "$0" "$copy" && cd "$copy" && exec {line}', str(folder)]

    def tidy(self):
        """States and copies take room that others need."""
        subprocess.run(["rm", "-rf", *map(str, self.scratch.glob("state*"))], check=True)


class DockerCommit(peers.DockerPython):
    name = "docker commit + run"
    note = ("`docker commit` of a running container with the files, `docker run` of what that gave, with a python3 that runs the "
            "cells again; an engine of its own, started for this")

    def __init__(self, state):
        super().__init__()
        self.state, self.docker = state, []

    def start(self):
        super().start()
        self.docker = docker = self.argv[:self.argv.index("run")]
        folder, program = self.state.place(self.scratch / "state")
        subprocess.run(docker + ["run", "--detach", "--network", "none", "--name", "state", "true", PYTHON, "-c", WAIT],
                       check=True, capture_output=True)
        for path, into in ((folder, "/workspace"), (program, "/cells.py")):
            subprocess.run(docker + ["cp", str(path), f"state:{into}"], check=True, capture_output=True)
        line = " ".join(docker)
        self.argv = ["/bin/sh", "-c", f'{line} commit state "state-$$" >/dev/null && exec {line} run --rm --network none --workdir '
                                      f'/workspace "state-$$" {PYTHON} /cells.py']

    def stop(self):
        if self.docker:
            subprocess.run(self.docker + ["rm", "--force", "state"], check=False, capture_output=True)
        super().stop()
