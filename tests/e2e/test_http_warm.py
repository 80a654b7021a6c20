"""Interpreters that come from an image: as quick as promised is for the benchmark; here, that they are nobody else's."""
import re
import unittest

from http_harness import HttpCase, Server, until


def counts(server):
    """Interpreters by where they came from, and how many images there are."""
    text = server.admin.get("/metrics").body.decode()
    found = dict(re.findall(r'agent_sandbox_interpreters_total\{from="(\w+)"\} (\d+)', text))
    images = re.search(r"agent_sandbox_interpreter_images (\d+)", text)
    return {name: int(value) for name, value in found.items()}, int(images[1]) if images else 0


class WarmCase(HttpCase):
    def await_image(self, server=None):
        self.assertTrue(until(lambda: counts(server or self.server)[1] == 1, 60), (server or self.server).log())

    def execute(self, box, code, client=None, **fields):
        answer = (client or self.admin).expect(200, "POST", box + "/execute", {"code": code, **fields}).json
        self.assertIsNone(answer["error"], answer)
        return answer["results"][-1]["text/plain"] if answer["results"] else answer["stdout"]


class Images(WarmCase):
    def setUp(self):
        super().setUp()
        self.await_image()

    def test_sessions_share_no_random_numbers(self):
        code = ("import random, uuid, os, tempfile\n"
                "(random.random(), str(uuid.uuid4()), tempfile.mktemp(), os.urandom(4).hex())")
        drawn = [eval(self.execute(self.session(), code)) for _ in range(3)]
        for values in zip(*drawn):
            self.assertEqual(len(set(values)), 3, values)

    def test_contexts_and_restarts_share_none_either(self):
        box = self.session()
        drawn = {self.execute(box, "import random; random.random()")}
        for _ in range(2):
            context = self.admin.expect(201, "POST", box + "/contexts", {}).json["context_id"]
            drawn.add(self.execute(box, "import random; random.random()", context=context))
            self.admin.expect(200, "POST", f"{box}/contexts/{context}/restart")
            drawn.add(self.execute(box, "import random; random.random()", context=context))
        self.assertEqual(len(drawn), 5)

    def test_they_come_from_the_image(self):
        before, _ = counts(self.server)
        self.execute(self.session(limits={"memory": "600M"}), "1")  # of a kind for which there is no pool
        after, _ = counts(self.server)
        self.assertEqual(after["image"] - before["image"], 1)
        self.assertEqual(after["file"], before["file"])

    def test_one_of_the_pool_runs_already(self):
        def is_ready():
            before, _ = counts(self.server)
            self.execute(self.session(), "1")
            return counts(self.server)[0]["ready"] > before["ready"]
        self.assertTrue(until(is_ready))

    def test_a_session_has_its_own_environment(self):
        box = self.session(env={"TOKEN": "of the session"})
        self.assertEqual(self.execute(box, "import os; os.environ['TOKEN'], os.environ['HOME'], os.getcwd()"),
                         "('of the session', '/home/user', '/workspace')")
        self.assertEqual(self.execute(box, "'OPENBLAS_NUM_THREADS' in os.environ"), "False")
        self.assertEqual(self.execute(box, "import subprocess; subprocess.getoutput('echo $TOKEN')"), "'of the session'")

    def test_what_is_looked_at_when_a_process_starts_holds(self):
        before, _ = counts(self.server)
        box = self.session(env={"PYTHONHASHSEED": "0", "PYTHONPATH": "/workspace/lib"})
        self.assertEqual(self.execute(box, "import sys; '/workspace/lib' in sys.path"), "True")
        self.assertEqual(counts(self.server)[0]["file"] - before["file"], 1)

    def test_nothing_of_the_image_can_be_changed(self):
        """What one session writes to its memory, the next does not see."""
        code = """
import builtins, ctypes, json
json.loads = lambda text: 'replaced'
builtins.abs = lambda number: 'replaced'
ctypes.memset(id(json.dumps.__code__.co_code) + 32, 0, 8)  # of the image's own pages
sum('memfd:layer-' in line for line in open('/proc/self/maps')) > 0
"""
        self.assertEqual(self.execute(self.session(), code), "True", "the image is not mapped as was thought")
        self.assertEqual(self.execute(self.session(), "import json; json.loads('[1]'), abs(-1), json.dumps([2])"),
                         "([1], 1, '[2]')")

    def test_no_descriptor_of_it_is_left(self):
        self.assertEqual(self.execute(self.session(), "import os\nsorted(os.readlink('/proc/self/fd/' + fd) for fd in "
                                      "os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + fd) and "
                                      "'memfd' in os.readlink('/proc/self/fd/' + fd))"), "[]")

    def test_subprocesses_and_pools_work(self):
        self.assertEqual(self.execute(self.session(limits={"cpus": 2}), "import multiprocessing as m\n"
                                      "def double(x): return 2 * x\n"
                                      "with m.get_context('fork').Pool(2) as pool: print(pool.map(double, [1, 2]))\n"
                                      "import subprocess, sys\n"
                                      "print(subprocess.check_output([sys.executable, '-c', 'print(3)']).decode())"),
                         "[2, 4]\n3\n\n")


class Settings(WarmCase):
    def test_imports_are_done_in_advance(self):
        server = Server(env={"AGENT_SANDBOX_INTERPRETERS_IMPORTS": "numpy,pandas,no_such_module"})
        self.addCleanup(server.kill)
        self.await_image(server)
        self.assertTrue(until(lambda: "no_such_module" in server.log()), "what cannot be imported is told")
        box = "/api/sessions/" + server.admin.expect(201, "POST", "/api/sessions", {}).json["session_id"]
        self.assertEqual(self.execute(box, "import sys; 'pandas' in sys.modules", server.admin), "True")
        self.assertEqual(self.execute(box, "import pandas; pandas.DataFrame({'a': [1, 2]}).a.sum()", server.admin), "3")
        server.stop()

    def test_they_can_be_switched_off(self):
        server = Server("--interpreters-cold")
        self.addCleanup(server.kill)
        box = "/api/sessions/" + server.admin.expect(201, "POST", "/api/sessions", {}).json["session_id"]
        self.assertEqual(self.execute(box, "1+1", server.admin), "2")
        self.assertEqual(counts(server), ({"ready": 0, "image": 0, "file": 1}, 0))
        server.stop()


if __name__ == "__main__":
    unittest.main()
