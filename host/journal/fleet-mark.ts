/** The mark in the folder of a run that a fleet has: on this machine alone nobody writes to its journal. */
import { readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { parseJson } from '../files/json.ts'

/** Name of the mark, also of copies of other hosts' runs. */
export const copyMarker = 'fleet.json'

const Mark = z.strictObject({
  /** Its address without a password. */
  fleet: z.string().max(1_000),
  /** The fleet may not have it yet. Absent: the fleet has it, or had it. */
  isBeingAdopted: z.literal(true).optional(),
})

/** @param journal path of the run's journal @param fleet its address, for people */
export async function markFleet(
  journal: string,
  fleet = '',
  more: { readonly isBeingAdopted?: true } = {},
): Promise<void> {
  const mark: z.infer<typeof Mark> = { fleet, ...more }
  await writeFile(markOf(journal), `${JSON.stringify(mark)}\n`, { mode: 0o600 })
}

/** Of a run that the fleet did not take. */
export async function unmarkFleet(journal: string): Promise<void> {
  await rm(markOf(journal), { force: true })
}

/** Whether a fleet has the run. Undefined: none. */
export async function findFleetMark(journal: string): Promise<z.infer<typeof Mark> | undefined> {
  const text = await readFile(markOf(journal), 'utf8').catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  })
  // One that cannot be read is a mark too.
  return text === undefined ? undefined : (Mark.safeParse(parseJson(text)).data ?? { fleet: '' })
}

/** @param remedy what to do instead. Absent: for any change of the run. @throws {CaissonError} `not_possible_now` */
export async function requireNoFleet(journal: string, runId: string, remedy?: string): Promise<void> {
  const mark = await findFleetMark(journal)
  if (mark === undefined) return
  const which = mark.fleet === '' ? 'a fleet' : `the fleet at ${mark.fleet}`
  throw new CaissonError('not_possible_now', `${runId} belongs to ${which}, whose hosts share its journal`, {
    remedy:
      remedy ??
      `ask a service of the fleet: http://HOST:PORT/v1/runs/${runId}; its hosts: caisson fleet hosts`,
  })
}

function markOf(journal: string): string {
  return path.join(path.dirname(journal), copyMarker)
}
