// What a user of E2B's own JavaScript SDK sees. Prints one JSON object: lists of nanoseconds.
// Needs E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL, and the SDK where Node finds it.
//   node e2b_client.mjs rounds|burst count
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

// The packages lie where the suite has put them, not beside this file.
const require = createRequire(`${process.cwd()}/`);
const { Sandbox } = await import(pathToFileURL(require.resolve('@e2b/code-interpreter')).href);

const REFILL_MS = 20; // between two creates: what the pool needs to fill again
const [mode, text] = process.argv.slice(2);
const count = Number(text);
const now = () => process.hrtime.bigint();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function timed(times, work) {
  const began = now();
  const value = await work();
  times.push(Number(now() - began));
  return value;
}

async function rounds() {
  const found = { floor: [], create: [], run: [], code: [], kill: [] };
  const box = await Sandbox.create();
  for (let i = 0; i < 20; ++i) { // Connections, and what the SDK compiles as it goes.
    await box.commands.run('true');
    await box.runCode('1+1');
  }
  for (let i = 0; i < count; ++i) {
    await sleep(REFILL_MS);
    await timed(found.floor, () => box.isRunning()); // The SDK, one request, and nothing done for it.
    const made = await timed(found.create, () => Sandbox.create());
    await timed(found.run, () => box.commands.run('true'));
    const answer = await timed(found.code, () => box.runCode('1+1'));
    if (answer.text !== '2') throw new Error(`1+1 gave ${answer.text}`);
    await timed(found.kill, () => made.kill());
  }
  await box.kill();
  return found;
}

// All at once: each is created and has run a command.
async function burst() {
  await (await Sandbox.create()).kill();
  const usage = process.cpuUsage();
  const began = now();
  const each = [];
  const boxes = await Promise.all(Array.from({ length: count }, async () => {
    const box = await Sandbox.create();
    const { stdout } = await box.commands.run('echo here');
    if (stdout !== 'here\n') throw new Error(`it said ${stdout}`);
    each.push(Number(now() - began));
    return box;
  }));
  const all = Number(now() - began);
  const { user, system } = process.cpuUsage(usage);
  await Promise.all(boxes.map((box) => box.kill()));
  return { all, each, client: (user + system) * 1000 };
}

console.log(JSON.stringify(await (mode === 'burst' ? burst() : rounds())));
