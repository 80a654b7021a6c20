"""The part of JSON Schema that the server's description uses, and a check of answers against that description.

A word of a schema that is not understood here is an error, not something to skip: a check that skips cannot fail.
"""
import json
import math
import re

ANNOTATIONS = {"description", "title", "summary", "default", "example", "examples", "deprecated", "format"}
WORDS = ANNOTATIONS | {
    "$ref", "type", "enum", "const", "oneOf", "anyOf", "properties", "required", "additionalProperties",
    "maxProperties", "propertyNames", "items", "minItems", "maxItems", "minLength", "maxLength", "pattern",
    "minimum", "maximum"}
ERROR = {"$ref": "#/components/schemas/Error"}


class Mismatch(Exception):
    """A value is not what the description says."""


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and math.isfinite(value) and value == int(value),
}


def resolve(reference, root):
    if not reference.startswith("#/"):
        raise Mismatch(f"the description refers to {reference}, which is outside of it")
    for part in reference[2:].split("/"):
        root = root[part.replace("~1", "/").replace("~0", "~")]
    return root


def check(value, schema, root, at=""):
    """Raises Mismatch with the place, or returns nothing."""
    unknown = set(schema) - WORDS
    if unknown:
        raise Mismatch(f"{at}: this validator does not understand {sorted(unknown)}")
    if "$ref" in schema:
        check(value, resolve(schema["$ref"], root), root, at)
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(TYPES[name](value) for name in types):
        raise Mismatch(f"{at}: {value!r} is not of type {types}")
    if "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        raise Mismatch(f"{at}: {value!r} is none of {schema['enum']}")
    if "const" in schema and not _same(value, schema["const"]):
        raise Mismatch(f"{at}: {value!r} is not {schema['const']!r}")
    _check_choices(value, schema, root, at)
    if isinstance(value, str):
        _check_string(value, schema, at)
    elif isinstance(value, list):
        _check_array(value, schema, root, at)
    elif isinstance(value, dict):
        _check_object(value, schema, root, at)
    elif _is_number(value):
        _check_bounds(value, schema, "minimum", "maximum", at)


def fits(value, schema, root):
    try:
        check(value, schema, root)
    except Mismatch:
        return False
    return True


def _same(one, other):
    """1 and 1.0 are one value in JSON; 1 and true are not."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _check_choices(value, schema, root, at):
    if "anyOf" in schema and not any(fits(value, each, root) for each in schema["anyOf"]):
        raise Mismatch(f"{at}: {value!r} fits nothing of anyOf")
    if "oneOf" in schema:
        fitting = sum(fits(value, each, root) for each in schema["oneOf"])
        if fitting != 1:
            raise Mismatch(f"{at}: {value!r} fits {fitting} of oneOf")


def _check_bounds(value, schema, least, most, at):
    if least in schema and value < schema[least]:
        raise Mismatch(f"{at}: {value} is below {least} {schema[least]}")
    if most in schema and value > schema[most]:
        raise Mismatch(f"{at}: {value} is above {most} {schema[most]}")


def _check_string(value, schema, at):
    _check_bounds(len(value), schema, "minLength", "maxLength", at)
    if "pattern" in schema and not re.search(schema["pattern"], value):
        raise Mismatch(f"{at}: {value!r} does not match {schema['pattern']}")


def _check_array(value, schema, root, at):
    _check_bounds(len(value), schema, "minItems", "maxItems", at)
    for number, each in enumerate(value):
        check(each, schema.get("items", {}), root, f"{at}/{number}")


def _check_object(value, schema, root, at):
    missing = set(schema.get("required", [])) - set(value)
    if missing:
        raise Mismatch(f"{at}: without {sorted(missing)}")
    _check_bounds(len(value), schema, "minProperties", "maxProperties", at)
    others = schema.get("additionalProperties", True)
    for name, each in value.items():
        here = f"{at}/{name}"
        if "propertyNames" in schema:
            check(name, schema["propertyNames"], root, here)
        if name in schema.get("properties", {}):
            check(each, schema["properties"][name], root, here)
        elif others is False:
            raise Mismatch(f"{here}: is not described")
        elif others is not True:
            check(each, others, root, here)


def strict_json(text):
    """What any reader agrees on: UTF-8, no name twice, no NaN."""
    def once(pairs):
        if len({name for name, _ in pairs}) != len(pairs):
            raise Mismatch("a name occurs twice in one object")
        return dict(pairs)

    def refuse(word):
        raise Mismatch(f"{word} is no JSON")
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=once, parse_constant=refuse)
    except (UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise Mismatch(f"not JSON: {problem}") from problem


# What an error must not tell: where the server's own files are, what it is made of.
LEAKS = re.compile(r"[.][ch]pp\b|\bboost|std::|/usr/include|0x[0-9a-f]{8}|sqlite|SELECT |Traceback", re.IGNORECASE)


class Contract:
    """The server's own /openapi.json, and whether an answer keeps it."""

    def __init__(self, document):
        self.document = document
        self.operations = {}
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                self.operations[method.upper(), path] = operation

    def find(self, method, path):
        """(template, operation) of a request, or None."""
        parts = path.split("?")[0].split("/")
        wanted = "GET" if method == "HEAD" else method
        for (name, template), operation in self.operations.items():
            pattern = template.split("/")
            if name == wanted and len(pattern) == len(parts) and all(
                    one.startswith("{") or one == other for one, other in zip(pattern, parts)):
                return template, operation
        return None

    def check(self, method, path, answer, leans_on_another=False):
        """`leans_on_another`: a provider of this server's may fail, and that is an answer. The server itself may not."""
        found = self.find(method, path)
        if answer.status >= 400:
            self._check_refusal(method, found, answer, leans_on_another)
            return
        if not found:
            raise Mismatch(f"{answer.status} at an address that is not described")
        described = found[1]["responses"].get(str(answer.status))
        if described is None:
            raise Mismatch(f"the status {answer.status} is not described")
        self._check_content(method, described, answer)

    def _check_refusal(self, method, found, answer, leans_on_another):
        described = {"content": {"application/json": {"schema": ERROR}}}
        if found:
            responses = found[1]["responses"]
            described = responses.get(str(answer.status), responses["default"])
        if answer.status == 500:
            raise Mismatch("the server failed")
        if answer.status == 502 and not leans_on_another:
            raise Mismatch("another server failed")
        self._check_content(method, described, answer)
        trace = re.fullmatch(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}", answer.header("traceparent") or "")
        if not trace:
            raise Mismatch(f"an error without traceparent: {answer.header('traceparent')!r}")
        if method == "HEAD" or "error" not in answer.json:
            return
        error = answer.json["error"]
        if (answer.status == 502) != (error["code"] == "provider"):
            raise Mismatch(f"{answer.status} with the code {error['code']!r}: whose fault is it?")
        if error["trace_id"] != trace[1]:
            raise Mismatch("trace_id and traceparent tell of different requests")
        if not error["message"] or LEAKS.search(error["message"] + error["hint"]):
            raise Mismatch(f"an error that tells nothing, or too much: {error}")

    def _check_content(self, method, described, answer):
        content = described.get("content", {})
        if method == "HEAD" or not content:
            if answer.body:
                raise Mismatch(f"a body that is not described: {answer.body[:100]!r}")
            return
        media = (answer.header("content-type") or "").split(";")[0]
        if media not in content:
            raise Mismatch(f"Content-Type {media!r} is none of {sorted(content)}")
        if media == "application/json":
            check(strict_json(answer.body), content[media].get("schema", {}), self.document)
