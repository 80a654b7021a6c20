// Cases, one line each, and what they are checked with.
import { readFileSync } from 'node:fs';
import { isDeepStrictEqual, inspect } from 'node:util';

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export function holds(truth, what) {
  if (!truth) throw new Error(`not so: ${what}`);
}
export function same(got, wanted, what = '') {
  if (!isDeepStrictEqual(got, wanted)) throw new Error(`${what} wanted ${inspect(wanted)}, got ${inspect(got)}`);
}
export function has(text, part) {
  if (!`${text}`.includes(part)) throw new Error(`${inspect(text)} has no ${inspect(part)}`);
}
// The error of something that must fail.
export async function fails(work, type = Error) {
  let value;
  try {
    value = await work;
  } catch (error) {
    if (!(error instanceof type)) throw new Error(`wanted ${type.name}, got ${error?.constructor?.name}: ${error?.message}`);
    return error;
  }
  throw new Error(`wanted ${type.name}, got ${inspect(value)}`);
}
export async function until(check, what, seen) {
  for (let i = 0; i < 200; ++i) {
    if (await check()) return;
    await sleep(50);
  }
  throw new Error(`never: ${what}${seen === undefined ? '' : ` in ${inspect(seen)}`}`);
}

// What the code of an installed SDK speaks of; what it does not, it cannot do.
export function speaks(packageName) {
  const folder = new URL(`./node_modules/${packageName}/`, import.meta.url);
  const { version } = JSON.parse(readFileSync(new URL('package.json', folder)));
  const code = readFileSync(new URL('dist/index.mjs', folder), 'utf8');
  return { name: `${packageName} ${version}`, of: (word) => code.includes(word) };
}

export function cases(wanted) {
  const all = [];
  const isWanted = (name) => wanted.length === 0 || wanted.some((part) => name.includes(part));
  return {
    test(name, body) {
      if (isWanted(name)) all.push([name, body]);
    },
    // A case for SDKs that can do it; of others it says that they cannot.
    testIf(can, what, name, body) {
      if (can) this.test(name, body);
      else if (isWanted(name)) console.log(`skip  ${name}: there is no ${what}`);
    },
    async run() {
      let failed = 0;
      for (const [name, body] of all) {
        const began = Date.now();
        try {
          await body();
          console.log(`ok    ${name} (${Date.now() - began} ms)`);
        } catch (error) {
          ++failed;
          console.log(`FAIL  ${name}: ${error?.message ?? error}`);
        }
      }
      console.log(`${all.length - failed} passed, ${failed} failed`);
      return failed;
    },
  };
}
