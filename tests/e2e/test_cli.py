"""exec as a command among commands: words, exit codes, streams, signals, JSON; help, completion, man page."""
import functools
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

from harness import BINARY, PLATFORM_ERROR, USAGE_ERROR, Case, exec_json, run, start, takes_more
from http_harness import running, until

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MAN_PAGE = os.path.join(ROOT, "docs", "man", "agent-sandbox.1")
COMMANDS = ["exec", "shell", "python", "node", "bash", "judge", "replay", "tour", "doctor", "completion"]
GROUPS = {"session": ["create", "list", "get", "usage", "history", "pause", "resume", "checkpoint", "checkpoints", "checkpoint-rm",
                      "rollback", "undo", "fork", "merge", "tree", "diff", "apply", "rm"],
          "volume": ["create", "list", "get", "rm"], "snapshot": ["create", "list", "rm"],
          "e2b": ["env"]}
with open("/proc/sys/net/ipv4/ip_forward") as setting:
    FORWARDS = setting.read() == "1\n"
VERBS = [f"{group} {verb}" for group, verbs in GROUPS.items() for verb in verbs]


@functools.cache
def help_of(command):
    """Several tests look at it."""
    return run(*command.split(), "--help")


class Words(Case):
    def test_command_needs_no_dashes(self):
        self.assert_ran(run("exec", "echo", "-n", "a", "--json", "-p", "--"), b"a --json -p --")

    def test_words_after_dashes_are_untouched(self):
        self.assert_ran(run("exec", "--", "printf", "%s|", "", "[1,2]", "{}", "%%", "--help", "a b", "--"),
                        b"|[1,2]|{}|%%|--help|a b|--|")

    def test_values_are_not_commands(self):
        done = run("exec", "-e", "A=1", "-eB=x=y", "--env=C=", "-qw/tmp", "sh", "-c", 'echo "$A|$B|$C|$PWD"')
        self.assert_ran(done, b"1|x=y||/tmp\n")

    def test_variable_without_value_is_the_callers(self):
        done = run("exec", "-e", "GIVEN", "-e", "ABSENT", "sh", "-c", 'echo "$GIVEN${ABSENT-none}$OTHER"',
                   env={**os.environ, "GIVEN": "yes", "OTHER": "secret"})
        self.assert_ran(done, b"yesnone\n")

    def test_last_value_wins(self):
        self.assert_ran(run("exec", "-w", "/tmp", "-w", "/usr", "pwd"), b"/usr\n")

    def test_no_command(self):
        for words in [["exec"], ["exec", "--"], ["exec", "-q"]]:
            done = run(*words)
            self.assertEqual(done.returncode, USAGE_ERROR)
            self.assertIn(b"no command to run", done.stderr)

    def test_unknown_option_says_what_was_meant(self):
        done = run("exec", "--memroy", "1G", "true")
        self.assertEqual(done.returncode, USAGE_ERROR)
        self.assertIn(b"unknown option --memroy", done.stderr)
        self.assertIn(b"--memory?", done.stderr)

    def test_unknown_command_says_what_was_meant(self):
        done = run("exce", "true")
        self.assertEqual(done.returncode, USAGE_ERROR)
        self.assertIn(b"did you mean exec?", done.stderr)

    def test_values_that_cannot_work(self):
        for words in [["-p", "lax"], ["--memory", "1M"], ["--memory", "lots"], ["--pids", "0"], ["--pids", "x"],
                      ["--pids", "-1"], ["--tier", "x"], ["--network", "x"], ["-E", "x"], ["--cpu", "-1"],
                      ["--disk", "1G"], ["--timeout", "5d"], ["--open-files", "0"], ["--inodes", "0"], ["-m"]]:
            with self.subTest(words=words):
                done = run("exec", *words, *(["true"] if len(words) > 1 else []))
                self.assertEqual(done.returncode, USAGE_ERROR, done.stderr)
                self.assertTrue(done.stderr.startswith(b"agent-sandbox: "))
                self.assertEqual(done.stdout, b"")


class ExitCodes(Case):
    def test_are_the_commands(self):
        for code in (0, 1, 42, 255):
            self.assertEqual(run("exec", "sh", "-c", f"exit {code}").returncode, code)

    def test_not_found_and_not_executable(self):
        done = run("exec", "no-such-program")
        self.assertEqual(done.returncode, 127)
        self.assertIn(b"no-such-program: cannot be run", done.stderr)
        self.assertEqual(run("exec", "/etc/passwd").returncode, 126)
        self.assertEqual(run("exec", "-w", "/nowhere", "true").returncode, 127)

    def test_signal(self):
        self.assertEqual(run("exec", "sh", "-c", "kill -TERM $$").returncode, 128 + signal.SIGTERM)

    def test_limits_are_named(self):
        for words, reason, text in [
            (["--timeout", "300ms", "sleep", "60"], "wall_time", b"--timeout"),
            (["--cpu-time", "300ms", "sh", "-c", "while :; do :; done"], "cpu_time", b"--cpu-time"),
            (["--memory", "64M", "tail", "/dev/zero"], "out_of_memory", b"--memory"),
            (["--output-limit", "10K", "yes"], "output_limit", b"--output-limit"),
        ]:
            with self.subTest(reason=reason):
                done = run("exec", *words)
                self.assertEqual(done.returncode, 128 + signal.SIGKILL)
                self.assertIn(text, done.stderr)
                self.assertEqual(exec_json(*words)["reason"], reason)

    def test_quiet(self):
        self.assertEqual(run("exec", "-q", "--timeout", "100ms", "sleep", "60").stderr, b"")

    def test_truncate(self):
        done = run("exec", "--output-limit", "10K", "--truncate-output", "sh", "-c", "head -c 1M /dev/zero; exit 7")
        self.assertEqual((done.returncode, len(done.stdout)), (7, 10240))


class Streams(Case):
    def test_stdout_and_stderr_are_apart(self):
        done = run("exec", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((done.stdout, done.stderr), (b"out\n", b"err\n"))

    def test_bytes_are_verbatim(self):
        data = bytes(range(256)) * 5000
        self.assert_ran(run("exec", "cat", stdin=data), data)

    def test_stdin_from_a_file_to_a_file(self):
        data = os.urandom(3_000_000)
        source, sink = os.path.join(self.scratch(), "in"), os.path.join(self.scratch(), "out")
        with open(source, "wb") as file:
            file.write(data)
        with open(source, "rb") as stdin, open(sink, "wb") as stdout:
            done = subprocess.run([BINARY, "exec", "cat"], stdin=stdin, stdout=stdout)
        self.assertEqual(done.returncode, 0)
        with open(sink, "rb") as file:
            self.assertEqual(file.read(), data)

    def test_stdin_closed(self):
        done = subprocess.run(["sh", "-c", '"$0" exec cat <&-', BINARY], capture_output=True)
        self.assert_ran(done, b"")

    def test_all_streams_closed(self):
        done = subprocess.run(["sh", "-c", '"$0" exec sh -c "exit 9" <&- >&- 2>&-', BINARY])
        self.assertEqual(done.returncode, 9)

    def test_stdin_is_left_alone(self):
        script = '{ "$0" exec -n cat; cat; }'
        done = subprocess.run(["sh", "-c", script, BINARY], input=b"for the second", capture_output=True)
        self.assert_ran(done, b"for the second")

    def test_program_that_does_not_read(self):
        self.assert_ran(run("exec", "true", stdin=b"x" * 5_000_000), b"")

    def test_input_that_never_ends(self):
        done = subprocess.run(["sh", "-c", 'yes | "$0" exec head -n 3', BINARY], capture_output=True, timeout=60)
        self.assert_ran(done, b"y\ny\ny\n")

    def test_program_ends_while_stdin_is_open(self):
        process = start("exec", "echo", "done")  # Nobody closes its stdin.
        self.assertEqual(process.stdout.read(), b"done\n")
        self.assertEqual(process.wait(60), 0)
        process.stdin.close(), process.stdout.close(), process.stderr.close()

    def test_input_reaches_the_program_at_once(self):
        process = start("exec", "cat")
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), line)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)

    def test_reader_that_goes_away(self):
        # Both learn it as from any pipe: one by a signal, the other, which ignores the signal, by an error.
        writers = {("yes",): (128 + signal.SIGPIPE, b""),
                   ("python3", "-c", "while True: print('y')"): (1, b"BrokenPipeError")}
        for program, (status, message) in writers.items():
            with self.subTest(program=program[0]):
                process = start("exec", *program)
                self.assertEqual(process.stdout.readline(), b"y\n")
                process.stdout.close()
                self.assertEqual(process.wait(60), status)
                self.assertIn(message, process.stderr.read())
                process.stdin.close(), process.stderr.close()

    def test_slow_reader_gets_everything_and_costs_little(self):
        size = 300_000_000
        process = start("exec", "--output-limit", "0", "head", "-c", str(size), "/dev/zero", stdin=subprocess.DEVNULL)
        time.sleep(1.5)
        with open(f"/proc/{process.pid}/status") as file:
            resident = int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1))
        total = 0
        while chunk := process.stdout.read(1 << 16):
            total += len(chunk)
        self.assertEqual((process.wait(60), total), (0, size))
        self.assertLess(resident, 250_000)  # kB; a sanitizer has its own needs
        process.stdout.close(), process.stderr.close()


class Signals(Case):
    def started(self, script, *options, first=":"):
        process = start("exec", *options, "sh", "-c", f"{first}; echo ready; {script}", stdin=subprocess.DEVNULL)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stdout.close(), process.stderr.close()))
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def test_end_the_program(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            process = self.started("exec sleep 60")
            process.send_signal(number)
            self.assertEqual(process.wait(60), 128 + number)

    def test_reach_the_programs_handler(self):
        process = self.started("sleep 60 & wait", first="trap 'echo caught; exit 3' INT")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stdout.read(), b"caught\n")
        self.assertEqual(process.wait(60), 3)

    def started_without_a_reader(self):
        """One that has written as much as nobody reads."""
        process = self.started("exec yes", "--output-limit", "0")
        self.assertTrue(until(lambda: not takes_more(process)))
        return process

    def assert_program_ends(self, process):
        self.assertTrue(until(lambda: not running("yes", process.pid)))

    def test_reach_a_program_whose_reader_sleeps(self):
        process = self.started_without_a_reader()
        process.send_signal(signal.SIGTERM)
        self.assert_program_ends(process)
        process.stdout.read()
        self.assertEqual(process.wait(60), 128 + signal.SIGTERM)

    def test_a_second_one_ends_us_when_the_reader_never_wakes(self):
        process = self.started_without_a_reader()
        process.send_signal(signal.SIGTERM)
        self.assert_program_ends(process)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 128 + signal.SIGTERM)

    def test_interrupted_json_is_still_json(self):
        process = start("exec", "--json", "sh", "-c", "echo before; exec sleep 60", stdin=subprocess.DEVNULL)
        self.assertTrue(until(lambda: running("sleep", process.pid)))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        result = json.loads(out)
        self.assertEqual((result["stdout"], result["signal"]), ("before\n", signal.SIGINT))

    def test_ignored_ones_stay_ignored(self):
        process = subprocess.Popen(["nohup", BINARY, "exec", "sh", "-c", "echo ready; read line; echo $line"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        out, _ = process.communicate(b"still here\n", timeout=60)
        self.assertEqual((process.returncode, out), (0, b"still here\n"))

    def test_killed_program_is_cleaned_up_by_the_next(self):
        process = self.started("exec sleep 300")
        process.kill()
        process.wait(60)
        done = run("exec", "echo", "next")
        self.assert_ran(done, b"next\n")


class Json(Case):
    def test_result(self):
        result = exec_json("sh", "-c", "cat; echo bad >&2; exit 3", stdin=b"good")
        self.assertEqual((result["reason"], result["exit_code"], result["signal"]), ("exited", 3, 0))
        self.assertEqual((result["stdout"], result["stderr"]), ("good", "bad\n"))
        self.assertNotIn("stdout_base64", result)
        self.assertGreater(result["wall_ms"], 0)
        self.assertIn("namespaces", [fact["name"] for fact in result["isolation"]])
        self.assertRegex(result["sandbox"], "^[a-z0-9]{26}$")

    def test_bytes_that_are_no_text(self):
        result = exec_json("printf", r"a\377\000b")
        self.assertEqual(result["stdout"], "a�\0b")
        self.assertEqual(result["stdout_base64"], "Yf8AYg==")

    def test_program_that_cannot_start(self):
        result = exec_json("no-such-program")
        self.assertEqual((result["reason"], result["exit_code"]), ("not_started", 127))

    def test_errors(self):
        for words in [["--bogus"], ["-p", "lax", "true"], [], ["-m", "1M", "true"]]:
            with self.subTest(words=words):
                done = run("exec", "--json", *words)
                error = json.loads(done.stdout)["error"]
                self.assertEqual(set(error), {"code", "fault", "message", "hint"})
                self.assertEqual((error["code"], error["fault"]), ("invalid", "caller"))
                self.assertEqual((done.returncode, done.stderr), (USAGE_ERROR, b""))

    def test_environment_that_is_not_there(self):
        done = run("exec", "--json", "-E", "folder:/does/not/exist", "true")
        self.assertIn(done.returncode, (USAGE_ERROR, PLATFORM_ERROR))
        self.assertIn("/does/not/exist", json.loads(done.stdout)["error"]["message"])


class Shell(Case):
    def test_reads_commands_from_stdin(self):
        done = run("shell", stdin=b"echo $((6 * 7)); cd /tmp; pwd; exit 5\n")
        self.assertEqual((done.returncode, done.stdout), (5, b"42\n/tmp\n"))


class Doctor(Case):
    def test_json(self):
        done = run("doctor", "--json")
        found = json.loads(done.stdout)
        self.assertIn(done.returncode, (0, 1))
        self.assertEqual(found["exit_code"], done.returncode)
        self.assertTrue(found["sandbox"]["ok"], found["sandbox"])
        self.assertEqual([one["name"] for one in found["controllers"]], ["memory", "pids", "cpu", "io", "freezer"])
        for feature in found["features"]:
            self.assertIn(feature["state"], ("ok", "limited", "missing"))
        missing = [fact for fact in found["guarantees"]["root"]["facts"]
                   if fact["guarantee"] != "full" and fact["name"] != "side_channels"]
        self.assertEqual(done.returncode, 1 if missing else 0)

    def test_text_is_plain_in_a_pipe(self):
        done = run("doctor")
        self.assertNotIn(b"\033", done.stdout)
        self.assertIn(b"Verdict: sandboxes work", done.stdout)


class Tour(Case):
    def test_everything_behaves(self):
        done = run("tour", timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        self.assertNotIn(b"\033", done.stdout)
        self.assertNotIn(b"NOT RIGHT", done.stdout)
        self.assertIn(b"nothing is left", done.stdout)


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


class Help(Case):
    def test_alone_it_helps(self):
        done = run()
        self.assert_ran(done)
        self.assertEqual(done.stdout, help_of("").stdout)
        for command in COMMANDS:
            self.assertIn(command.encode(), done.stdout)

    def test_version(self):
        for flag in ("--version", "-V"):
            self.assertRegex(run(flag).stdout, rb"^agent-sandbox \d+\.\d+\.\d+ \(\w+[^)]*\)\n$")

    def test_every_command_helps(self):
        for command in [*COMMANDS, *GROUPS, *VERBS]:
            done = help_of(command)
            self.assert_ran(done)
            self.assertIn(f"Usage: agent-sandbox {command}".encode(), done.stdout)
            for line in done.stdout.decode().splitlines():
                self.assertLessEqual(len(line), 110, line)

    def test_man_page_has_every_option_and_no_other(self):
        with open(MAN_PAGE) as file:
            # mdoc writes --json as "Fl -json".
            page = re.sub(r"Fl -(?=[a-z])", "--", file.read())
        known = set()
        for command in ["", *COMMANDS, *GROUPS, *VERBS]:
            text = help_of(command).stdout.decode()
            known |= options_in(text.split("Exit status:")[0])
            for word in command.split():
                self.assertIn(word, page)
        self.assertEqual(known - options_in(page), set(), "not in the man page")
        in_page = set(re.findall(r"^\.It .*?(--[a-z-]+)", page, re.MULTILINE))
        self.assertEqual(in_page - known, set(), "only in the man page")

    def test_man_page_is_well_formed(self):
        done = subprocess.run(["sh", "-c", "command -v groff >/dev/null && exec groff -ww -mdoc -Tutf8 \"$0\"", MAN_PAGE],
                              capture_output=True)
        if done.returncode == 127 or not done.stdout:
            self.skipTest("no groff")
        self.assertEqual(done.stderr, b"")


class Completion(Case):
    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile(delete=False) as cls.script:
            cls.script.write(run("completion", "bash").stdout)
        cls.addClassCleanup(os.unlink, cls.script.name)

    def complete(self, line):
        """What bash would offer at the end of `line`."""
        words = [word for word in re.split(r"([=:])|\s+", line) if word] + ([""] if line.endswith(" ") else [])
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
        script = (f'source "{self.script.name}"; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; '
                  '_agent_sandbox; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, cwd="/")
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode().split()

    def test_commands(self):
        self.assertEqual(set(COMMANDS) - set(self.complete("agent-sandbox ")), set())
        self.assertEqual(self.complete("agent-sandbox do"), ["doctor"])
        for group, verbs in GROUPS.items():
            self.assertEqual(self.complete(f"agent-sandbox {group} "), [*verbs, "-h", "--help"])
            self.assertEqual(self.complete(f"agent-sandbox {group} cr"), ["create"] if "create" in verbs else [])

    def test_options_are_those_of_help(self):
        for command in ("exec", "shell", "doctor", *VERBS):
            help_text = help_of(command).stdout.decode().split("Exit status:")[0]
            offered = self.complete(f"agent-sandbox {command} --")
            self.assertEqual(set(offered), options_in(help_text))

    def test_values(self):
        self.assertEqual(self.complete("agent-sandbox exec -p s"), ["strict", "standard"])
        self.assertEqual(self.complete("agent-sandbox exec --preset=sta"), ["standard"])
        self.assertEqual(self.complete("agent-sandbox exec --preset="), ["strict", "standard"])
        self.assertEqual(self.complete("agent-sandbox exec -E "), ["host", "folder:", "tar:"])
        self.assertEqual(self.complete("agent-sandbox exec -q --tier "), ["strict", "browser"])
        self.assertEqual(self.complete("agent-sandbox completion "), ["bash", "zsh", "fish"])
        self.assertEqual(self.complete("agent-sandbox session list --state st"), ["stopped"])
        self.assertEqual(self.complete("agent-sandbox session create --persistent --preset "), ["strict", "standard"])

    def test_offered_values_are_taken(self):
        for option in ("--preset", "--tier", "--network"):
            for value in self.complete(f"agent-sandbox exec {option} "):
                done = run("exec", option, value, "true")
                if value == "full" and not FORWARDS:
                    self.assertIn(b"net.ipv4.ip_forward", done.stderr)
                else:
                    self.assert_ran(done)

    def test_files_after_a_colon(self):
        for start_of_line in ("-E folder:", "--environment=folder:"):
            self.assertIn("/usr", self.complete(f"agent-sandbox exec {start_of_line}/us"))

    def test_programs_and_their_arguments(self):
        for line in ("exec pytho", "exec -p strict -- pytho", "exec -m 1G -q pytho"):
            self.assertIn("python3", self.complete("agent-sandbox " + line))
        self.assertEqual(self.complete("agent-sandbox exec ls /us"), ["/usr"])
        self.assertNotIn("--preset", self.complete("agent-sandbox exec ls --"))

    def test_other_shells_accept_their_script(self):
        for shell in ("zsh", "fish"):
            script = run("completion", shell)
            self.assert_ran(script)
            self.assertIn(b"preset", script.stdout)
            path = os.path.join(self.scratch(), "script")
            with open(path, "wb") as file:
                file.write(script.stdout)
            try:
                done = subprocess.run([shell, "-n", path], capture_output=True)
            except FileNotFoundError:
                continue  # Not needed for anything else, so not installed for this.
            self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_unknown_shell(self):
        self.assertEqual(run("completion", "csh").returncode, USAGE_ERROR)
        self.assertEqual(run("completion").returncode, USAGE_ERROR)


if __name__ == "__main__":
    unittest.main()
