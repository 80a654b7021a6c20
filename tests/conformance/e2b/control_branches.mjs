// Snapshots and forks by the SDK: the files are there, and each goes its own way.
import { assert, checkIf } from './check.mjs'

export default async function ({ e2b, all, near, none }) {
  const { Sandbox } = e2b
  await checkIf(Sandbox.createSnapshot, 'createSnapshot', 'snapshots by the SDK', async () => {
    const box = await Sandbox.create()
    await box.files.write('kept.txt', 'of the snapshot')
    const made = await box.createSnapshot({ name: 'by-the-sdk' })
    const plain = await box.createSnapshot()
    await box.files.write('kept.txt', 'later')
    assert.deepEqual((await all(box.listSnapshots({ limit: 1 }))).map((each) => each.snapshotId).sort(), [made.snapshotId, plain.snapshotId].sort())
    assert.deepEqual((await all(Sandbox.listSnapshots({ name: 'by-the-sdk' }))).map((each) => each.snapshotId), [made.snapshotId])
    assert.deepEqual(await all(Sandbox.listSnapshots({ sandboxId: none })), [])
    const from = await Sandbox.create(made.snapshotId)
    assert.equal(await from.files.read('kept.txt'), 'of the snapshot')
    assert.equal(await from.kill(), true)
    assert.equal(await box.kill(), true)
    for (const { snapshotId } of [made, plain]) {
      assert.equal(await Sandbox.deleteSnapshot(snapshotId), true)
      assert.equal(await Sandbox.deleteSnapshot(snapshotId), false)
    }
    await assert.rejects(Sandbox.createSnapshot(none), e2b.SandboxNotFoundError)
    await assert.rejects(Sandbox.create(made.snapshotId), e2b.SandboxError)
  })
  await checkIf(Sandbox.fork, 'fork', 'forks by the SDK', async () => {
    const box = await Sandbox.create()
    await box.files.write('kept.txt', 'before')
    const forks = await box.fork({ count: 3, timeoutMs: 60_000 })
    assert.equal(forks.length, 3)
    assert.equal(new Set(forks.map((each) => each.sandboxId)).size, 3)
    for (const [i, each] of forks.entries()) {
      near((await each.getInfo()).endAt, Date.now() + 60_000)
      assert.equal(await each.files.read('kept.txt'), 'before')
      await each.files.write('kept.txt', `of ${i}`)
    }
    assert.equal(await box.files.read('kept.txt'), 'before')
    assert.deepEqual(await Promise.all(forks.map((each) => each.files.read('kept.txt'))), ['of 0', 'of 1', 'of 2'])
    for (const each of [box, ...forks]) assert.equal(await each.kill(), true)
    await assert.rejects(Sandbox.fork(none), e2b.SandboxNotFoundError)
  })
}
