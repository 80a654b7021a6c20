#!/usr/bin/python3
"""Checks that the folders of src/ use each other in one direction only.

A file may include its own folder and those further down in LAYERS; the same holds for the DEPS of asr_library().
Heavy headers have one home. Prints each violation as file:line and exits with 1 if there is any.

    tools/check_layers.py [root]        check <root>/src
    tools/check_layers.py --self-test   prove that each rule catches what it should
"""
import pathlib
import re
import sys
import tempfile

# From the top down.
LAYERS = [
    "cli", "api", "agent", "llm", "tool", "session", "interpreter", "registry", "provider", "engine", "store", "net",
    "zygote", "keeper", "guest", "launch", "policy", "wire", "frozen", "os", "base",
]
RANK = {name: len(LAYERS) - i for i, name in enumerate(LAYERS)}

# Header prefix -> the only folder that may include it.
HOMES = {"boost/beast": "net", "curl/": "net"}

SUFFIXES = {".hpp", ".h", ".cpp", ".cc", ".c", ".inc", ".in"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
CMAKE_CALL = re.compile(r"\basr_(library|executable|inner_executable|unit_tests|tests|fuzz_target)\s*\(([^)]*)\)")
CMAKE_KEYWORD = re.compile(r"^[A-Z][A-Z_]+$")


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def source_violations(path, folder, text):
    for match in INCLUDE.finditer(text):
        quote, header = match.groups()
        where = line_of(text, match.start())
        for prefix, home in HOMES.items():
            if header.startswith(prefix) and folder != home:
                yield f"{path}:{where}: only src/{home} may include {header}"
        if quote != '"':
            continue
        target = header.split("/", 1)[0]
        if "/" not in header or target not in RANK:
            yield f'{path}:{where}: "{header}" must be written "folder/file.hpp", with a folder of src/'
        elif RANK[target] > RANK[folder]:
            yield f"{path}:{where}: {folder} must not include {header}: {target} is above {folder}"


def cmake_violations(path, folder, text):
    text = re.sub(r"#[^\n]*", "", text)
    for call in CMAKE_CALL.finditer(text):
        name, *words = call.group(2).split() or [""]
        where = line_of(text, call.start())
        if call.group(1) == "library" and name != folder:
            yield f"{path}:{where}: the library of src/{folder} is asr_library({folder} ...), not {name}"
        keyword = ""
        for word in words:
            if CMAKE_KEYWORD.match(word):
                keyword = word
            elif keyword in ("DEPS", "INNER_DEPS"):
                if word not in RANK:
                    yield f"{path}:{where}: {word} is not a folder of src/"
                elif RANK[word] > RANK[folder]:
                    yield f"{path}:{where}: {folder} must not depend on {word}: {word} is above {folder}"


def violations(root):
    source = root / "src"
    for path in sorted(p for p in source.rglob("*") if p.is_file()):
        relative = path.relative_to(root)
        folder = relative.parts[1]
        is_cmake = path.name == "CMakeLists.txt"
        if not is_cmake and path.suffix not in SUFFIXES:
            continue
        if folder not in RANK:
            yield f"{relative}:1: src/{folder} has no place in LAYERS of tools/check_layers.py"
            continue
        check = cmake_violations if is_cmake else source_violations
        yield from check(relative, folder, path.read_text(encoding="utf-8"))


def self_test():
    """Each case is one file in an otherwise empty tree, and a piece of the message it must cause ('' for none)."""
    cases = [
        ("src/engine/a.cpp", '#include "os/pidfd.hpp"\n#include "engine/a.hpp"\n#include <vector>\n', ""),
        ("src/zygote/a.cpp", '#include "guest/a.hpp"\n#include "launch/a.hpp"\n', ""),
        ("src/guest/a.hpp", '#include "launch/a.hpp"\n', ""),
        ("src/net/a.cpp", "#include <boost/beast.hpp>\n#include <curl/curl.h>\n", ""),
        ("src/os/a.cpp", '\n  #  include "policy/a.hpp"\n', "src/os/a.cpp:2: os must not include policy/a.hpp"),
        ("src/launch/a.cpp", '#include "guest/a.hpp"\n', "guest is above launch"),
        ("src/guest/a.cpp", '#include "zygote/a.hpp"\n', "zygote is above guest"),
        ("src/provider/native/a.cpp", '#include "session/a.hpp"\n', "session is above provider"),
        ("src/os/a_test.cpp", '#include "engine/a.hpp"\n', "engine is above os"),
        ("src/api/a.cpp", "#include <boost/beast/http.hpp>\n", "only src/net may include boost/beast/http.hpp"),
        ("src/llm/a.cpp", '#include "curl/curl.h"\n', "only src/net may include curl/curl.h"),
        ("src/os/a.cpp", '#include "pidfd.hpp"\n', 'must be written "folder/file.hpp"'),
        ("src/os/a.cpp", '#include "../base/a.hpp"\n', 'must be written "folder/file.hpp"'),
        ("src/util/a.cpp", "", "src/util has no place"),
        ("src/engine/CMakeLists.txt", "asr_library(engine SOURCES a.cpp DEPS os base LIBS Boost::headers)\n", ""),
        ("src/cli/CMakeLists.txt", "asr_executable(agent-sandbox SOURCES a.cpp DEPS engine)\n", ""),
        ("src/os/CMakeLists.txt", "asr_library(os\n  SOURCES a.cpp\n  DEPS base engine)\n", "engine is above os"),
        ("src/wire/CMakeLists.txt", "asr_library(wire SOURCES a.cpp INNER_DEPS guest)\n", "guest is above wire"),
        ("src/os/CMakeLists.txt", "asr_library(os SOURCES a.cpp DEPS utils)\n", "utils is not a folder"),
        ("src/os/CMakeLists.txt", "asr_library(base SOURCES a.cpp)\n", "asr_library(os ...)"),
    ]
    failed = 0
    for name, text, expected in cases:
        with tempfile.TemporaryDirectory() as root:
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            found = list(violations(pathlib.Path(root)))
        right = any(expected in line for line in found) if expected else not found
        if not right:
            failed += 1
            print(f"{name}: {text!r}\n  expected {expected or 'nothing'!r}, found {found}")
    print(f"check_layers: {len(cases) - failed} of {len(cases)} cases are judged rightly")
    return failed


def main(arguments):
    if arguments == ["--self-test"]:
        return 1 if self_test() else 0
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent)
    found = list(violations(root))
    for line in found:
        print(line)
    print(f"check_layers: {len(found)} violations" if found else "check_layers: includes only point down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
