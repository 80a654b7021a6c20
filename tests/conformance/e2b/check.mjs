// What the parts share: a list of things to try, each of which passes or fails by itself.
import assert from 'node:assert/strict'

const tried = []
let bad = 0

export { assert }

// Tries it, says how that went, and goes on.
export async function check(name, what) {
  const began = performance.now()
  try {
    await what()
    tried.push(name)
    console.log(`  ok    ${name} (${(performance.now() - began).toFixed(0)} ms)`)
  } catch (error) {
    bad += 1
    console.log(`  FAIL  ${name}: ${error?.stack ?? error}`)
  }
}

export function skip(name, why) {
  console.log(`  skip  ${name}: ${why}`)
}

// For SDKs that can do it; of others it says that they cannot.
export async function checkIf(can, what, name, body) {
  if (can) await check(name, body)
  else skip(name, `the SDK has no ${what}`)
}

// Within a case: what it leaves out for an SDK that cannot, it says.
export function able(can, what) {
  if (!can) skip('a part of the next', `the SDK has no ${what}`)
  return Boolean(can)
}

export async function rejects(promise, kind, pattern) {
  await assert.rejects(promise, (error) => {
    assert.equal(error.constructor.name, kind, `${error.constructor.name}: ${error.message}`)
    if (pattern) assert.match(error.message, pattern)
    return true
  })
}

export function finish() {
  console.log(`  ${tried.length} as they should be, ${bad} not`)
  process.exit(bad ? 1 : 0)
}
