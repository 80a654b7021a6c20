#!/usr/bin/python3
"""Checks what the code between clone3() and the guest refers to.

A lock copied by the fork may never open, and the gate refuses malloc's own calls: child*.cpp may use system calls and
the few functions of libc that only compute. Everything else, memory, streams and exceptions above all, is an error.

    child_symbols_test.py <nm> <libasr_launch_inner.a>
"""
import re
import subprocess
import sys

ALLOWED = set("""
    __errno_location _exit
    memcpy memset strcmp strlen
    __stack_chk_fail __recvmsg_chk __memcpy_chk __memset_chk
    _GLOBAL_OFFSET_TABLE_
    chdir chmod chown chroot clock_gettime clone close getrlimit getrlimit64 ioctl kill mkdir mount open open64 pause prctl
    mkdirat openat openat64 recvmsg setgroups setresgid setresuid setrlimit setrlimit64 setsid socket syscall umask umount2 unlink unshare waitpid write
    _ZN3asr15restrict_scopesEi
    _ZSt21__glibcxx_assert_failPKciS0_S0_
    _ZTVN10__cxxabiv120__function_type_infoE
""".split())
# The last two: an index out of bounds ends the process, which is all that may happen then; and a table, not a function,
# that the undefined-behaviour checks of the preset dev refer to.


# What the two files have of each other.
OWN = re.compile(r"_ZN3asr\d+\w+ERNS_5ChildE$|_ZN3asr8put_fileEPKcS1_$")


def undefined(nm, library):
    """The undefined symbols of the child's objects, and the names of all objects seen."""
    text = subprocess.run([nm, "-u", library], check=True, capture_output=True, text=True).stdout
    symbols, objects, current = set(), [], ""
    for line in text.splitlines():
        if line.endswith(":"):
            current = line[:-1]
            objects.append(current)
        elif line.strip() and current.startswith("child"):
            symbols.add(line.split()[-1])
    return symbols, objects


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    symbols, objects = undefined(*sys.argv[1:])
    if not symbols:
        sys.exit(f"no object of the child in {sys.argv[2]}, only {objects}")
    strange = sorted(name for name in symbols - ALLOWED if not OWN.match(name))
    for name in strange:
        print(f"the child refers to {name}, which is not on the list")
    print(f"{len(symbols)} symbols, {len(strange)} of them not allowed")
    sys.exit(1 if strange else 0)


if __name__ == "__main__":
    main()
