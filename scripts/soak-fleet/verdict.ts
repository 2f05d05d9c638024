/** What must hold of each run at the end, whatever happened to hosts and database. */
import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { Fleet } from '../../host/fleet/fleet.ts'
import { readRows } from '../../host/fleet/journal-rows.ts'
import { errorMessage } from '../../specs/errors.ts'
import type { People } from './people.ts'
import type { FleetTask, Outside } from './tasks.ts'

/** @param folder gets the journal of a run with breaches */
export async function findBreaches(
  { fleet, outside, people }: { readonly fleet: Fleet; readonly outside: Outside; readonly people: People },
  runId: string,
  task: FleetTask,
  folder: string,
): Promise<string[]> {
  const events = await readEvents(fleet, runId)
  const found = await breachesOf({ outside, people }, runId, task, events)
  if (found.length > 0 && typeof events !== 'string')
    await writeFile(
      path.join(folder, `${runId}.jsonl`),
      events.map((event) => `${JSON.stringify(event)}\n`).join(''),
    )
  return found
}

async function breachesOf(
  { outside, people }: { readonly outside: Outside; readonly people: People },
  runId: string,
  task: FleetTask,
  events: readonly JournalEvent[] | string,
): Promise<string[]> {
  if (typeof events === 'string') return [`the journal: ${events}`]
  const end = events.at(-1)?.event
  if (end?.type !== 'run-end') return [`it has no end: its last line is ${end?.type}`]
  return [
    ...(end.outcome === 'completed' ? [] : [`the run ${end.outcome}: ${end.message}`]),
    ...findJournalBreaches(events),
    ...findOrderBreaches(task, events, outside),
    ...(await findFileBreaches(people, runId, task)),
  ]
}

async function readEvents(fleet: Fleet, runId: string): Promise<JournalEvent[] | string> {
  const events: JournalEvent[] = []
  try {
    for await (const { event } of readRows(fleet.database, fleet.runs, runId)) events.push(event)
    return events
  } catch (error) {
    return errorMessage(error)
  }
}

function findJournalBreaches(events: readonly JournalEvent[]): string[] {
  const count = (type: string) => events.filter(({ event }) => event.type === type).length
  const epochs = events.flatMap(({ event }) => (event.type === 'run-take' ? [event.epoch] : []))
  const decided = events.flatMap(({ event }) =>
    event.type === 'approval-decision' && event.by !== 'agent' ? [event.approvalId] : [],
  )
  return [
    ...(count('run-start') === 1 ? [] : [`${count('run-start')} starts`]),
    ...(count('run-end') === 1 ? [] : [`${count('run-end')} ends`]),
    ...(epochs.every((epoch, at) => at === 0 || epoch > (epochs[at - 1] ?? 0)) ? [] : ['an epoch went back']),
    ...(new Set(decided).size === decided.length ? [] : ['a question was decided twice']),
  ]
}

/**
 * None is lost without a word. A program that a lost host left behind the last checkpoint may order again under the same key,
 * which the model learns of and the server sees.
 */
function findOrderBreaches(
  { orders }: FleetTask,
  events: readonly JournalEvent[],
  outside: Outside,
): string[] {
  // A call whose result is not known is not repeated, and the model learns of it.
  const unknown = events.filter(
    ({ event }) => event.type === 'tool-end' && event.error?.message.includes('not known') === true,
  ).length
  const named = events.filter(
    ({ event }) => event.type === 'run-resume' && (event.reached ?? []).length > 0,
  ).length
  const missing = orders.filter((key) => !outside.orders.has(key))
  return [
    ...orders
      .filter((key) => (outside.orders.get(key) ?? 0) > 1 + named)
      .map(
        (key) => `${key} was ordered ${outside.orders.get(key)} times, and ${named} repetitions were named`,
      ),
    ...(missing.length <= unknown ? [] : [`never ordered, and no result unknown: ${missing.join(', ')}`]),
  ]
}

/** Read at any host: each serves every run. */
async function findFileBreaches(people: People, runId: string, { files }: FleetTask): Promise<string[]> {
  const patch = await people
    .atAnyHost(async ({ client }) => await client.call('getPatch', { params: { run: runId } } as never))
    .catch((error: unknown) => errorMessage(error))
  const lines = String(patch)
    .split('\n')
    .filter((line) => /^\+[^+]/.test(line))
    .map((line) => line.slice(1))
  const expected = Object.values(files).flatMap((content) => content.trimEnd().split('\n'))
  const [seen, wanted] = [lines, expected].map((list) => JSON.stringify(list.toSorted()))
  return seen === wanted
    ? []
    : [`its changes: expected ${wanted}, saw ${seen}: ${String(patch).slice(0, 300)}`]
}
