#!/usr/bin/python3
"""Checks that no coroutine takes a reference: what it refers to may be gone when the coroutine goes on.

clang-tidy has a check for this, but takes every lambda inside a coroutine for one. Prints each violation as file:line
and exits with 1 if there is any.

    tools/check_coroutines.py [root]        check <root>/src, tests and bench
    tools/check_coroutines.py --self-test   prove that it catches what it should
"""
import pathlib
import re
import sys

TYPE = r"awaitable<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>"
# A function that returns an awaitable, up to the end of its parameters; one in a std::function has no name.
FUNCTION = re.compile(TYPE + r"\s+(?:[A-Za-z_]\w*(?:<[^<>]*>)?::)*[A-Za-z_]\w*\s*\(")
# A lambda that returns one.
LAMBDA = re.compile(r"\]\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*(?:mutable\s*)?->\s*(?:boost::)?(?:asio::)?" + TYPE)
HANDED_ON = re.compile(r"//\s*not a coroutine\b")


def parameters_at(text, start):
    """What stands between the parenthesis before `start` and its partner."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at]
    return ""


def takes_reference(parameters):
    """An & that is no && and not inside the parameter of a callable."""
    flat = re.sub(r"\([^()]*\)", "()", parameters)
    return re.search(r"[\w>]\s*&(?!&)", flat) is not None


def violations(path, text):
    for match in FUNCTION.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if takes_reference(parameters_at(text, match.end())) and not HANDED_ON.search(text.splitlines()[line - 1]):
            yield f"{path}:{line}: a coroutine must not take references"
    for match in LAMBDA.finditer(text):
        if takes_reference(match.group(1)):
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: a coroutine must not take references"


def self_test():
    bad = ["asio::awaitable<Result<void>> f(std::string& a);", "awaitable<int> X<T>::g(int a,\n    const B& b) {",
           "auto l = [](Call& c) -> asio::awaitable<Result<Reply>> {"]
    good = ["asio::awaitable<Result<void>> f(std::string a, B* b);", "Result<int> f(int& a);",
            "awaitable<void> f(std::function<void(const A&)> a);", "auto l = [&](Database& d) { return 1; };",
            "awaitable<void> f(std::unique_ptr<A>&& a);"]
    assert all(list(violations("x", text)) for text in bad), bad
    assert not any(list(violations("x", text)) for text in good), good


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = [violation for folder in ("src", "tests", "bench") for suffix in ("hpp", "cpp")
             for path in sorted((root / folder).rglob(f"*.{suffix}")) for violation in violations(path, path.read_text())]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
