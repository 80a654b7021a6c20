// What happened, webhooks, and the team.
import { assert, check } from './check.mjs'

export default async function ({ ask }) {
  await check('lifecycle events', async () => {
    const box = (await ask('POST', '/v2/sandboxes', { templateID: 'base' })).json
    await ask('POST', `/sandboxes/${box.sandboxID}/pause`, {})
    await ask('POST', `/v2/sandboxes/${box.sandboxID}/connect`, {})
    await ask('DELETE', '/sandboxes/' + box.sandboxID)
    const events = (await ask('GET', `/events/sandboxes/${box.sandboxID}?orderAsc=true`)).json.map((each) => each.type.replace('sandbox.lifecycle.', ''))
    assert.deepEqual(events, ['created', 'paused', 'resumed', 'updated', 'killed'])
    assert.equal((await ask('GET', '/events/sandboxes?limit=3')).json.length, 3)
  })
  await check('webhooks', async () => {
    const made = await ask('POST', '/events/webhooks', { name: 'mine', url: 'https://example.org/hook', events: ['sandbox.lifecycle.killed'] })
    assert.equal(made.status, 201, made.text)
    assert.equal((await ask('GET', '/events/webhooks')).json.length, 1)
    assert.equal((await ask('DELETE', '/events/webhooks/' + made.json.id)).status, 204)
    assert.equal((await ask('POST', '/events/webhooks', { url: 'https://example.org/', events: ['nothing.known'] })).json.code, 400)
  })
  await check('the team', async () => {
    const teams = (await ask('GET', '/teams')).json
    assert.equal(teams.length, 1)
    assert.equal((await ask('GET', `/teams/${teams[0].teamID}/metrics`)).status, 200)
  })
}
