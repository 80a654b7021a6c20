"""What people run: each must work inside as it does outside, without network."""
import unittest

from harness import PATIENCE, Case, needs, run

ROOMY = ["-m", "1G", "-c", "2", "--disk", "512M"]


class Workloads(Case):
    def sh(self, script, *options, timeout=PATIENCE):
        done = run("exec", "-q", *options, "sh", "-ec", script, timeout=timeout)
        self.assert_ran(done)
        return done.stdout

    @needs("python3")
    def test_python_threads_and_processes(self):
        script = """
import concurrent.futures as futures, multiprocessing, os, threading, tempfile, ssl, sqlite3, subprocess
def square(x): return x * x
if __name__ == "__main__":
    with futures.ThreadPoolExecutor(16) as pool: assert sum(pool.map(square, range(100))) == 328350
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(4) as pool: assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    queue, lock = multiprocessing.Queue(), multiprocessing.Lock()
    child = multiprocessing.Process(target=queue.put, args=(os.getpid(),)); child.start()
    assert queue.get(timeout=30) == os.getpid(); child.join()
    assert subprocess.run(["echo", "x"], capture_output=True).stdout == b"x\\n"
    print("good")
"""
        done = run("exec", "-c", "2", "sh", "-c", "cat > t.py && python3 t.py", stdin=script.encode())
        self.assert_ran(done, b"good\n")

    @needs("node")
    def test_node(self):
        out = self.sh("""cat > t.mjs <<'END'
import { Worker, isMainThread, parentPort } from 'node:worker_threads'
import { createServer, connect } from 'node:net'
import { execFileSync } from 'node:child_process'
import { pbkdf2Sync } from 'node:crypto'
import { fileURLToPath } from 'node:url'
if (isMainThread) {
  const answer = await new Promise((done) => new Worker(fileURLToPath(import.meta.url)).on('message', done))
  const server = createServer((socket) => socket.end('pong')).listen(0, '127.0.0.1')
  await new Promise((done) => server.on('listening', done))
  const reply = await new Promise((done) => connect(server.address().port, '127.0.0.1').on('data', (d) => done(String(d))))
  server.close()
  console.log(answer, reply, execFileSync('echo', ['child']).toString().trim(), pbkdf2Sync('a', 'b', 9, 4, 'sha256').length)
} else parentPort.postMessage(6 * 7)
END
node t.mjs""", *ROOMY)
        self.assertEqual(out, b"42 pong child 4\n")

    @needs("gcc")
    def test_gcc(self):
        out = self.sh("""cat > t.c <<'END'
#include <math.h>
#include <pthread.h>
#include <stdio.h>
static void* work(void* x) { *(double*)x = sqrt(*(double*)x); return 0; }
int main(void) { double x = 1764; pthread_t t; pthread_create(&t, 0, work, &x); pthread_join(t, 0); printf("%.0f\\n", x); }
END
gcc -O2 -g -Wall t.c -o t -lm -pthread && ./t""")
        self.assertEqual(out, b"42\n")

    @needs("git")
    def test_git(self):
        out = self.sh("""git init -q --bare store.git
git clone -q store.git work 2>/dev/null; cd work
git config user.name n; git config user.email n@example.org
echo one > file; git add file; git commit -qm first; git push -q origin HEAD
git checkout -qb other; echo two >> file; git commit -qam second; git gc -q
git log --format=%s; git diff HEAD~1 --stat | tail -1""")
        self.assertEqual(out, b"second\nfirst\n 1 file changed, 1 insertion(+)\n")

    @needs("python3", "pip3")
    def test_pip(self):
        out = self.sh("""mkdir -p project/tiny; echo 'ANSWER = 42' > project/tiny/__init__.py
cat > project/setup.py <<'END'
from setuptools import setup
setup(name="tiny", version="1.0", packages=["tiny"])
END
python3 -m venv box
box/bin/pip install -q --no-index --no-build-isolation --disable-pip-version-check ./project >log 2>&1 || { cat log >&2; exit 1; }
box/bin/python -c 'import tiny; print(tiny.ANSWER)'
box/bin/pip list --disable-pip-version-check 2>/dev/null | grep tiny""", *ROOMY)
        self.assertEqual(out.split(), [b"42", b"tiny", b"1.0"])

    @needs("npm", "node")
    def test_npm(self):
        out = self.sh("""mkdir library app; cd library
npm init -y >/dev/null; echo 'module.exports = 42' > index.js; npm pack --silent >/dev/null
cd ../app; npm init -y >/dev/null
npm install --silent --offline --no-audit --no-fund ../library/library-1.0.0.tgz
node -p 'require("library")'""", *ROOMY)
        self.assertEqual(out, b"42\n")

    @needs("sqlite3")
    def test_sqlite(self):
        out = self.sh("""sqlite3 t.db 'pragma journal_mode = wal; create table t(a); insert into t values (41), (43);
select avg(a) from t;'; sqlite3 t.db 'pragma integrity_check'""")
        self.assertEqual(out, b"wal\n42.0\nok\n")

    @needs("chromium")
    def test_chromium_with_its_own_sandbox(self):
        # A page that says 42 only if scripts ran: in a renderer of Chromium's own sandbox.
        page = "data:text/html,<body style=background:red><script>document.title=6*7</script>"
        out = self.sh(f"""chromium --headless --disable-gpu --window-size=320,200 --screenshot=/workspace/page.png '{page}' \
>log 2>&1 || {{ cat log >&2; exit 1; }}
cat /workspace/page.png""", "--tier", "browser", "--memory", "2G", "--disk", "512M", "--pids", "512", "-c", "2")
        self.assertTrue(out.startswith(b"\x89PNG\r\n\x1a\n"), out[:200])
        self.assertEqual((int.from_bytes(out[16:20], "big"), int.from_bytes(out[20:24], "big")), (320, 200))
        self.assertTrue(out.endswith(b"IEND\xaeB`\x82"))

    @needs("chromium")
    def test_chromium_finds_no_sandbox_in_the_strict_tier(self):
        done = run("exec", "-q", "--memory", "2G", "--disk", "512M", "--pids", "512", "-c", "2", "chromium", "--headless",
                   "--disable-gpu", "--dump-dom", "data:text/html,x")
        self.assertNotEqual(done.returncode, 0)

    def test_shell_tools(self):
        out = self.sh("""seq 1000 | sort -rn | xargs -n 10 -P 4 echo | wc -l
mkfifo pipe; (echo through > pipe &); cat pipe
tar c /etc/passwd 2>/dev/null | tar t
ln -s nowhere dangling; chmod 600 pipe; find . -type l
test -c /dev/null && test -r /dev/urandom && test -d /proc/self/fd && test -w /dev/shm && date +%Z >/dev/null && echo ok""")
        self.assertEqual(out, b"100\nthrough\netc/passwd\n./dangling\nok\n")


if __name__ == "__main__":
    unittest.main()
