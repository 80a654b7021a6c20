"""What a program gives its interpreter to show, to keep and to begin with, and interpreters that are not Python; the rest as in
test_http_interpreter_attacks.py.
"""
import os
import tempfile
import unittest

from http_harness import in_parallel
from interpreter_case import MIB, MOST_KEPT, STATUSES, AttackCase
from plain_python import TOOLS


class Values(AttackCase):
    """Values that are hard to show."""

    def test_shown_or_not_the_interpreter_lives(self):
        self.execute("kept = 5")
        for code in ("x = []\nfor _ in range(100): x = [x]\nx", "x = {}\nfor _ in range(70): x = {'a': x}\nx", "x = []; x.append(x); x",
                     "x = []\nfor _ in range(100_000): x = [x]\nx", "{'a': '\\ud800'}", "'\\udcff'", "print('\\udcff')",
                     "raise ValueError('\\udcff')",
                     "{1: 1, '1': 2}", "type('T', (), {'_repr_json_': lambda self: {1: 1, '1': 2}})()", "{'a': 10 ** 400, 'b': -10 ** 400}",
                     "{'a': float('inf')}", "type('T', (), {'_repr_json_': lambda self: {'a': float('nan')}})()",
                     "{'a': 2 ** 64, 'b': 1e308}",
                     "type('T', (), {'_repr_json_': lambda self: object()})()", "type('T', (), {'_repr_html_': lambda self: 5})()",
                     "type('T', (), {'_repr_mimebundle_': lambda self, **k: {5: 6, 'a/b': {7: b'x'}, 'c' * 500 + '/d': ''}})()",
                     "type('T', (), {'_repr_mimebundle_': lambda self, **k: 5})()", "type('T', (), {'__repr__': lambda self: 5})()",
                     "type('T', (), {'__repr__': lambda self: 1/0})()", "type('T', (), {'__getattr__': lambda self, name: 1/0})()",
                     "type('T', (), {'__getattr__': lambda self, name: self})()", "type('T', (dict,), {'__iter__': lambda self: 1/0})()",
                     "type('T', (), {'__class__': property(lambda self: 1/0)})()", "type('\\ud800', (), {})()", "'\\0\\x1b[2J\\x07'",
                     "b'\\xff' * 1000",
                     "def f(): return f()\nf()", "exec('(' * 100_000)", "eval('1+' * 100_000 + '1')", "'%s' % ('x' * 10_000_000)"):
            with self.subTest(code=code):
                answer = self.execute(code, timeout_s=60)
                self.assertFalse(answer["restarted"], answer["error"])
                self.assertNotIn((answer["error"] or {}).get("name"), ("InterpreterBroken", "InterpreterEnded"))
        self.assertEqual(self.execute("kept")["results"][0]["text/plain"], "5")

    def test_recursion_without_a_limit(self):
        program = "sys.setrecursionlimit(10**9)\ndef f(x): return f([x])\nclass T:\n    def __repr__(self): return repr(self)\n"
        self.prove(self.outside(program + "repr(T())").code < 0)
        self.attack(program + "T()", timeout_s=60)
        self.goes_on()

    def test_shown_forever(self):
        def try_it(code, box):
            answer = self.attack(code, timeout_s=1, box=box)
            self.assertEqual(answer["status"], "timeout", answer)
            self.goes_on(box)
        self.beside_each_other((
            "class T:\n    def __repr__(self):\n        while True: pass\nT()",
            "class T:\n    def _repr_html_(self):\n        while True: time.sleep(1)\nT()",
            "class T(Exception):\n    def __str__(self):\n        while True: time.sleep(1)\nraise T"), try_it)


class Files(AttackCase):
    """What a cell leaves in the workspace, and what is kept of it."""

    def listed(self):
        return self.admin.expect(200, "GET", self.box + "/artifacts").json["artifacts"]

    def test_more_than_is_kept(self):
        program = ("os.makedirs(WORKSPACE + '/d')\nfor i in range({}): open(WORKSPACE + f'/d/f{{i}}', 'w').write('x')\n"
                   "print(len(os.listdir(WORKSPACE + '/d')))")
        self.prove(b"30000\n" in self.outside(program.format(30_000)).out)
        for _ in range(4):
            self.attack("import shutil; shutil.rmtree(WORKSPACE + '/d', ignore_errors=True)\n" + program.format(5000))
        self.assertLessEqual(len(self.listed()), 500)
        self.works()

    def test_more_bytes_than_are_kept(self):
        self.attack("for i in range(6): open(WORKSPACE + f'/{i}', 'wb').write(b'x' * (50 << 20))\n", timeout_s=60)
        self.assertLessEqual(sum(a["size"] for a in self.listed()), MOST_KEPT)
        self.attack("for i in range(6): os.unlink(WORKSPACE + f'/{i}')\n"
                    "for i in range(3): os.truncate(os.open(WORKSPACE + f'/s{i}', os.O_CREAT | os.O_RDWR), 1 << 40)")
        self.assertLessEqual(sum(a["size"] for a in self.listed()), MOST_KEPT)
        self.works()

    def test_names(self):
        names = ["line\nbreak", "re\rturn\r\nSet-Cookie: a=b", "\x1b[2J\x07bell", "..x", "...", " ", "'\"$(id)`", "a\\..\\b", "%2e%2e",
                "\u202egnp.exe",
                 "x" * 255, "-rf", "a;b", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")]
        program = f"for name in {names!r}: open(os.path.join(WORKSPACE, name), 'w').write('x')\nprint(len(os.listdir(WORKSPACE)))"
        self.prove(b"%d\n" % len(names) in self.outside(program).out)
        self.assertEqual(sorted(a["name"] for a in self.attack(program)["artifacts"]), sorted(names))
        for artifact in self.listed():
            answer = self.admin.expect(200, "GET", f"{self.box}/artifacts/{artifact['artifact_id']}")
            self.assertEqual(answer.body, b"x")
            self.assertIsNone(answer.header("set-cookie"))
            self.assertNotRegex(answer.header("content-disposition") or "", r"[\x00-\x1f\x7f]")
        self.works()

    def test_names_that_are_no_text(self):
        program = r"for name in (b'\xff\xfe', b'\xc3', b'\xed\xa0\x80'): open(os.path.join(os.fsencode(WORKSPACE), name), 'w').write('x')"
        for language in ("python", "javascript", "bash"):
            box = self.session()
            self.attempts += 1
            answer = self.admin.expect(200, "POST", box + "/execute", {"code": "1", "language": language}).json
            self.admin.expect(200, "POST", box + "/execute", {"code": TOOLS + program})
            touch = {"python": "import os; [os.utime(os.path.join(b'/workspace', n)) for n in os.listdir(b'/workspace')]; None",
                     "javascript": "require('fs').readdirSync('/workspace', 'buffer').forEach((n) => "
                                   "require('fs').utimesSync(Buffer.concat([Buffer.from('/workspace/'), n]), 1, 1)); null",
                     "bash": "touch /workspace/*"}[language]
            answer = self.admin.expect(200, "POST", box + "/execute", {"code": touch, "language": language}).json
            self.assertEqual((answer["error"], answer["restarted"]), (None, False), language)
            self.assertLess(self.admin.post(f"{box}/contexts/{language}/complete", {"text": "ls /workspace/"}).status, 500)

    def test_links_and_things_that_are_no_files(self):
        with tempfile.TemporaryDirectory(prefix="asr-canary-") as folder:
            os.chmod(folder, 0o755)
            canary = os.path.join(folder, "canary")
            with open(canary, "w", encoding="ascii") as file:
                file.write("of the host")
            program = (f"os.chdir(WORKSPACE); os.symlink({canary!r}, 'l'); os.symlink({folder!r}, 'd'); os.symlink('.', 'loop')\n"
                       "os.mkfifo('pipe'); import socket; socket.socket(socket.AF_UNIX).bind('socket')\n"
                       "os.symlink('/etc/passwd', 'passwd'); os.symlink('/dev/zero', 'zero')\n"
                       "for name in ('l', 'd/canary'):\n    try: print(open(name).read())\n    except OSError: print('nothing')\n")
            plain = self.outside(program)
            self.prove(plain.out.count(b"of the host") == 2)
            answer = self.attack(program)
            self.assertEqual((answer["stdout"], answer["artifacts"], answer["error"]), ("nothing\nnothing\n", [], None))
            says = ("names = [*os.listdir('/workspace'), 'd/canary', 'loop/loop/l']\n"
                    "say(event='done', count=1, files=['/workspace/' + name for name in names])")
            self.attack(says)
            self.assertFalse([a for a in self.listed() if b"of the host" in self.admin.get(f"{self.box}/artifacts/{a['artifact_id']}").body])
            self.works()

    def test_files_that_become_links_meanwhile(self):
        """Between the word that a file was made and the fetching of it."""
        program = """
os.chdir(WORKSPACE)
open('real', 'w').write('inside'); os.symlink('/proc/1/environ', 'other')
def race():
    import ctypes
    libc = ctypes.CDLL(None)
    end = time.monotonic() + 5
    while time.monotonic() < end: libc.renameat2(-100, b'real', -100, b'other', 2)
threading.Thread(target=race).start()
"""
        self.attack(program)
        end = "say(event='done', count=1, files=['/workspace/real'] * 100)"
        for _ in range(5):
            for artifact in self.attack(end)["artifacts"]:
                if artifact["artifact_id"] and artifact["size"]:
                    self.assertEqual(artifact["size"], 6, artifact)
        self.goes_on()

    def test_folders_without_end(self):
        self.attack("os.chdir(WORKSPACE)\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\nopen('deep', 'w').close()", timeout_s=60)
        self.goes_on()
        self.attack("for i in range(30_000): os.mkdir(f'{WORKSPACE}/{i}')", timeout_s=60)
        self.goes_on()


class Beginnings(AttackCase):
    """What a program prepares for the interpreter that comes after it."""

    def test_modules_in_the_place_of_its_own(self):
        """Files of the workspace and of the user's own folder are the program's to import, not the interpreter's."""
        names = ("ast", "asyncio", "base64", "inspect", "io", "json", "linecache", "re", "signal", "socket", "subprocess", "time",
                "traceback", "types")
        program = f"for name in {names!r}: open(f'{{WORKSPACE}}/{{name}}.py', 'w').write('import os; os._exit(3)')\n"
        self.prove(self.outside(program + "import subprocess").code == 3)
        self.attack(program)
        self.admin.expect(200, "POST", self.box + "/contexts/python/restart")
        self.works()
        self.assertEqual(self.execute("import os; open('/workspace/mine.py', 'w').write('x = 5'); None")["status"], "ok")
        self.assertEqual(self.execute("import mine; mine.x")["results"][0]["text/plain"], "5")

    def test_an_interpreter_that_does_not_start(self):
        """Whoever spoils it is told so: it is no failure of the server's."""
        program = ("import site\nplace = site.getusersitepackages()\nos.makedirs(place, exist_ok=True)\n"
                   "open(place + '/usercustomize.py', 'w').write({!r})\n")
        for spoilt in ("import os; os._exit(3)", "print('{}')", "import os; os.write(0, b'nonsense\\n'); os._exit(0)", "raise SystemExit"):
            with self.subTest(spoilt=spoilt):
                box = self.session()
                self.attempts += 1
                self.admin.expect(200, "POST", box + "/execute", {"code": TOOLS + program.format(spoilt)})
                self.admin.expect(200, "POST", box + "/contexts/python/restart")
                answer = self.admin.post(box + "/execute", {"code": "1+1"})
                self.assertLess(answer.status, 500, answer)
                self.assertEqual(self.admin.run(box, "echo on"), "on\n")

    def test_variables_that_steer_an_interpreter(self):
        names = {"PYTHONSTARTUP": "/workspace/x.py", "PYTHONHOME": "/nowhere", "PYTHONPATH": "/workspace", "PYTHONINSPECT": "1",
                "BASH_ENV": "/workspace/x",
                 "NODE_OPTIONS": "--require /workspace/x.js", "LD_PRELOAD": "/workspace/x.so", "PATH": "/workspace", "HOME": "/nowhere",
                 "LC_ALL": "xx"}
        for name, value in names.items():
            for language in ("python", "javascript", "bash"):
                with self.subTest(name=name, language=language):
                    self.attempts += 1
                    answer = self.admin.call("POST", "/api/sessions", {"env": {name: value}})
                    if answer.status != 201:
                        self.assertEqual(answer.status, 400, answer)
                        continue
                    box = "/api/sessions/" + answer.json["session_id"]
                    self.addCleanup(self.admin.delete, box)
                    self.assertNotEqual(self.admin.post(box + "/execute", {"code": "1", "language": language}).status, 500)

    def test_interpreters_without_end(self):
        made = [self.admin.post(self.box + "/contexts", {"language": "python"}) for _ in range(40)]
        self.assertEqual({answer.status for answer in made}, {201, 429})
        contexts = [answer.json["context_id"] for answer in made if answer.status == 201]
        # With one processor they hinder each other for long before the kernel takes memory from one.
        box = self.session(limits={"cpus": 2, "memory": "128M", "disk": "16M"})
        for _ in range(20):
            self.admin.expect(201, "POST", box + "/contexts", {"language": "python"})

        def use(number):
            self.attempts += 1
            return self.admin.post(f"{box}/execute", {"code": "x = bytearray(20 << 20)", "context": f"x{number + 1}"}, timeout=60)
        self.assertTrue(all(answer.status < 500 for answer in in_parallel(20, use)))
        for context in contexts:
            self.admin.expect(204, "DELETE", f"{self.box}/contexts/{context}")
        self.works()


class OtherLanguages(AttackCase):
    """The same for those that are not Python."""

    JAVASCRIPT = (
        "require('fs').writeSync(0, 'nonsense\\n')", "require('fs').closeSync(0)", "require('fs').writeSync(0, Buffer.alloc(40 << 20))",
        "for (let i = 3; i < 64; ++i) try { require('fs').closeSync(i) } catch {}", "process.exit(0)", "process.abort()",
        "process.kill(process.pid, 'SIGKILL')",
        "JSON.stringify = () => 'x'", "JSON.stringify = null; 1", "Object.prototype.toJSON = () => 5; [1]",
        "Promise.prototype.then = null; 1",
        "Array.prototype.push = null", "Object.getPrototypeOf = null; ({})", "globalThis.process = null",
        "delete globalThis.Buffer; Buffer = null",
        "require('util').inspect = null; 1", "setInterval(() => console.log('noise'), 1)", "process.on('SIGINT', () => {}); for (;;) {}",
        "process.removeAllListeners()", "process.emit('SIGINT')", "process.stdout.destroy(); console.log('x')", "throw null",
        "throw {get name() { throw 1 }}",
        "throw Object.assign(new Error('x'), {stack: {toString() { throw 1 }}})", "Promise.reject(5); await new Promise(() => {})",
        "'\\ud800'", "({a: '\\ud800'})", "new Error('\\ud800')", "throw new Error('\\ud800')",
        "let x = []; for (let i = 0; i < 100; ++i) x = [x]; x",
        "({get a() { throw 1 }})", "new Proxy({}, {get() { throw 1 }})",
        "({[Symbol.for('Jupyter.display')]() { return {'a/b': 'x'.repeat(50 << 20)} }})",
        "'x'.repeat(50 << 20)", "function f() { f() } f()", "new Array(2 ** 32 - 1)", "({a: 1e999, b: 2n ** 70n})", "globalThis",
        "require('net')",
        "require('child_process').fork('/dev/null')", "while (true) process.nextTick(() => {})",
        "require('vm').runInThisContext('while(1);')",
        "display.call(null, {})", "input(); 5", "for (let i = 0; i < 1e5; ++i) input()",
    )
    BASH = (
        "for f in /proc/$$/fd/*; do [[ $(readlink $f) != socket* ]] || eval \"echo nonsense >&${f##*/}\"; done",
        "for f in {3..255}; do eval \"exec $f>&-\"; done", "exec >&- 2>&-; echo x", "exit 0", "kill -9 $$", "kill -STOP $$",
        "trap '' INT TERM; while :; do :; done",
        "exec sleep 1000", "exec bash -c 'echo nonsense >&0'", "set -e; false", "set -u; echo $nothing", "set -n", "set -x",
        "set -o posix; set -f",
        "IFS=xyz", "PATH=/nowhere", "unset PATH IFS HOME", "readonly __op __id __length __code", "readonly __count __status",
        "__say() { echo x; }",
        "__channel=1", "__execute() { :; }", "printf() { :; }; read() { return 1; }; eval() { :; }",
        "alias read=false; shopt -s expand_aliases",
        "trap 'echo noise' DEBUG", "trap 'exit 3' EXIT ERR RETURN", "enable -n read printf eval", "return 5", "break", "f() { f; }; f",
        "(while :; do echo noise; done) &", "sleep 1000 & disown", "ulimit -n 0", "ulimit -v 1", "cd /nowhere", "}", "'", "$(", "cat <<E",
        "touch $'/workspace/\\xff\\n\"\\\\\\e'",
        "compgen() { echo \\\"; }", "EPOCHREALTIME=x; unset EPOCHREALTIME", "LC_ALL=C; printf '\\xff' >&2",
        "mkdir /workspace/.git; rm -rf /workspace/.git",
    )

    def survive(self, language, programs):
        """Three sessions take one after the other: they are waited for most of the time."""
        waiting = iter(programs)
        proof = "echo $((1+1))" if language == "bash" else "console.log(1+1)"

        def take_some(_, box):
            for program in waiting:
                answer = self.execute(program, box, language=language, timeout_s=1)
                self.assertIn(answer["status"], STATUSES, program)
                completed = self.admin.post(f"{box}/contexts/{language}/complete", {"text": "pri"})
                self.assertLess(completed.status, 500, program)
                self.execute("1", box, language=language, timeout_s=1)
                self.admin.expect(200, "POST", f"{box}/contexts/{language}/restart")
                answer = self.execute(proof, box, language=language, timeout_s=20)
                self.assertEqual((answer["stdout"], answer["error"]), ("2\n", None), program)
        self.attempts += len(programs)
        self.beside_each_other(range(3), take_some)

    def test_javascript_against_itself(self):
        self.survive("javascript", self.JAVASCRIPT)

    def test_bash_against_itself(self):
        self.survive("bash", self.BASH)


if __name__ == "__main__":
    unittest.main()
