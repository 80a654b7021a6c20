// What the SDK does not show: tokens, media types, framing, and the lines of code that runs.
import { gzipSync } from 'node:zlib';
import { same, holds } from './cases.mjs';

const envelope = (message) => {
  const payload = Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
};
function* envelopes(bytes) {
  for (let at = 0; at < bytes.length;) {
    const length = bytes.readUInt32BE(at + 1);
    yield [bytes[at], JSON.parse(bytes.subarray(at + 5, at + 5 + length))];
    at += 5 + length;
  }
}

export default function ({ box, url, test }) {
  test('auth: tokens are needed', async () => {
    const headers = { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49983', 'Content-Type': 'application/json' };
    const call = (more) => fetch(`${url}/process.Process/List`, { method: 'POST', body: '{}', headers: { ...headers, ...more } });
    same((await call({})).status, 401);
    same((await call({ 'X-Access-Token': 'wrong' })).status, 401);
    same((await fetch(`${url}/files?path=a.txt`, { headers })).status, 401);
    same((await fetch(`${url}/metrics`, { headers })).status, 401);
    same((await fetch(`${url}/health`, { headers })).status, 204);
    same((await fetch(`${url}/init`, { method: 'POST', headers })).status, 401);
    const code = { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49999', 'Content-Type': 'application/json' };
    same((await fetch(`${url}/execute`, { method: 'POST', headers: code, body: '{"code":"1"}' })).status, 401);
  });
  test('wire: wrong media types, packed bodies, pages of others', async () => {
    const headers = { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': box.envdAccessToken };
    const call = (path, type, body) => fetch(url + path, { method: 'POST', body, headers: { ...headers, 'Content-Type': type } });
    same((await call('/process.Process/Start', 'application/json', '{}')).status, 415);
    same((await call('/process.Process/List', 'text/plain', '{}')).status, 415);
    same((await call('/process.Process/Nothing', 'application/json', '{}')).status, 501);
    same((await call('/process.Process/List', 'application/json', 'nonsense')).status, 400);
    const packed = await fetch(`${url}/files?path=packed.txt`, { method: 'POST', body: gzipSync('packed'),
      headers: { ...headers, 'Content-Type': 'application/octet-stream', 'Content-Encoding': 'gzip' } });
    same([packed.status, await box.files.read('packed.txt')], [200, 'packed']);
    const asked = await fetch(`${url}/files`, { method: 'OPTIONS', headers: { Origin: 'https://example.org',
      'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'e2b-sandbox-id,x-access-token' } });
    same([asked.status, asked.headers.get('access-control-allow-origin')], [204, '*']);
  });
  test('metrics and variables of the daemon', async () => {
    const headers = { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': box.envdAccessToken };
    const metrics = await (await fetch(`${url}/metrics`, { headers })).json();
    for (const name of ['ts', 'cpu_count', 'cpu_used_pct', 'mem_total', 'mem_used', 'disk_used', 'disk_total'])
      same(typeof metrics[name], 'number', name);
    same((await (await fetch(`${url}/envs`, { headers })).json()).E2B_SANDBOX, 'true');
  });
  test('wire: streams end with an envelope, and fail with one', async () => {
    const headers = { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49983', 'X-Access-Token': box.envdAccessToken,
      'Content-Type': 'application/connect+json', 'Connect-Protocol-Version': '1' };
    const start = async (process, more = {}) => {
      const answer = await fetch(`${url}/process.Process/Start`, { method: 'POST', body: envelope({ process }), headers: { ...headers, ...more } });
      same([answer.status, answer.headers.get('content-type').split(';')[0]], [200, 'application/connect+json']);
      return [...envelopes(Buffer.from(await answer.arrayBuffer()))];
    };
    const done = await start({ cmd: '/bin/sh', args: ['-c', 'printf x; exit 2'] });
    holds(done[0][1].event.start.pid > 0, 'the first tells the pid');
    same(done.filter(([, each]) => each.event?.data).map(([, each]) => each.event.data), [{ stdout: 'eA==' }]);
    same(done.at(-2)[1].event.end, { exitCode: 2, exited: true, status: 'exit status 2', error: 'exit status 2' });
    same(done.at(-1), [2, {}]);
    const failed = await start({ cmd: '/bin/sh', args: [], cwd: '/no/such' });
    same([failed.length, failed[0][0], failed[0][1].error.code], [1, 2, 'invalid_argument']);
    const late = await start({ cmd: '/bin/sleep', args: ['30'] }, { 'Connect-Timeout-Ms': '300' });
    same([late.at(-1)[0], late.at(-1)[1].error.code], [2, 'deadline_exceeded']);
    const unknown = await start({ cmd: '/bin/sh', args: [] }, { Authorization: `Basic ${btoa('nobody-here:')}` });
    same(unknown.at(-1)[1].error.code, 'unauthenticated');
  });
  test('wire: lines of running code are plain ASCII', async () => {
    const answer = await fetch(`${url}/execute`, { method: 'POST', body: JSON.stringify({ code: 'print("ä€😀")\n"ö"', context_id: null, language: null, env_vars: null }),
      headers: { 'E2b-Sandbox-Id': box.sandboxId, 'E2b-Sandbox-Port': '49999', 'X-Access-Token': box.envdAccessToken, 'Content-Type': 'application/json' } });
    const bytes = Buffer.from(await answer.arrayBuffer());
    holds(bytes.every((each) => each < 128), 'a byte is not ASCII');
    const lines = bytes.toString().replace(/\n$/, '').split('\n').map((line) => JSON.parse(line));
    same(lines.at(-1).type, 'end_of_execution');
    same(typeof lines.find((each) => each.type === 'number_of_executions').execution_count, 'number');
    const out = lines.find((each) => each.type === 'stdout');
    same([out.text, typeof out.timestamp], ['ä€😀\n', 'string']);
    same(lines.find((each) => each.type === 'result').text, 'ö');
  });
}
