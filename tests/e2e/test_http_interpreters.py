"""Interpreters over HTTP: variables that stay, results with pictures, and cells that misbehave."""
import base64
import json
import threading
import time
import unittest

from harness import needs
from http_harness import HttpCase, needs_ability, until

CHART = "application/vnd.agent-sandbox.chart+json"


class InterpreterCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.box = self.session(limits={"cpus": 2, "memory": "1G"})

    def execute(self, code, **fields):
        return self.admin.expect(200, "POST", self.box + "/execute", {"code": code, **fields}).json

    def text(self, code, **fields):
        """The text of the one result that is the cell's value."""
        answer = self.execute(code, **fields)
        self.assertIsNone(answer["error"], answer)
        main = [result for result in answer["results"] if result["is_main"]]
        self.assertEqual(len(main), 1, answer)
        return main[0]["text/plain"]


class Python(InterpreterCase):
    def test_the_last_expression_is_the_result_and_variables_stay(self):
        self.assertEqual(self.text("1+1"), "2")
        answer = self.execute("x = 20\nprint('hello')\nimport sys; print('oops', file=sys.stderr)")
        self.assertEqual((answer["stdout"], answer["stderr"], answer["results"], answer["status"]),
                         ("hello\n", "oops\n", [], "ok"))
        self.assertEqual(self.text("x + 22"), "42")
        self.assertEqual(self.text("_ + 1"), "43")
        self.assertEqual(self.text("_3, Out[1], len(In)"), "(42, 2, 6)")

    def test_a_semicolon_hides_the_result(self):
        self.assertEqual(self.execute("1+1;")["results"], [])

    def test_top_level_await(self):
        self.assertEqual(self.text("import asyncio\nawait asyncio.sleep(0.01)\nawait asyncio.sleep(0, 'done')"), "'done'")

    def test_output_of_children_is_in_its_place(self):
        answer = self.execute("import os, subprocess\nprint('a')\nos.system('echo b')\nsubprocess.run(['echo', 'c'])\n"
                              "print('d')\nNone")
        self.assertEqual(answer["stdout"], "a\nb\nc\nd\n")

    def test_errors_point_into_the_cell(self):
        answer = self.execute("def f():\n    return 1/0\nf()")
        self.assertEqual((answer["status"], answer["fault"], answer["error"]["name"], answer["error"]["value"]),
                         ("error", "program", "ZeroDivisionError", "division by zero"))
        self.assertIn("line 2, in f\n    return 1/0", answer["error"]["traceback"])
        self.assertNotIn("<kernel>", answer["error"]["traceback"])
        self.assertEqual(self.execute("1 +")["error"]["name"], "SyntaxError")
        self.assertEqual(self.execute("exit(3)")["error"]["name"], "SystemExit")
        self.assertEqual(self.text("'still there'"), "'still there'")

    def test_lines_for_the_shell(self):
        self.assertEqual(self.execute("!echo from the shell")["stdout"], "from the shell\n")
        self.assertEqual(self.text("names = !printf 'a\\nb\\n'\nnames"), "['a', 'b']")
        self.assertEqual(self.execute("%cd /tmp\nimport os\nprint(os.getcwd())")["stdout"], "/tmp\n")
        self.assertEqual(self.execute("%%bash\necho $((6*7))")["stdout"], "42\n")
        self.assertIn("pip", self.execute("%pip --version")["stdout"])
        self.assertEqual(self.text("'100%d' % 5"), "'1005'")
        self.assertEqual(self.text("word = 'filled'\nsaid = !echo {word}\nsaid.s, _exit_code"), "('filled', 0)")
        self.assertEqual(self.execute("!exit 3")["status"], "ok")
        self.assertEqual(self.execute("%nonsense")["error"]["name"], "NameError")
        self.assertEqual(self.execute("%%html\n<b>x</b>")["results"][0]["text/html"], "<b>x</b>")
        self.execute("%env COLOUR=red")
        self.assertEqual(self.execute("!echo $COLOUR")["stdout"], "red\n")

    def test_what_pip_installs_can_be_imported(self):
        self.execute("""
import zipfile
with zipfile.ZipFile('/tmp/tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'x = 5')
    wheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('tiny-1.0.dist-info/RECORD', '')
""")
        answer = self.execute("%pip install --no-index /tmp/tiny-1.0-py3-none-any.whl", timeout_s=60)
        self.assertIsNone(answer["error"], answer["stderr"])
        self.assertEqual(self.text("import tiny; tiny.x"), "5")
        self.assertEqual(self.execute("%pip install --no-index no-such-thing", timeout_s=60)["status"], "error")

    def test_threads_and_processes(self):
        code = """
import multiprocessing, threading
def square(n):
    return n * n
seen = []
threads = [threading.Thread(target=lambda n=n: seen.append(n)) for n in range(5)]
[t.start() for t in threads]; [t.join() for t in threads]
with multiprocessing.Pool(2) as pool:
    squares = pool.map(square, range(5))
sorted(seen), squares
"""
        self.assertEqual(self.text(code), "([0, 1, 2, 3, 4], [0, 1, 4, 9, 16])")

    def test_what_objects_say_of_themselves(self):
        code = """
class Drawn:
    def _repr_html_(self): return "<b>me</b>"
    def _repr_latex_(self): return "$x$"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_svg_(self): raise ValueError
display(Drawn(), 7)
{"a": [1, 2]}
"""
        results = self.execute(code)["results"]
        self.assertEqual([result["is_main"] for result in results], [False, False, True])
        self.assertEqual((results[0]["text/html"], results[0]["text/latex"]), ("<b>me</b>", "$x$"))
        self.assertEqual(base64.b64decode(results[0]["image/png"]), b"\x89PNG")
        self.assertNotIn("image/svg+xml", results[0])
        self.assertEqual(results[2]["application/json"], {"a": [1, 2]})

    def test_every_kind_of_picture(self):
        code = """
class Drawn:
    def _repr_html_(self): return "<b>"
    def _repr_markdown_(self): return "**b**"
    def _repr_latex_(self): return "$b$"
    def _repr_svg_(self): return "<svg/>"
    def _repr_jpeg_(self): return b"\\xff\\xd8"
    def _repr_pdf_(self): return b"%PDF"
    def _repr_json_(self): return {"b": [1, None]}
    def _repr_javascript_(self): return "b()"
class Bundled:
    def _repr_mimebundle_(self, include=None, exclude=None): return {"text/x-own": "own", "image/png": b"\\x89PNG"}, {"width": 5}
display(Bundled())
Drawn()
"""
        answer = self.execute(code)
        bundled, drawn = answer["results"]
        self.assertEqual((bundled["text/x-own"], base64.b64decode(bundled["image/png"])), ("own", b"\x89PNG"))
        self.assertEqual({mime: drawn[mime] for mime in drawn if "/" in mime and mime != "text/plain"}, {
            "text/html": "<b>", "text/markdown": "**b**", "text/latex": "$b$", "image/svg+xml": "<svg/>", "application/javascript": "b()",
            "image/jpeg": base64.b64encode(b"\xff\xd8").decode(), "application/pdf": base64.b64encode(b"%PDF").decode(),
            "application/json": {"b": [1, None]}})
        self.assertEqual([(a["name"], a["mime"]) for a in answer["artifacts"]],
                         [("result-1-1.png", "image/png"), ("result-1-2.jpg", "image/jpeg")])

    def test_charts_as_numbers(self):
        chart = lambda code: self.execute("import matplotlib.pyplot as plt\n" + code + "\nplt.show()", timeout_s=60)["results"][0][CHART]
        boxes = chart("plt.boxplot([[1, 2, 3, 4, 5], [2, 4, 6, 8, 40]])")
        self.assertEqual(boxes["type"], "box_and_whisker")
        self.assertEqual([(e["median"], e["outliers"]) for e in boxes["elements"]], [(3, []), (6, [40])])
        lines = chart("plt.plot([1, 10, 100], label='a'); plt.plot([2, 20, 200]); plt.yscale('log'); plt.ylabel('weight [kg]')")
        self.assertEqual((lines["y_scale"], lines["y_unit"], [e["label"] for e in lines["elements"]]), ("log", "kg", ["a", "series 2"]))
        dates = chart("import datetime; plt.plot([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)], [1, 2])")
        self.assertEqual((dates["x_scale"], dates["elements"][0]["points"][0][0]), ("datetime", "2020-01-01"))
        groups = chart("import numpy; plt.bar([0, 1], [1, 2], .4, label='x'); plt.bar([.4, 1.4], [3, numpy.nan], .4, label='y')")
        self.assertEqual([(e["group"], e["value"]) for e in groups["elements"]], [("x", 1), ("x", 2), ("y", 3), ("y", None)])

    def test_figures_show_themselves(self):
        answer = self.execute("""
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 5, 6], label="rise")
plt.title("A line"); plt.xlabel("time (s)"); plt.ylabel("speed")
None
""", timeout_s=60)
        self.assertIsNone(answer["error"], answer)
        (result,) = answer["results"]
        self.assertTrue(base64.b64decode(result["image/png"]).startswith(b"\x89PNG"))
        chart = result[CHART]
        self.assertEqual((chart["type"], chart["title"], chart["x_label"], chart["x_unit"]), ("line", "A line", "time (s)", "s"))
        self.assertEqual(chart["elements"], [{"label": "rise", "points": [[1, 4], [2, 5], [3, 6]]}])
        (artifact,) = answer["artifacts"]
        self.assertEqual((artifact["mime"], artifact["name"]), ("image/png", "result-1-1.png"))
        bars = self.execute("plt.bar(['a', 'b'], [3, 4]); plt.show()")["results"][0][CHART]
        self.assertEqual([(e["label"], e["value"]) for e in bars["elements"]], [("a", 3), ("b", 4)])
        pie = self.execute("_ = plt.pie([1, 3], labels=['x', 'y'])")["results"][0][CHART]
        self.assertEqual([(e["label"], round(e["angle"])) for e in pie["elements"]], [("x", 90), ("y", 270)])
        dots = self.execute("plt.scatter([1, 2], [3, 4]); plt.show()")["results"][0][CHART]
        self.assertEqual(dots["elements"][0]["points"], [[1, 3], [2, 4]])
        two = self.execute("f, (a, b) = plt.subplots(1, 2); a.plot([1]); b.bar([1], [2]); None")["results"][0][CHART]
        self.assertEqual((two["type"], [e["type"] for e in two["elements"]]), ("superchart", ["line", "bar"]))

    def test_pictures_and_tables(self):
        image = self.execute("from PIL import Image\nImage.new('RGB', (3, 2))")["results"][0]
        self.assertTrue(base64.b64decode(image["image/png"]).startswith(b"\x89PNG"))
        table = self.execute("import pandas\npandas.DataFrame({'a': [1, 2]})", timeout_s=60)
        self.assertIsNone(table["error"], table)
        self.assertIn("<table", table["results"][0]["text/html"])
        self.assertEqual(table["results"][0]["application/vnd.agent-sandbox.data+json"], {"a": {"0": 1, "1": 2}})

    def test_variables_of_the_environment_and_files(self):
        answer = self.execute("import os; print(os.environ['COLOUR'], open('/workspace/in.txt').read())",
                              env={"COLOUR": "green"}, files=[{"path": "/workspace/in.txt", "content": "text"}])
        self.assertEqual(answer["stdout"], "green text\n")

    def test_much_output_is_cut_and_said_so(self):
        answer = self.execute("print('x' * 10_000_000)")
        self.assertTrue(answer["truncated"])
        self.assertLessEqual(len(answer["stdout"]), 4 << 20)
        self.assertEqual(self.text("'lives'"), "'lives'")


class Endings(InterpreterCase):
    def test_a_timeout_keeps_the_variables(self):
        self.execute("x = 5")
        began = time.monotonic()
        answer = self.execute("import time\nwhile True: time.sleep(0.01)", timeout_s=0.5)
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual((answer["status"], answer["fault"], answer["restarted"], answer["error"]["name"]),
                         ("timeout", "limit", False, "Timeout"))
        self.assertEqual(self.text("x"), "5")

    def test_one_that_does_not_let_go_is_replaced(self):
        self.execute("x = 5")
        answer = self.execute("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout_s=0.3)
        self.assertEqual((answer["status"], answer["restarted"]), ("timeout", True))
        answer = self.execute("x")
        self.assertEqual((answer["error"]["name"], answer["restarted"]), ("NameError", False), "it was said before")

    def test_interrupt(self):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.execute("x = 1\nimport time\ntime.sleep(60)")))
        thread.start()
        until(lambda: any(c["state"] == "busy" for c in self.admin.expect(200, "GET", self.box + "/contexts").json["contexts"]))
        self.admin.expect(204, "POST", self.box + "/contexts/python/interrupt")
        thread.join(20)
        self.assertEqual((answers[0]["status"], answers[0]["error"]["name"]), ("interrupted", "KeyboardInterrupt"))
        self.assertEqual(self.text("x"), "1")
        self.admin.expect(409, "POST", self.box + "/contexts/python/interrupt")

    @needs_ability("limits")
    def test_out_of_memory_ends_the_cell_only(self):
        box = self.session(limits={"memory": "128M", "disk": "32M"})
        answer = self.admin.expect(200, "POST", box + "/execute", {"code": "x = bytearray(1 << 30)\nx[:] = b'1' * len(x)"}).json
        self.assertEqual((answer["status"], answer["fault"]), ("out_of_memory", "limit"), answer)
        self.assertTrue(answer["restarted"])
        again = self.admin.expect(200, "POST", box + "/execute", {"code": "1+1"}).json
        self.assertEqual(again["results"][0]["text/plain"], "2")

    def test_one_that_kills_itself(self):
        answer = self.execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        self.assertEqual((answer["error"]["name"], answer["restarted"]), ("InterpreterEnded", True))
        self.assertEqual(self.text("1"), "1")

    def test_one_that_ends_between_cells(self):
        self.execute("import os, threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), os._exit(3))).start()")
        time.sleep(1)
        answer = self.execute("1")
        self.assertTrue(answer["restarted"])
        self.assertEqual(answer["results"][0]["text/plain"], "1")


    def test_time_stands_still_while_it_is_paused(self):
        answers = []
        code = "import time\nfor i in range(20): time.sleep(.05)\n'done'"
        thread = threading.Thread(target=lambda: answers.append(self.execute(code, timeout_s=3)))
        thread.start()
        until(lambda: any(c["state"] == "busy" for c in self.admin.expect(200, "GET", self.box + "/contexts").json["contexts"]))
        self.admin.expect(200, "POST", self.box + "/pause")
        self.admin.expect(409, "POST", self.box + "/execute", {"code": "1"})
        time.sleep(4)
        self.admin.expect(200, "POST", self.box + "/resume")
        thread.join(20)
        self.assertEqual(answers[0]["status"], "ok", answers)


class Attacks(InterpreterCase):
    """A program against its own interpreter: it fools itself at most."""

    CHANNEL = """
import os, stat
channel = next(fd for fd in range(3, 100) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode))
"""

    def survives(self):
        self.assertIn(self.text("1+1"), ("2",))

    def test_nonsense_on_the_channel(self):
        for junk in ("b'nonsense\\n'", "b'[]\\n'", "b'{\"event\":\"x\"}\\n'", "b'\\xff\\xfe\\n'"):
            answer = self.execute(self.CHANNEL + f"os.write(channel, {junk})")
            self.assertEqual((answer["error"]["name"], answer["restarted"]), ("InterpreterBroken", True), junk)
            self.survives()

    def test_a_line_without_an_end(self):
        answer = self.execute(self.CHANNEL + "block = b'x' * 65536\nwhile True: os.write(channel, block)", timeout_s=60)
        self.assertEqual((answer["error"]["name"], answer["restarted"]), ("InterpreterBroken", True))
        self.survives()

    def test_forged_results_are_its_own(self):
        forged = json.dumps({"event": "result", "id": 10**9, "main": True, "data": {"text/plain": "forged"}})
        answer = self.execute(self.CHANNEL + f"os.write(channel, {forged.encode() + bytes([10])!r})\n3")
        self.assertEqual([r["text/plain"] for r in answer["results"]], ["3"])

    def test_strange_shapes(self):
        for fields in ({"data": 5}, {"data": {"no slash": 1}}, {"data": None}, {}):
            event = json.dumps({"event": "result", **fields})
            code = self.CHANNEL + (f"import json, sys\nframe = sys._getframe()\nwhile frame and 'number' not in frame.f_locals: "
                                   f"frame = frame.f_back\nevent = json.loads({event!r}); event['id'] = frame.f_locals['number']\n"
                                   f"os.write(channel, json.dumps(event).encode() + b'\\n')\n4")
            answer = self.execute(code)
            self.assertIn("4", [r.get("text/plain") for r in answer["results"]], answer)

    def test_replaced_functions(self):
        self.execute("import builtins, json, os, sys\nbuiltins.print = None; json.dumps = None; sys.modules['json'] = None\n"
                     "builtins.repr = None; builtins.len = None; os.getpid = None")
        answer = self.execute("1+1")
        self.assertTrue(answer["results"] or answer["restarted"] or answer["error"], answer)
        self.admin.expect(200, "POST", self.box + "/contexts/python/restart")
        self.survives()

    def test_closed_descriptors(self):
        answer = self.execute("import os\nos.closerange(3, 100)")
        self.assertTrue(answer["restarted"])
        self.survives()
        answer = self.execute("import os\nos.close(1); os.close(2)\nprint('lost')\n5")
        self.survives_or_restarts()

    def survives_or_restarts(self):
        answer = self.execute("1+1")
        if not answer["results"]:
            self.admin.expect(200, "POST", self.box + "/contexts/python/restart")
        self.survives()

    def test_what_it_leaves_running(self):
        self.execute("import threading, time\ndef noise():\n    while True: print('noise'); time.sleep(.01)\n"
                     "threading.Thread(target=noise, daemon=True).start()\nimport subprocess\n"
                     "subprocess.Popen(['sh', '-c', 'while :; do echo more; sleep .01; done'])")
        for _ in range(3):
            self.survives()

    def test_artifacts_are_bounded(self):
        answer = self.execute("for i in range(400): open(f'/workspace/f{i}', 'w').write('x')")
        self.assertLessEqual(len(answer["artifacts"]), 200)
        answer = self.execute("f = open('/workspace/large', 'wb'); f.truncate(200 << 20); f.close()")
        (large,) = answer["artifacts"]
        self.assertIsNone(large["artifact_id"])
        self.assertIn("larger", large["problem"])


class OtherLanguages(InterpreterCase):
    def test_javascript(self):
        js = lambda code, **more: self.execute(code, language="javascript", **more)
        self.assertEqual(js("1+1")["results"][0]["text/plain"], "2")
        self.assertEqual(js("const x = 20; let [a, {b}] = [1, {b: 2}]; function f(n) { return n * x } class K {}\n"
                            "console.log('hi'); console.error('low')")["stdout"], "hi\n")
        self.assertEqual(js("const x = 21; f(a + b) + typeof new K()")["results"][0]["text/plain"], "'63object'")
        self.assertEqual(js("await new Promise((r) => setTimeout(() => r(7), 10))")["results"][0]["text/plain"], "7")
        self.assertEqual(js("import os, {platform} from 'node:os'; import * as path from 'path';\n"
                            "[platform(), typeof os.cpus, path.join('a', 'b')]")["results"][0]["application/json"],
                         ["linux", "function", "a/b"])
        error = js("function g() { throw new TypeError('bad') }\ng()")["error"]
        self.assertEqual((error["name"], error["value"]), ("TypeError", "bad"))
        self.assertIn("<cell", error["traceback"])
        self.assertEqual(js("let (")["error"]["name"], "SyntaxError")
        self.assertEqual(js("for (;;) {}", timeout_s=0.5)["status"], "timeout")
        self.assertEqual(js("x")["results"][0]["text/plain"], "21")
        self.assertEqual(js("await new Promise(() => {})", timeout_s=0.5)["restarted"], False)

    @needs("node", "tsc")
    def test_typescript(self):
        ts = lambda code, **more: self.execute(code, language="typescript", **more)
        answer = ts("interface Point { x: number }\nconst p: Point = { x: 20 };\nfunction twice<T extends Point>(of: T): number { return of.x * 2 }\n"
                    "enum Colour { Red = 5 }\ntwice(p) + Colour.Red", timeout_s=60)
        self.assertEqual(([r["text/plain"] for r in answer["results"]], answer["error"]), (["45"], None))
        self.assertEqual(ts("(p as any).x", timeout_s=60)["results"][0]["text/plain"], "20")
        self.assertEqual(ts("let wrong: = 5", timeout_s=60)["error"]["name"], "SyntaxError")
        self.assertEqual(self.execute("let p: number = 5", language="javascript")["error"]["name"], "SyntaxError")

    def test_bash(self):
        sh = lambda code, **more: self.execute(code, language="bash", **more)
        self.assertEqual(sh("echo hello; X=5; cd /tmp; f() { echo f$1; }")["stdout"], "hello\n")
        self.assertEqual(sh("echo $X $PWD; f 1")["stdout"], "5 /tmp\nf1\n")
        self.assertEqual(sh("echo ä; printf 'no newline'")["stdout"], "ä\nno newline")
        self.assertEqual(sh("echo err >&2; false")["error"]["value"], "1")
        self.assertEqual(sh("cat <<'E'\nhere\nE")["stdout"], "here\n")
        answer = sh("sleep 60", timeout_s=0.5)
        self.assertEqual((answer["status"], answer["restarted"]), ("timeout", False))
        self.assertEqual(sh("echo $X")["stdout"], "5\n")
        answer = sh("exit 3")
        self.assertTrue(answer["restarted"])

    def test_a_language_that_nobody_knows(self):
        answer = self.admin.expect(400, "POST", self.box + "/execute", {"code": "1", "language": "cobol"}).json
        self.assertIn("python", answer["error"]["hint"])


class ContextsAndArtifacts(InterpreterCase):
    def test_contexts_have_variables_of_their_own(self):
        make = lambda **fields: self.admin.expect(201, "POST", self.box + "/contexts", fields).json["context_id"]
        one, two = make(language="python"), make(language="python", cwd="/tmp")
        self.execute("x = 1", context=one)
        self.execute("x = 2", context=two)
        self.assertEqual((self.text("x", context=one), self.text("x", context=two)), ("1", "2"))
        self.assertEqual(self.text("import os; os.getcwd()", context=two), "'/tmp'")
        self.assertEqual(self.execute("x")["error"]["name"], "NameError")
        listed = self.admin.expect(200, "GET", self.box + "/contexts").json["contexts"]
        self.assertEqual({c["context_id"] for c in listed}, {one, two, "python"})
        self.assertEqual(self.admin.expect(200, "POST", f"{self.box}/contexts/{one}/restart").json["state"], "idle")
        answer = self.execute("x", context=one)
        self.assertEqual((answer["error"]["name"], answer["restarted"]), ("NameError", False))
        self.admin.expect(204, "DELETE", f"{self.box}/contexts/{one}")
        self.admin.expect(404, "GET", f"{self.box}/contexts/{one}")
        self.admin.expect(404, "POST", self.box + "/execute", {"code": "1", "context": one})

    def test_cells_of_one_context_wait_for_each_other(self):
        results = []
        threads = [threading.Thread(target=lambda: results.append(
            self.text("import time\nn = globals().get('n', 0)\ntime.sleep(.05)\nn = n + 1\nn"))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(sorted(results), ["1", "2", "3", "4", "5"])

    def test_completion(self):
        self.execute("alphabet = 'abc'")
        matches = self.admin.expect(200, "POST", self.box + "/contexts/python/complete", {"text": "print(alpha"}).json["matches"]
        self.assertEqual(matches, ["print(alphabet"])
        matches = self.admin.expect(200, "POST", self.box + "/contexts/bash/complete", {"text": "echo hi; prin"}).json["matches"]
        self.assertIn("echo hi; printf", matches)
        self.execute("const wonderful = {inner: 1}", language="javascript")
        matches = self.admin.expect(200, "POST", self.box + "/contexts/javascript/complete", {"text": "wonderful.inn"}).json["matches"]
        self.assertEqual(matches, ["wonderful.inner"])

    def test_files_become_artifacts(self):
        answer = self.execute("open('/workspace/report.csv', 'w').write('a,b\\n1,2\\n')\nopen('/tmp/other', 'w').write('x')\nNone")
        (artifact,) = answer["artifacts"]
        self.assertEqual((artifact["name"], artifact["mime"], artifact["size"]), ("report.csv", "text/csv", 8))
        where = f"{self.box}/artifacts/{artifact['artifact_id']}"
        self.assertEqual(self.admin.expect(200, "GET", where).body, b"a,b\n1,2\n")
        self.assertEqual(self.execute("1")["artifacts"], [])
        self.execute("open('/workspace/report.csv', 'a').write('3,4\\n')\nNone")
        listed = self.admin.expect(200, "GET", self.box + "/artifacts").json["artifacts"]
        self.assertEqual([a["size"] for a in listed], [12])
        self.admin.expect(204, "DELETE", f"{self.box}/artifacts/{listed[0]['artifact_id']}")
        self.admin.expect(404, "GET", f"{self.box}/artifacts/{listed[0]['artifact_id']}")


class TheWordsOfOthers(InterpreterCase):
    def test_execute_and_files(self):
        id = self.box.rsplit("/", 1)[1]
        answer = self.admin.expect(200, "POST", "/api/e2b/execute", {"session_id": id, "code": "print('hi')\n1+1"}).json
        self.assertEqual((answer["stdout"], answer["results"][0]["text/plain"], answer["artifacts"]), ("hi\n", "2", []))
        self.admin.expect(200, "POST", "/api/e2b/files", {"session_id": id, "path": "/workspace/a/b.txt", "content": "text"})
        files = self.admin.expect(200, "GET", f"/api/e2b/files/{id}").json["files"]
        self.assertEqual([(f["name"], f["type"]) for f in files], [("a", "directory")])
        self.assertEqual(self.text("open('/workspace/a/b.txt').read()"), "'text'")


class Streams(InterpreterCase):
    def test_events_come_while_it_runs(self):
        seen = []
        code = "import time\nfor i in range(3): print(i); time.sleep(.3)\n'end'"
        with self.admin.events(self.box + "/execute", body={"code": code}) as stream:
            while event := stream.next():
                seen.append((event["event"], event["data"], time.monotonic()))
        self.assertEqual("".join(data["text"] for kind, data, _ in seen if kind == "stdout"), "0\n1\n2\n")
        self.assertGreater(seen[-1][2] - seen[0][2], 0.3)
        self.assertEqual([kind for kind, *_ in seen if kind != "stdout"], ["result", "done"])
        self.assertEqual(seen[-1][1]["stdout"], "0\n1\n2\n")

    def test_input_is_answered(self):
        with self.admin.events(self.box + "/execute", body={"code": "name = input('who? ')\nname.upper()"}) as stream:
            self.assertEqual(stream.wait_for("input")["data"], {"prompt": "who? ", "password": False})
            self.admin.expect(204, "POST", self.box + "/contexts/python/input", {"text": "ann"})
            self.assertEqual(stream.wait_for("done")["data"]["results"][0]["text/plain"], "'ANN'")
        self.assertEqual(self.execute("input('who? ')")["error"]["name"], "EOFError")

    def test_over_the_socket(self):
        with self.admin.socket(self.box + "/stream") as socket:
            socket.send(type="execute", code="print('a')\nx = input('?')\nx * 2", tag="t1")
            kinds = []
            while True:
                message = socket.receive()
                if message["type"] in ("pong", "output"):
                    continue
                kinds.append(message["type"])
                self.assertEqual(message.get("tag"), "t1")
                if message["type"] == "input":
                    socket.send(type="input", text="ho")
                if message["type"] == "done":
                    break
            self.assertEqual(kinds, ["stdout", "input", "result", "done"])
            self.assertEqual(message["results"][0]["text/plain"], "'hoho'")
            socket.send(type="execute")
            self.assertEqual(socket.receive()["type"], "error")


if __name__ == "__main__":
    unittest.main()
