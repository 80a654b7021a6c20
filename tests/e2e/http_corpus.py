"""Requests as bytes, each with the statuses that are right for it. None of them may be answered twice."""

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
JSON = b"Content-Type: application/json\r\n"


def head(*lines, first=b"GET /health HTTP/1.1", host=b"Host: localhost\r\n"):
    """A request of these header lines, each of which ends as it says."""
    return first + b"\r\n" + host + b"".join(lines) + b"\r\n"


def post(*lines, body=b""):
    return head(b"{key}", JSON, *lines, first=b"POST /api/sessions HTTP/1.1") + body


def length(value):
    return post(b"Content-Length: " + value + b"\r\n", body=b"{}" + SMUGGLED)


def encoding(line):
    return post(line, body=b"0\r\n\r\n" + SMUGGLED)


def line(text):
    return text + b"\r\nHost: localhost\r\n\r\n"


def chunks(data):
    return post(b"Transfer-Encoding: chunked\r\n", body=data)


# {key} stands for an Authorization line. The expected statuses of the one answer; 0: closed without one.
FRAMING = {
    "length and encoding": (post(b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n",
                                 body=b"0\r\n\r\n" + SMUGGLED), {400}),
    "encoding and length": (post(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 4\r\n",
                                 body=b"0\r\n\r\n" + SMUGGLED), {400}),
    "two equal lengths": (post(b"Content-Length: 2\r\n" * 2, body=b"{}" + SMUGGLED), {400}),
    "two lengths": (post(b"Content-Length: 2\r\n", b"Content-Length: 45\r\n", body=b"{}" + SMUGGLED), {400}),
    "two encodings": (encoding(b"Transfer-Encoding: chunked\r\n" * 2), {400}),
    **{f"length {value!r}": (length(value), {400}) for value in (
        b"2, 2", b"2,3", b"+2", b"-1", b"2 2", b"0x2", b"1e3", b"", b" ", b"9223372036854775808", b"9" * 30, b"2;",
        b"\xef\xbc\x92", b"\x0b2",
        b"2\x00", b"two", b"2.0", b"'2'")},
    **{f"encoding {value!r}": (encoding(b"Transfer-Encoding: " + value + b"\r\n"), {400}) for value in (
        b"xchunked", b"chunked, identity", b"identity", b"gzip, chunked", b"chunked, chunked", b"\x0bchunked",
        b'"chunked"', b"chunked;q=1",
        b"chunked\x00", b",chunked", b"")},
    "blank before the colon": (encoding(b"Transfer-Encoding : chunked\r\n"), {400}),
    "tab before the colon": (encoding(b"Transfer-Encoding\t: chunked\r\n"), {400}),
    "folded value": (encoding(b"Transfer-Encoding:\r\n chunked\r\n"), {400}),
    "folded after another": (encoding(b"X: a\r\n\tTransfer-Encoding: chunked\r\n"), {400}),
    "folded first": (head(b" X: a\r\n", host=b""), {400}),
    "line feeds only": (b"GET /health HTTP/1.1\nHost: localhost\n\n" + SMUGGLED, {400}),
    "one bare line feed": (head(b"X: a\nTransfer-Encoding: chunked\r\n") + SMUGGLED, {400}),
    "carriage returns only": (b"GET /health HTTP/1.1\rHost: localhost\r\r", {400, 0}),
    "bare carriage return": (head(b"X: a\rY: b\r\n"), {400}),
    "two carriage returns": (head(b"X: a\r\r\n"), {400}),
    "zero byte in a value": (head(b"X: a\0b\r\n"), {400}),
    "zero byte in a name": (head(b"X\0: a\r\n"), {400}),
    "control character in a value": (head(b"X: a\x01b\r\n"), {400}),
    "delete in a value": (head(b"X: a\x7fb\r\n"), {400}),
    "no colon": (head(b"nothing\r\n"), {400}),
    "no name": (head(b": value\r\n"), {400}),
    "blank in a name": (head(b"A B: c\r\n"), {400}),
    "bracket in a name": (head(b"(x): c\r\n"), {400}),
    "letters beyond ASCII in a name": (head(b"\xc3\xa4: c\r\n"), {400}),
    "two hosts": (head(b"Host: localhost\r\n"), {400}),
    "no host": (head(host=b""), {400}),
    "empty host": (head(host=b"Host:\r\n"), {400, 403}),
    "host with a user": (head(host=b"Host: localhost@evil.example\r\n"), {400, 403}),
    "host with a blank": (head(host=b"Host: localhost evil\r\n"), {400, 403}),
    "encoding for version 1.0": (encoding(b"Transfer-Encoding: chunked\r\n").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
                                 {400}),
}

LINES = {
    **{f"line {text!r}": (line(text), {400}) for text in (
        b"GET /health HTTP/2.0", b"GET /health HTTP/1.2", b"GET /health HTTP/1.10", b"GET /health http/1.1",
        b"GET /health HTTP/0.9", b"GET /health",
        b"GET /health HTTP/1.1 ", b"GET  /health HTTP/1.1", b"GET\t/health\tHTTP/1.1", b"G@T /health HTTP/1.1",
        b" /health HTTP/1.1",
        b" GET /health HTTP/1.1", b"GET /he alth HTTP/1.1", b"GET /h\xc3\xa4 HTTP/1.1", b"GET /\x01 HTTP/1.1",
        b"GET /%zz HTTP/1.1", b"GET /%0 HTTP/1.1",
        b"GET /%00 HTTP/1.1", b"GET health HTTP/1.1", b"GET \\health HTTP/1.1", b"OPTIONS * HTTP/1.1",
        b"CONNECT localhost:443 HTTP/1.1",
        b"GET http://evil.example/health HTTP/1.1", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"")},
    "absolute form": (line(b"GET http://localhost/health HTTP/1.1"), {200, 400}),
    "preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}),
    **{f"line {text!r}": (line(text), {404}) for text in (
        b"GET //health HTTP/1.1", b"GET /../health HTTP/1.1", b"GET /health/ HTTP/1.1", b"GET /health#x HTTP/1.1",
        b"GET /api/../health HTTP/1.1")},
    "an escaped slash is none": (head(b"{key}", first=b"GET /api%2Fme HTTP/1.1"), {400, 404}),
    **{f"line {text!r}": (line(text), {405}) for text in (b"get /health HTTP/1.1", b"TRACE /health HTTP/1.1",
                                                          b"NONSENSE /health HTTP/1.1")},
    "long address": (line(b"GET /" + b"x" * 9000 + b" HTTP/1.1"), {414}),
    "very long address": (line(b"GET /" + b"x" * 65536 + b" HTTP/1.1"), {414}),
    "long query": (line(b"GET /health?" + b"x=y&" * 3000 + b" HTTP/1.1"), {414}),
    "endless first line": (b"G" * 200_000, {400, 414, 431}),
    "long value": (head(b"X: " + b"x" * 40_000 + b"\r\n"), {431}),
    "very long value": (head(b"X: " + b"x" * 1_000_000 + b"\r\n"), {431}),
    "long name": (head(b"x" * 40_000 + b": x\r\n"), {431}),
    "many headers": (head(b"X: y\r\n" * 150), {431}),
    "very many headers": (head(b"X: y\r\n" * 20_000), {431}),
    "ninety headers": (head(b"X: y\r\n" * 90), {200}),
    "upgrade to HTTP/2": (head(b"Connection: Upgrade, HTTP2-Settings\r\n", b"Upgrade: h2c\r\n",
                               b"HTTP2-Settings: AAMAAABk\r\n"), {200, 400, 426}),
    "unknown expectation": (head(b"Expect: 200-maybe\r\n"), {200, 417}),
}

BODIES = {
    **{f"chunk size {size[:20]!r}": (chunks(size + b"\r\n{}\r\n0\r\n\r\n" + SMUGGLED), {400}) for size in (
        b"zz", b"-2", b"0x2", b"", b" 2", b"2x", b"F" * 17, b"2\x00", b"+2")},
    "bare line feed after a chunk size": (chunks(b"2\n{}\r\n0\r\n\r\n" + SMUGGLED), {400}),
    "no end after a chunk": (chunks(b"2\r\n{}0\r\n\r\n" + SMUGGLED), {400}),
    "chunk longer than said": (chunks(b"2\r\n{}{}\r\n0\r\n\r\n" + SMUGGLED), {400}),
    "chunk extension without end": (chunks(b"2;" + b"x" * 1_000_000 + b"\r\n{}\r\n0\r\n\r\n"), {400, 413, 431}),
    "trailers without end": (chunks(b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 200_000 + b"\r\n"), {400, 413, 431}),
    "chunk of half the world": (chunks(b"7FFFFFFFFFFFFFFF\r\n{}"), {400, 413, 0}),
    "leading zeros without end": (chunks(b"0" * 500_000 + b"2\r\n{}\r\n0\r\n\r\n"), {400, 413, 431, 201}),
    "more than may be sent": (post(b"Content-Length: 5000000\r\n", body=b"{}"), {413}),
    "more chunks than may be sent": (chunks((b"186A0\r\n" + b" " * 100_000 + b"\r\n") * 50 + b"0\r\n\r\n"), {413}),
    "less than said": (post(b"Content-Length: 100\r\n", body=b"{}"), {400, 408, 0}),
    "chunks for nobody": (head(b"Transfer-Encoding: chunked\r\n",
                               first=b"POST /health HTTP/1.1") + b"zz\r\n" + SMUGGLED, {405}),
    "chunks without a key": (chunks(b"zz\r\n" + SMUGGLED).replace(b"{key}", b"", 1), {401}),
}

# Bodies of POST /api/sessions.
TORTURE = {
    "nested lists": b"[" * 100_000, "nested objects": b'{"a":' * 1000 + b"1" + b"}" * 1000,
    "nested and closed": b'{"env":' + b"[" * 300 + b"]" * 300 + b"}",
    "a name twice": b'{"ttl_s":60,"ttl_s":61}', "a name twice, escaped": b'{"ttl_s":60,"\\u0074tl_s":61}',
    "a name twice, deeper": b'{"labels":{"a":"1","a":"2"}}',
    "infinite": b'{"ttl_s":1e999}', "minus infinite": b'{"ttl_s":-1e999}', "not a number": b'{"ttl_s":NaN}',
    "word": b'{"ttl_s":Infinity}',
    "more than 64 bits": b'{"limits":{"pids":18446744073709551617}}',
    "many digits": b'{"ttl_s":' + b"9" * 1_000_000 + b"}",
    "exponent without end": b'{"ttl_s":1e' + b"9" * 100_000 + b"}", "leading zero": b'{"ttl_s":010}',
    "hexadecimal": b'{"ttl_s":0x10}', "plus": b'{"ttl_s":+1}',
    "half a surrogate": b'{"labels":{"a":"\\ud800"}}', "surrogates swapped": b'{"labels":{"a":"\\udc00\\ud800"}}',
    "bytes that are no text": b'{"labels":{"a":"\xff"}}',
    "overlong": b'{"labels":{"a":"\xc0\xaf"}}', "surrogate as bytes": b'{"labels":{"a":"\xed\xa0\x80"}}',
    "byte order mark": b'\xef\xbb\xbf{"ttl_s":60}',
    "UTF-16": '{"ttl_s":60}'.encode("utf-16"), "rubbish behind": b'{"ttl_s":60} x', "two values": b"{}{}",
    "comma behind": b'{"ttl_s":60,}', "comment": b"{}//x",
    "single quotes": b"{'ttl_s':60}", "line feed in a text": b'{"labels":{"a":"\n"}}',
    "zero byte": b'{"labels":{"a":"\0"}}', "zero byte, escaped": b'{"labels":{"a":"\\u0000"}}',
    "zero byte in a name": b'{"labels":{"a\\u0000b":"c"}}', "blanks": b"   ", "half": b'{"labels":{"a":',
    "unknown escape": b'{"labels":{"a":"\\x41"}}', "no object": b'"{}"',
    "many names": b'{"labels":{' + b",".join(b'"%d":""' % number for number in range(100_000)) + b"}}",
    "long name": b'{"' + b"x" * 1_000_000 + b'":1}',
    "prototype": b'{"__proto__":{"admin":true}}',
}
