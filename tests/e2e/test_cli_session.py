"""The command line against a server's sessions: exec and shell there, volumes, usage, persistent sessions."""
import json
import os
import pty
import re
import signal
import subprocess
import termios
import time
import unittest

from harness import BINARY, PATIENCE, USAGE_ERROR, run, start, takes_more
from http_harness import ADMIN_KEY, HttpCase, Server, environment, until
from test_terminal import Session as Terminal


class CliCase(HttpCase):
    def settings(self, key=ADMIN_KEY, server=None):
        return environment(AGENT_SANDBOX_URL=f"http://127.0.0.1:{(server or self.server).port}",
                           AGENT_SANDBOX_API_KEY=key)

    def cli(self, *words, key=ADMIN_KEY, server=None, **more):
        return run(*words, env=self.settings(key, server), **more)

    def cli_json(self, *words):
        done = self.cli(*words, "--json")
        self.assert_ran(done)
        return json.loads(done.stdout)

    def new_session(self, **fields):
        return self.session(**fields).rpartition("/")[2]

    def exec(self, *words, **more):
        return self.cli("exec", "--session", self.id, *words, **more)

    def started(self, *words, server=None, session=None, **more):
        process = start("exec", "--session", session or self.id, *words, env=self.settings(server=server), **more)
        pipes = [process.stdin, process.stdout, process.stderr]
        self.addCleanup(lambda: (process.kill(), process.wait(), [pipe.close() for pipe in pipes if pipe]))
        return process

    def commands(self):
        return self.admin.expect(200, "GET", f"/api/sessions/{self.id}/commands").json["commands"]


class Exec(CliCase):
    def setUp(self):
        super().setUp()
        self.id = self.new_session()

    def test_exit_codes_are_the_commands(self):
        for code in (0, 1, 42, 255):
            self.assertEqual(self.exec("sh", "-c", f"exit {code}").returncode, code)
        self.assertEqual(self.exec("sh", "-c", "kill -TERM $$").returncode, 128 + signal.SIGTERM)

    def test_a_program_that_cannot_be_run(self):
        done = self.exec("no-such-program")
        self.assertEqual(done.returncode, 127)
        self.assertIn(b"no-such-program: No such file", done.stderr)
        self.assertEqual(self.exec("/etc/passwd").returncode, 126)

    def test_streams_are_apart(self):
        done = self.exec("sh", "-c", "echo out; echo err >&2")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"out\n", b"err\n"))

    def test_user_directory_and_variables(self):
        done = self.exec("-u", "root", "-w", "/tmp", "-e", "A=b c", "--", "sh", "-c", 'echo "$(id -un) $PWD $A"')
        self.assert_ran(done, b"root /tmp b c\n")

    def test_the_session_keeps_what_commands_leave(self):
        self.assert_ran(self.exec("sh", "-c", "cat > file", stdin=b"left"))
        self.assert_ran(self.exec("cat", "file"), b"left")

    def test_bytes_are_verbatim_both_ways(self):
        data = os.urandom(5_000_000)
        done = self.exec("cat", stdin=data)
        self.assert_ran(done)
        self.assertTrue(done.stdout == data)

    def test_input_reaches_the_program_at_once(self):
        process = self.started("cat")
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), line)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0)

    def test_stdin_is_left_alone(self):
        script = '{ "$0" exec --session "$1" -n cat; cat; }'
        done = subprocess.run(["sh", "-c", script, BINARY, self.id], input=b"for the second", capture_output=True,
                              env=self.settings())
        self.assert_ran(done, b"for the second")

    def test_programs_that_do_not_read(self):
        self.assert_ran(self.exec("true", stdin=b"x" * 5_000_000), b"")
        script = 'yes | "$0" exec --session "$1" head -n 3'
        done = subprocess.run(["sh", "-c", script, BINARY, self.id], capture_output=True, timeout=PATIENCE,
                              env=self.settings())
        self.assert_ran(done, b"y\ny\ny\n")

    def test_a_slow_reader_loses_nothing(self):
        lines = 8_000_000 // 16
        process = self.started("--output-limit", "0", "seq", "-f", "%015.0f", str(lines), stdin=subprocess.DEVNULL)
        time.sleep(3)  # Long enough for all of it, were there nobody to slow it down.
        command, = self.commands()
        self.assertEqual(command["status"], "running")
        seen = process.stdout.read()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertTrue(seen == b"".join(b"%015d\n" % number for number in range(1, lines + 1)))

    def test_a_reader_that_goes_away(self):
        process = self.started("yes", stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"y\n")
        process.stdout.close()
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGPIPE)
        process = self.started("sh", "-c", "trap '' PIPE; while :; do echo y; done", stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"y\n")
        process.stdout.close()
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGKILL)

    def test_signals_end_the_program(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.started("sh", "-c", "echo ready; exec sleep 60", stdin=subprocess.DEVNULL)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            process.send_signal(number)
            self.assertEqual(process.wait(PATIENCE), 128 + number)
        self.assertEqual({command["status"] for command in self.commands()}, {"signaled"})

    def test_a_second_one_ends_us_when_the_reader_never_wakes(self):
        process = self.started("--output-limit", "0", "yes", stdin=subprocess.DEVNULL)
        self.assertTrue(until(lambda: not takes_more(process)))
        process.send_signal(signal.SIGTERM)
        self.assertTrue(until(lambda: self.commands()[0]["status"] == "signaled"))
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual((process.wait(PATIENCE), process.stderr.read()), (128 + signal.SIGTERM, b""))

    def test_stops_and_goes_on_with_the_program(self):
        process = self.started("sh", "-c", "while :; do echo tick; sleep 0.02; done", stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"tick\n")
        process.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        process.send_signal(signal.SIGCONT)
        for _ in range(50):
            self.assertEqual(process.stdout.readline(), b"tick\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGINT)

    def test_signals_reach_a_handler(self):
        process = self.started("sh", "-c", "trap 'echo caught; exit 3' INT; echo ready; sleep 60 & wait",
                               stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stdout.read(), b"caught\n")
        self.assertEqual(process.wait(PATIENCE), 3)

    def test_limits_of_one_command(self):
        done = self.exec("--timeout", "300ms", "sleep", "60")
        self.assertEqual(done.returncode, 128 + signal.SIGKILL)
        self.assertIn(b"--timeout", done.stderr)
        done = self.exec("-q", "--output-limit", "10K", "yes")
        self.assertEqual((done.returncode, done.stderr), (128 + signal.SIGKILL, b""))

    def test_json_is_the_servers(self):
        done = self.exec("--json", "sh", "-c", "cat; echo bad >&2; exit 3", stdin=b"good")
        told = json.loads(done.stdout)
        self.assertEqual((done.returncode, done.stderr), (3, b""))
        self.assertEqual((told["status"], told["exit_code"], told["stdout"], told["stderr"]),
                         ("exited", 3, "good", "bad\n"))
        self.assertEqual(told, self.admin.get(f"/api/sessions/{self.id}/commands/{told['command_id']}").json)

    def test_a_session_that_ends_meanwhile(self):
        process = self.started("sh", "-c", "echo ready; exec sleep 60", stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.admin.expect(204, "DELETE", f"/api/sessions/{self.id}")
        self.assertNotEqual(process.wait(PATIENCE), 0)

    def test_shell(self):
        done = self.cli("shell", "--session", self.id, stdin=b"echo $((6 * 7)); cd /tmp; pwd; exit 5\n")
        self.assertEqual((done.returncode, done.stdout), (5, b"42\n/tmp\n"))


class Refused(CliCase):
    def test_what_only_a_new_sandbox_can_be_told(self):
        for words in (["--memory", "1G"], ["-p", "strict"], ["-E", "host"], ["--tier", "strict"],
                      ["--network", "none"], ["--read-only"], ["--pids", "9"], ["--disk", "1M"],
                      ["--truncate-output"], ["--no-cgroups"]):
            for command in (["exec", "--session", "x", *words, "true"], ["shell", "--session", "x", *words]):
                with self.subTest(words=command):
                    done = self.cli(*command)
                    self.assertEqual(done.returncode, USAGE_ERROR)
                    self.assertIn(b"is for a new sandbox", done.stderr)

    def test_no_session_at_all(self):
        done = self.cli("exec", "--session", "", "true")
        self.assertEqual(done.returncode, USAGE_ERROR)
        self.assertIn(b"names no session", done.stderr)

    def test_unknown_session(self):
        for words in (["exec", "--session", "a" * 33, "true"], ["session", "usage", "a" * 33]):
            done = self.cli(*words)
            self.assertEqual(done.returncode, USAGE_ERROR)
            self.assertIn(b"no such session", done.stderr)
        done = self.cli("exec", "--session", "a" * 33, "--json", "true")
        self.assertEqual(json.loads(done.stdout)["error"]["code"], "not_found")

    def test_wrong_key(self):
        done = self.cli("exec", "--session", self.new_session(), "true", key="wrong")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"AGENT_SANDBOX_API_KEY", done.stderr)

    def test_no_server(self):
        for words in (["exec", "--session", "x", "true"], ["volume", "list"]):
            done = run(*words, env=environment(AGENT_SANDBOX_URL="http://127.0.0.1:9"))
            self.assertEqual(done.returncode, USAGE_ERROR)
            self.assertIn(b"no server answers at http://127.0.0.1:9\n", done.stderr)
            self.assertIn(b"agent-sandbox serve", done.stderr)


class OnATerminal(CliCase):
    def setUp(self):
        super().setUp()
        self.id = self.new_session()

    def terminal(self, *words, **more):
        return Terminal(*words, env=self.settings(), **more)

    def test_size_follows_the_window(self):
        terminal = self.terminal("exec", "--session", self.id, "-T", "sh", "-c",
                                 "tty; stty size; trap 'stty size; exit 5' WINCH; echo ready; sleep 60 & wait",
                                 rows=33, columns=77)
        terminal.expect(rb"/dev/pts/\d+\r\n33 77\r\nready")
        terminal.resize(11, 55)
        terminal.expect(rb"11 55")
        self.assertEqual(terminal.wait(), 5)

    def test_shell_with_keys(self):
        terminal = self.terminal("shell", "-q", "--session", self.id)
        terminal.expect(rb"[$#] ")
        terminal.type("echo $((6 * 7)); sleep 100\r")
        terminal.expect(rb"\r42\r\n")
        terminal.type("\x03")
        terminal.expect(rb"[$#] ")
        terminal.type("exit 6\r")
        self.assertEqual(terminal.wait(), 6)

    def test_interrupt_without_a_terminal_inside(self):
        terminal = self.terminal("exec", "--session", self.id, "sh", "-c", "echo ready; exec sleep 100")
        terminal.expect(rb"ready")
        terminal.type("\x03")
        self.assertEqual(terminal.wait(), 128 + signal.SIGINT)

    def test_terminal_is_given_back(self):
        master, slave = pty.openpty()
        before = termios.tcgetattr(slave)
        for session in (self.id, "a" * 33):
            subprocess.run([BINARY, "exec", "--session", session, "-T", "true"], stdin=slave, stdout=slave,
                           stderr=slave, timeout=PATIENCE, env=self.settings())
            self.assertEqual(termios.tcgetattr(slave), before)
        os.close(master), os.close(slave)


class Restart(CliCase):
    def setUp(self):
        super().setUp()
        self.first = Server(storage=os.path.join(self.scratch(), "storage"))
        self.addCleanup(self.first.kill)
        self.remote = self.first.admin.create().rpartition("/")[2]

    def next(self, after=0.0):
        """Killed without a warning; the next one comes up at the same address."""
        self.first.end_now()
        time.sleep(after)
        return self.other_server(storage=self.first.storage, port=self.first.port)

    def test_a_command_goes_on_and_loses_nothing(self):
        script = "i=0; while [ $i -lt 60 ]; do echo $i; i=$((i+1)); sleep 0.05; done; echo bad >&2; exit 7"
        process = self.started("sh", "-c", script, server=self.first, session=self.remote, stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"0\n")
        self.next(after=1)
        self.assertEqual(process.stdout.read().split(), [b"%d" % number for number in range(1, 60)])
        self.assertEqual((process.wait(PATIENCE), process.stderr.read()), (7, b"bad\n"))

    def test_input_that_comes_meanwhile_arrives(self):
        process = self.started("cat", server=self.first, session=self.remote)
        process.stdin.write(b"before\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"before\n")
        self.first.end_now()
        process.stdin.write(b"meanwhile\n")
        process.stdin.close()
        self.next()
        self.assertEqual(process.stdout.read(), b"meanwhile\n")
        self.assertEqual((process.wait(PATIENCE), process.stderr.read()), (0, b""))

    def test_who_interrupts_while_it_is_away_may_leave(self):
        process = self.started("sh", "-c", "echo ready; exec sleep 60", server=self.first, session=self.remote,
                               stdin=subprocess.DEVNULL)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        self.first.end_now()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGINT)
        self.assertIn(b"the command may go on", process.stderr.read())


class Volumes(CliCase):
    def volume(self, name, *words):
        done = self.cli("volume", "create", name, *words)
        self.assert_ran(done, name.encode() + b"\n")
        self.addCleanup(self.admin.delete, "/api/volumes/" + name)

    def test_made_listed_and_removed(self):
        self.volume("first", "--size", "64M")
        self.volume("second")
        listed = self.cli_json("volume", "list")["volumes"]
        self.assertEqual([(one["name"], one["size"]) for one in listed], [("first", 64 << 20), ("second", 1 << 30)])
        lines = self.cli("volume", "list").stdout.decode().splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["NAME", "first", "second"])
        self.assert_ran(self.cli("volume", "rm", "second"), b"")
        self.assertEqual(self.cli("volume", "get", "second").returncode, USAGE_ERROR)
        self.assertEqual(self.cli("volume", "create", "third", "--size", "much").returncode, USAGE_ERROR)

    def test_shared_by_sessions(self):
        self.volume("shared", "--size", "64M")
        made = [self.cli_json("session", "create", "--volume", place)["session_id"]
                for place in ("shared:/data", "shared:/mnt/it:ro")]
        for session in made:
            self.addCleanup(self.admin.delete, "/api/sessions/" + session)
        self.assert_ran(self.cli("exec", "--session", made[0], "sh", "-c", "echo kept > /data/file"))
        self.assert_ran(self.cli("exec", "--session", made[1], "cat", "/mnt/it/file"), b"kept\n")
        self.assertNotEqual(self.cli("exec", "--session", made[1], "touch", "/mnt/it/other").returncode, 0)
        uses = {use["session_id"]: (use["path"], use["read_only"])
                for use in self.cli_json("volume", "get", "shared")["used_by"]}
        self.assertEqual(uses, {made[0]: ("/data", False), made[1]: ("/mnt/it", True)})
        self.assertIn(b"/mnt/it", self.cli("volume", "get", "shared").stdout)
        self.assertNotEqual(self.cli("volume", "rm", "shared").returncode, 0)

    def test_places_that_are_none(self):
        for place in ("shared", "shared:", "shared:data", ":/data", "shared::ro"):
            done = self.cli("session", "create", "--volume", place)
            self.assertEqual(done.returncode, USAGE_ERROR)
            self.assertIn(b"is not NAME:/path", done.stderr)


class Sessions(CliCase):
    def test_usage_now_and_before(self):
        session = self.new_session()
        self.assert_ran(self.cli("exec", "--session", session, "true"))
        now = self.cli_json("session", "usage", session)
        self.assertGreater(now["memory_bytes"] + now["memory_peak_bytes"], 0)
        title, line = self.cli("session", "usage", session).stdout.decode().splitlines()
        self.assertEqual(title.split(), ["AT", "CPU", "MEMORY", "PEAK", "DISK", "PROCESSES"])
        self.assertEqual(len(re.split("  +", line)), 6)
        self.assertIsInstance(self.cli_json("session", "usage", session, "--history")["samples"], list)
        self.assert_ran(self.cli("session", "usage", session, "--history"))

    def test_a_persistent_one_stops_and_is_resumed(self):
        made = self.cli_json("session", "create", "--persistent", "--disk", "64M", "--idle", "2s")
        session, path = made["session_id"], "/api/sessions/" + made["session_id"]
        self.addCleanup(self.admin.delete, path)
        self.assertTrue(made["persistent"])
        self.assert_ran(self.cli("exec", "--session", session, "sh", "-c", "echo kept > file"))
        listed = lambda: self.cli_json("session", "list", "--state", "stopped")["sessions"]
        self.assertTrue(until(lambda: [one for one in listed() if one["session_id"] == session], every=0.5))
        done = self.cli("exec", "--session", session, "true")
        self.assertEqual(done.returncode, USAGE_ERROR)
        self.assertIn(b"stopped", done.stderr)
        self.assert_ran(self.cli("session", "resume", session))
        self.assert_ran(self.cli("exec", "--session", session, "cat", "file"), b"kept\n")


if __name__ == "__main__":
    unittest.main()
