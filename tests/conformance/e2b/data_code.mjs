// Code through the SDK's interpreter, which may have brought an e2b of its own, with classes of its own.
import { same, has, fails, holds, sleep } from './cases.mjs';

export default async function (all) {
  const { Sandbox, NotFoundError, SandboxError, TimeoutError } = await import('@e2b/code-interpreter');
  const fresh = (options = {}) => Sandbox.create({ timeoutMs: 300_000, ...options });
  const test = (name, body) => all.test(name, body);
  const box = await fresh();

  test('code: values, output, errors', async () => {
    await box.runCode('x = 20');
    const sum = await box.runCode('x + 22');
    same([sum.text, sum.error, sum.results[0].isMainResult], ['42', undefined, true]);
    const out = [];
    const printed = await box.runCode('import sys; print("ä€😀" * 50); print("e", file=sys.stderr)', { onStdout: (o) => { out.push(o.line); } });
    same([printed.logs.stdout.join(''), printed.logs.stderr.join('')], ['ä€😀'.repeat(50) + '\n', 'e\n']);
    same(out.join(''), 'ä€😀'.repeat(50) + '\n');
    const wrong = await box.runCode('1 / 0');
    same([wrong.error.name, wrong.error.value], ['ZeroDivisionError', 'division by zero']);
    has(wrong.error.traceback, 'ZeroDivisionError');
    same((await box.runCode('"text"')).text, 'text');
    same((await box.runCode('[1, {"a": 2}]')).results[0].json, [1, { a: 2 }]);
    same((await box.runCode('import os; os.getcwd()')).text, '/home/user');
    holds(printed.executionCount > 0, 'the count');
  });
  test('code: charts and tables', async () => {
    const drawn = await box.runCode(`
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 5, 6], label='line')
plt.xlabel('time (s)'); plt.title('A')
plt.show()`);
    same(drawn.error, undefined);
    const [result] = drawn.results;
    same(Buffer.from(result.png, 'base64').subarray(1, 4).toString(), 'PNG');
    same([result.chart.type, result.chart.title, result.chart.x_unit, result.chart.elements[0].points], ['line', 'A', 's', [[1, 4], [2, 5], [3, 6]]]);
    const table = await box.runCode('import pandas as pd\npd.DataFrame({"a": [1, 2], "b": [3, 4]})');
    same(table.results[0].data, { a: [1, 2], b: [3, 4] });
    has(table.results[0].html, '<table');
  });
  test('code: other languages', async () => {
    await box.runCode('const y = 6', { language: 'js' });
    same((await box.runCode('y * 7', { language: 'javascript' })).text, '42');
    same((await box.runCode('const z: number = 42; z', { language: 'ts' })).text, '42');
    same((await box.runCode('echo $((6 * 7))', { language: 'bash' })).logs.stdout.join(''), '42\n');
    await fails(box.runCode('1', { language: 'cobol' }));
  });
  test('code: variables of one run', async () => {
    const asked = 'import os; os.environ.get("ONE")';
    same((await box.runCode(asked, { envs: { ONE: '1' } })).text, '1');
    same((await box.runCode('import os; "ONE" in os.environ')).text, 'False');
    same((await box.runCode('echo $ONE', { language: 'bash', envs: { ONE: "it's" } })).logs.stdout.join(''), "it's\n");
    same((await box.runCode('echo "[$ONE]"', { language: 'bash' })).logs.stdout.join(''), '[]\n');
    same((await box.runCode('process.env.ONE', { language: 'js', envs: { ONE: 'j' } })).text, 'j');
    same((await box.runCode('process.env.ONE === undefined', { language: 'js' })).text, 'true');
    const other = await fresh({ envs: { ONE: 'box' } });
    try {
      same((await other.runCode(asked, { envs: { ONE: 'run' } })).text, 'run');
      same((await other.runCode(asked)).text, 'box');
    } finally { await other.kill(); }
  });
  test('code: contexts', async () => {
    const listed = await box.listCodeContexts();
    holds(listed.some((each) => each.language === 'python') && listed.some((each) => each.language === 'javascript'), 'both of the beginning');
    const context = await box.createCodeContext({ cwd: '/tmp' });
    same([context.language, context.cwd], ['python', '/tmp']);
    await box.runCode('x = "its own"', { context });
    same((await box.runCode('x', { context })).text, 'its own');
    same((await box.runCode('import os; os.getcwd()', { context })).text, '/tmp');
    await box.restartCodeContext(context);
    same((await box.runCode('x', { context })).error.name, 'NameError');
    await box.removeCodeContext(context);
    same((await box.listCodeContexts()).some((each) => each.id === context.id), false);
    await fails(box.runCode('1', { context }), NotFoundError);
  });
  test('code: who leaves interrupts', async () => {
    await fails(box.runCode('import time\nwhile True: time.sleep(0.1)', { timeoutMs: 800 }), TimeoutError);
    const began = Date.now();
    same((await box.runCode('1 + 1')).text, '2');
    holds(Date.now() - began < 5000, `waited ${Date.now() - began} ms`);
  });
  test('code: not without the token of a closed sandbox', async () => {
    const closed = await fresh({ network: { allowPublicTraffic: false } });
    try {
      same((await closed.runCode('1 + 1')).text, '2');
      same((await closed.listCodeContexts()).length >= 2, true);
    } finally { await closed.kill(); }
  });
  test('code: an end while it runs', async () => {
    const doomed = await fresh();
    const running = doomed.runCode('print("begun", flush=True)\nimport time; time.sleep(60)', { onStdout: () => { doomed.kill(); } });
    await fails(running, Error);
    await fails(doomed.runCode('1'), TimeoutError);
    await fails(doomed.listCodeContexts(), TimeoutError);
  });
  return box;
}
