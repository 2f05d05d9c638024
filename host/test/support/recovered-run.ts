/** Runs a scripted task in host processes that are killed, and says what came of it. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type ModelServer, startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { exported, imported } from '../archive/support.ts'
import type { RecoveringOrder } from './recovering-host.ts'
import { findVms, readFiles } from './runs.ts'

const PROGRAM = fileURLToPath(new URL('./recovering-host.ts', import.meta.url))

/** One in each turn of the model: effects in the VM, one outside, a question, and more than a second between two. */
const calls = [
  ['run_bash', { command: 'echo one >> log.txt' }],
  ['order_part', { id: 'a7' }],
  ['ask_user', { kind: 'text', question: 'Which color?' }],
  ['run_bash', { command: 'echo two >> log.txt; sleep 1.1' }],
  ['write_file', { path: 'new.txt', content: 'new\n' }],
  ['run_bash', { command: 'cat log.txt; echo three >> log.txt' }],
] as const

/** What of a run must be the same, wherever it was killed. */
export interface RecoveredRun {
  readonly files: Readonly<Record<string, string>>
  /** Orders of the host tool, in their order. */
  readonly orders: readonly string[]
  /** Number of questions that the person saw. */
  readonly asked: number
  /** Requests that the model's server got. */
  readonly paid: number
  readonly ends: number
  readonly leftVms: readonly string[]
  /** False when the run had fewer lines than the position: such a history proves nothing. */
  readonly isKilled: boolean
  readonly events: readonly JournalEvent[]
}

/**
 * @param kill a journal line after which the host process, or QEMU, is killed; absent: nothing is
 * @param moves whether the run continues under another state folder, as one file
 */
export async function recoverRun({
  moves = false,
  ...kill
}: Pick<RecoveringOrder, 'killSelfAfter' | 'killQemuAfter'> & {
  moves?: boolean
} = {}): Promise<RecoveredRun> {
  await using model = await startModel()
  let home = await temporaryFolder('home')
  const workspace = await temporaryFolder('workspace')
  const ledger = path.join(await temporaryFolder('ledger'), 'orders')
  await writeFile(path.join(workspace, 'log.txt'), '')
  await writeFile(ledger, '')
  let env = {
    ...process.env,
    CAISSON_HOME: home,
    CAISSON_LLM_URL: model.baseUrl,
    CAISSON_LLM_KEY: 'sk-some-key-of-the-test',
    CAISSON_MODEL: 'scripted',
  }
  const first = await hostProcess({ home, workspace, ledger, ...kill }, env)
  const [runId = ''] = first.said.split('\n')
  const isDead = first.end[1] === 'SIGKILL'
  // A run has a line more or less than another: the one of this number may be its last.
  const hadEnded = (await new Host({ env }).runs.read(runId)).some(({ event }) => event.type === 'run-end')
  const isHostKilled = isDead && !hadEnded
  if (!isDead) expect(first.end, first.said).toEqual([0, null])
  if (isHostKilled && moves) {
    const from = new Host({ env })
    home = await temporaryFolder('other-home')
    env = { ...env, CAISSON_HOME: home }
    await imported(new Host({ env }), await exported(from, runId), workspace)
    await from.runs.remove(runId)
  }
  if (isHostKilled) {
    const second = await hostProcess({ home, workspace, ledger, resume: runId }, env)
    expect(second.end, second.said).toEqual([0, null])
  }
  const host = new Host({ env })
  const events = await host.runs.read(runId)
  const changes = await host.changes(runId).catch(() => undefined)
  await changes?.apply('all')
  const lines = (await readFile(ledger, 'utf8')).split('\n').filter((line) => line !== '')
  return {
    files: await readFiles(workspace),
    orders: lines.filter((line) => line !== 'asked'),
    asked: lines.filter((line) => line === 'asked').length,
    paid: model.asked.length,
    ends: events.filter(({ event }) => event.type === 'run-end').length,
    leftVms: await findVms(home),
    isKilled: isHostKilled || events.some(({ event }) => event.type === 'vm-end'),
    events,
  }
}

async function startModel(): Promise<ModelServer> {
  return await startModelServer(({ messages }) => {
    const done = messages.filter(({ role }) => role === 'tool').length
    const next = calls[done]
    if (next === undefined) return reply({ text: 'All is done.' })
    const [name, args] = next
    return reply({ calls: [{ id: `call-${done}`, name, arguments: JSON.stringify(args) }] })
  })
}

async function hostProcess(
  order: RecoveringOrder,
  env: NodeJS.ProcessEnv,
): Promise<{ said: string; end: unknown[] }> {
  const args = ['--conditions=caisson-source', PROGRAM, JSON.stringify(order)]
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
  const said: string[] = []
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => said.push(text))
  const end = await once(child, 'close')
  return { said: said.join(''), end }
}
