"""The check that all other suites trust: the validator refuses what is wrong, and the server's description is one."""
import json
import pathlib
import re
import unittest

import attacks
from http_harness import HttpCase
from http_raw import Answer
from http_schema import Contract, Mismatch, check, fits, resolve, strict_json

TRACE = "0123456789abcdef0123456789abcdef"
TRACEPARENT = ("traceparent", f"00-{TRACE}-0123456789abcdef-01")


class Validator(unittest.TestCase):
    """Each word of a schema with a value that fits and values that do not."""

    CASES = [
        ({"type": "string"}, "a", [1, None, ["a"]]),
        ({"type": "integer"}, 3.0, [3.5, "3", True, float("inf")]),
        ({"type": "number"}, 3.5, ["3", True, None]),
        ({"type": "boolean"}, False, [0, "false", None]),
        ({"type": ["string", "null"]}, None, [1, [], False]),
        ({"enum": ["a", 1]}, 1, ["b", True, None]),
        ({"const": 1}, 1.0, [2, "1", True]),
        ({"minLength": 2, "maxLength": 3}, "äöü", ["a", "abcd"]),
        ({"pattern": "^[a-z]+$"}, "abc", ["", "aBc", "abc1"]),
        ({"minimum": 1, "maximum": 2}, 2, [0.9, 2.1, -1]),
        ({"minItems": 1, "maxItems": 2}, [0], [[], [1, 2, 3]]),
        ({"items": {"type": "string"}}, ["a"], [["a", 1]]),
        ({"required": ["a"]}, {"a": None}, [{}, {"b": 1}]),
        ({"properties": {"a": {"type": "string"}}}, {"a": "x", "b": 1}, [{"a": 1}]),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1}, [{"a": 1, "b": 1}]),
        ({"additionalProperties": {"type": "integer"}}, {"x": 1}, [{"x": "1"}]),
        ({"maxProperties": 1}, {"a": 1}, [{"a": 1, "b": 2}]),
        ({"propertyNames": {"maxLength": 2}}, {"ab": 1}, [{"abc": 1}]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, 3, [7, 2.5]),
        ({"anyOf": [{"type": "integer"}, {"minimum": 5}]}, 7, [2.5]),
        ({"$ref": "#/components/schemas/Short"}, "ab", ["abc", 1]),
        ({"type": "array", "items": {"$ref": "#/components/schemas/Short"}}, ["a", "b"], [["a", "long"], "a"]),
    ]
    ROOT = {"components": {"schemas": {"Short": {"type": "string", "maxLength": 2}}}}

    def test_every_word_can_fail(self):
        for schema, good, bad in self.CASES:
            with self.subTest(schema=schema):
                check(good, schema, self.ROOT)
                for value in bad:
                    self.assertFalse(fits(value, schema, self.ROOT), value)

    def test_words_of_other_types_do_not_matter(self):
        check(5, {"minLength": 9, "required": ["a"], "items": {"type": "string"}}, {})

    def test_unknown_words_are_not_skipped(self):
        for schema in ({"multipleOf": 2}, {"properties": {"a": {"not": {}}}}, {"items": {"uniqueItems": True}}):
            with self.assertRaises(Mismatch):
                check({"a": 1} if "properties" in schema else [1] if "items" in schema else 4, schema, {})

    def test_json_that_readers_disagree_on(self):
        for text in (b'{"a":1,"a":2}', b"NaN", b"[Infinity]", b'"\xff"', b"{} x", b""):
            with self.assertRaises(Mismatch):
                strict_json(text)


class Promise(unittest.TestCase):
    """The check of answers, with answers that are not right."""

    def setUp(self):
        error = {"type": "object", "required": ["error"], "properties": {"error": {
            "required": ["code", "fault", "message", "hint", "trace_id"]}}}
        failed = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
        self.contract = Contract({
            "components": {"schemas": {"Error": error}},
            "paths": {"/things/{id}": {
                "get": {"responses": {
                    "200": {"content": {"application/json": {"schema": {"required": ["id"]}}}}, "default": failed}},
                "delete": {"responses": {"204": {}, "default": failed}}}}})

    @staticmethod
    def answer(status, body=b"", *headers, media="application/json"):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Answer(status, [("Content-Type", media), *headers], text)

    @staticmethod
    def failure(**more):
        return {"error": {"code": "invalid", "fault": "caller", "message": "no", "hint": "", "trace_id": TRACE, **more}}

    def test_right_answers_pass(self):
        for method, path, answer in [
                ("GET", "/things/1?x=/", self.answer(200, {"id": 1})), ("HEAD", "/things/1", self.answer(200)),
                ("DELETE", "/things/1", self.answer(204)),
                ("GET", "/things/1", self.answer(404, self.failure(), TRACEPARENT)),
                ("GET", "/nowhere", self.answer(404, self.failure(), TRACEPARENT))]:
            self.contract.check(method, path, answer)

    def test_wrong_answers_do_not(self):
        without_hint = self.failure()
        del without_hint["error"]["hint"]
        for why, method, path, answer in [
                ("status", "GET", "/things/1", self.answer(201, {"id": 1})),
                ("address", "GET", "/things/1/more", self.answer(200, {"id": 1})),
                ("method", "PUT", "/things/1", self.answer(204)),
                ("body", "GET", "/things/1", self.answer(200, {"name": 1})),
                ("no body", "GET", "/things/1", self.answer(200)),
                ("media", "GET", "/things/1", self.answer(200, {"id": 1}, media="text/html")),
                ("body of nothing", "DELETE", "/things/1", self.answer(204, {"id": 1})),
                ("body of HEAD", "HEAD", "/things/1", self.answer(200, {"id": 1})),
                ("no traceparent", "GET", "/things/1", self.answer(404, self.failure())),
                ("no hint", "GET", "/things/1", self.answer(404, without_hint, TRACEPARENT)),
                ("another trace", "GET", "/things/1", self.answer(404, self.failure(trace_id="0" * 32), TRACEPARENT)),
                ("empty message", "GET", "/things/1", self.answer(404, self.failure(message=""), TRACEPARENT)),
                ("source", "GET", "/things/1", self.answer(400, self.failure(message="api.cpp:1"), TRACEPARENT)),
                ("failed", "GET", "/things/1", self.answer(500, self.failure(), TRACEPARENT)),
                ("unknown, plain", "GET", "/nowhere", self.answer(404, b"Not Found", TRACEPARENT, media="text/plain"))]:
            with self.subTest(why=why), self.assertRaises(Mismatch):
                self.contract.check(method, path, answer)

    def test_another_servers_failure_is_an_answer_where_there_is_one(self):
        of_another = self.answer(502, self.failure(code="provider", fault="platform"), TRACEPARENT)
        self.contract.check("GET", "/things/1", of_another, leans_on_another=True)
        for why, leans, answer in [
                ("there is no other", False, of_another),
                ("its own", True, self.answer(500, self.failure(code="internal", fault="platform"), TRACEPARENT)),
                ("its own, in disguise", True, self.answer(502, self.failure(code="os", fault="platform"), TRACEPARENT)),
                ("in another disguise", True, self.answer(500, self.failure(code="provider"), TRACEPARENT)),
                ("no word", True, self.answer(502, b"Bad Gateway", TRACEPARENT, media="text/html"))]:
            with self.subTest(why=why), self.assertRaises(Mismatch):
                self.contract.check("GET", "/things/1", answer, leans)


class Attacks(unittest.TestCase):
    def test_every_name_is_that_of_a_test(self):
        tests = set()
        for file in pathlib.Path(__file__).parent.glob("test_*.py"):
            module = file.stem.removeprefix("test_http_")
            tests |= {f"{module} {name}" for name in re.findall(r"def test_(\w+)\(self", file.read_text())}
        named = {test for _, *of_case in attacks.CASES.values() for test in of_case}
        self.assertEqual(named - tests, set())


class Description(HttpCase):
    """/openapi.json itself, and the page made of it."""

    def schemas(self, node):
        """Every schema of the document, wherever it stands."""
        if isinstance(node, dict):
            if "schema" in node and isinstance(node["schema"], dict):
                yield node["schema"]
            for each in node.values():
                yield from self.schemas(each)
        elif isinstance(node, list):
            for each in node:
                yield from self.schemas(each)

    def test_every_reference_leads_somewhere(self):
        document = self.server.contract.document
        text = json.dumps(document)
        for reference in {part.split('"')[0] for part in text.split('"$ref": "')[1:]}:
            self.assertIsInstance(resolve(reference, document), dict, reference)

    def test_every_schema_is_understood(self):
        document = self.server.contract.document
        for schema in [*self.schemas(document), *document["components"]["schemas"].values()]:
            for value in ({}, [], "", 0, None):
                try:
                    check(value, schema, document)
                except Mismatch as problem:
                    self.assertNotIn("does not understand", str(problem))

    def test_operations_are_complete(self):
        names = [operation["operationId"] for operation in self.server.contract.operations.values()]
        self.assertEqual(len(names), len(set(names)))
        for (method, path), operation in self.server.contract.operations.items():
            with self.subTest(method=method, path=path):
                self.assertTrue(operation["summary"])
                self.assertIn("default", operation["responses"])
                self.assertTrue(any(status[0] in "123" for status in operation["responses"]))
                declared = {each["name"] for each in operation.get("parameters", []) if each["in"] == "path"}
                self.assertEqual(declared, {part[1:-1] for part in path.split("/") if part.startswith("{")})

    def test_without_a_key_one_can_read_it(self):
        for path, media in [("/openapi.json", "application/json"), ("/docs", "text/html")]:
            answer = self.server.plain("GET", path)
            self.assertEqual((answer.status, answer.header("content-type").split(";")[0]), (200, media))
            self.server.note("GET", path, answer)

    def test_the_page_loads_nothing_from_elsewhere(self):
        answer = self.server.plain("GET", "/docs")
        self.assertIn("default-src 'none'", answer.header("content-security-policy"))
        self.assertNotIn(b"https://", answer.body.replace(b"https://www.w3.org", b""))


if __name__ == "__main__":
    unittest.main()
