"""Languages that an environment brings: an executable of theirs that speaks the protocol of docs/kernels.md."""
import base64
import os
import shutil
import sys
import threading
import unittest

from harness import IN_CI
from http_harness import HttpCase, Server, needs_ability, until

FOLDER = "/usr/local/lib/agent-sandbox/kernels/"
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "kernels")

# The smallest that does everything, in a language that every Debian has.
PERL = r"""#!/usr/bin/perl
$| = 1;
open(my $in, '<&=', 0) or die;
open(my $out, '>&=', 0) or die;
sub tell_all { my $text = join('', @_) . "\n"; while (length $text) { substr($text, 0, syswrite($out, $text)) = '' } }
sub take { my $bytes = ''; while (length $bytes < $_[0]) { sysread($in, $bytes, $_[0] - length $bytes, length $bytes) or exit } $bytes }
sub quoted { my $t = shift; $t =~ s/([\\"\x00-\x1f])/sprintf('\\u%04x', ord $1)/ge; "\"$t\"" }
my $number = 0;
$SIG{INT} = sub {};
tell_all('{"event":"ready","language":"tiny","version":"', sprintf('%vd', $^V), '"}');
for (;;) {
  my $line = '';
  $line .= take(1) until $line =~ /\n$/;
  my ($op, $id, $length) = split ' ', $line;
  my $bytes = take($length);
  if ($op eq 'environ') { $ENV{$1} = $2 while $bytes =~ /"([^"]*)":"([^"]*)"/g }
  if ($op eq 'complete') {
    tell_all('{"event":"completions","id":', $id, ',"matches":[', join(',', map { quoted($_) } sort grep { /^\Q$bytes/ } keys %main::), ']}');
  }
  next if $op ne 'execute';
  my $value = eval { local $SIG{INT} = sub { die "interrupted\n" }; my $given = eval $bytes; die $@ if $@; $given };
  if ($@) { chomp(my $why = $@); tell_all('{"event":"error","id":', $id, ',"name":"Died","value":', quoted($why), ',"traceback":', quoted($why), '}') }
  elsif (defined $value) { tell_all('{"event":"result","id":', $id, ',"data":{"text/plain":', quoted($value), '},"main":true}') }
  tell_all('{"event":"done","id":', $id, ',"count":', ++$number, '}');
}
"""


class KernelCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.box = self.session(limits={"cpus": 2, "memory": "1G"}, env={"OF_THE_SESSION": "a-word"})

    def bring(self, name, text, mode="755"):
        self.admin.run(self.box, f"mkdir -p {FOLDER}; cat > {FOLDER}{name}; chmod {mode} {FOLDER}{name}",
                       user="root", stdin=text)

    def execute(self, code, language="tiny", **fields):
        return self.admin.expect(200, "POST", self.box + "/execute", {"code": code, "language": language, **fields}).json

    def text(self, code, **fields):
        """The text of the one result."""
        answer = self.execute(code, **fields)
        self.assertIsNone(answer["error"], answer)
        (result,) = answer["results"]
        return result["text/plain"]

    def contexts(self):
        return [context["context_id"] for context in self.admin.expect(200, "GET", self.box + "/contexts").json["contexts"]]

    def refused(self, language, word, route="/execute"):
        body = {"language": language, **({"code": "1"} if route == "/execute" else {})}
        answer = self.admin.post(self.box + route, body)
        self.assert_refused(answer, 400, word)
        return answer.error["hint"]


class Brought(KernelCase):
    def setUp(self):
        super().setUp()
        self.bring("tiny", PERL)

    def test_cells_run_and_variables_stay(self):
        answer = self.execute("print 'out'; print STDERR 'err'; $x = 41; undef")
        self.assertEqual((answer["status"], answer["stdout"], answer["stderr"], answer["results"]), ("ok", "out", "err", []))
        self.assertEqual((answer["language"], answer["context_id"], answer["restarted"]), ("tiny", "tiny", False))
        self.assertEqual(self.text("$x + 1"), "42")
        context = self.admin.expect(200, "GET", self.box + "/contexts/tiny").json
        self.assertEqual((context["language"], context["state"], context["execution_count"]), ("tiny", "ready", 2))
        self.assertRegex(context["version"], r"^5\.[0-9.]+$")

    def test_variables_of_the_environment(self):
        self.assertEqual(self.text("$ENV{OF_THE_SESSION}"), "a-word")
        self.assertEqual(self.text("$ENV{OF_THE_CELL}", env={"OF_THE_CELL": "another"}), "another")

    def test_it_runs_as_the_user_and_in_the_workspace(self):
        self.assertEqual(self.text("use Cwd; $> . ' ' . getcwd()"), self.admin.run(self.box, "echo $(id -u) $PWD").strip())

    def test_errors(self):
        answer = self.execute("die 'badly'")
        self.assertEqual((answer["status"], answer["fault"], answer["error"]["name"]), ("error", "program", "Died"))
        self.assertIn("badly", answer["error"]["traceback"])
        self.assertEqual(self.text("'goes on'"), "goes on")

    def test_contexts_of_their_own(self):
        made = self.admin.expect(201, "POST", self.box + "/contexts", {"language": "tiny", "cwd": "/tmp"}).json
        self.assertEqual((made["language"], made["cwd"], made["state"]), ("tiny", "/tmp", "idle"))
        self.execute("$x = 'its own'")
        self.execute("$x = 'another'; undef", context=made["context_id"])
        self.assertEqual(self.text("$x"), "its own")
        self.assertEqual(self.text("use Cwd; $x . getcwd()", context=made["context_id"]), "another/tmp")
        self.admin.expect(204, "DELETE", f"{self.box}/contexts/{made['context_id']}")
        self.assertEqual(self.contexts(), ["tiny"])

    def test_names_are_completed_before_anything_ran(self):
        answer = self.admin.expect(200, "POST", self.box + "/contexts/tiny/complete", {"text": "quot"})
        self.assertEqual(answer.json["matches"], ["quoted"])

    def test_a_timeout_ends_the_cell_only(self):
        self.execute("$x = 'kept'")
        answer = self.execute("1 while 1", timeout_s=0.3)
        self.assertEqual((answer["status"], answer["fault"], answer["restarted"]), ("timeout", "limit", False))
        self.assertEqual(self.text("$x"), "kept")

    def test_an_interrupt_ends_the_cell_only(self):
        self.execute("$x = 'kept'")
        answers = []
        running = threading.Thread(target=lambda: answers.append(self.execute("print 'begun'; sleep 1000")))
        running.start()
        busy = lambda: self.admin.get(self.box + "/contexts/tiny").json["state"] == "busy"
        self.assertTrue(until(busy))
        self.admin.expect(204, "POST", self.box + "/contexts/tiny/interrupt")
        running.join(20)
        self.assertEqual((answers[0]["status"], answers[0]["restarted"]), ("interrupted", False), answers)
        self.assertEqual(self.text("$x"), "kept")

    def test_one_that_does_not_let_go_is_replaced(self):
        self.execute("$x = 'lost'")
        answer = self.execute("$SIG{INT} = 'IGNORE'; 1 while 1", timeout_s=0.3)
        self.assertEqual((answer["status"], answer["restarted"]), ("timeout", True))
        self.assertEqual(self.text("defined $x ? 1 : 0"), "0")

    def test_a_restart_forgets(self):
        self.execute("$x = 1")
        self.admin.expect(200, "POST", self.box + "/contexts/tiny/restart")
        answer = self.execute("defined $x ? 1 : 0")
        self.assertEqual((answer["results"][0]["text/plain"], answer["restarted"]), ("0", False))

    def test_one_that_ends_is_told_of_and_replaced(self):
        answer = self.execute("exit 7")
        self.assertEqual((answer["error"]["name"], answer["restarted"]), ("InterpreterEnded", True))
        self.assertIn("exit code 7", answer["error"]["value"])
        self.assertEqual(self.text("1 + 1"), "2")

    def test_one_that_talks_nonsense_is_replaced(self):
        for line in ("nonsense", "[]", '{"event":"nobody knows"}', '{"event":1}', '{"event":"done","id":', "\\xff\\xfe"):
            answer = self.execute(f"tell_all(qq\x01{line}\x01); sleep 1000")
            self.assertEqual((answer["error"]["name"], answer["restarted"]), ("InterpreterBroken", True), line)
        self.assertEqual(self.text("1 + 1"), "2")

    def test_nonsense_instead_of_names_is_none(self):
        self.bring("odd", "#!/bin/sh\necho '{\"event\":\"ready\"}' >&0\nread line\necho nonsense >&0\nsleep 1000\n")
        answer = self.admin.expect(200, "POST", self.box + "/contexts/odd/complete", {"text": "x"})
        self.assertEqual(answer.json["matches"], [])

    def test_what_others_say_with_the_names_is_passed_over(self):
        self.bring("chatty", PERL.replace("tell_all('{\"event\":\"completions\"",
                                          "tell_all(\"{\\\"event\\\":\\\"done\\\",\\\"id\\\":0}\\n\", '{\"event\":\"completions\""))
        answer = self.admin.expect(200, "POST", self.box + "/contexts/chatty/complete", {"text": "quot"})
        self.assertEqual(answer.json["matches"], ["quoted"])

    def test_as_events(self):
        with self.admin.events(self.box + "/execute", body={"code": "print 'out'; 6 * 7", "language": "tiny"}) as events:
            done = events.wait_for("done")
        self.assertIn("42", str(done))

    def test_it_lives_without_its_file(self):
        self.execute("$x = 'still'")
        self.admin.run(self.box, f"rm {FOLDER}tiny", user="root")
        self.assertEqual(self.text("$x"), "still")
        self.admin.expect(200, "POST", self.box + "/contexts/tiny/restart")
        self.refused("tiny", "that this environment brings cannot be started")

    def test_a_link_is_as_good(self):
        self.admin.run(self.box, f"mv {FOLDER}tiny /opt/kernel; ln -s /opt/kernel {FOLDER}tiny", user="root")
        self.assertEqual(self.text("6 * 7"), "42")

    def test_those_of_the_server_are_not_replaced(self):
        for name in ("python", "python3", "bash", "sh"):
            self.bring(name, PERL)
        self.assertEqual(self.text("6 * 7", language="python"), "42")
        self.assertEqual(self.execute("echo $BASH_VERSION | cut -c1", language="sh")["stdout"], "5\n")

    def test_a_paused_session_has_no_environment_to_look_into(self):
        self.admin.expect(200, "POST", self.box + "/pause")
        self.assert_refused(self.admin.post(self.box + "/contexts", {"language": "tiny"}), 409, "paused")
        self.admin.expect(201, "POST", self.box + "/contexts", {"language": "python"})
        self.admin.expect(200, "POST", self.box + "/resume")


class Missing(KernelCase):
    def test_there_is_none(self):
        for route in ("/execute", "/contexts"):
            hint = self.refused("tiny", 'there is no interpreter for "tiny"', route)
            self.assertIn("python, javascript, typescript, bash", hint)
            self.assertIn(FOLDER + "<name>", hint)
        self.assert_refused(self.admin.post(self.box + "/contexts/tiny/complete", {"text": "x"}), 404, "no such context")
        self.assert_refused(self.admin.post(self.box + "/execute", {"code": "1", "context": "tiny"}), 404, "no such context")
        self.assertEqual(self.contexts(), [])

    def test_it_is_nothing_that_could_be_started(self):
        self.bring("plain", PERL, mode="644")
        self.admin.run(self.box, f"cd {FOLDER}; mkdir folder; mkfifo -m 777 fifo; ln -s /nowhere nowhere; ln -s loop loop; "
                       "ln -s /dev/null null", user="root")
        for name in ("plain", "folder", "fifo", "nowhere", "loop", "null"):
            for route in ("/execute", "/contexts"):
                self.refused(name, f'there is no interpreter for "{name}"', route)
        self.assertEqual(self.contexts(), [])

    @needs_ability("file_rights")
    def test_it_is_not_for_the_user(self):
        self.bring("hidden", PERL, mode="700")
        for route in ("/execute", "/contexts"):
            self.refused("hidden", 'there is no interpreter for "hidden"', route)

    def test_names_that_none_may_have(self):
        self.bring("tiny", PERL)
        self.admin.run(self.box, f"cd {FOLDER}; for name in Tiny x1 .tiny 'a b' {'a' * 33} 1tiny; do cp tiny \"$name\"; done; "
                       "cp tiny ../x", user="root")
        for name in ("../x", "Tiny", "TINY", "x1", ".tiny", "a b", "a" * 33, "1tiny", "tiny/", "./tiny", "tiny\n",
                     "..", ".", "/bin/sh", "tiny:x", "tïny", "%2e%2e/x"):
            for route in ("/execute", "/contexts"):
                self.refused(name, "there is no interpreter for", route)
        self.assertEqual(self.contexts(), [])
        made = self.admin.expect(201, "POST", self.box + "/contexts", {"language": "tiny"}).json["context_id"]
        self.assertEqual(made, "x1")
        self.refused("x1", "there is no interpreter for")  # although there is a context of that name now
        self.bring("a" * 32, PERL)
        self.assertEqual(self.text("6 * 7", language="a" * 32), "42")

    def test_those_that_do_not_get_ready(self):
        for name, text, word in (("gone", "#!/nowhere\n", "cannot be started"),
                                 ("short", "#!/bin/sh\nexit 3\n", "ended before it was ready"),
                                 ("odd", "#!/bin/sh\necho nonsense >&0\nsleep 1000\n", "does not speak the protocol"),
                                 ("list", "#!/bin/sh\necho '[1]' >&0\nsleep 1000\n", "does not speak the protocol")):
            self.bring(name, text)
            hint = self.refused(name, word)
            self.assertIn("docs/kernels.md", hint)
            self.assert_refused(self.admin.post(f"{self.box}/contexts/{name}/complete", {"text": "x"}), 400, word)
        self.assertNotIn("sleep", self.admin.run(self.box, "ps -eo comm"))


class Restart(HttpCase):
    def test_variables_survive_the_server(self):
        first = Server(storage=os.path.join(self.scratch(), "storage"))
        self.addCleanup(first.kill)
        admin = first.admin
        session = admin.create(limits={"cpus": 2})
        admin.run(session, f"mkdir -p {FOLDER}; cat > {FOLDER}tiny; chmod 755 {FOLDER}tiny", user="root", stdin=PERL)
        execute = lambda **cell: admin.expect(200, "POST", session + "/execute", {"language": "tiny", **cell}).json
        other = admin.expect(201, "POST", session + "/contexts", {"language": "tiny"}).json["context_id"]
        execute(code="$x = 41")
        execute(code="$x = 'other'", context=other)
        admin.run(session, f"rm {FOLDER}tiny", user="root")
        first.end_now()
        admin.server = self.other_server(storage=first.storage)
        answer = execute(code="$x + 1")
        self.assertEqual((answer["results"][0]["text/plain"], answer["restarted"], answer["language"]), ("42", False, "tiny"))
        self.assertEqual(execute(code="$x", context=other)["results"][0]["text/plain"], "other")
        contexts = admin.expect(200, "GET", session + "/contexts").json["contexts"]
        self.assertEqual({(context["context_id"], context["language"]) for context in contexts}, {("tiny", "tiny"), (other, "tiny")})
        admin.expect(204, "DELETE", session)


class R(KernelCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("Rscript") is None and not IN_CI:
            print("R IS NOT INSTALLED: the example of a kernel for it is not tested (apt-get install r-base-core)", file=sys.stderr)
            raise unittest.SkipTest("not installed: Rscript")
        super().setUpClass()

    def setUp(self):
        super().setUp()
        with open(os.path.join(EXAMPLES, "r", "r")) as file:
            self.bring("r", file.read())

    def execute(self, code, language="r", **fields):
        return super().execute(code, language, **fields)

    def test_values_output_and_variables(self):
        answer = self.execute("x <- 20\n'printed'\ncat('out\\n'); message('err')\nx + 22")
        self.assertEqual((answer["stdout"], answer["stderr"]), ('[1] "printed"\nout\n', "err\n"))
        self.assertEqual([(result["text/plain"], result["is_main"]) for result in answer["results"]], [("[1] 42", True)])
        self.assertEqual(self.execute("invisible(x)")["results"], [])
        self.assertEqual(self.text("ls()"), '[1] "x"')
        self.assertEqual(self.text("data.frame(n = 1:2, s = c('é', '\"\\\\'))"), '  n   s\n1 1   é\n2 2 "\\\\')

    def test_errors_have_a_trace(self):
        answer = self.execute("inner <- function(n) stop('bad ', n)\nouter <- function() inner(3)\nouter()")
        self.assertEqual((answer["status"], answer["error"]["name"], answer["error"]["value"]), ("error", "simpleError", "bad 3"))
        self.assertEqual(answer["error"]["traceback"], 'simpleError: bad 3\n  in stop("bad ", n)\n  in inner(3)\n  in outer()')
        self.assertEqual(self.execute("1 +")["error"]["name"], "SyntaxError")
        self.assertIn("in sqrt", self.execute("sqrt('a')")["error"]["traceback"])
        self.assertEqual(self.execute("f <- function() f(); f()")["status"], "error")
        self.assertEqual(self.text("'goes on'"), '[1] "goes on"')

    def test_pictures_and_files(self):
        answer = self.execute("plot(1:3); hist(c(1, 2, 2)); write.csv(cars, 'cars.csv'); 'done'", timeout_s=60)
        pictures = [base64.b64decode(result["image/png"]) for result in answer["results"] if "image/png" in result]
        self.assertEqual([picture[:4] for picture in pictures], [b"\x89PNG"] * 2, answer["error"])
        self.assertEqual({artifact["mime"] for artifact in answer["artifacts"]}, {"image/png", "text/csv"})
        self.assertEqual(self.execute("invisible(1)")["results"], [])

    def test_an_interrupt_ends_the_cell_only(self):
        self.execute("x <- 1")
        for code in ("while (TRUE) {}", "Sys.sleep(1000)", "repeat tryCatch(Sys.sleep(1000), error = function(e) 1)"):
            answer = self.execute(code, timeout_s=0.5)
            self.assertEqual((answer["status"], answer["restarted"]), ("timeout", False), code)
        self.assertEqual(self.text("x"), "[1] 1")

    def test_programs_of_cells_do_not_read_what_is_not_for_them(self):
        answer = self.execute("system('cat'); readLines('stdin')", timeout_s=10)
        self.assertEqual((answer["status"], answer["results"][0]["text/plain"]), ("ok", "character(0)"))

    def test_cells_may_use_any_name(self):
        self.execute("paste0 <- list <- print <- function(...) stop('mine'); id <- quoted <- 3")
        self.assertEqual(self.text("id"), "[1] 3")
        self.assertEqual(self.text("rm(list = ls()); length(ls())"), "[1] 0")

    def test_names_and_variables(self):
        answer = self.admin.expect(200, "POST", self.box + "/contexts/r/complete", {"text": "n <- 1\nmtcars$q"})
        self.assertEqual(answer.json["matches"], ["n <- 1\nmtcars$qsec"])
        self.assertEqual(self.text("cat(Sys.getenv('A')); Sys.getenv('OF_THE_SESSION')", env={"A": "é\"\\\n\t'"}), '[1] "a-word"')
        self.assertEqual(self.execute("cat(Sys.getenv('A'))")["stdout"], "é\"\\\n\t'")


if __name__ == "__main__":
    unittest.main()
