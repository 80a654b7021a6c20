// Everything that a sandbox can be made with, found by and changed to, by the SDK's own words.
import { able, assert, check, checkIf, rejects } from './check.mjs'

export default async function ({ e2b, ask, all, sleep, near, none }) {
  const { Sandbox, Volume } = e2b
  const text = Sandbox.toString() + Object.getPrototypeOf(Sandbox).toString()  // what the SDK's code speaks of
  const pause = (box) => (box.pause ? box.pause() : box.betaPause())

  await checkIf(text.includes('lifecycle') && Volume, 'lifecycle and volumes', 'create with everything', async () => {
    const volume = await Volume.create('everything')
    const box = await Sandbox.create('base', {
      timeoutMs: 61_500, metadata: { a: 'b' }, envs: { COLOR: 'red' }, secure: true, allowInternetAccess: true,
      network: { allowOut: ['example.org'], denyOut: ['0.0.0.0/0'], allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}',
        rules: { 'example.org': [{ transform: { headers: { 'X-One': 'two' } } }] } },
      lifecycle: { onTimeout: 'pause', autoResume: true }, volumeMounts: { '/mnt/all': volume },
    })
    const info = await box.getInfo()
    near(info.endAt, Date.now() + 62_000)
    assert.deepEqual(info.metadata, { a: 'b' })
    assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true })
    assert.deepEqual(info.volumeMounts, [{ name: 'everything', path: '/mnt/all' }])
    assert.deepEqual(info.network.allowOut, ['example.org'])
    assert.deepEqual(info.network.denyOut, ['0.0.0.0/0'])
    assert.ok(info.cpuCount >= 1 && info.memoryMB >= 128 && /^\d+\.\d+\.\d+$/.test(info.envdVersion))
    assert.equal((await box.commands.run('echo $COLOR; echo kept > /mnt/all/f')).stdout, 'red\n')
    assert.equal(await volume.readFile('/f'), 'kept\n')
    assert.equal(await box.kill(), true)
    assert.equal(await Volume.destroy(volume.volumeId), true)
  })
  await checkIf(text.includes('lifecycle'), 'lifecycle', 'who calls wakes a sandbox that wants it', async () => {
    const box = await Sandbox.create({ lifecycle: { onTimeout: 'pause', autoResume: true } })
    await box.commands.run('echo kept > kept')
    assert.equal(await box.pause(), true)
    assert.equal((await Sandbox.getInfo(box.sandboxId)).state, 'paused')
    assert.equal((await box.commands.run('cat kept')).stdout, 'kept\n')
    assert.equal((await box.getInfo()).state, 'running')
    await box.kill()
  })
  await check('what this server has not is refused', async () => {
    const { name } = e2b.SandboxError
    await rejects(Sandbox.create({ mcp: { browserbase: {} } }), name, /400.*mcp/)
    if (able(text.includes('iam'), 'iam')) await rejects(Sandbox.create({ iam: { tokens: { one: { audience: 'x', tokenType: 'JWT-SVID' } } } }), name, /400.*iam/)
    const box = await Sandbox.create()
    if (able(text.includes('keepMemory'), 'pause({ keepMemory })')) await rejects(box.pause({ keepMemory: false }), name, /400.*memory/)
    if (able(text.includes('onResume'), 'connect({ onResume })')) await rejects(box.connect({ onResume: 'reboot' }), name, /400.*memory/)
    await rejects(Sandbox.setTimeout(box.sandboxId, 10_000_000_000), name, /400.*Timeout cannot be greater/)
    await box.kill()
  })
  await check('pause says whether it was', async () => {
    const box = await Sandbox.create()
    assert.equal(await box.isRunning(), true)
    assert.notEqual(await pause(box), false)
    assert.equal(await pause(box), false)
    assert.equal(await box.isRunning(), false)
    const again = await box.connect({ timeoutMs: 30_000 })
    assert.equal(again.sandboxId, box.sandboxId)
    assert.equal(await box.isRunning(), true)
    await box.kill()
    assert.equal(await box.isRunning(), false)
    await assert.rejects(pause(box), e2b.SandboxNotFoundError ?? e2b.SandboxError)
  })
  await check('list by everything', async () => {
    const first = await Sandbox.create({ metadata: { of: 'list', n: '1' } })
    await sleep(1100)
    const between = new Date()
    const second = await Sandbox.create({ metadata: { of: 'list', n: '2' } })
    const ids = async (options) => (await all(Sandbox.list(options))).map((each) => each.sandboxId)
    assert.deepEqual(await ids({ query: { metadata: { of: 'list' } } }), [second.sandboxId, first.sandboxId])
    assert.deepEqual(await ids({ query: { metadata: { of: 'list', n: '1' } } }), [first.sandboxId])
    await pause(first)
    assert.deepEqual(await ids({ query: { metadata: { of: 'list' }, state: ['paused'] } }), [first.sandboxId])
    assert.deepEqual(await ids({ query: { metadata: { of: 'list' }, state: ['running', 'paused'] }, limit: 1 }), [second.sandboxId, first.sandboxId])
    const source = Sandbox.list().nextItems.toString()
    if (able(source.includes('startedAfter'), 'list by startedAfter')) assert.deepEqual(await ids({ query: { metadata: { of: 'list' }, startedAfter: between } }), [second.sandboxId])
    if (able(/\btemplate:/.test(source), 'list by template')) assert.deepEqual(await ids({ query: { metadata: { of: 'list' }, template: 'nobodys' } }), [])
    if (able(/\border:/.test(source), 'order of lists')) assert.deepEqual(await ids({ query: { metadata: { of: 'list' } }, order: 'asc' }), [first.sandboxId, second.sandboxId])
    await first.kill()
    await second.kill()
  })
  await checkIf(Sandbox.updateNetwork, 'updateNetwork', 'updateNetwork', async () => {
    const box = await Sandbox.create()
    await box.updateNetwork({ allowOut: ['example.org'], denyOut: ['0.0.0.0/0'] })
    assert.deepEqual((await box.getInfo()).network.allowOut, ['example.org'])
    await box.updateNetwork({ allowInternetAccess: false })
    assert.equal((await box.getInfo()).allowInternetAccess, false)
    await box.updateNetwork({})
    assert.equal((await box.getInfo()).allowInternetAccess, true)
    await rejects(box.updateNetwork({ allowOut: ['example.org'] }), 'SandboxError', /400/)
    await assert.rejects(Sandbox.updateNetwork(none, {}), e2b.SandboxNotFoundError)
    await box.kill()
  })
  await checkIf(e2b.E2B, 'E2B', 'a client with options of its own', async () => {
    const { E2B_API_KEY: apiKey, E2B_API_URL: apiUrl, E2B_SANDBOX_URL: sandboxUrl } = process.env
    const client = new e2b.E2B({ apiKey, apiUrl, sandboxUrl })
    const box = await client.Sandbox.create()
    assert.equal((await box.commands.run('echo $((6 * 7))')).stdout, '42\n')
    assert.equal(await box.kill(), true)
    await assert.rejects(new e2b.E2B({ apiKey: 'e2b_00', apiUrl }).Sandbox.create(), e2b.AuthenticationError)
  })
  await check('errors by their class', async () => {
    const { AuthenticationError, SandboxError } = e2b
    await assert.rejects(Sandbox.create({ apiKey: 'e2b_00' }), AuthenticationError)
    await assert.rejects(Sandbox.kill(none, { apiKey: 'e2b_00' }), AuthenticationError)
    await assert.rejects(Sandbox.list({ apiKey: 'e2b_00' }).nextItems(), AuthenticationError)
    await assert.rejects(Sandbox.create('no-such-template'), SandboxError)
    await assert.rejects(Sandbox.create({ metadata: { ['k'.repeat(5000)]: 'v' } }), SandboxError)
    assert.equal((await ask('POST', '/v2/sandboxes', [])).json.code, 400)
  })
}
