// The data plane through the published JavaScript SDK: commands, terminals, files, code, ports, errors.
// Needs E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL, and e2b and @e2b/code-interpreter where Node finds them: packages are
// looked for from this file's folder upwards.
// `node data.mjs [part of a name …]` runs only the cases whose names have one of these.
import * as e2b from 'e2b';
import { same, has, fails, holds, until, cases, sleep, speaks } from './cases.mjs';
import codeCases from './data_code.mjs';
import fileCases from './data_files.mjs';
import gitCases from './data_git.mjs';
import wireCases from './data_wire.mjs';

const {
  AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, Sandbox, SandboxError, TimeoutError,
  SandboxNotFoundError = NotFoundError, // 2.7 has one class for what is not there.
} = e2b;
const sdk = speaks('e2b');
const url = process.env.E2B_SANDBOX_URL;
const fresh = (options = {}) => Sandbox.create({ timeoutMs: 300_000, ...options });
const all = cases(process.argv.slice(2));
const test = (name, body) => all.test(name, body);
const testIf = (can, what, name, body) => all.testIf(can, `${what} in ${sdk.name}`, name, body);
const box = await fresh();

// ---- commands

test('run: output, error, exit code', async () => {
  const done = await box.commands.run('echo out; echo err >&2');
  same([done.exitCode, done.stdout, done.stderr], [0, 'out\n', 'err\n']);
});
test('run: streams while it runs', async () => {
  const seen = [];
  await box.commands.run('for i in 1 2 3; do echo $i; sleep 0.1; done', { onStdout: (text) => { seen.push([text, Date.now()]); } });
  same(seen.map(([text]) => text).join(''), '1\n2\n3\n');
  holds(seen[2][1] - seen[0][1] > 150, 'all came at once');
});
test('run: a failure is CommandExitError', async () => {
  const error = await fails(box.commands.run('echo no >&2; exit 7'), CommandExitError);
  same([error.exitCode, error.stderr, error.message.includes('exit status 7')], [7, 'no\n', true]);
});
test('run: not UTF-8, and much of it', async () => {
  const done = await box.commands.run('head -c 3000000 /dev/zero | tr "\\0" x; printf "\\303\\244"');
  same(done.stdout.length, 3000001);
  holds(done.stdout.endsWith('ä'), 'the last letter');
});
test('run: variables of the sandbox and of the command', async () => {
  const other = await fresh({ envs: { OF_BOX: 'box' } });
  try {
    const done = await other.commands.run('echo $OF_BOX $OF_RUN $E2B_SANDBOX $E2B_SANDBOX_ID', { envs: { OF_RUN: 'run' } });
    same(done.stdout, `box run true ${other.sandboxId}\n`);
    same((await other.commands.run('echo $OF_BOX', { envs: { OF_BOX: 'mine' } })).stdout, 'mine\n');
  } finally { await other.kill(); }
});
test('run: folder and user', async () => {
  same((await box.commands.run('pwd; whoami; echo $HOME')).stdout, '/home/user\nuser\n/home/user\n');
  same((await box.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n');
  same((await box.commands.run('whoami; pwd', { user: 'root' })).stdout, 'root\n/root\n');
  const error = await fails(box.commands.run('pwd', { cwd: '/no/such' }), InvalidArgumentError);
  has(error.message, "cwd '/no/such' does not exist");
  has((await fails(box.commands.run('true', { user: 'nobody-here' }), AuthenticationError)).message, 'nobody-here');
});
test('run: a timeout ends it', async () => {
  await fails(box.commands.run('sleep 30 & echo $!; wait', { timeoutMs: 700 }), TimeoutError);
  await until(async () => (await box.commands.run('pgrep -c sleep || true')).stdout === '0\n', 'sleep is over');
});
test('background: list, connect, kill', async () => {
  const handle = await box.commands.run('echo one; sleep 20; echo two', { background: true, timeoutMs: 0 });
  const [found] = (await box.commands.list()).filter((each) => each.pid === handle.pid);
  same([found.cmd, found.args], ['/bin/bash', ['-l', '-c', 'echo one; sleep 20; echo two']]);
  await until(async () => handle.stdout === 'one\n', 'the first line');
  await handle.disconnect();
  same((await box.commands.list()).some((each) => each.pid === handle.pid), true);
  const again = await box.commands.connect(handle.pid);
  same(await again.kill(), true);
  const error = await fails(again.wait(), CommandExitError);
  has(error.message, 'signal: killed');
  same(await box.commands.kill(handle.pid), false);
  same((await box.commands.list()).some((each) => each.pid === handle.pid), false);
});
test('background: who comes back hears what was missed', async () => {
  const handle = await box.commands.run('echo a; sleep 0.6; echo b; sleep 0.6; echo c', { background: true });
  await until(async () => handle.stdout === 'a\n', 'the first line');
  await handle.disconnect();
  await sleep(900);
  const again = await box.commands.connect(handle.pid);
  same((await again.wait()).stdout, 'b\nc\n');
  await fails(box.commands.connect(999999), NotFoundError);
});
test('stdin: sent', async () => {
  const handle = await box.commands.run('read line; echo "got $line"', { background: true, stdin: true });
  await box.commands.sendStdin(handle.pid, 'hello ');
  await box.commands.sendStdin(handle.pid, 'ä\n');
  same((await handle.wait()).stdout, 'got hello ä\n');
  await fails(box.commands.sendStdin(999999, 'x'), NotFoundError);
});
test('stdin: not asked for', async () => {
  const closed = await box.commands.run('sleep 5', { background: true });
  await fails(box.commands.sendStdin(closed.pid, 'x'), SandboxError);
  await closed.kill();
});
testIf(box.commands.closeStdin, 'commands.closeStdin', 'stdin: closed', async () => {
  const handle = await box.commands.run('cat; echo end', { background: true, stdin: true });
  await box.commands.sendStdin(handle.pid, 'all of it\n');
  await box.commands.closeStdin(handle.pid);
  same((await handle.wait()).stdout, 'all of it\nend\n');
  await fails(box.commands.closeStdin(999999), NotFoundError);
});
test('many at once', async () => {
  const all = await Promise.all(Array.from({ length: 40 }, (_, i) => box.commands.run(`echo ${i}`)));
  same(all.map((each) => each.stdout).join(''), Array.from({ length: 40 }, (_, i) => `${i}\n`).join(''));
});

// ---- terminals

test('pty: input, resize, exit', async () => {
  let screen = '';
  const decoder = new TextDecoder();
  const onData = (data) => { screen += decoder.decode(data, { stream: true }); };
  const handle = await box.pty.create({ cols: 80, rows: 24, onData, timeoutMs: 0 });
  await box.pty.sendInput(handle.pid, new TextEncoder().encode('stty size; echo $TERM\n'));
  await until(() => screen.includes('24 80') && screen.includes('xterm-256color'), 'the size', screen);
  await box.pty.resize(handle.pid, { cols: 100, rows: 40 });
  await box.pty.sendInput(handle.pid, new TextEncoder().encode('stty size\n'));
  await until(() => screen.includes('40 100'), 'the new size', screen);
  await box.pty.sendInput(handle.pid, new TextEncoder().encode('exit 3\n'));
  same((await fails(handle.wait(), CommandExitError)).exitCode, 3);
});
testIf(box.pty.connect, 'pty.connect', 'pty: whoever comes back is on the same terminal', async () => {
  const first = await box.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 });
  await box.pty.sendInput(first.pid, new TextEncoder().encode('kept=yes\n'));
  await first.disconnect();
  let screen = '';
  const second = await box.pty.connect(first.pid, { onData: (data) => { screen += new TextDecoder().decode(data); }, timeoutMs: 0 });
  same(second.pid, first.pid);
  await box.pty.sendInput(first.pid, new TextEncoder().encode('echo "[$kept]"\n'));
  await until(() => screen.includes('[yes]'), 'what the first one set', screen);
  same(await second.kill(), true);
  await fails(second.wait(), CommandExitError);
  await fails(box.pty.resize(first.pid, { cols: 1, rows: 1 }), NotFoundError);
});
test('pty: kill', async () => {
  const handle = await box.pty.create({ cols: 80, rows: 24, onData: () => {} });
  same(await box.pty.kill(handle.pid), true);
  await fails(handle.wait(), CommandExitError);
  same(await box.pty.kill(handle.pid), false);
});

// ---- ports and ends

test('ports: a server inside', async () => {
  const server = await box.commands.run('python3 -m http.server 3456 --bind 127.0.0.1', { background: true, timeoutMs: 0 });
  const headers = { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '3456' };
  await until(async () => (await fetch(url, { headers })).status === 200, 'the server');
  has(await (await fetch(url, { headers })).text(), 'Directory listing');
  await server.kill();
  const closed = await fetch(url, { headers: { ...headers, 'E2b-Sandbox-Port': '3457' } });
  const told = await closed.json();
  same([closed.status, told.message, told.port, told.sandboxId], [502, 'The sandbox is running but port is not open', 3457, box.sandboxId]);
  same((await fetch(url, { headers: { 'E2b-Sandbox-Id': box.sandboxId } })).status, 400);
  holds(box.getHost(3000).startsWith(`3000-${box.sandboxId}.`), box.getHost(3000));
});
testIf(sdk.of('allowPublicTraffic'), 'network.allowPublicTraffic', 'ports: with a token', async () => {
  const closed = await fresh({ network: { allowPublicTraffic: false } });
  try {
    holds(closed.trafficAccessToken, 'no token');
    await closed.commands.run('python3 -m http.server 3456', { background: true, timeoutMs: 0 });
    const headers = { 'E2b-Sandbox-Id': closed.sandboxId, 'E2b-Sandbox-Port': '3456' };
    same((await fetch(url, { headers })).status, 403);
    same((await fetch(url, { headers: { ...headers, 'e2b-traffic-access-token': 'wrong' } })).status, 403);
    const right = { ...headers, 'e2b-traffic-access-token': closed.trafficAccessToken };
    await until(async () => (await fetch(url, { headers: right })).status === 200, 'the server');
  } finally { await closed.kill(); }
});
test('a pause: nothing is lost, and nobody is answered', async () => {
  const other = await fresh();
  try {
    await other.commands.run('echo kept > kept.txt');
    const counting = await other.commands.run('i=0; while sleep 0.05; do i=$((i + 1)); echo $i > /tmp/count; done', { background: true, timeoutMs: 0 });
    await until(() => other.files.exists('/tmp/count'), 'it counts');
    await (other.pause ? other.pause() : other.betaPause());
    same(await other.isRunning(), false);
    await fails(other.files.read('kept.txt'), TimeoutError);
    const again = await Sandbox.connect(other.sandboxId);
    same(await again.isRunning(), true);
    same(await again.files.read('kept.txt'), 'kept\n');
    const count = await again.files.read('/tmp/count');
    await until(async () => Number(await again.files.read('/tmp/count')) > Number(count), 'the command goes on');
    same((await again.commands.list()).some((each) => each.pid === counting.pid), true);
    same(await again.commands.kill(counting.pid), true);
  } finally { await Sandbox.kill(other.sandboxId); }
});
test('an end while something runs', async () => {
  const doomed = await fresh();
  const heard = [];
  const running = doomed.commands.run('echo begun; sleep 60', { onStdout: (text) => { heard.push(text); } });
  const watching = await doomed.files.watchDir('/tmp', () => {}, { onExit: (error) => { heard.push(error); } });
  const terminal = await doomed.pty.create({ cols: 80, rows: 24, onData: () => {} });
  await until(() => heard.includes('begun\n'), 'it runs', heard);
  const ends = Promise.allSettled([running, terminal.wait()]);
  await doomed.kill();
  // 2.7 tells no more than that it failed.
  const [kind, words] = sdk.of('end of life while') ? [TimeoutError, 'killed or reached its end of life'] : [SandboxError, ''];
  for (const { reason } of await ends) {
    holds(reason instanceof kind, `${reason?.constructor?.name}: ${reason}`);
    has(reason.message, words);
  }
  await until(() => heard.some((each) => each instanceof Error), 'the watch ends', heard);
  await watching.stop();
  same(await doomed.isRunning(), false);
  const gone = await fetch(url, { headers: { 'E2b-Sandbox-Id': doomed.sandboxId, 'E2b-Sandbox-Port': '3000' } });
  same([gone.status, (await gone.json()).message], [502, 'The sandbox was not found']);
  await fails(doomed.commands.run('true'), SandboxNotFoundError);
  await fails(doomed.commands.list(), TimeoutError);
  await fails(doomed.files.read('a.txt'), TimeoutError);
  await fails(doomed.files.list('/'), TimeoutError);
});
test('a second client', async () => {
  const other = await Sandbox.connect(box.sandboxId);
  same((await other.commands.run('echo here')).stdout, 'here\n');
});

const shared = { e2b, sdk, url, box, fresh, test, testIf };
fileCases(shared);
gitCases(shared);
wireCases(shared);
await codeCases(all);
const failed = await all.run();
await box.kill();
process.exit(failed === 0 ? 0 : 1);
