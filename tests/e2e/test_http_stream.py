"""Several commands over one WebSocket, the same as server-sent events, and that every stream ends when it must."""
import base64
import json
import os
import threading
import time
import unittest

from http_harness import HttpCase, in_parallel, until
from http_raw import BINARY_DATA, CLOSE, PING, PONG, TEXT, request

REVOKED_WITHIN = 10  # seconds from the end of a key to the end of its streams; about three where nothing else runs


def bytes_of(message):
    return base64.b64decode(message["data_base64"]) if "data_base64" in message else message["data"].encode()


class StreamCase(HttpCase):
    def setUp(self):
        super().setUp()
        self.box = self.session(limits={"output": "1T", "cpus": 2})

    def open(self, client=None, box=None, room=None):
        socket = (client or self.admin).socket((box or self.box) + "/stream", room=room)
        self.addCleanup(socket.connection.close)
        self.assertEqual(socket.answer.status, 101, socket.answer)
        return socket

    def listen(self, client, path):
        stream = client.events(path)
        self.addCleanup(stream.connection.close)
        return stream

    def start(self, socket, command, **fields):
        """The id of a command that was started over the socket."""
        tag = os.urandom(4).hex()
        socket.send(type="start", tag=tag, **{"argv" if isinstance(command, list) else "command": command}, **fields)
        return socket.wait_for("started", tag=tag)["command_id"]

    def read_to_exit(self, socket, id, offset=0):
        """All output of a command from `offset` on, each byte once, and its end."""
        whole = b""
        while True:
            message = socket.receive()
            self.assertIsNotNone(message, socket.close_code)
            if message.get("command_id") != id:
                continue
            if message["type"] == "exit":
                return whole, message
            self.assertEqual((message["type"], message["offset"]), ("output", offset + len(whole)))
            whole += bytes_of(message)

    def assert_lives(self, socket):
        socket.send(type="ping")
        socket.wait_for("pong", within=10)


class Commands(StreamCase):
    def test_several_at_once(self):
        socket = self.open()
        for code, name in enumerate("abc"):
            socket.send(type="start", tag=name,
                        command=f"for i in 1 2 3 4 5; do echo {name}$i; sleep 0.1; done; exit {code}")
        names, order, texts, exits = {}, [], dict.fromkeys("abc", ""), {}
        while len(exits) < 3:
            message = socket.receive()
            id = message["command_id"]
            if message["type"] == "started":
                names[id] = message["tag"]
            elif message["type"] == "exit":
                exits[names[id]] = message["exit_code"]
            else:
                order.append(id)
                texts[names[id]] += message["data"]
        self.assertEqual(texts, {name: "".join(f"{name}{i}\n" for i in range(1, 6)) for name in "abc"})
        self.assertEqual(exits, {"a": 0, "b": 1, "c": 2})
        self.assertGreater(sum(one != other for one, other in zip(order, order[1:])), 2)  # in turns

    def test_stdin_and_its_end(self):
        socket = self.open()
        id = self.start(socket, "cat; echo end")
        socket.send(type="stdin", command_id=id, data="grüße\n")
        self.assertEqual(socket.wait_for("output")["data"], "grüße\n")
        socket.send(type="stdin", command_id=id, data_base64=base64.b64encode(b"\xff\0").decode())
        socket.send(type="stdin", command_id=id, eof=True)
        whole, done = self.read_to_exit(socket, id, offset=8)
        self.assertEqual((whole, done["exit_code"]), (b"\xff\0end\n", 0))

    def test_stdin_given_at_the_start(self):
        socket = self.open()
        whole, _ = self.read_to_exit(socket, self.start(socket, "cat", stdin="all of it"))
        self.assertEqual(whole, b"all of it")

    def test_env_cwd_user(self):
        socket = self.open()
        id = self.start(socket, ["sh", "-c", 'echo "$X $PWD $(id -u)"'], env={"X": "y"}, cwd="/usr", user="root")
        self.assertEqual(self.read_to_exit(socket, id)[0], b"y /usr 0\n")

    def test_terminal(self):
        socket = self.open()
        id = self.start(socket, "stty size; read x; stty size; exit 4", pty={"rows": 11, "columns": 22})
        self.assertIn("11 22", socket.wait_for("output")["data"])
        socket.send(type="resize", command_id=id, rows=44, columns=55)
        socket.send(type="stdin", command_id=id, data="\n")
        text = ""
        while (message := socket.receive())["type"] != "exit":
            text += message["data"]
        self.assertIn("44 55", text)
        self.assertEqual(message["exit_code"], 4)

    def test_signal(self):
        socket = self.open()
        id = self.start(socket, "sleep 60")
        socket.send(type="signal", command_id=id, signal="TERM")
        self.assertEqual(self.read_to_exit(socket, id)[1]["signal"], 15)

    def test_attach_where_another_socket_broke_off(self):
        first = self.open()
        id = self.start(first, "for i in $(seq 1 40); do echo line $i; sleep 0.02; done; exit 9")
        seen = bytes_of(first.wait_for("output"))
        first.connection.reset()
        second = self.open()
        second.send(type="attach", command_id=id, offset=len(seen))
        rest, done = self.read_to_exit(second, id, offset=len(seen))
        self.assertEqual(seen + rest, b"".join(b"line %d\n" % i for i in range(1, 41)))
        self.assertEqual(done["exit_code"], 9)
        second.send(type="attach", command_id=id)  # It has ended, and can still be looked at.
        self.assertEqual(self.read_to_exit(second, id)[0], seen + rest)

    def test_detach(self):
        socket = self.open()
        id = self.start(socket, "while :; do echo x; sleep 0.02; done")
        socket.wait_for("output")
        socket.send(type="detach", command_id=id)
        self.assert_lives(socket)
        time.sleep(0.3)
        socket.send(type="ping")
        kinds = []
        while (message := socket.receive())["type"] != "pong":
            kinds.append(message["type"])
        self.assertLessEqual(len(kinds), 1)  # What was under way.
        self.assertEqual(self.admin.get(f"{self.box}/commands/{id}").json["status"], "running")

    def test_nothing_is_told_twice(self):
        socket = self.open()
        id = self.start(socket, "echo first; sleep 0.5; echo second; sleep 0.2; echo third")
        offset = len(bytes_of(socket.wait_for("output")))
        for kind in ("attach", "detach", "attach", "attach"):
            socket.send(type=kind, command_id=id, **({"offset": offset} if kind == "attach" else {}))
        rest, _ = self.read_to_exit(socket, id, offset)
        self.assertEqual(rest, b"second\nthird\n")
        self.assert_lives(socket)  # Neither output nor a second exit comes before the pong.


class Mistakes(StreamCase):
    def assert_error(self, socket, code, tag=None, word=""):
        message = socket.receive(10)
        self.assertEqual((message["type"], message["error"]["code"], message.get("tag")), ("error", code, tag), message)
        self.assertIn(word, message["error"]["message"])
        self.assertEqual(set(message["error"]), {"code", "fault", "message", "hint", "trace_id"})
        self.assert_lives(socket)

    def test_errors_carry_the_tag(self):
        socket = self.open()
        for message, code, word in [
                ({"type": "start"}, "invalid", "command"),
                ({"type": "start", "command": "a", "argv": ["a"]}, "invalid", ""),
                ({"type": "nonsense"}, "invalid", "/type"), ({"type": "attach"}, "invalid", "command_id"),
                ({"type": "attach", "command_id": "c9"}, "not_found", ""),
                ({"type": "attach", "command_id": 1}, "invalid", "/command_id"),
                ({"type": "signal", "command_id": "c9", "signal": 9}, "not_found", ""),
                ({"type": "start", "command": "true", "user": "nobody-knows"}, "invalid", "nobody-knows"),
                ({"type": "start", "command": "true", "privileged": True}, "invalid", "/privileged"),
                ({}, "invalid", "type")]:
            with self.subTest(message=message):
                socket.send(**message, tag="mine")
                self.assert_error(socket, code, "mine", word)

    def test_messages_that_are_no_json(self):
        socket = self.open()
        for text in (b"", b"{", b"[]", b"null", b'{"type":"ping","type":"ping"}', b'{"type":"ping"} x', b"[" * 5000):
            with self.subTest(text=text[:40]):
                socket.connection.send(socket.frame(TEXT, text))
                self.assert_error(socket, "invalid")

    def test_what_needs_a_command_that_runs(self):
        socket = self.open()
        id = self.start(socket, "true")
        self.read_to_exit(socket, id)
        for message in ({"type": "stdin", "data": "x"}, {"type": "signal", "signal": 9},
                        {"type": "resize", "rows": 1, "columns": 1}):
            socket.send(**message, command_id=id)
            self.assert_error(socket, "conflict")

    def test_handshakes_that_are_refused(self):
        upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
                   ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]
        key = ("X-API-Key", self.admin.key)
        for headers, statuses in [
                (upgrade, (401,)), ([*upgrade, key, ("Origin", "https://evil.example")], (403,)),
                ([*upgrade, key, ("Origin", "null")], (403,)),
                ([*upgrade[:2], ("Sec-WebSocket-Version", "8"), upgrade[3], key], (400, 426)),
                ([*upgrade[:3], key], (400,)), ([key], (400, 426))]:
            with self.subTest(headers=headers):
                answer = self.server.plain("GET", self.box + "/stream", headers)
                self.assertIsNotNone(answer, "closed without an answer")
                self.assertIn(answer.status, statuses)
                self.server.note("GET", self.box + "/stream", answer)

    def test_frames_that_break_the_rules(self):
        for why, frame, codes in [
                ("unmasked", lambda s: s.frame(TEXT, b'{"type":"ping"}', masked=False), (1002,)),
                ("reserved bit", lambda s: s.frame(TEXT, b"{}", rsv=4), (1002,)),
                ("reserved opcode", lambda s: s.frame(3, b"{}"), (1002,)),
                ("control in pieces", lambda s: s.frame(PING, b"", fin=False), (1002,)),
                ("long control", lambda s: s.frame(PING, b"x" * 126), (1002,)),
                ("goes on with nothing", lambda s: s.frame(0, b"{}"), (1002,)),
                ("begins twice", lambda s: s.frame(TEXT, b"{", fin=False) + s.frame(TEXT, b"}"), (1002,)),
                ("no UTF-8", lambda s: s.frame(TEXT, b'{"type":"\xff"}'), (1007,)),
                ("bad close code", lambda s: s.frame(CLOSE, b"\x03\xe7"), (1002,)),
                ("too long", lambda s: s.frame(TEXT, b" " * (1 << 20) + b"{}"), (1009,)),
                ("impossible length", lambda s: s.frame(TEXT, b"", length=1 << 62), (1002, 1009)),
                ("compressed", lambda s: s.frame(TEXT, b"\xab\x56\x2a\xa9\x2c\x48\x05\x00", rsv=4), (1002,))]:
            with self.subTest(why=why):
                socket = self.open()
                socket.connection.send_while_heard(frame(socket))
                self.assertTrue(socket.closes(10))
                self.assertIn(socket.close_code, codes)
                self.admin.expect(200, "GET", "/health")

    def test_pieces_and_pings(self):
        socket = self.open()
        text = json.dumps({"type": "ping"}).encode()
        last = len(text) - 1
        parts = [socket.frame(0 if at else TEXT, text[at:at + 1], fin=at == last) for at in range(len(text))]
        socket.connection.send(socket.frame(PING, b"between").join(parts))
        socket.wait_for("pong")
        socket.connection.send(socket.frame(BINARY_DATA, text))
        socket.wait_for("pong")
        socket.connection.send(b"".join(socket.frame(PING, b"%d" % i) for i in range(2000)))
        self.assert_lives(socket)

    def test_pings_and_closes_are_answered(self):
        for path in (self.box + "/stream", "/api/events"):
            with self.subTest(path=path), self.admin.socket(path) as socket:
                socket.connection.socket.settimeout(REVOKED_WITHIN)
                socket.connection.send(socket.frame(PING, b"hello"))
                self.assertEqual(socket._read_frame()[:2], (PONG, b"hello"))
                socket.connection.send(socket.frame(CLOSE, b"\x03\xe8"))
                self.assertEqual(socket._read_frame()[0], CLOSE)
                self.assertTrue(socket.connection.is_closed(REVOKED_WITHIN))


class Floods(StreamCase):
    def written(self, id):
        return self.admin.get(f"{self.box}/commands/{id}").json["output_bytes"]

    def test_output_that_nobody_follows_costs_no_memory(self):
        before = self.server.resident_bytes()
        id = self.admin.start(self.box, "yes", background=True)["command_id"]
        self.assertTrue(until(lambda: self.written(id) > 100 << 20, 60, every=0.2), self.written(id))
        self.assertLess(self.server.resident_bytes() - before, 32 << 20)

    def test_who_reads_slowly_slows_the_program_down(self):
        sockets = [self.open(room=4096) for _ in range(3)]
        before = self.server.resident_bytes()
        id = self.start(sockets[0], "yes")
        for socket in sockets[1:]:
            socket.send(type="attach", command_id=id)
        written = [0, 0]

        def stands_still():
            written.append(self.written(id))
            return 0 < written[-1] == written[-2] == written[-3]
        self.assertTrue(until(stands_still, 10, every=0.5), written)
        self.assertLess(self.server.resident_bytes() - before, 48 << 20)
        began = time.monotonic()
        self.admin.expect(200, "GET", "/health")
        self.assertLess(time.monotonic() - began, 2)

    def test_who_reads_slowly_loses_nothing(self):
        socket = self.open(room=4096)
        id = self.start(socket, "yes | head -c 6000000; printf END")
        time.sleep(1.5)
        whole, _ = self.read_to_exit(socket, id)
        self.assertEqual((len(whole), whole[-5:]), (6_000_003, b"y\nEND"))

    def test_whoever_reads_no_answers_is_not_heard_for_long(self):
        socket = self.open(room=4096)
        before = self.server.resident_bytes()
        wrong = socket.frame(TEXT, b'{"type": "nonsense"}') * 100
        sent = []

        def ask():
            for _ in range(2000):
                socket.connection.send_while_heard(wrong)
                sent.append(time.monotonic())
        asker = threading.Thread(target=ask, daemon=True)
        asker.start()
        # Held back is who could send nothing for a while, and has not sent all.
        held_back = until(lambda: sent and time.monotonic() - sent[-1] > 1.5, 15)
        grown, taken = self.server.resident_bytes() - before, len(sent)
        socket.connection.socket.shutdown(2)
        asker.join(10)
        self.assertTrue(held_back, f"{taken} messages were taken")
        self.assertLess(grown, 32 << 20)
        self.admin.expect(200, "GET", "/health")


class Ends(StreamCase):
    def test_a_revoked_key_ends_every_stream(self):
        key = self.admin.make_key()
        box = self.session(key)
        command = key.start(box, "sleep 60", background=True)["command_id"]
        event_socket = key.socket("/api/events")
        self.addCleanup(event_socket.connection.close)
        streams = {
            "socket": self.open(key, box).closes,
            "events": self.listen(key, box + "/stream").ends,
            "output": self.listen(key, f"{box}/commands/{command}/output").ends,
            "watch": self.listen(key, box + "/files/watch").ends,
            "all events": self.listen(key, "/api/events").ends,
            "event socket": event_socket.closes,
        }
        self.admin.expect(204, "DELETE", f"/api/keys/{key.key_id}")
        names = list(streams)
        ended = in_parallel(len(names), lambda number: streams[names[number]](REVOKED_WITHIN))
        self.assertEqual([name for name, end in zip(names, ended) if not end], [], "go on")

    def test_a_revoked_key_ends_a_socket_that_is_busy(self):
        key = self.admin.make_key()
        box = self.session(key, limits={"output": "1T"})
        socket = self.open(key, box)
        self.start(socket, "yes")
        self.admin.expect(204, "DELETE", f"/api/keys/{key.key_id}")
        self.assertTrue(socket.closes(REVOKED_WITHIN))

    def test_a_revoked_key_ends_sockets_that_nobody_reads(self):
        key = self.admin.make_key()
        box = self.session(key, limits={"output": "1T"})
        flood = key.start(box, "yes", background=True)["command_id"]
        before = self.server.connections()
        for _ in range(5):
            self.open(key, box, room=4096).send(type="attach", command_id=flood)
        self.assertTrue(until(lambda: self.server.connections() >= before + 5))
        time.sleep(1)  # All of them are stuck by now.
        self.admin.expect(204, "DELETE", f"/api/keys/{key.key_id}")
        self.assertTrue(until(lambda: self.server.connections() < before + 2, REVOKED_WITHIN), "they are still open")

    def test_a_deleted_session_ends_its_streams(self):
        command = self.admin.start(self.box, "sleep 60", background=True)["command_id"]
        idle, busy = self.open(), self.open()
        self.start(busy, "yes")
        streams = [idle.closes, busy.closes, self.listen(self.admin, self.box + "/stream").ends,
                   self.listen(self.admin, f"{self.box}/commands/{command}/output").ends,
                   self.listen(self.admin, self.box + "/files/watch").ends]
        self.admin.expect(204, "DELETE", self.box)
        ended = in_parallel(len(streams), lambda number: streams[number](REVOKED_WITHIN))
        self.assertEqual(ended, [True] * len(streams))
        self.assertEqual(idle.close_code, 1000)

    def test_a_share_taken_back_ends_what_was_opened_with_it(self):
        guest = self.admin.make_key()
        self.admin.expect(204, "POST", self.box + "/shares", {"key_id": guest.key_id, "access": "read-write"})
        socket, events = self.open(guest), self.listen(guest, self.box + "/stream")
        self.admin.expect(204, "DELETE", f"{self.box}/shares/{guest.key_id}")
        guest.expect(404, "GET", self.box)
        ended = in_parallel(2, lambda number: (socket.closes, events.ends)[number](REVOKED_WITHIN))
        self.assertEqual(ended, [True, True])

    def test_a_share_made_smaller_is_smaller_at_once(self):
        guest = self.admin.make_key()
        for access in ("read-write", "read"):
            self.admin.expect(204, "POST", self.box + "/shares", {"key_id": guest.key_id, "access": access})
            if access == "read-write":
                socket = self.open(guest)
        socket.send(type="start", command="true", tag="t")
        message = socket.receive(REVOKED_WITHIN)
        self.assertTrue(message is None or message["type"] == "error", message)


class Events(StreamCase):
    def test_output_and_ends_of_all_commands(self):
        with self.admin.events(self.box + "/stream") as stream:
            self.admin.start(self.box, "echo one")
            second = self.admin.start(self.box, "echo two >&2; exit 2")["command_id"]
            events = [stream.next() for _ in range(4)]
        self.assertEqual([event["event"] for event in events], ["output", "exit", "output", "exit"])
        self.assertEqual([events[0]["data"]["data"], events[2]["data"]["data"]], ["one\n", "two\n"])
        self.assertEqual((events[2]["data"]["stream"], events[3]["data"]["command_id"], events[3]["data"]["exit_code"]),
                         ("stderr", second, 2))

    def test_a_viewer_may_listen_and_not_speak(self):
        guest = self.admin.make_key(role="viewer")
        self.admin.expect(204, "POST", self.box + "/shares", {"key_id": guest.key_id, "access": "read"})
        with guest.events(self.box + "/stream") as stream:
            self.admin.start(self.box, "echo hi")
            self.assertEqual(stream.wait_for("output")["data"]["data"], "hi\n")
        with guest.socket(self.box + "/stream") as socket:
            self.assertEqual(socket.answer.status, 403)

    def test_what_happens_over_a_socket(self):
        with self.admin.socket("/api/events?session_id=" + self.box.rsplit("/", 1)[1]) as socket:
            self.admin.expect(200, "PATCH", self.box, {"labels": {}})
            self.assertEqual(socket.receive()["type"], "session.changed")
            self.admin.start(self.box, "exit 6")
            self.assertEqual(socket.receive()["data"]["exit_code"], 6)

    def test_half_a_handshake_is_forgotten(self):
        with self.server.connect() as connection:
            connection.send(request("GET", self.box + "/stream", [
                *self.admin.headers(), ("Connection", "Upgrade"), ("Upgrade", "websocket"),
                ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]))
        self.admin.run(self.box, "true")


if __name__ == "__main__":
    unittest.main()
