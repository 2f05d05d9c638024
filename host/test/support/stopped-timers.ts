// A program of the tests: waits that are within their limits if the time in which this process is stopped does not count.
// usage: stopped-timers.ts PORT LIMIT_MS; says `ready` to its parent, which stops it, and then receives `continue`.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { request } from 'undici'
import { collectOutput } from '../../processes/run-program.ts'
import { watchBody } from '../../providers/http-exchange.ts'
import { RequestQueue } from '../../providers/queue.ts'
import { Backlog } from '../../vm/backlog.ts'
import { StartLimits } from '../../vm/start-failure.ts'

const [, , port = '', limit = ''] = process.argv
const limitMs = Number(limit)
const continues = once(process, 'message')
/** The messages and bytes of others come after the timers of this process. */
const soon = continues.then(() => sleep(50))

async function startVm(): Promise<string> {
  const limits = new StartLimits(limitMs, undefined)
  try {
    return await limits.race(soon.then(() => 'started'))
  } finally {
    limits.end()
  }
}

async function waitForPool(): Promise<string> {
  const backlog = new Backlog<string>()
  void soon.then(() => backlog.serve('served'))
  const describe = () => ({ expected: 'a VM', seen: 'none', remedy: 'none' })
  return await backlog.wait({ deadline: performance.now() + limitMs, describe })
}

/** It ends while this process is stopped. */
async function runHook(): Promise<string> {
  const child = spawn('sleep', [String(limitMs / 2_000)])
  const ended = await collectOutput(child, {
    ...{ timeoutMs: limitMs, maxBytes: 1_000, drainMs: 500 },
    kill: () => child.kill('SIGKILL'),
  })
  return ended.ok ? 'ended' : ended.error
}

async function readModel(): Promise<string> {
  const parts: Uint8Array[] = []
  for await (const part of watchBody(await request(`http://127.0.0.1:${port}/`), limitMs)) {
    parts.push(part)
    if (parts.length === 1) begun.resolve()
  }
  return Buffer.concat(parts).toString('utf8')
}

async function waitForTurn(): Promise<string> {
  const queue = new RequestQueue({ maxConcurrent: 1, requestsPerMinute: null })
  const turn = { runId: 'run-1', model: 'm', signal: new AbortController().signal, maxWaitMs: limitMs }
  const first = await queue.take(turn)
  void soon.then(() => first.ok && first.value.release())
  const second = await queue.take(turn)
  return second.ok ? 'taken' : second.error
}

const begun = Promise.withResolvers<void>()
const waits = {
  start: startVm(),
  pool: waitForPool(),
  hook: runHook(),
  model: readModel(),
  turn: waitForTurn(),
}
const said = Promise.all(
  Object.entries(waits).map(async ([name, wait]) => [
    name,
    await wait.catch((error: unknown) => String(error)),
  ]),
)
await begun.promise
process.send?.('ready')
process.send?.(Object.fromEntries(await said))
process.disconnect()
