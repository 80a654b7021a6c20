// Every call of E2B's control plane, by the SDK that is installed beside this file.
import * as e2b from 'e2b'
import { able, assert, check, finish, rejects } from './check.mjs'

const { Sandbox } = e2b
const api = process.env.E2B_API_URL
const key = process.env.E2B_API_KEY
const sleep = (ms) => new Promise((done) => setTimeout(done, ms))
const near = (date, ms, by = 4000) => assert.ok(Math.abs(date.getTime() - ms) < by, `${date.toISOString()} is not near`)
const none = 'iabcdefghij0123456789'

// 2.7 has one class for what is not there, and that not for every call.
const missing = (error) => error instanceof (e2b.SandboxNotFoundError ?? e2b.SandboxError)

// What no SDK of every version has, by the wire.
async function ask(method, path, body, headers = {}) {
  const answer = await fetch(api + path, {
    method,
    headers: { 'X-API-Key': key, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  const text = await answer.text()
  return { status: answer.status, headers: answer.headers, text, json: text ? JSON.parse(text) : undefined }
}

async function all(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found
}

let box
await check('create', async () => {
  box = await Sandbox.create({ timeoutMs: 120_000, metadata: { for: 'control', 'odd key': 'a=b&c %2F' }, envs: { COLOR: 'red' } })
  assert.match(box.sandboxId, /^[a-z0-9]+$/)
  assert.match(box.getHost(3000), new RegExp(`^3000-${box.sandboxId}\\.localhost:\\d+$`))
})
await check('create, without anything said', async () => {
  const other = await Sandbox.create()
  const info = await other.getInfo()
  near(info.endAt, Date.now() + 300_000)
  assert.equal(info.state, 'running')
  await other.kill()
})
await check('create, first generation', async () => {
  const made = await ask('POST', '/sandboxes', { templateID: 'base', secure: true, nobodyKnows: 1, metadata: null })
  assert.equal(made.status, 201)
  for (const name of ['templateID', 'sandboxID', 'clientID', 'envdVersion', 'envdAccessToken']) assert.equal(typeof made.json[name], 'string', name)
  const info = await ask('GET', '/sandboxes/' + made.json.sandboxID)
  near(new Date(info.json.endAt), Date.now() + 15_000)
  assert.equal((await ask('DELETE', '/sandboxes/' + made.json.sandboxID)).status, 204)
})
await check('create with a wrong timeout', async () => {
  assert.equal((await ask('POST', '/v2/sandboxes', { templateID: 'base', timeout: 0 })).status, 400)
  const long = await ask('POST', '/v2/sandboxes', { templateID: 'base', timeout: 10_000_000 })
  assert.equal(long.json.code, 400)
  assert.match(long.json.message, /Timeout cannot be greater than/)
})
await check('create from a template nobody has', () => rejects(Sandbox.create('no-such-template'), 'SandboxError', /404.*not found/))
await check('create with a wrong key', () => rejects(Sandbox.create({ apiKey: 'e2b_00' }), 'AuthenticationError'))
await check('an error has its status as a number', async () => {
  const answer = await ask('GET', '/sandboxes/' + none)
  assert.equal(answer.status, 404)
  assert.equal(answer.json.code, 404)
  assert.equal(typeof answer.json.message, 'string')
  const refused = await fetch(api + '/sandboxes')
  assert.equal((await refused.json()).code, 401)
})
await check('getInfo', async () => {
  const info = await Sandbox.getInfo(box.sandboxId)
  assert.equal(info.sandboxId, box.sandboxId)
  assert.deepEqual(info.metadata, { for: 'control', 'odd key': 'a=b&c %2F' })
  assert.equal(info.templateId, 'base')
  assert.ok(info.startedAt instanceof Date)
})
await check('getInfo of none', async () => {
  await assert.rejects(Sandbox.getInfo(none), missing)
})
await check('list by metadata', async () => {
  const found = await all(Sandbox.list({ query: { metadata: { 'odd key': 'a=b&c %2F' } } }))
  assert.deepEqual(found.map((each) => each.sandboxId), [box.sandboxId])
  assert.deepEqual(await all(Sandbox.list({ query: { metadata: { for: 'nobody' } } })), [])
})
await check('list in pages', async () => {
  const made = []
  for (let i = 0; i < 3; ++i) made.push(await Sandbox.create({ metadata: { page: 'yes' } }))
  const pages = Sandbox.list({ query: { metadata: { page: 'yes' } }, limit: 2 })
  assert.equal((await pages.nextItems()).length, 2)
  assert.equal(pages.hasNext, true)
  assert.equal((await pages.nextItems()).length, 1)
  assert.equal(pages.hasNext, false)
  const query = 'metadata=' + encodeURIComponent('page=yes')
  const oldest = await ask('GET', `/v2/sandboxes?${query}&order=asc&template=base`)
  assert.deepEqual(oldest.json.map((each) => each.sandboxID), made.map((each) => each.sandboxId))
  assert.ok(Number(oldest.headers.get('x-total-running')) >= 4)
  assert.equal((await ask('GET', `/v2/sandboxes?${query}&startedAfter=2099-01-01T00:00:00Z`)).json.length, 0)
  assert.equal((await ask('GET', `/v2/sandboxes?${query}&template=other`)).json.length, 0)
  assert.equal((await ask('GET', `/v2/sandboxes?limit=1000`)).status, 400)
  assert.equal((await ask('GET', `/sandboxes?${query}`)).json.length, 3)
  for (const each of made) await each.kill()
})
await check('setTimeout', async () => {
  await box.setTimeout(30_000)
  near((await box.getInfo()).endAt, Date.now() + 30_000)
  await box.setTimeout(300_000)
  near((await box.getInfo()).endAt, Date.now() + 300_000)
  await assert.rejects(Sandbox.setTimeout(none, 1000), missing)
})
await check('refreshes only lengthen', async () => {
  assert.equal((await ask('POST', `/sandboxes/${box.sandboxId}/refreshes`, { duration: 10 })).status, 204)
  near((await box.getInfo()).endAt, Date.now() + 300_000)
})
await check('connect', async () => {
  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 10_000 })
  assert.equal(again.sandboxId, box.sandboxId)
  near((await box.getInfo()).endAt, Date.now() + 300_000)
  await assert.rejects(Sandbox.connect(none), missing)
})
await check('pause, and on again', async () => {
  const pause = box.pause ? () => box.pause() : () => box.betaPause()
  await pause()
  assert.equal((await Sandbox.getInfo(box.sandboxId)).state, 'paused')
  assert.equal((await ask('POST', `/sandboxes/${box.sandboxId}/pause`, {})).json.code, 409)
  assert.equal((await ask('POST', `/sandboxes/${box.sandboxId}/timeout`, { timeout: 5 })).status, 409)
  const paused = await all(Sandbox.list({ query: { state: ['paused'] } }))
  assert.ok(paused.some((each) => each.sandboxId === box.sandboxId))
  const running = await all(Sandbox.list({ query: { state: ['running'] } }))
  assert.ok(!running.some((each) => each.sandboxId === box.sandboxId))
  const resumed = await ask('POST', `/v2/sandboxes/${box.sandboxId}/connect`, { timeout: 90 })
  assert.equal(resumed.status, 201)
  const info = await box.getInfo()
  assert.equal(info.state, 'running')
  near(info.endAt, Date.now() + 90_000)
  await pause()
  assert.equal((await ask('POST', `/sandboxes/${box.sandboxId}/resume`, { timeout: 200 })).status, 201)
  assert.equal((await ask('POST', `/sandboxes/${box.sandboxId}/resume`, { timeout: 200 })).status, 409)
})
await check('a pause does not use up the time', async () => {
  const made = (await ask('POST', '/v2/sandboxes', { templateID: 'base', timeout: 3 })).json
  await ask('POST', `/sandboxes/${made.sandboxID}/pause`, {})
  await sleep(4000)
  assert.equal((await ask('GET', '/sandboxes/' + made.sandboxID)).json.state, 'paused')
  assert.equal((await ask('DELETE', '/sandboxes/' + made.sandboxID)).status, 204)
})
await check('the end of its time: killed, or paused', async () => {
  const killed = (await ask('POST', '/v2/sandboxes', { templateID: 'base', timeout: 1 })).json
  const paused = (await ask('POST', '/v2/sandboxes', { templateID: 'base', timeout: 1, autoPause: true, autoResume: { enabled: true } })).json
  await sleep(2500)
  assert.equal((await ask('GET', '/sandboxes/' + killed.sandboxID)).status, 404)
  const info = (await ask('GET', '/sandboxes/' + paused.sandboxID)).json
  assert.equal(info.state, 'paused')
  assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true })
  assert.equal((await ask('DELETE', '/sandboxes/' + paused.sandboxID)).status, 204)
})
await check('metrics', async () => {
  await sleep(50)
  const metrics = (await ask('GET', `/sandboxes/${box.sandboxId}/metrics`)).json
  assert.ok(metrics.length >= 1)
  for (const name of ['timestampUnix', 'cpuCount', 'cpuUsedPct', 'memUsed', 'memTotal', 'memCache', 'diskUsed', 'diskTotal'])
    assert.equal(typeof metrics[0][name], 'number', name)
  assert.deepEqual((await ask('GET', `/sandboxes/${box.sandboxId}/metrics?start=1&end=2`)).json, [])
  const several = (await ask('GET', `/sandboxes/metrics?sandbox_ids=${box.sandboxId},${none}`)).json
  assert.deepEqual(Object.keys(several.sandboxes), [box.sandboxId])
  const now = Date.now()
  assert.ok((await box.getMetrics()).length >= 1)
  assert.ok((await box.getMetrics({ start: new Date(now - 3_600_000), end: new Date(now + 60_000) })).length >= 1)
  if (able(/query:/.test(Sandbox.getMetrics.toString()), 'times of metrics that it sends'))
    assert.deepEqual(await box.getMetrics({ start: new Date(1000), end: new Date(2000) }), [])
  await assert.rejects(Sandbox.getMetrics(none), missing)
})
await check('logs', async () => {
  const first = (await ask('GET', `/sandboxes/${box.sandboxId}/logs`)).json
  assert.ok(first.logEntries.length > 0 && first.logs[0].line.length > 0)
  const second = (await ask('GET', `/v2/sandboxes/${box.sandboxId}/logs?direction=backward&limit=1`)).json
  assert.equal(second.logs.length, 1)
  assert.equal((await ask('GET', `/v2/sandboxes/${none}/logs`)).status, 404)
})
await check('network: what can be said', async () => {
  const network = { allowOut: ['example.org', '*.example.com'], denyOut: ['0.0.0.0/0'], allowPublicTraffic: false, maskRequestHost: 'localhost:${PORT}',
    rules: { 'example.org': [{ transform: { headers: { Authorization: 'Bearer top' } } }] } }
  const made = (await ask('POST', '/v2/sandboxes', { templateID: 'base', network })).json
  assert.equal(typeof made.trafficAccessToken, 'string')
  const info = (await ask('GET', '/sandboxes/' + made.sandboxID)).json
  assert.deepEqual([...info.network.allowOut].sort(), ['*.example.com', 'example.org'])
  assert.equal(info.network.maskRequestHost, 'localhost:${PORT}')
  assert.ok(!JSON.stringify(info).includes('Bearer top'))
  assert.equal((await ask('PUT', `/sandboxes/${made.sandboxID}/network`, { allowOut: ['example.net'], denyOut: ['0.0.0.0/0'] })).status, 204)
  assert.deepEqual((await ask('GET', '/sandboxes/' + made.sandboxID)).json.network.allowOut, ['example.net'])
  assert.equal((await ask('PUT', `/sandboxes/${made.sandboxID}/network`, {})).status, 204)
  assert.equal((await ask('GET', '/sandboxes/' + made.sandboxID)).json.allowInternetAccess, true)
  await ask('DELETE', '/sandboxes/' + made.sandboxID)
  const closed = (await ask('POST', '/v2/sandboxes', { templateID: 'base', allow_internet_access: false })).json
  assert.equal((await ask('GET', '/sandboxes/' + closed.sandboxID)).json.allowInternetAccess, false)
  await ask('DELETE', '/sandboxes/' + closed.sandboxID)
})
await check('network: what cannot be said is refused', async () => {
  for (const network of [{ allowOut: ['example.org'] }, { denyOut: ['8.8.8.0/24'], allowOut: ['10.0.0.0/8'] }, { egressProxy: { address: 'x:1' } },
    { denyOut: ['0.0.0.0/0'], rules: { 'example.org': [{ transform: { headers: { A: 'b' } } }] } }]) {
    const answer = await ask('POST', '/v2/sandboxes', { templateID: 'base', network })
    assert.equal(answer.json.code, 400, JSON.stringify(network))
    assert.ok(answer.json.message.length > 20)
  }
})
await check('snapshots', async () => {
  const made = await ask('POST', `/sandboxes/${box.sandboxId}/snapshots`, { name: 'first-one' })
  assert.equal(made.status, 201)
  const listed = await ask('GET', `/snapshots?sandboxID=${box.sandboxId}`)
  assert.deepEqual(listed.json.map((each) => each.snapshotID), [made.json.snapshotID])
  assert.deepEqual((await ask('GET', `/snapshots?sandboxID=${none}`)).json, [])
  const from = await Sandbox.create(made.json.snapshotID)
  assert.equal((await from.getInfo()).state, 'running')
  await from.kill()
  assert.equal((await ask('DELETE', '/templates/' + encodeURIComponent('team/' + made.json.snapshotID + ':default'))).status, 204)
})
await check('fork', async () => {
  const forks = await ask('POST', `/sandboxes/${box.sandboxId}/fork`, { count: 2, timeout: 60 })
  assert.equal(forks.status, 201)
  assert.equal(forks.json.length, 2)
  for (const each of forks.json) {
    near(new Date((await ask('GET', '/sandboxes/' + each.sandbox.sandboxID)).json.endAt), Date.now() + 60_000)
    assert.equal((await ask('DELETE', '/sandboxes/' + each.sandbox.sandboxID)).status, 204)
  }
  assert.equal((await ask('POST', `/sandboxes/${none}/fork`, {})).json.code, 404)
})
await check('kill', async () => {
  assert.notEqual(await box.kill(), false)  // 2.7 says nothing
  assert.equal(await Sandbox.kill(box.sandboxId), false)
  assert.equal(await Sandbox.kill(none), false)
})
for (const part of ['options', 'branches', 'volumes', 'secrets', 'templates', 'events']) {
  const { default: more } = await import(`./control_${part}.mjs`)
  await more({ e2b, ask, all, sleep, near, none })
}
finish()
