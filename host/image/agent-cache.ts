// The code that V8 makes of the bundled agent, made ahead: under emulation, compiling it takes the guest longer than all
// else that the agent does before it serves. V8 refuses code of another version or of other flags; no processor and no
// path is part of it.

import { spawnSync } from 'node:child_process'

const DEADLINE_MS = 60_000
const MAX_BYTES = 64 * 1024 * 1024
/** V8 does not count it among the flags that it compares; without it the same source gives other bytes each time. */
const FLAGS = ['--random-seed=1']

/**
 * Evaluates the bundle, so that V8 compiles what every start runs, and starts no agent. The bundle comes on standard
 * input and the code leaves by descriptor 3, since what is evaluated may print. Meanwhile V8 optimizes nothing: it does
 * that on other threads, and how far they came would be in the code. Before the code is written the flags are again
 * those that the guest's V8 compares with its own.
 */
const PROGRAM = `
const { readFileSync, writeFileSync } = require('node:fs')
const { setFlagsFromString } = require('node:v8')
const { Script } = require('node:vm')
const tiers = ['sparkplug', 'maglev', 'opt']
for (const tier of tiers) setFlagsFromString('--no-' + tier)
const script = new Script(readFileSync(0, 'utf8'), { filename: 'main.js' })
const bundle = { exports: {} }
script.runInThisContext()(bundle, bundle.exports, require)
for (const tier of tiers) setFlagsFromString('--' + tier)
writeFileSync(3, script.createCachedData())
process.exit()
`

/** The file that `agent/start.ts` looks for: it is for a Node of this version and architecture. */
export const agentCacheName = `main-${process.version}-${process.arch}.cache`

/**
 * The code of `bundle`, the text of a function as `agent/start.ts` calls it; the same bytes for the same bundle.
 * @throws Error with the output of Node, when the bundle cannot be evaluated
 */
export function compileAgent(bundle: Uint8Array): Uint8Array {
  const { error, status, stderr, output } = spawnSync(process.execPath, [...FLAGS, '-e', PROGRAM], {
    input: bundle,
    // Flags of the caller's would be in the code, and V8 in the guest would refuse it.
    env: {},
    stdio: ['pipe', 'ignore', 'pipe', 'pipe'],
    timeout: DEADLINE_MS,
    killSignal: 'SIGKILL',
    maxBuffer: MAX_BYTES,
  })
  const code = output?.[3]
  if (error === undefined && status === 0 && Buffer.isBuffer(code) && code.length > 0) return code
  const cause = error?.message ?? String(stderr).trim()
  throw new Error(`it could not be compiled ahead (status ${status}): ${cause}`)
}
