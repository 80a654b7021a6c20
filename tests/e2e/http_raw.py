"""HTTP, WebSocket and server-sent events over bare sockets: bytes go out as they are, and come in strictly read."""
import base64
import hashlib
import json
import os
import socket
import struct
import time

from harness import PATIENCE
from http_schema import strict_json


class Answer:
    def __init__(self, status, headers, body=b""):
        self.status = status
        self.headers = headers  # pairs, in their order
        self.body = body

    def header(self, name):
        """The only header of that name, or None."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) < 2, f"{name} came {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def json(self):
        return strict_json(self.body)

    @property
    def error(self):
        return self.json["error"]

    def __repr__(self):
        return f"<{self.status} {self.body[:600]!r}>"


class Broken(AssertionError):
    """What came is not HTTP."""


class Connection:
    """One TCP or TLS connection. Reading ends with the answer, not with what happens to have arrived."""

    def __init__(self, address, timeout=PATIENCE, tls=None, room=None, source=None):
        """`room`: bytes that may wait unread here, for clients that read slowly; `source`: this side's address."""
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if room:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.settimeout(timeout)
        self.socket.connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def reset(self):
        """Goes without a word: the other side sees RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def send(self, data):
        self.socket.sendall(data)

    def send_while_heard(self, data):
        """As much as the other side takes: it may answer and close before it has seen all."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _line(self):
        line = self.file.readline(65536)
        if line and not line.endswith(b"\r\n"):
            raise Broken(f"a line that does not end: {line[:200]!r}")
        return line[:-2]

    def read_head(self):
        """Status and headers of the next answer; None when the other side has closed."""
        try:
            first = self.file.readline(65536)
        except ConnectionResetError:
            return None
        if not first:
            return None
        parts = first.rstrip(b"\r\n").split(b" ", 2)
        if parts[0] != b"HTTP/1.1" or len(parts) < 3 or not first.endswith(b"\r\n"):
            raise Broken(f"no answer: {first[:200]!r}")
        headers = []
        while line := self._line():
            name, colon, value = line.partition(b": ")
            if not colon:
                raise Broken(f"no header: {line!r}")
            headers.append((name.decode(), value.decode("latin-1")))
        return Answer(int(parts[1]), headers)

    def read_answer(self, method="GET"):
        answer = self.read_head()
        if answer is None or answer.status in (100, 101, 204, 304) or method == "HEAD":
            return answer
        if answer.header("transfer-encoding") == "chunked":
            answer.body = b"".join(iter(self.read_chunk, b""))
        elif answer.header("content-length") is not None:
            length = int(answer.header("content-length"))
            answer.body = self.file.read(length)
            if len(answer.body) != length:
                raise Broken(f"{len(answer.body)} of {length} bytes came")
        else:
            answer.body = self.file.read()
        return answer

    def read_chunk(self):
        """b"" is the proper end; a stream that breaks off is Broken."""
        line = self._line()
        if not line:
            raise Broken("the stream broke off")
        data = self.file.read(int(line, 16))
        if len(data) != int(line, 16) or self.file.read(2) != b"\r\n":
            raise Broken("a chunk broke off")
        return data

    def read_answers(self, methods=()):
        """All until the other side closes; `methods` are those asked with, GET where missing."""
        answers = []
        while True:
            method = methods[len(answers)] if len(answers) < len(methods) else "GET"
            answer = self.read_answer(method)
            if answer is None:
                return answers
            answers.append(answer)

    def is_closed(self, within=10):
        """Whether the other side ends the connection, with nothing more to say."""
        self.socket.settimeout(within)
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True
        except (TimeoutError, socket.timeout):
            return False


def request(method, target, headers=(), body=b"", host="localhost"):
    """The bytes of a well-formed request."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers)]
    if body and not any(name.lower() in ("content-length", "transfer-encoding") for name, _ in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


class EventStream:
    """Reads server-sent events as they come."""

    def __init__(self, connection, answer):
        self.connection = connection
        self.answer = answer
        self.pending = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def next(self, within=PATIENCE):
        """The next event as {"event", "id", "data"}; None at the proper end."""
        self.connection.socket.settimeout(within)
        while True:
            block, found, rest = self.pending.partition(b"\n\n")
            if not found:
                chunk = self.connection.read_chunk()
                if not chunk:
                    return None
                self.pending += chunk
                continue
            self.pending = rest
            event = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
            if event:
                event["data"] = json.loads(event["data"])
                return event

    def all(self, within=PATIENCE):
        return list(iter(lambda: self.next(within), None))

    def wait_for(self, name, within=PATIENCE, **data):
        """The first event of that name whose data has these values."""
        end = time.monotonic() + within
        while event := self.next(max(0.1, end - time.monotonic())):
            if event["event"] == name and all(event["data"].get(key) == value for key, value in data.items()):
                return event
        raise AssertionError(f"no event {name} {data} before the end")

    def ends(self, within):
        """Whether the server ends the stream; it may still tell things before."""
        try:
            end = time.monotonic() + within
            while self.next(max(0.1, end - time.monotonic())):
                if time.monotonic() > end:
                    return False
        except Broken:
            return True
        except (TimeoutError, socket.timeout):
            return False
        return True


TEXT, BINARY_DATA, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class WebSocket:
    """RFC 6455 from the client's side, able to break its rules where a test wants that."""

    def __init__(self, connection, target, headers=(), host="localhost"):
        self.connection = connection
        self.close_code = None
        key = base64.b64encode(os.urandom(16)).decode()
        connection.send(request("GET", target, [
            ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", key), *headers], host=host))
        self.answer = connection.read_answer()
        if self.answer is None:
            raise Broken("closed without an answer to the handshake")
        if self.answer.status == 101:
            expected = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
            assert self.answer.header("sec-websocket-accept") == base64.b64encode(expected).decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def frame(self, opcode, payload=b"", fin=True, masked=True, rsv=0, length=None):
        """`length` may lie."""
        size = len(payload) if length is None else length
        head = bytes([fin << 7 | rsv << 4 | opcode])
        if size < 126:
            head += bytes([masked << 7 | size])
        elif size < 65536:
            head += struct.pack(">BH", masked << 7 | 126, size)
        else:
            head += struct.pack(">BQ", masked << 7 | 127, size)
        if not masked:
            return head + payload
        mask = os.urandom(4)
        if len(payload) > 1000:
            number = int.from_bytes(payload, "little")
            stream = (mask * (len(payload) // 4 + 1))[:len(payload)]
            return head + mask + (number ^ int.from_bytes(stream, "little")).to_bytes(len(payload), "little")
        return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))

    def send(self, **message):
        self.connection.send(self.frame(TEXT, json.dumps(message).encode()))

    def _read_frame(self):
        """(opcode, payload, fin); None when the connection is over."""
        try:
            head = self.connection.file.read(2)
            if len(head) < 2:
                return None
            size = head[1]
            if size > 127:
                raise Broken("a server must not mask")
            if size > 125:
                size = int.from_bytes(self.connection.file.read(2 if size == 126 else 8), "big")
            payload = self.connection.file.read(size)
        except ConnectionResetError:
            return None
        return (head[0] & 15, payload, head[0] >> 7) if len(payload) == size else None

    def receive(self, within=PATIENCE):
        """The next message as JSON; None at the end, after which close_code tells why."""
        self.connection.socket.settimeout(within)
        whole = b""
        while frame := self._read_frame():
            opcode, payload, fin = frame
            if opcode == PING:
                self.connection.send_while_heard(self.frame(PONG, payload))
            elif opcode == CLOSE:
                self.close_code = int.from_bytes(payload[:2], "big") if payload else 1005
                self.connection.send_while_heard(self.frame(CLOSE, payload[:2]))
                return None
            elif opcode != PONG:
                whole += payload
                if fin:
                    return strict_json(whole)
        return None

    def wait_for(self, type, within=PATIENCE, **values):
        """The first message of that type with these values; others are passed over."""
        end = time.monotonic() + within
        while message := self.receive(max(0.1, end - time.monotonic())):
            if message["type"] == type and all(message.get(name) == value for name, value in values.items()):
                return message
        raise AssertionError(f"no {type} {values} before the end ({self.close_code})")

    def closes(self, within):
        """Whether the server ends it in time; what it says before is passed over."""
        end = time.monotonic() + within
        try:
            while self.receive(max(0.1, end - time.monotonic())) is not None:
                if time.monotonic() > end:
                    return False
        except (TimeoutError, socket.timeout):
            return False
        return True
