"""A program against its own interpreter: its channel, its descriptors, its functions and objects, and how it ends. It fools itself
at most; interpreter_case.py says what must hold after each.

Each attack is proven on a plain python3 first (plain_python.py), where it makes sense there.
"""
import os
import unittest

from http_harness import descendants, until
from interpreter_case import MIB, TOO_MUCH, AttackCase
from plain_python import TOOLS


class Channel(AttackCase):
    """What a program writes on the socket that is its interpreter's."""

    JUNK = ("b'nonsense\\n'", "b'\\n'", "b'{}\\n'", "b'[]\\n'", "b'5\\n'", "b'\\xff\\xfe\\n'", "b'\\0\\n'", "b'{\"event\":5}\\n'",
            "b'{\"event\":\"x\"}\\n'", "b'{\"event\":\"done\",\"event\":\"done\"}\\n'", "b'{\"event\":\"result\",'",
            "b'[' * 100_000 + b'\\n'", "b'{\"event\":\"result\",\"data\":' + b'{\"a/b\":' * 1000 + b'\\n'",
            "b'{\"event\":\"error\",\"name\":\"\\\\ud800\"}\\n'")

    def test_nonsense(self):
        for junk in self.JUNK:
            with self.subTest(junk=junk):
                program = f"write({junk})"
                self.prove(self.outside(program).said.startswith(eval(junk)))
                self.broke(self.attack(program))
                self.works()

    def test_forged_for_others(self):
        """Events of cells that do not run: of others before and after, and of none."""
        for number in ("0", "ID - 1", "ID + 1", "-1", "2**62", "2**70", "str(ID)", "ID + .5", "None", "[ID]"):
            program = (f"ID = {number}\nfor event in ('result', 'error', 'done', 'ready', 'input', 'completions'):\n"
                       "    say(event=event, main=True, data={'text/plain': 'forged'}, name='forged', files=['/workspace/x'])\n")
            with self.subTest(number=number):
                self.prove(b"forged" in self.outside(program).said)
                answer = self.attack(program + "3")
                self.assertEqual(([r["text/plain"] for r in answer["results"]], answer["error"]), (["3"], None))
                self.works()

    def test_forged_for_itself(self):
        """It may say of its own cell what it likes, in the shapes that there are."""
        odd = ("5", "None", "[]", "'text'", "{'no slash': 1}", "{'a/b': {'deep': [1]}}", "{'x' * 300 + '/y': 1}", "{'is_main': 'x'}",
               "{'image/png': 'no base64'}", "{'image/svg+xml': 5}", "{'application/pdf': 'AAAA'}", "{'text/html': None}")
        for data in odd:
            answer = self.attack(f"say(event='result', data={data}, main='yes')\n4")
            self.assertEqual([r.get("text/plain") for r in answer["results"] if r["is_main"]], ["4"], data)
        for fields in ("name=5, value=[], traceback={}", "name='x' * 10**6, value='', traceback=''", ""):
            answer = self.attack(f"say(event='error', {fields})\n4")
            self.assertEqual(answer["status"], "error")
            self.assertTrue(all(isinstance(answer["error"][key], str) for key in ("name", "value", "traceback")))
        for fields in ("count=-5", "count=2**62", "count='x'", "files=5", "files=[5, None, {}, '']"):
            self.attack(f"say(event='done', {fields})\n4")
            self.works()

    def test_a_cell_that_ends_itself(self):
        """Whoever believes it is early; what the interpreter says later belongs to nobody."""
        program = "say(event='done', count=1, files=[])\nprint('late')\n"
        self.prove(self.outside(program).said.count(b"done") == 3)
        for _ in range(5):
            self.attack(program + "display('late')\n'late'")
            self.works()

    def test_the_next_cell_is_ended_before_it_began(self):
        """By a thread that the last one left. The ones after it are whole again."""
        program = """
def forge():
    for number in range(ID + 1, ID + 4):
        for _ in range(50):
            say(event='result', id=number, main=True, data={'text/plain': 'forged'})
            say(event='done', id=number, count=1, files=[])
            time.sleep(.001)
threading.Thread(target=forge).start()
"""
        self.attack(program)
        for _ in range(10):
            self.execute("'mine'", timeout_s=20)
        self.works()

    def test_files_that_it_did_not_make(self):
        """What it names is fetched with its own rights, from its workspace, and not without end."""
        names = ("['/etc/passwd', '/proc/self/environ', 'passwd', '', '/workspace', '/workspace/', '/workspace/../etc/passwd',"
                 " '/workspace/./../proc/self/environ', '/workspace/\\0', '/workspace/' + 'x' * 5000, '/workspace/' + 'a/' * 3000,"
                 " '/workspace//dev/zero', '/workspace/link', '/workspace/pipe', '/workspace/folder', '/workspace/closed']")
        program = ("os.chdir(WORKSPACE); os.symlink('/etc/passwd', 'link'); os.mkfifo('pipe'); os.mkdir('folder')\n"
                   "open('closed', 'w').close(); os.chmod('closed', 0)\n"
                   f"say(event='done', count=1, files={names})\n")
        self.prove(b"/etc/passwd" in self.outside(program).said)
        with self.subTest("from elsewhere"):
            for artifact in self.attack(program)["artifacts"]:
                self.assertNotIn(artifact["name"], ("passwd", "environ", "zero"), artifact)
            self.works()
        many = "say(event='done', count=1, files=['/workspace/' + str(n) for n in range(20_000)])\n"
        self.prove(self.outside(many).said_bytes > 300_000)
        for name in ("/workspace/{}", "/workspace/a"):
            program = f"open('/workspace/a', 'w').write('x')\nsay(event='done', count=1, files=[{name!r}.format(n) for n in range(20_000)])\n"
            self.attack(program, timeout_s=60)
            self.works()

    def test_questions_that_nobody_answers(self):
        program = "for _ in range(200_000): say(event='input', prompt='?')\n"
        self.prove(self.outside(program).said_bytes > 5_000_000)
        self.attack(program, timeout_s=1)
        self.goes_on()
        with self.admin.events(self.box + "/execute", body={"code": TOOLS + program, "timeout_s": 1}) as stream:
            stream.wait_for("done")
        self.goes_on()


class Floods(AttackCase):
    def test_a_line_of_a_hundred_megabytes(self):
        program = "write(b'x' * (100 << 20) + b'\\n')\n"
        self.prove(self.outside(program).said_bytes > 100 * MIB)
        self.broke(self.attack(program, timeout_s=60))
        self.works()

    def test_a_result_of_a_hundred_megabytes(self):
        """By the way there is: it is too large to be told, and the variables are none the worse for it."""
        self.execute("kept = 5")
        for code in ("'x' * (100 << 20)", "[0] * 6_000_000", "display({'a': 'x' * (100 << 20)})",
                     "type('T', (), {'_repr_html_': lambda self: 'x' * (100 << 20)})()",
                     "type('T', (), {'_repr_png_': lambda self: b'x' * (100 << 20)})()", "raise ValueError('x' * (100 << 20))"):
            with self.subTest(code=code):
                answer = self.execute(code, timeout_s=120)
                self.assertFalse(answer["restarted"], answer["error"])
        self.assertEqual(self.execute("kept")["results"][0]["text/plain"], "5")

    def test_small_results_without_end(self):
        """What is small on the channel is larger in the server's memory. What is heard beyond a thousand is not kept."""
        for number in ("ID", "0"):
            program = ("def lines(count, data):\n"
                       f"    return (json.dumps({{'event': 'result', 'id': {number}, 'data': data}}) + '\\n').encode() * count\n"
                       "for _ in range(2): write(lines(10_000, {}))\n"
                       "for _ in range(160): write(lines(100, {'a/b': [0] * 500}))\n"  # twelve times as large there
                       "while True: write(lines(1, {'a/b': 'x' * 1_000_000}))\n")
            with self.subTest(number=number):
                bounded = program.replace("while True", "for _ in range(50)")
                self.prove(self.outside(bounded).said_bytes > 64 * MIB)
                answer = self.attack(program, timeout_s=100)
                self.broke(answer)
                self.assertLessEqual(len(answer["results"]), 1000)
                self.assertLess(self.grown(), TOO_MUCH // 3)
                self.works()

    def test_pictures_without_end(self):
        program = "for n in range(3000): say(event='result', data={'image/svg+xml': f'<svg>{n}</svg>'})\n"
        self.attack(program, timeout_s=100)
        self.works()

    def test_between_cells(self):
        """Nobody listens then, and nobody keeps it."""
        for data in ("b'x' * (1 << 20)", "(json.dumps({'event': 'result', 'id': ID, 'data': {}}) + '\\n').encode() * 30_000"):
            program = f"data = {data}\ndef flood():\n    while True: write(data)\nthreading.Thread(target=flood, daemon=True).start()\n"
            self.attack(program)
            self.goes_on()
            self.admin.expect(200, "POST", self.box + "/contexts/python/restart")
            self.works()

    def test_output_between_cells(self):
        """What is printed while no cell runs is shown with the next, as far as there is room."""
        program = "import subprocess\nchild = subprocess.Popen(['yes'])\n"
        self.prove(self.outside(program).left)
        self.attack(program)
        answer = self.execute("1+1", timeout_s=20)
        self.assertLessEqual(len(answer["stdout"]), 4 * MIB)
        self.assertEqual([r["text/plain"] for r in answer["results"]], ["2"])
        self.execute("child.kill()")
        self.works()

    def test_completions(self):
        """They are asked for between cells, where a thread may answer first."""
        lies = ("b'nonsense\\n'", "b'x' * (40 << 20)", "b'{\"event\":\"completions\",\"id\":%d,\"matches\":5}\\n' % (ID + 1)",
                "b'{\"event\":\"completions\",\"id\":%d,\"matches\":[' % (ID + 1) + b'\"a\",' * 3_000_000 + b'1]}\\n'")
        for lie in lies:
            with self.subTest(lie=lie):
                self.attack(f"def lie():\n    time.sleep(.2)\n    open('/workspace/lying', 'w').close()\n    write({lie})\n"
                            "threading.Thread(target=lie).start()\n")
                self.assertTrue(until(lambda: self.admin.get(self.box + "/files/stat", path="/workspace/lying").status == 200))
                answers = [self.admin.post(self.box + "/contexts/python/complete", {"text": "pri"}) for _ in range(3)]
                self.assertTrue(all(answer.status < 500 for answer in answers), answers)
                self.goes_on()


class Descriptors(AttackCase):
    def test_closed_and_exchanged(self):
        for program in ("os.close(CHANNEL)", "os.closerange(0, 256)", "os.closerange(3, 256)", "os.close(1); os.close(2)",
                        "os.dup2(os.open('/dev/null', os.O_RDWR), CHANNEL)", "os.dup2(os.open('/dev/full', os.O_RDWR), CHANNEL)",
                        "os.dup2(CHANNEL, 1); print('hello')", "os.dup2(CHANNEL, 2); print('hello', file=sys.stderr)",
                        "import socket; socket.socket(fileno=os.dup(CHANNEL)).shutdown(socket.SHUT_RDWR)",
                        "import socket; socket.socket(fileno=os.dup(CHANNEL)).shutdown(socket.SHUT_WR)"):
            with self.subTest(program=program):
                self.prove(not self.outside(program).is_well)
                self.attack(program)
                self.goes_on()

    def test_closed_and_never_over(self):
        program = "os.close(CHANNEL); open(WORKSPACE + '/closed', 'w').close()\nwhile True: time.sleep(1)"
        answer = self.attack(program, timeout_s=1)
        self.assertTrue(answer["restarted"])
        self.works()

    def test_none_to_be_had(self):
        for program in ("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
                "files = []\nwhile True: files.append(os.dup(0))",
                        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
                        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))"):
            with self.subTest(program=program):
                self.attack(program)
                self.goes_on()

    def test_never_blocking(self):
        """The socket is shared with the server's side in nothing but its bytes."""
        self.attack("os.set_blocking(CHANNEL, False)\nwrite_all = [print('x' * 1000) for _ in range(1000)]")
        self.goes_on()


class Replaced(AttackCase):
    """What the program puts in the place of things that its interpreter uses, too."""

    SNIPPETS = (
        "import builtins; builtins.print = None", "import builtins; del builtins.__import__", "import builtins; builtins.__dict__.clear()",
        "sys.modules.clear()", "sys.modules['json'] = sys.modules['os'] = None", "json.JSONEncoder.encode = lambda *a: 'x'",
        "json.dumps = json.loads = None", "os.write = lambda *a: 0", "os.write = lambda *a: 10**9", "os.getpid = lambda: 1",
        "os.scandir = None",
        "sys.stdout = sys.stderr = None", "sys.stdout = 5", "sys.displayhook = None", "sys.excepthook = None", "time.time = lambda: 'x'",
        "import ast; ast.parse = None", "import traceback; traceback.format_exception = None", "sys.settrace(lambda *a: 1/0)",
        "sys.setprofile(lambda *a: 1/0)", "sys.setrecursionlimit(sys.getrecursionlimit() - 900)", "sys.path[:] = sys.meta_path[:] = []",
        "sys.path = sys.meta_path = sys.path_hooks = None", "import linecache; linecache.cache = None", "__builtins__ = {}",
        "globals().clear()", "In = Out = _ = None", "signal.setitimer(signal.ITIMER_REAL, .001, .001)",
        "signal.signal(signal.SIGALRM, lambda *a: 1/0); signal.setitimer(signal.ITIMER_REAL, .01, .01)",
        "os.environ.clear(); os.chdir('/'); os.umask(0o777)", "import gc; gc.set_threshold(1); gc.set_debug(gc.DEBUG_LEAK)",
        "import re; re.compile = re.search = re.sub = None", "import inspect; inspect.CO_COROUTINE = 'x'",
        "import asyncio; asyncio.new_event_loop = None",
    )
    # Of these a plain python3 does not recover.
    DEADLY = ("builtins.__dict__.clear()", "JSONEncoder.encode", "os.write = lambda *a: 0", "sys.stdout = 5", "builtins.print = None")

    def test_modules_and_functions(self):
        for snippet in self.SNIPPETS:
            with self.subTest(snippet=snippet):
                if any(word in snippet for word in self.DEADLY):
                    self.prove(not self.outside(snippet).is_well)
                self.attack(snippet, timeout_s=5)
                self.goes_on()
                self.admin.expect(200, "POST", self.box + "/contexts/python/restart")

    # Reached from the cell's own frame, from a method it was given, and by looking through all objects there are.
    REACHED = (
        "KERNEL.channel = None", "KERNEL.execute = KERNEL.run = None", "KERNEL.channel.write = lambda *a: 0",
        "KERNEL.finish = lambda *a: None",
        "KERNEL.report = KERNEL.show = None; 1/0", "KERNEL.cell.number = 10**6; display('x')", "KERNEL.cell = None", "KERNEL.main = None",
        "KERNEL.channel.reader.close()", "KERNEL.channel.reader.read(0); KERNEL.channel.descriptor = 1",
        "KERNEL.__class__ = type('K', (), {})",
        "type(KERNEL).serve = type(KERNEL).finish = None", "KERNEL.channel.owner = 0", "KERNEL.channel.encode = lambda x: 'x'",
        "KERNEL.files_since = lambda began: ['/workspace/' + str(n) for n in range(20_000)]", "KERNEL.count = 10**30", "KERNEL.count = None",
        "frame = sys._getframe()\nwhile frame:\n"
        "    frame.f_globals.clear() if 'kernel' in frame.f_code.co_filename else 0\n    frame = frame.f_back",
        "import gc\nfor thing in gc.get_objects():\n    if type(thing).__name__ in ('Kernel', 'Channel'): thing.__dict__.clear()",
        "import gc, types\nfor f in gc.get_objects():\n"
        "    if isinstance(f, types.FunctionType) and '<kernel' in f.__code__.co_filename:\n"
        "        try: f.__code__ = (lambda *a, **k: None).__code__\n        except ValueError: pass",
        "import ctypes; ctypes.string_at(0)", "import ctypes; ctypes.memset(id(KERNEL), 0, 64)",
    )

    def test_the_interpreters_own_objects(self):
        found = ("import gc\nfound = [f for f in gc.get_objects() if getattr(f, '__name__', '') == 'cell']\n"
                 "found[0].__code__ = (lambda *a: None).__code__")
        self.prove(b'"id": 8' not in self.outside(found).said)
        self.prove(self.outside("import ctypes; ctypes.string_at(0)").code != 0)
        for program in self.REACHED:
            with self.subTest(program=program):
                self.attack(program, timeout_s=1)
                self.goes_on()
                self.admin.expect(200, "POST", self.box + "/contexts/python/restart")


class Leftovers(AttackCase):
    def test_threads_and_processes_that_stay(self):
        mark = "86399.25"
        program = f"""
import subprocess
def noise():
    while True:
        print('noise')
        globals().get('display', print)('noise')
        time.sleep(.005)
for daemon in (True, False): threading.Thread(target=noise, daemon=daemon).start()
subprocess.Popen(['sh', '-c', 'while :; do echo more; sleep .01; done'])
subprocess.Popen(['setsid', 'sleep', '{mark}'], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    while True: time.sleep(1)
"""
        short = program.replace("start_new_session=True", "").replace("os.setsid()", "").replace("'setsid', ",
        "").replace("(True, False)", "[]")
        self.prove(len(self.outside(short).left) >= 3)
        self.attack(program)
        for _ in range(5):
            answer = self.execute("1+1", timeout_s=20)
            self.assertIn("2", [r.get("text/plain") for r in answer["results"] if r["is_main"]])
        self.admin.expect(200, "POST", self.box + "/contexts/python/restart")
        self.goes_on()
        self.assertTrue(self.running(mark))
        self.admin.expect(204, "DELETE", self.box)
        self.assertTrue(until(lambda: not self.running(mark)), "it outlives its session")

    def running(self, mark):
        found = []
        for pid, _ in descendants(self.server.pid):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    found += [pid] * (mark.encode() in file.read())
            except OSError:
                pass
        return found

    def test_processes_without_end(self):
        self.attack("while True:\n    try: os.fork()\n    except OSError: pass", timeout_s=2)
        answer = self.admin.post(self.box + "/execute", {"code": "1+1", "timeout_s": 5})
        self.assertLess(answer.status, 500, answer)
        self.admin.expect(204, "DELETE", self.box)

    def test_a_fork_that_comes_back(self):
        """The cell returns twice: only one of them is the interpreter."""
        program = "pid = os.fork()\n"
        self.prove(self.outside(program).said.count(b"done") == 4)
        for _ in range(3):
            answer = self.attack(program + "'once'")
            self.assertEqual([r["text/plain"] for r in answer["results"]], ["'once'"])
            for _ in range(4):
                self.works()

    def test_a_fork_that_goes_on_talking(self):
        endless = "if os.fork() == 0:\n    while True:\n        {}\n        time.sleep(.001)\n"
        for talk in ("say(event='result', data={'text/plain': 'forged'})", "say(event='done', id=ID + 1, count=1, files=[])",
                     "write(b'nonsense\\n')", "os.read(CHANNEL, 5)", "os.write(1, b'noise')"):
            with self.subTest(talk=talk):
                program = endless.format(talk)
                self.prove(self.outside(program).left)
                self.attack(program, timeout_s=5)
                for _ in range(5):
                    self.execute("1+1", timeout_s=2)
                self.admin.expect(200, "POST", self.box + "/contexts/python/restart")
                self.goes_on()
                self.admin.expect(200, "POST", self.box + "/contexts/python/restart")

    def test_two_interpreters_on_one_channel(self):
        """The child takes its parent's place beside it; a new one has a channel of its own."""
        self.attack("pid = os.fork()\nKERNEL.channel.owner = os.getpid()\n'twice'", timeout_s=5)
        for _ in range(5):
            self.execute("1+1", timeout_s=2)
        self.admin.expect(200, "POST", self.box + "/contexts/python/restart")
        self.works()


class Stubborn(AttackCase):
    """Cells that do not let go."""

    LOOP = ("{}while True:\n    try:\n        print('ready', flush=True)\n"
            "        while True: print('on', flush=True); time.sleep(.01)\n    except BaseException: pass")

    def test_interrupts_are_ignored(self):
        programs = [self.LOOP.format(first) for first in (
            "", "signal.signal(signal.SIGINT, signal.SIG_IGN)\n", "signal.signal(signal.SIGINT, lambda *a: None)\n",
            "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n")]
        for program in programs:
            self.prove(self.outside(program, interrupt=True).went_on)

        def try_it(program, box):
            answer = self.attack(program, timeout_s=2, box=box)
            self.assertEqual((answer["status"], answer["fault"], answer["restarted"]), ("timeout", "limit", True), program)
            self.works(box)
        self.beside_each_other(programs, try_it)

    def test_ends_that_are_none(self):
        for program in ("sys.exit()", "sys.exit('text')", "raise SystemExit(10**30)", "raise KeyboardInterrupt", "raise GeneratorExit",
                "quit()",
                        "raise type('Odd', (BaseException,), {'__str__': lambda self: sys.exit()})()", "raise type('', (Exception,), {})()",
                        "raise type('Odd', (Exception,), {'__str__': lambda self: 5, '__module__': 5})()",
                        "e = ValueError(); e.__context__ = e.__cause__ = TypeError(); e.__cause__.__cause__ = e; raise e",
                        "e = ValueError('x')\nfor _ in range(100_000):\n    n = ValueError('x'); n.__cause__ = e; e = n\nraise e",
                        "e = ExceptionGroup('g', [ValueError()])\nfor _ in range(900): e = ExceptionGroup('g', [e])\nraise e"):
            with self.subTest(program=program):
                answer = self.attack(program)
                self.assertEqual(answer["status"], "error")
                self.goes_on()
        for program in ("os._exit(0)", "os.abort()", "os.kill(os.getpid(), 9)", "os.kill(0, 9)",
                "import atexit; atexit.register(time.sleep, 1000); os.close(CHANNEL)"):
            with self.subTest(program=program):
                self.prove(not self.outside(program.replace("1000", "1")).is_well)
                answer = self.attack(program, timeout_s=3)
                self.assertTrue(answer["restarted"])
                self.works()

    def test_asleep_for_good(self):
        def try_it(program, box):
            answer = self.attack(program, timeout_s=1, box=box)
            self.assertIn(answer["status"], ("timeout", "error"), program)
            self.goes_on(box)
        self.beside_each_other((
            "os.kill(os.getpid(), signal.SIGSTOP)", "import ctypes; ctypes.PyDLL(None).sleep(1000)", "x = 7 ** 10_000_000; str(x)",
            "lock = threading.Lock(); lock.acquire(); lock.acquire()", "import socket; a, b = socket.socketpair(); a.recv(1)"), try_it)


if __name__ == "__main__":
    unittest.main()
