/** What the task of a run was started with, which its disk is kept with: without it there is no fork. */
import { readFile } from 'node:fs/promises'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { Task } from '#specs/protocol/task.ts'
import { parseJson } from '../files/json.ts'
import type { RunPaths } from '../journal/run-store.ts'

/** As `host/stored-run.ts` writes it; the options stay as they are. */
const StoredTask = z.strictObject({
  version: z.literal(1),
  options: z.looseObject({}),
  task: Task,
  functions: z.looseObject({}),
})
export type StoredTask = z.infer<typeof StoredTask>

/** @throws {CaissonError} `not_possible_now` without its disk, `state_corrupted` */
export async function readTask({ runId, options }: RunPaths, isImported: boolean): Promise<StoredTask> {
  const text = await readFile(options, 'utf8').catch((cause: unknown) => {
    if (isImported)
      throw new CaissonError(
        'not_possible_now',
        `${runId} was imported without its disk, so it cannot be forked`,
        {
          cause,
          remedy: 'fork it where it was made, or export it there while it keeps its disk',
        },
      )
    throw noDisk(runId, cause)
  })
  const stored = StoredTask.safeParse(parseJson(text))
  if (stored.success) return stored.data
  throw new CaissonError('state_corrupted', `${options} is damaged or of another version`)
}

const noDiskText = (runId: string) => `${runId} does not keep its disk, so it cannot be forked`

/** What a host says that has not the disk of the run, before it did anything. */
export function noDisk(runId: string, cause?: unknown): CaissonError {
  return new CaissonError('not_possible_now', noDiskText(runId), {
    cause,
    remedy:
      'the newest ended runs keep it for a week, see kept.moments of the configuration; run the task again',
  })
}

/** Whether an error of another host is {@link noDisk}. */
export function isNoDisk(error: unknown, runId: string): boolean {
  return error instanceof CaissonError && error.message.startsWith(noDiskText(runId))
}
