import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type ModelServer, startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import type { RecoveringOrder } from '../support/recovering-host.ts'
import { findVms, readFiles } from '../support/runs.ts'

const PROGRAM = fileURLToPath(new URL('../support/recovering-host.ts', import.meta.url))

/** The calls of the task, one in each turn of the model; then it answers. */
const calls = [
  ['run_bash', { command: 'echo one >> log.txt' }],
  ['order_part', { id: 'a7' }],
  ['ask_user', { kind: 'text', question: 'Which color?' }],
  ['run_bash', { command: 'echo two >> log.txt; sleep 1.2' }],
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['run_bash', { command: 'cat log.txt; echo three >> log.txt' }],
] as const

async function startModel(): Promise<ModelServer> {
  return await startModelServer(({ messages }) => {
    const done = messages.filter(({ role }) => role === 'tool').length
    const next = calls[done]
    if (next === undefined) return reply({ text: 'All is done.' })
    const [name, args] = next
    return reply({ calls: [{ id: `call-${done}`, name, arguments: JSON.stringify(args) }] })
  })
}

interface Outcome {
  readonly files: Readonly<Record<string, string>>
  readonly ledger: string
  /** Requests that the model's server got. */
  readonly paid: number
  readonly events: readonly JournalEvent[]
  readonly leftVms: readonly string[]
}

/** @param kills numbers of journal lines after which the host process is killed, one process each */
async function carryOut(kills: readonly number[]): Promise<Outcome> {
  await using model = await startModel()
  const [home, workspace, ledgerFolder] = await Promise.all(
    ['home', 'workspace', 'ledger'].map((name) => temporaryFolder(name)),
  )
  if (home === undefined || workspace === undefined || ledgerFolder === undefined) throw new TypeError()
  await writeFile(path.join(workspace, 'log.txt'), '')
  const ledger = path.join(ledgerFolder, 'orders')
  await writeFile(ledger, '')
  const env = {
    ...process.env,
    CAISSON_HOME: home,
    CAISSON_LLM_URL: model.baseUrl,
    CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
    CAISSON_MODEL: 'scripted',
  }
  let runId: string | undefined
  for (const killAfter of [...kills, undefined]) {
    const order: RecoveringOrder = {
      workspace,
      ledger,
      ...(runId === undefined ? {} : { resume: runId }),
      ...(killAfter === undefined ? {} : { killAfter }),
    }
    const args = ['--conditions=caisson-source', PROGRAM, JSON.stringify(order)]
    const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
    const said: string[] = []
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => said.push(text))
    const [code, signal] = await once(child, 'close')
    const [first] = said.join('').split('\n')
    runId ??= first
    // A history without its kill proves nothing.
    const expected = killAfter === undefined ? [0, null] : [null, 'SIGKILL']
    expect([code, signal], said.join('')).toEqual(expected)
  }
  const host = new Host({ env })
  const events = await host.runs.read(runId ?? '')
  // A run without changes shows as other files.
  const changes = await host.changes(runId ?? '').catch(() => undefined)
  await changes?.apply('all')
  return {
    files: await readFiles(workspace),
    ledger: await readFile(ledger, 'utf8'),
    paid: model.asked.length,
    events,
    leftVms: await findVms(home),
  }
}

describe('a run whose host process is killed', () => {
  it('continues in another process and does nothing twice, wherever it was [R.01 R.02]', async () => {
    const undisturbed = await carryOut([])
    const lines = undisturbed.events.findIndex(({ event }) => event.type === 'run-end') + 1
    const rows: string[] = []
    const only = process.env.KILL_AT?.split(',').map(Number)
    const positions = only ?? Array.from({ length: lines - 1 }, (_, index) => index + 1)
    const wrong: string[] = []
    for (const at of positions) {
      const killed = await carryOut([at])
      const ends = killed.events.filter(({ event }) => event.type === 'run-end').length
      const isSame =
        JSON.stringify(killed.files) === JSON.stringify(undisturbed.files) &&
        killed.ledger === undisturbed.ledger &&
        ends === 1 &&
        killed.leftVms.length === 0
      rows.push(
        `${at} ${undisturbed.events[at - 1]?.event.type}: ${isSame ? 'same' : 'OTHER'} paid ${killed.paid}/${undisturbed.paid} ledger ${JSON.stringify(killed.ledger)}`,
      )
      console.log(rows.at(-1))
      if (!isSame) {
        wrong.push(rows.at(-1) ?? '')
        console.log(
          JSON.stringify(killed.files),
          killed.events.map(
            ({ seq, event }) =>
              `${seq} ${event.type} ${event.type === 'run-resume' ? event.checkpointId : event.type === 'tool-end' ? event.output.slice(0, 150) : event.type === 'run-end' ? event.message : ''}`,
          ),
        )
      }
    }
    expect(wrong).toEqual([])
  }, 600_000)
})
