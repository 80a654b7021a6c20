"""A proxy between two servers that can be told to behave badly: to drop, delay, garble, cut and refuse what passes."""
import asyncio
import random
import re
import threading

HARMLESS = (r"^(GET /(sandboxes|v2/sandboxes|health|metrics)|DELETE /sandboxes/|POST /sandboxes/[^/ ]+/(timeout|connect|pause) |"
            r"POST /filesystem\.Filesystem/(Stat|ListDir|Remove) |POST /process\.Process/(List|SendSignal|CloseStdin|Update) )")


class ChaosProxy:
    """On a thread of its own. What is set may be changed at any time; new connections, requests and bytes obey it.

    honest       passes everything
    refuse       closes connections as soon as they are made, and those that are open with their next byte
    cut_request  hands the first half of a request on, and closes
    swallow      reads requests and never answers
    drop_answer  hands requests on, reads their answers, and closes instead of passing them
    truncate     passes the first half of each answer's first piece, and closes
    garble       flips bits of what answers say
    garble_all   flips bits anywhere in answers: in heads, lengths and frames, too, so that some never come to an end
    slow         waits before each piece
    too_many     answers 429 by itself, with Retry-After
    unavailable  answers 503 by itself
    nonsense     answers 500 by itself, with a page that is no JSON
    rough        tears everything into small pieces and waits now and then; of each dozen of requests that may be sent
                 twice one loses its answer, and the next is slow
    """

    def __init__(self, port, seed=1):
        self.target = port
        self.random = random.Random(seed)
        self.handed_on = []  # first lines of requests that reached the other side
        self.stopped_here = []  # of those that did not
        self.lost = 0  # answers that "rough" has dropped
        self.retry_after = 1
        self.be_honest()
        self._harmless = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def be(self, mode, only="", times=None):
        """Bad to requests whose first line has `only` in it, and to so many of them at most."""
        self.mode, self.only, self.left = mode, re.compile(only), times

    def be_honest(self):
        self.be("honest")

    def forget(self):
        self.handed_on.clear()
        self.stopped_here.clear()

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _mode_for(self, line):
        """What happens to a request that begins."""
        if self.mode == "honest" or not self.only.search(line) or self.left == 0:
            return "honest"
        if self.left is not None:
            self.left -= 1
        if self.mode != "rough":
            return self.mode
        if re.match(HARMLESS, line):
            self._harmless += 1
            if self._harmless % 12 == 0:
                self.lost += 1
                return "drop_answer"
            if self._harmless % 12 == 1:
                return "slow"
        return "pieces"

    def _mode_now(self, state):
        """Of bytes on a connection whose request has begun before: somebody may have changed his mind since."""
        if state["mode"] == "honest" and self.left is None and self.only.search(state["line"]) and self.mode != "rough":
            return self.mode
        return state["mode"]

    async def _serve(self, reader, writer):
        state = {"mode": "honest", "line": ""}
        try:
            if self.mode == "refuse" and not self.only.pattern:
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                await asyncio.gather(self._up(reader, far_writer, writer, state),
                                     self._down(far_reader, writer, far_writer, state))
            finally:
                far_writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _up(self, reader, writer, back, state):
        while data := await reader.read(65536):
            line = data.split(b"\r\n", 1)[0]
            if line.endswith(b"HTTP/1.1"):
                state["line"] = line.decode()
                state["mode"] = self._mode_for(state["line"])
                if state["mode"] in ("too_many", "unavailable", "nonsense"):
                    self.stopped_here.append(state["line"])
                    await self._take_all(reader, data)
                    back.write(self._answer(state["mode"]))
                    await back.drain()
                    break
                if state["mode"] in ("cut_request", "swallow", "refuse"):
                    self.stopped_here.append(state["line"])
                else:
                    self.handed_on.append(state["line"])
            mode = state["mode"]
            if mode == "swallow":
                continue
            if mode == "refuse":
                break
            if mode == "cut_request":
                writer.write(data[:len(data) // 2])
                await writer.drain()
                break
            await self._pass(data, writer, mode)
        if state["mode"] in ("cut_request", "refuse", "too_many", "unavailable", "nonsense"):
            back.close()
            writer.close()
            return
        writer.write_eof()

    @staticmethod
    async def _take_all(reader, data):
        """The rest of a request, so that its sender reads the answer and not a reset."""
        while b"\r\n\r\n" not in data:
            data += await reader.read(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
        chunked = re.search(rb"(?i)\r\ntransfer-encoding: *chunked", head)
        while (length and len(body) < int(length[1])) or (chunked and not body.endswith(b"0\r\n\r\n")):
            if not (more := await reader.read(65536)):
                break
            body += more

    def _answer(self, mode):
        status, more, media, body = {
            "too_many": ("429 Too Many Requests", f"Retry-After: {self.retry_after}\r\n", "application/json",
                         b'{"code": 429, "message": "not so fast"}'),
            "unavailable": ("503 Service Unavailable", "", "application/json", b'{"code": 503, "message": "later"}'),
            "nonsense": ("500 Internal Server Error", "", "text/html", b"<h1>Oops</h1>"),
        }[mode]
        head = (f"HTTP/1.1 {status}\r\n{more}Content-Type: {media}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n")
        return head.encode() + body

    def _garbled(self, data, begin, end):
        data = bytearray(data)
        for _ in range(1 + (end - begin) // 40 if begin >= 0 and end > begin else 0):
            data[self.random.randrange(begin, end)] ^= 1 << self.random.randrange(8)
        return data

    async def _pass(self, data, writer, mode):
        if mode == "slow":
            await asyncio.sleep(0.05)
        if mode == "pieces" and len(data) < 20_000:
            for at in range(0, len(data), 700):
                writer.write(data[at:at + 700])
                await writer.drain()
                await asyncio.sleep(0)
            return
        writer.write(bytes(data))
        await writer.drain()

    async def _down(self, reader, writer, far_writer, state):
        while data := await reader.read(65536):
            mode = self._mode_now(state)
            if mode in ("drop_answer", "refuse", "swallow"):
                break
            if mode == "truncate":
                writer.write(data[:max(1, len(data) // 2)])
                await writer.drain()
                break
            if mode in ("garble", "garble_all"):
                data = self._garbled(data, *((0, len(data)) if mode == "garble_all" else (data.find(b"{"), data.rfind(b"}") + 1)))
            await self._pass(data, writer, mode)
        writer.close()
        far_writer.close()
