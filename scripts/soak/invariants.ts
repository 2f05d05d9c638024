/** What must hold after each run of the soak, whatever happened to it. */
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { readJournal } from '../../host/journal/journal.ts'
import { errorMessage } from '../../specs/errors.ts'
import type { JournalEvent } from '../../specs/protocol/event.ts'
import { findQemus } from './faults.ts'
import type { SoakTask } from './tasks.ts'

interface Place {
  readonly home: string
  readonly workspace: string
  readonly ledger: string
  readonly temporary: string
}

/** Time for a killed process to be gone. */
const GONE_MS = 5_000

export async function findBreaches(
  place: Place,
  runId: string,
  task: SoakTask,
  end: string,
): Promise<string[]> {
  const events = await readEvents(place.home, runId)
  if (typeof events === 'string') return [`the journal: ${events}`, ...(end === 'completed' ? [] : [end])]
  return [
    ...(end === 'completed' ? [] : [`the run: ${end}`]),
    ...findJournalBreaches(events),
    ...(await findFileBreaches(place, task)),
    ...(await findOrderBreaches(place, task, events)),
    ...(await findLeft(place, runId)),
  ]
}

async function readEvents(home: string, runId: string): Promise<JournalEvent[] | string> {
  const file = path.join(home, 'runs', runId, 'journal.jsonl')
  return await readJournal(file, runId).catch((error: unknown) => errorMessage(error))
}

function findJournalBreaches(events: readonly JournalEvent[]): string[] {
  const ends = events.filter(({ event }) => event.type === 'run-end').length
  // One that ended with its agent was withdrawn, and is asked again.
  const decided = events.flatMap(({ event }) =>
    event.type === 'approval-decision' && event.by !== 'agent' ? [event.approvalId] : [],
  )
  return [
    ...(ends === 1 ? [] : [`${ends} ends`]),
    ...(new Set(decided).size === decided.length ? [] : ['a question was decided twice']),
  ]
}

async function findFileBreaches({ workspace }: Place, { files }: SoakTask): Promise<string[]> {
  const found: Record<string, string> = {}
  for (const name of (await readdir(workspace)).toSorted())
    found[name] = await readFile(path.join(workspace, name), 'utf8')
  const [seen, expected] = [found, files].map((each) => JSON.stringify(Object.entries(each).toSorted()))
  return seen === expected ? [] : [`the workspace: expected ${expected}, saw ${seen}`]
}

async function findOrderBreaches(
  { ledger }: Place,
  { orders }: SoakTask,
  events: readonly JournalEvent[],
): Promise<string[]> {
  const made = (await readFile(ledger, 'utf8')).split('\n').filter((line) => line !== '')
  // A call without a result is not repeated, and the model learns of it.
  const unknown = events.filter(
    ({ event }) => event.type === 'tool-end' && event.error?.message.includes('result is not known') === true,
  ).length
  return orders.flatMap((order) => {
    const times = made.filter((line) => line === order).length
    return times === 1 || (times === 0 && unknown > 0) ? [] : [`"${order}" was ordered ${times} times`]
  })
}

async function findLeft({ home, temporary }: Place, runId: string): Promise<string[]> {
  const folder = path.join(home, 'runs', runId)
  const files = [
    'run.json',
    'scratch',
    'workspace.erofs',
    'workspace-files.json',
    'control.sock',
    'hibernated',
  ]
  for (let waited = 0; waited < GONE_MS && findQemus(home).length > 0; waited += 100) await sleep(100)
  const vms = await readdir(path.join(home, 'vms')).catch(() => [])
  return [
    ...findQemus(home).map((pid) => `QEMU ${pid} still runs`),
    // A folder that was being made has a dot; a later start removes it.
    ...vms.filter((name) => !name.startsWith('.')).map((name) => `the folder of ${name} is left`),
    ...files.filter((name) => existsSync(path.join(folder, name))).map((name) => `${name} is left`),
    ...(await readdir(temporary)).map((name) => `the temporary ${name} is left`),
  ]
}

/** From each line that the run continues until its next agent answered. */
export async function findRecoveryMs(home: string, runId: string): Promise<number[]> {
  const events = await readEvents(home, runId)
  if (typeof events === 'string') return []
  return events.flatMap(({ event, at, seq }) => {
    if (event.type !== 'run-resume') return []
    const next = events.find((line) => line.seq > seq && ['vm-ready', 'run-resume'].includes(line.event.type))
    return next?.event.type === 'vm-ready' ? [next.at - at] : []
  })
}
