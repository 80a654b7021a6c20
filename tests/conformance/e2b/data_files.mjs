// Files through the SDK: written, read, told of, moved, watched, by address, and large ones.
import { createHash } from 'node:crypto';
import { same, fails, holds, until, sleep } from './cases.mjs';

export default function ({ e2b, sdk, box, fresh, test, testIf }) {
  const {
    AuthenticationError, FileType, FilesystemEventType, InvalidArgumentError, NotEnoughSpaceError, NotFoundError,
    FileNotFoundError = NotFoundError, // 2.7 has one class for what is not there.
  } = e2b;

  test('files: write and read in every form', async () => {
    const info = await box.files.write('a.txt', 'grüße');
    same([info.name, info.path, info.type], ['a.txt', '/home/user/a.txt', 'file']);
    same(await box.files.read('a.txt'), 'grüße');
    same(new TextDecoder().decode(await box.files.read('a.txt', { format: 'bytes' })), 'grüße');
    same(await (await box.files.read('a.txt', { format: 'blob' })).text(), 'grüße');
    same(await new Response(await box.files.read('a.txt', { format: 'stream' })).text(), 'grüße');
    const bytes = Uint8Array.from({ length: 70000 }, (_, i) => i * 7);
    await box.files.write('b.bin', bytes.buffer);
    same(Buffer.compare(Buffer.from(await box.files.read('b.bin', { format: 'bytes' })), Buffer.from(bytes)), 0);
    await box.files.write('c.txt', new Blob(['blob']));
    same(await box.files.read('c.txt'), 'blob');
    await box.files.write('d.txt', new Response('stream').body);
    same(await box.files.read('d.txt'), 'stream');
    await box.files.write('empty.txt', '');
    same(await box.files.read('empty.txt'), '');
  });
  test('files: several at once', async () => {
    const written = await box.files.write([{ path: 'm/one.txt', data: '1' }, { path: '/home/user/m/two.txt', data: '2' }]);
    same(written.map((each) => each.path), ['/home/user/m/one.txt', '/home/user/m/two.txt']);
    same(await box.files.read('m/one.txt') + await box.files.read('m/two.txt'), '12');
    same(await box.files.write([]), []);
  });
  testIf(sdk.of('useOctetStream'), 'useOctetStream', 'files: packed, and as octets', async () => {
    await box.files.write('z.txt', 'packed '.repeat(10000), { gzip: true });
    same((await box.files.read('z.txt', { gzip: true })).length, 70000);
    await box.files.write('o.txt', 'octets', { useOctetStream: true });
    same(await box.files.read('o.txt'), 'octets');
  });
  testIf(sdk.of('X-Metadata-'), 'metadata of files', 'files: metadata', async () => {
    const written = await box.files.write('meta.txt', 'x', { metadata: { author: 'me', Kind: 'test' } });
    same(written.metadata, { author: 'me', kind: 'test' });
    same((await box.files.getInfo('meta.txt')).metadata, { author: 'me', kind: 'test' });
    same((await box.files.list('/home/user')).find((each) => each.name === 'meta.txt').metadata, { author: 'me', kind: 'test' });
    await box.files.write('meta.txt', 'y');
    same((await box.files.getInfo('meta.txt')).metadata ?? {}, {});
  });
  test('files: where only root may write', async () => {
    await box.files.write('/0/deep/x.txt', 'mine');
    same((await box.commands.run('stat -c "%U %n" /0 /0/deep /0/deep/x.txt')).stdout, 'user /0\nuser /0/deep\nuser /0/deep/x.txt\n');
    same(await box.files.read('/0/deep/x.txt'), 'mine');
    await box.files.write('/root/r.txt', 'secret', { user: 'root' });
    same(await box.files.read('/root/r.txt', { user: 'root' }), 'secret');
  });
  test('files: a file that is there keeps its permissions', async () => {
    await box.commands.run('printf x > run.sh; chmod 750 run.sh');
    await box.files.write('run.sh', '#!/bin/sh\necho ran\n');
    same((await box.commands.run('stat -c %a run.sh; ./run.sh')).stdout, '750\nran\n');
  });
  test('files: errors', async () => {
    await fails(box.files.read('/no/such.txt'), FileNotFoundError);
    await fails(box.files.read('/tmp'), InvalidArgumentError);
    await fails(box.files.list('/no/such'), NotFoundError);
    await fails(box.files.list('/etc/passwd'), InvalidArgumentError);
    await fails(box.files.rename('/no/such', '/tmp/x'), NotFoundError);
    await fails(box.files.getInfo('/no/such'), NotFoundError);
    await box.files.remove('/no/such');
    await fails(box.files.read('a.txt', { user: 'nobody-here' }), AuthenticationError);
  });
  test('files: folders, moving, removing, telling', async () => {
    same(await box.files.makeDir('dir/below'), true);
    same(await box.files.makeDir('dir/below'), false);
    await fails(box.files.makeDir('/etc/passwd'), InvalidArgumentError);
    await box.files.write('dir/f.txt', '12345');
    const info = await box.files.getInfo('dir/f.txt');
    same([info.name, info.type, info.size, info.mode, info.permissions, info.owner], ['f.txt', FileType.FILE, 5, 0o644, '-rw-r--r--', 'user']);
    holds(Math.abs(info.modifiedTime - new Date()) < 60_000, 'the time');
    await box.commands.run('ln -sf /home/user/dir/f.txt dir/link; ln -sf below dir/to-dir; ln -sf nowhere dir/dangling');
    const entries = await box.files.list('dir');
    same(entries.map((each) => [each.name, each.type]), [['below', 'dir'], ['f.txt', 'file'], ['link', 'file'], ['to-dir', 'dir']]);
    same(entries[2].symlinkTarget, '/home/user/dir/f.txt');
    await box.files.write('dir/below/g.txt', 'g');
    same((await box.files.list('dir', { depth: 2 })).map((each) => each.path.slice(15)), ['below', 'below/g.txt', 'f.txt', 'link', 'to-dir']);
    const moved = await box.files.rename('dir/f.txt', 'elsewhere/h.txt');
    same(moved.path, '/home/user/elsewhere/h.txt');
    same([await box.files.exists('dir/f.txt'), await box.files.exists('elsewhere/h.txt')], [false, true]);
    await box.files.remove('dir');
    same(await box.files.exists('dir'), false);
  });
  test('files: signed addresses', async () => {
    await box.files.write('signed.txt', 'by address');
    same(await (await fetch(await box.downloadUrl('signed.txt'))).text(), 'by address');
    same(await (await fetch(await box.downloadUrl('signed.txt', { useSignatureExpiration: 60 }))).text(), 'by address');
    same(await (await fetch(await box.downloadUrl('/home/user/signed.txt', { user: 'root' }))).text(), 'by address');
    const form = new FormData();
    form.append('file', new Blob(['up']), 'ignored.txt');
    same((await fetch(await box.uploadUrl('up.txt'), { method: 'POST', body: form })).status, 200);
    same(await box.files.read('up.txt'), 'up');
    const late = await fetch(await box.downloadUrl('signed.txt', { useSignatureExpiration: -10 }));
    same([late.status, await late.json()], [401, { code: 401, message: 'signature is already expired' }]);
    const forged = (await box.downloadUrl('signed.txt')).replace('signed.txt', 'up.txt');
    same((await fetch(forged)).status, 401);
    const twisted = await fetch(await box.downloadUrl('signed.txt'), { method: 'POST', body: form });
    same(twisted.status, 401);
  });
  test('files: parts and conditions', async () => {
    await box.files.write('range.txt', '0123456789');
    const address = await box.downloadUrl('range.txt');
    const part = await fetch(address, { headers: { Range: 'bytes=2-4' } });
    same([part.status, await part.text(), part.headers.get('content-range')], [206, '234', 'bytes 2-4/10']);
    const whole = await fetch(address);
    await whole.text();
    same((await fetch(address, { headers: { 'If-None-Match': whole.headers.get('etag') } })).status, 304);
  });
  test('files: 500 MB up and down', async () => {
    const size = 500_000_000;
    const large = await fresh();
    try {
      const block = Buffer.alloc(1_000_000, 'x');
      let left = size / block.length;
      const sent = createHash('sha256');
      const source = new ReadableStream({ pull(to) { if (left-- > 0) { sent.update(block); to.enqueue(block); } else to.close(); } });
      await large.files.write('/tmp/large.bin', source, { requestTimeoutMs: 0 });
      same((await large.files.getInfo('/tmp/large.bin')).size, size);
      const got = createHash('sha256');
      let count = 0;
      for await (const piece of await large.files.read('/tmp/large.bin', { format: 'stream', requestTimeoutMs: 0 })) {
        got.update(piece);
        count += piece.length;
      }
      same([count, got.digest('hex')], [size, sent.digest('hex')]);
    } finally { await large.kill(); }
  });
  test('files: no room is NotEnoughSpace', async () => {
    const small = await fresh();
    try {
      const block = Buffer.alloc(1_000_000, 'x');
      let left = 1200;
      const source = new ReadableStream({ pull(to) { if (left-- > 0) to.enqueue(block); else to.close(); } });
      await fails(small.files.write('/tmp/too-large.bin', source, { requestTimeoutMs: 0 }), NotEnoughSpaceError);
    } finally { await small.kill(); }
  });
  test('watch: what happens in a folder', async () => {
    await box.files.makeDir('w');
    const events = [];
    const handle = await box.files.watchDir('w', (event) => { events.push([event.type, event.name]); });
    await box.files.write('w/n.txt', '1');
    await box.files.rename('w/n.txt', 'w/o.txt');
    await box.commands.run('chmod 600 w/o.txt; mkdir w/sub; touch w/sub/hidden');
    await box.files.remove('w/o.txt');
    const wanted = [[FilesystemEventType.CREATE, 'n.txt'], [FilesystemEventType.WRITE, 'n.txt'], [FilesystemEventType.RENAME, 'n.txt'],
      [FilesystemEventType.CREATE, 'o.txt'], [FilesystemEventType.CHMOD, 'o.txt'], [FilesystemEventType.REMOVE, 'o.txt']];
    for (const [type, name] of wanted)
      await until(() => events.some((each) => each[0] === type && each[1] === name), `${type} ${name}`, events);
    same(events.some((each) => each[1].includes('hidden')), false);
    await handle.stop();
    await fails(box.files.watchDir('/no/such', () => {}), NotFoundError);
    await fails(box.files.watchDir('/etc/passwd', () => {}), InvalidArgumentError);
  });
  test('watch: folders that are made later', async () => {
    await box.files.makeDir('deep');
    const events = [];
    const handle = await box.files.watchDir('deep', (event) => { events.push(event); }, { recursive: true });
    await box.files.makeDir('deep/a/b');
    await sleep(300);
    await box.files.write('deep/a/b/c.txt', 'x');
    await until(() => events.some((each) => each.name === 'a/b/c.txt' && each.type === FilesystemEventType.WRITE), 'the file below', events);
    await handle.stop();
  });
  testIf(sdk.of('includeEntry'), 'watchDir with includeEntry', 'watch: what an event is about', async () => {
    await box.files.makeDir('told');
    const events = [];
    const handle = await box.files.watchDir('told', (event) => { events.push(event); }, { recursive: true, includeEntry: true });
    await box.files.makeDir('told/a');
    await box.files.write('told/f.txt', '123');
    await until(() => events.some((each) => each.name === 'f.txt' && each.type === FilesystemEventType.WRITE && each.entry?.size === 3), 'the file', events);
    same(events.find((each) => each.name === 'a').entry?.type, FileType.DIR);
    await handle.stop();
  });
}
