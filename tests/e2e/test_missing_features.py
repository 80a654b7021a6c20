"""Machines without what sandboxes need: told, and refused where a guarantee would be gone."""
import ctypes
import errno
import json
import os
import struct
import subprocess
import unittest

from harness import BINARY, Case, NOBODY, PATIENCE, PLATFORM_ERROR, run

# Of linux/seccomp.h, linux/filter.h and the table of system calls of x86-64.
SECCOMP_MODE_FILTER, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 2, 22, 38
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
CALLS = {"seccomp": 317, "move_mount": 429, "clone3": 435, "landlock_create_ruleset": 444}


def take_away(*calls):
    """For a child before it becomes the program: the kernel does not know these calls."""
    steps = [struct.pack("HBBI", LOAD, 0, 0, 0)]
    for call in calls:
        steps += [struct.pack("HBBI", EQUAL, 0, 1, CALLS[call]), struct.pack("HBBI", RETURN, 0, 0, ERRNO | errno.ENOSYS)]
    steps.append(struct.pack("HBBI", RETURN, 0, 0, ALLOW))
    program = ctypes.create_string_buffer(b"".join(steps))
    filters = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)

    def child(_program=program):  # which must live until then
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters, 0, 0) != 0:
            os._exit(99)
    return child


class Missing(Case):
    def test_nothing_runs_without_a_lock_it_needs(self):
        for call in ("seccomp", "clone3", "move_mount"):
            with self.subTest(call=call):
                done = run("exec", "--", "echo", "it ran", preexec_fn=take_away(call))
                self.assertEqual((done.returncode, done.stdout), (PLATFORM_ERROR, b""), done.stderr)
                self.assertIn(b"agent-sandbox:", done.stderr)
                doctor = run("doctor", "--json", preexec_fn=take_away(call))
                self.assertNotEqual(doctor.returncode, 0)
                self.assertEqual(json.loads(doctor.stdout)["exit_code"], doctor.returncode)

    def test_without_user_namespaces_nothing_runs(self):
        """As where a distribution switches them off: none more can be made below this one."""
        script = f"echo 0 > /proc/sys/user/max_user_namespaces && exec '{os.path.abspath(BINARY)}' exec -- echo it ran"
        done = subprocess.run(["unshare", "-Ur", "sh", "-c", script], capture_output=True, timeout=PATIENCE, check=False,
                              cwd="/", user=NOBODY, group=NOBODY, extra_groups=())
        self.assertEqual((done.returncode, done.stdout), (PLATFORM_ERROR, b""), done.stderr)

    def test_the_second_lock_is_told_of(self):
        """Landlock stands behind the namespaces: sandboxes go without it, and say so."""
        without = {"preexec_fn": take_away("landlock_create_ruleset")}
        self.assert_ran(run("exec", "--", "echo", "it ran", **without), b"it ran\n")
        told = json.loads(run("doctor", "--json", **without).stdout)
        landlock, = [one for one in told["features"] if one["name"] == "landlock"]
        self.assertNotEqual(landlock["state"], "ok", landlock)


if __name__ == "__main__":
    unittest.main()
