// What a server that has enough says: to one key, to everybody, and to whoever asks too often.
// The server was started with the limits that SERVER_LIMITS tells; SERVER_OTHER_KEY is a second key.
import * as e2b from 'e2b'
import { speaks } from './cases.mjs'
import { assert, check, checkIf, finish } from './check.mjs'

const { Sandbox, SandboxError, RateLimitError, ServiceBusyError = SandboxError } = e2b
const limits = JSON.parse(process.env.SERVER_LIMITS)
const other = { apiKey: process.env.SERVER_OTHER_KEY }
const boxes = []

await check('as many sandboxes as a key may have', async () => {
  for (let i = 0; i < limits.perKey; ++i) boxes.push(await Sandbox.create())
  await assert.rejects(Sandbox.create(), (error) => {
    assert.ok(error instanceof RateLimitError, `${error.constructor.name}: ${error.message}`)
    assert.match(error.message, /as many as it may/)
    return true
  })
})
await checkIf(Sandbox.fork, 'fork', 'forks that a key may not have', async () => {
  const forks = await boxes[0].fork({ count: 2 })
  assert.equal(forks.length, 2)
  for (const each of forks) assert.ok(each instanceof RateLimitError, `${each}`)
})
await check('as many as the server may have', async () => {
  for (let i = limits.perKey; i < limits.all; ++i) boxes.push(await Sandbox.create(other))
  await assert.rejects(Sandbox.create(other), (error) => {
    assert.ok(error instanceof ServiceBusyError && !(error instanceof RateLimitError), `${error.constructor.name}: ${error.message}`)
    assert.match(error.message, ServiceBusyError === SandboxError ? /503/ : /the server holds as many/)
    return true
  })
})
await check('room again', async () => {
  await boxes.shift().kill()
  boxes.push(await Sandbox.create())
})
await check('too many processes in one sandbox', async () => {
  const [box] = boxes
  const failed = []
  const start = async () => (await box.commands.run('sleep 100', { background: true, timeoutMs: 0 })).disconnect()
  for (let i = 0; i < 40 && failed.length === 0; ++i)
    for (const each of await Promise.allSettled(Array.from({ length: 50 }, start)))
      if (each.status === 'rejected') failed.push(each.reason)
  assert.ok(failed.length > 0, 'all were started')
  const kind = speaks('e2b').of('ResourceExhausted') ? RateLimitError : SandboxError  // 2.7 has no class for it here.
  for (const error of failed) assert.ok(error instanceof kind && /resource_exhausted/.test(error.message), `${error.constructor.name}: ${error.message}`)
  const running = await box.commands.list()
  await Promise.all(running.map((each) => box.commands.kill(each.pid)))
  assert.equal((await box.commands.run('echo again')).stdout, 'again\n')
})
await check('too many requests', async () => {
  const ask = (options) => Array.from({ length: 4 * limits.rate }, () => Sandbox.getInfo(boxes[0].sandboxId, options))
  const all = await Promise.allSettled(ask({ retries: 0 }))
  const refused = all.filter((each) => each.status === 'rejected').map((each) => each.reason)
  assert.ok(refused.length > 0 && refused.length < all.length, `${refused.length} of ${all.length} were refused`)
  for (const error of refused) assert.ok(error instanceof RateLimitError, `${error.constructor.name}: ${error.message}`)
})
await checkIf(/retries/.test(e2b.ConnectionConfig.toString()), 'retries', 'whoever waits as long as is said is let in', async () => {
  await Promise.allSettled(Array.from({ length: 4 * limits.rate }, () => Sandbox.getInfo(boxes[0].sandboxId, { retries: 0 })))
  assert.equal((await Sandbox.getInfo(boxes[0].sandboxId)).state, 'running')
})
await new Promise((done) => setTimeout(done, 2000))
for (const box of boxes) await box.kill()
finish()
