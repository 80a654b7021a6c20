// The JavaScript side of an interpreter: runs cells in one global scope and tells what they gave.
//
// Speaks the protocol of docs/kernels.md on descriptor 0: requests come as a line "<op> <id> <length>" and that many
// bytes, answers go as one JSON object per line. What programs print goes to descriptors 1 and 2 as always.
// Started with --expose-internals, because Node keeps its parser there.
'use strict';

const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const util = require('node:util');
const vm = require('node:vm');
const { createRequire } = require('node:module');
const { pathToFileURL } = require('node:url');

const acorn = require('internal/deps/acorn/acorn/dist/acorn');

const mostFiles = 200;  // that a cell made and are named in its answer
const mostEntries = 20000;  // of the workspace that are looked at
const mostShown = 16 << 20;  // of one value, in all its forms
const mostOfACell = 48 << 20;
const mostLevels = 50;  // of JSON
const workspace = process.env.AGENT_SANDBOX_WORKSPACE || '/workspace';
const typescript = process.argv.includes('--typescript');

const channel = new net.Socket({ fd: 0, readable: true, writable: true });
const write = channel.write.bind(channel);
const stringify = JSON.stringify;

// Halves of letters are not text, and nobody would read the line.
function encode(value) {
  return stringify(value).replace(/\\\\|\\ud[89a-f][0-9a-f]{2}/g, (found) => (found === '\\\\' ? found : '\\ufffd'));
}

function say(event, fields) {
  write(encode({ event, ...fields }) + '\n');
}

let current = null;  // the cell that runs: {id, count, interrupt}
let count = 0;
let waitingForInput = null;

// ---- pictures of values

function textOf(value) {
  return util.inspect(value, { depth: 6, maxArrayLength: 1000, maxStringLength: 1 << 20 });
}

function isDeeper(value, levels) {
  if (value === null || typeof value !== 'object') return false;
  return levels === 0 || Object.values(value).some((each) => isDeeper(each, levels - 1));
}

// Shows it, without what is too large to be told, which is named instead.
function show(bundle, main) {
  if (!current) return;
  const kept = {}, leftOut = [];
  let size = 0;
  for (const [mime, value] of Object.entries(bundle)) {
    const length = typeof value === 'string' ? value.length : (stringify(value) ?? '').length;
    if (size + length > Math.min(mostShown, current.room)) {
      leftOut.push(mime);
    } else if (!isDeeper(value, mostLevels)) {
      kept[mime] = value;
      size += length;
    }
  }
  if (leftOut.length)
    kept['text/plain'] = `${(kept['text/plain'] ?? '').slice(0, 1000)}\n(too large to be shown: ${leftOut.join(', ')})`.trimStart();
  current.room -= size;
  say('result', { id: current.id, main, data: kept });
}

function bundleOf(value) {
  const bundle = { 'text/plain': textOf(value) };
  if (value === null || typeof value !== 'object') return bundle;
  const draw = value[Symbol.for('Jupyter.display')];
  if (typeof draw === 'function') {
    try { return { ...bundle, ...draw.call(value) }; } catch { /* shown as text */ }
  }
  if (Buffer.isBuffer(value) && value.subarray(1, 4).toString() === 'PNG') bundle['image/png'] = value.toString('base64');
  const proto = Object.getPrototypeOf(value);
  if (Array.isArray(value) || proto === null || proto?.constructor?.name === 'Object') {
    try { bundle['application/json'] = JSON.parse(stringify(value)); } catch { /* a cycle */ }
  }
  return bundle;
}

function display(...values) {
  for (const value of values) show(bundleOf(value), false);
}

const shown = (mime) => (text) => show({ [mime]: text }, false);
display.html = shown('text/html');
display.markdown = shown('text/markdown');
display.svg = shown('image/svg+xml');

function input(prompt = '') {
  if (!current) return Promise.reject(new Error('nobody is there to answer'));
  say('input', { id: current.id, prompt: String(prompt), password: false });
  return new Promise((resolve, reject) => { waitingForInput = { resolve, reject }; });
}

// ---- from a cell to a script

function stripTypes(code) {
  const module = require('node:module');
  if (typeof module.stripTypeScriptTypes === 'function') return module.stripTypeScriptTypes(code, { mode: 'transform' });
  const places = ['', '/usr/share/nodejs/', '/usr/lib/node_modules/', '/usr/local/lib/node_modules/'];
  for (const place of places) {
    let compiler;
    try { compiler = createRequire(workspace + '/')(place + 'typescript'); } catch { continue; }
    const options = { target: compiler.ScriptTarget.ES2022, module: compiler.ModuleKind.ESNext, isolatedModules: true };
    const made = compiler.transpileModule(code, { compilerOptions: options, reportDiagnostics: true });
    const wrong = (made.diagnostics || [])[0];
    if (wrong) throw new SyntaxError(compiler.flattenDiagnosticMessageText(wrong.messageText, '\n'));
    return made.outputText.replace(/^export \{\};\n?/m, '');
  }
  throw new Error('TypeScript needs Node 22.13 or newer, or the typescript package: npm install typescript');
}

function namesIn(pattern, names = []) {
  if (!pattern) return names;
  if (pattern.type === 'Identifier') names.push(pattern.name);
  else if (pattern.type === 'ObjectPattern') pattern.properties.forEach((p) => namesIn(p.value || p.argument, names));
  else if (pattern.type === 'ArrayPattern') pattern.elements.forEach((e) => namesIn(e, names));
  else if (pattern.type === 'AssignmentPattern') namesIn(pattern.left, names);
  else if (pattern.type === 'RestElement') namesIn(pattern.argument, names);
  return names;
}

function importOf(node, code) {
  const from = `await __import__(${node.source.raw})`;
  if (node.specifiers.length === 0) return `${from};`;
  const named = [], lines = [];
  for (const one of node.specifiers) {
    if (one.type === 'ImportNamespaceSpecifier') lines.push(`globalThis.${one.local.name} = ${from};`);
    else named.push([one.type === 'ImportDefaultSpecifier' ? 'default' : one.imported.name || one.imported.value, one.local.name]);
  }
  if (named.length) {
    const parts = named.map(([name, local]) => `${JSON.stringify(name)}: globalThis.${local}`);
    lines.push(`({${parts.join(', ')}} = ${from});`);
  }
  return lines.join(' ');
}

// Declarations of the outermost level become properties of the global object, so that the next cell sees them and may
// declare them again; imports become dynamic ones; what the last statement is worth is kept.
function scriptOf(code) {
  const tree = acorn.parse(code, { ecmaVersion: 'latest', sourceType: 'module', allowAwaitOutsideFunction: true,
                                   allowReturnOutsideFunction: false, allowHashBang: true });
  const edits = [];
  const replace = (start, end, text) => edits.push({ start, end, text });
  let hoisted = '';
  tree.body.forEach((node, index) => {
    const last = index === tree.body.length - 1;
    if (node.type === 'ImportDeclaration') return replace(node.start, node.end, importOf(node, code));
    if (node.type === 'ExportNamedDeclaration' && node.declaration) {
      replace(node.start, node.declaration.start, '');
      node = node.declaration;
    } else if (node.type.startsWith('Export')) {
      throw new SyntaxError('a cell has nobody to export to');
    }
    if (node.type === 'FunctionDeclaration') {
      hoisted += `globalThis.${node.id.name} = ${node.id.name};`;
    } else if (node.type === 'ClassDeclaration') {
      replace(node.start, node.start, `globalThis.${node.id.name} = `);
      replace(node.end, node.end, ';');
    } else if (node.type === 'VariableDeclaration') {
      const names = node.declarations.flatMap((each) => namesIn(each.id));
      const head = names.map((name) => `if (!Object.hasOwn(globalThis, ${JSON.stringify(name)})) globalThis.${name} = undefined;`);
      replace(node.start, node.declarations[0].start, head.join('') + '(');
      node.declarations.forEach((each, i) => {
        if (!each.init) replace(each.id.end, each.id.end, each.id.type === 'Identifier' ? ' = undefined' : '');
        const next = node.declarations[i + 1];
        if (next) replace(each.end, next.start, '), (');
      });
      const end = node.declarations[node.declarations.length - 1].end;
      replace(end, node.end, ');');
    } else if (last && node.type === 'ExpressionStatement') {
      replace(node.start, node.expression.start, 'return { value: (');
      replace(node.expression.end, node.end, code.slice(node.expression.end, node.end).includes(';') ? ') };' : ') };');
    }
  });
  edits.sort((a, b) => a.start - b.start || a.end - b.end);
  let out = '', at = 0;
  for (const edit of edits) {
    out += code.slice(at, edit.start) + edit.text;
    at = Math.max(at, edit.end);
  }
  out += code.slice(at);
  const isAsync = /\bawait\b/.test(out);
  return { text: `(${isAsync ? 'async ' : ''}() => {${hoisted}${out}\n})()`, isAsync };
}

// ---- a cell

let told = new Map();  // files that were named before, and when they had changed

function filesSince(began) {
  const found = [], folders = [workspace], fresh = new Map();
  let looked = 0;
  try {
    while (folders.length && looked < mostEntries && found.length < mostFiles) {
      const folder = folders.pop();
      for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
        looked += 1;
        const name = path.join(folder, entry.name);
        if (entry.isDirectory()) {
          if (!['.git', 'node_modules', '__pycache__', '.venv'].includes(entry.name)) folders.push(name);
        } else if (entry.isFile()) {
          const changed = fs.lstatSync(name).ctimeMs;
          // The clock of files is coarse.
          if (changed < began - 20 || told.get(name) === changed) continue;
          found.push(name);
          fresh.set(name, changed);
        }
      }
    }
  } catch { /* a folder that went away */ }
  told = fresh;
  return found.sort().slice(0, mostFiles);
}

function report(id, problem) {
  const isError = problem instanceof Error || util.types.isNativeError(problem);
  let trace = isError ? String(problem.stack) : textOf(problem);
  // What lies below the cell is ours.
  const lines = trace.split('\n').filter((line) => !/node:internal|node:vm|\[eval\]|evalmachine/.test(line));
  const last = lines.findLastIndex((line) => /<cell \d+>/.test(line));
  trace = (last >= 0 ? lines.slice(0, last + 1) : lines.filter((line) => !/\(node:/.test(line))).join('\n');
  say('error', { id, name: isError ? problem.name : 'Error', value: isError ? String(problem.message) : textOf(problem),
                 traceback: trace });
}

async function execute(id, code) {
  count += 1;
  const began = Date.now();
  const interrupted = new Promise((_, reject) => { current = { id, interrupt: reject, room: mostOfACell }; });
  interrupted.catch(() => {});
  try {
    const { text } = scriptOf(typescript ? stripTypes(code) : code);
    const script = new vm.Script(text, { filename: `<cell ${count}>`, importModuleDynamically: (name) => importFrom(name) });
    const running = script.runInThisContext({ breakOnSigint: true, displayErrors: false });
    const given = util.types.isPromise(running) ? await Promise.race([running, interrupted]) : running;
    let value = given?.value;
    if (util.types.isPromise(value)) value = await Promise.race([value, interrupted]);
    if (value !== undefined) {
      globalThis._ = value;
      show(bundleOf(value), true);
    }
  } catch (problem) {
    if (problem?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED')
      problem = Object.assign(new Error('interrupted'), { name: 'Interrupted' });
    report(id, problem);
  }
  waitingForInput?.reject(new Error('the cell has ended'));
  waitingForInput = null;
  current = null;
  say('done', { id, count, files: filesSince(began) });
}

const fromWorkspace = createRequire(process.cwd() + '/cell.js');

async function importFrom(name) {
  if (name.startsWith('.') || name.startsWith('/')) return import(pathToFileURL(path.resolve(process.cwd(), name)).href);
  try {
    return await import(pathToFileURL(fromWorkspace.resolve(name)).href);
  } catch {
    return import(name);
  }
}

// ---- requests

const queue = [];
let busy = false;

async function work() {
  if (busy) return;
  busy = true;
  for (let next = queue.shift(); next; next = queue.shift()) {
    const [op, id, payload] = next;
    if (op === 'execute') await execute(id, payload.toString());
    else if (op === 'environ') {
      for (const [name, value] of Object.entries(JSON.parse(payload.toString()))) {
        if (value === null) delete process.env[name];
        else process.env[name] = value;
      }
    }
    else if (op === 'complete') say('completions', { id, matches: completions(payload.toString()) });
  }
  busy = false;
}

function completions(text) {
  const [word] = /[\w$.]*$/.exec(text);
  const dot = word.lastIndexOf('.');
  let scope = globalThis;
  if (dot >= 0) {
    try { scope = vm.runInThisContext(word.slice(0, dot), { timeout: 100 }); } catch { return []; }
  }
  if (scope === null || scope === undefined) return [];
  const names = new Set();
  for (let each = Object(scope); each; each = Object.getPrototypeOf(each))
    Object.getOwnPropertyNames(each).forEach((name) => names.add(name));
  const start = word.slice(dot + 1);
  return [...names].filter((name) => name.startsWith(start) && /^[A-Za-z_$]/.test(name)).slice(0, 200)
    .map((name) => text.slice(0, text.length - start.length) + name);
}

let pending = Buffer.alloc(0);
channel.on('data', (data) => {
  pending = Buffer.concat([pending, data]);
  for (;;) {
    const end = pending.indexOf(10);
    if (end < 0) break;
    const [op, id, length] = pending.subarray(0, end).toString().split(' ');
    if (pending.length < end + 1 + Number(length)) break;
    const payload = Buffer.from(pending.subarray(end + 1, end + 1 + Number(length)));
    pending = pending.subarray(end + 1 + Number(length));
    if (op === 'input') {
      waitingForInput?.resolve(payload.toString());
      waitingForInput = null;
    } else if (op === 'noinput') {
      waitingForInput?.reject(new Error('nobody is there to answer'));
      waitingForInput = null;
    } else {
      queue.push([op, Number(id), payload]);
    }
  }
  work();
});
channel.on('end', () => process.exit(0));
channel.on('error', () => process.exit(0));

process.on('SIGINT', () => current?.interrupt(Object.assign(new Error('interrupted'), { name: 'Interrupted' })));
process.on('uncaughtException', (problem) => (current ? current.interrupt(problem) : console.error(problem)));
process.on('unhandledRejection', (problem) => (current ? current.interrupt(problem) : console.error(problem)));

Object.assign(globalThis, { display, input, __import__: importFrom, require: fromWorkspace });
say('ready', { language: typescript ? 'typescript' : 'javascript', version: process.versions.node, pid: process.pid });
