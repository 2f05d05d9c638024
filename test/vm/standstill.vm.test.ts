// A host process and a QEMU that are stopped for longer than every time limit of the link, in the midst of a call, of a
// download and of an answer of the model.
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { JournalEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { findVms } from '../../host/test/support/runs.ts'
import { findQemu } from '../../host/test/support/vm-processes.ts'
import type { StandstillOrder } from './standstill-host.ts'

/** The guest ends its session after 30 heartbeats without a word of the host. */
const timings = {
  heartbeatIntervalMs: 150,
  heartbeatTimeoutMs: 3_000,
  startTimeoutMs: 3_000,
  reconnectTimeoutMs: 6_000,
  flapMaxCount: 6,
}
/** Longer than each of these, than the guest's silence, and than the time limit of a call. */
const stillMs = 7_000
const callTimeoutMs = 7_000

/** A download of about two seconds, which begins with each call. */
const chunks = Array.from({ length: 20 }, (_, at) => Buffer.alloc(10_000, `chunk ${at} `))
const digest = createHash('sha256').update(Buffer.concat(chunks)).digest('hex')
const program = (port: number) =>
  [
    `curl -sS --noproxy '' http://127.0.0.1:${port}/ | sha256sum > sum &`,
    'for i in 1 2 3 4; do echo line-$i; sleep 0.5; done',
    'wait; cat sum',
  ].join('\n')
const words = Array.from({ length: 40 }, (_, index) => `word-${index} `)

async function startDownloads(): Promise<number> {
  const server = createServer(async (_, response) => {
    for (const chunk of chunks) {
      response.write(chunk)
      await sleep(100)
    }
    response.end()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}

it('a host, a QEMU and both that stand still lose nothing and repeat nothing [R.02, C.03]', async () => {
  const port = await startDownloads()
  await using model = await startModelServer(({ messages }) => {
    const done = messages.filter(({ role }) => role === 'tool').length
    const args = JSON.stringify({ command: program(port), timeoutMs: callTimeoutMs })
    if (done < 2) return reply({ calls: [{ id: `call-${done}`, name: 'run_bash', arguments: args }] })
    return { ...reply({ text: words }), pieceBytes: 400, pauseMs: 100 }
  })
  const home = await temporaryFolder('home')
  const order: StandstillOrder = { workspace: await temporaryFolder('workspace'), timings, port }
  const host = spawn(
    process.execPath,
    ['--conditions=caisson-source', `${import.meta.dirname}/standstill-host.ts`, JSON.stringify(order)],
    {
      env: {
        ...process.env,
        CAISSON_HOME: home,
        CAISSON_LLM_URL: model.baseUrl,
        CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
        CAISSON_MODEL: 'scripted',
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  )
  onTestFinished(() => void host.kill('SIGKILL'))
  const closed = once(host, 'close')
  const events: JournalEvent[] = []
  const deltas: { type: string; text?: string }[] = []
  let end: unknown
  createInterface({ input: host.stdout }).on('line', (line) => {
    const item = JSON.parse(line) as { source?: string; delta: { type: string; text?: string } }
    if (item.source === undefined) end = item
    else if (item.source === 'delta') deltas.push(item.delta)
    else events.push(JournalEvent.parse(item))
  })
  const ofType = (type: string) => events.filter(({ event }) => event.type === type)
  const standStill = async (pids: readonly number[]): Promise<void> => {
    for (const pid of pids) process.kill(pid, 'SIGSTOP')
    await sleep(stillMs)
    for (const pid of pids) process.kill(pid, 'SIGCONT')
  }
  const untilIt = (condition: () => boolean) => expect.poll(condition, { timeout: 200_000 }).toBe(true)
  const hostPid = host.pid ?? 0

  await untilIt(() => ofType('tool-start').length === 1)
  const qemu = await findQemu(home)
  await standStill([hostPid])
  await untilIt(() => ofType('tool-start').length === 2)
  await standStill([qemu])
  await untilIt(() => deltas.some((delta) => delta.text?.includes('word-3')))
  await standStill([qemu, hostPid])
  await closed

  expect(end).toMatchObject({ outcome: 'completed' })
  expect(ofType('run-end')).toHaveLength(1)
  const counts = events.flatMap((event) => (event.source === 'agent' ? [event.n] : []))
  expect(counts).toEqual(counts.map((_, at) => at + 1))
  const outputs = events.flatMap(({ event }) => (event.type === 'tool-end' ? [event.output] : []))
  expect(outputs).toHaveLength(2)
  const downloads: boolean[] = []
  for (const output of outputs) {
    for (const line of [1, 2, 3, 4]) expect(output.split(`line-${line}\n`), output).toHaveLength(2)
    // A guest that ended its session meanwhile has lost the connection, and says so.
    const isWhole = output.includes(digest)
    downloads.push(isWhole)
    if (!isWhole) expect(output).toContain('The host broke off before it answered; trying again can help')
  }
  expect(model.asked.length).toBeLessThanOrEqual(4)
  console.log(
    `stood still three times for ${stillMs} ms: ${ofType('session-start').length} sessions, ${model.asked.length} model requests, whole downloads: ${downloads}`,
  )
  expect(ofType('session-start').length).toBeLessThanOrEqual(4)
  expect(await findVms(home)).toEqual([])
})
