/** The end of a run that no host of its fleet can carry out: behind its start, which is journaled too where it has none. */

import { mkdir } from 'node:fs/promises'
import * as z from 'zod'
import { RunMetadata } from '#specs/protocol/host-event.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { Document, Line } from '#specs/protocol/text.ts'
import type { JournalFence } from '../journal/journal.ts'
import { RunRecord } from '../journal/run-record.ts'
import type { RunPaths } from '../journal/run-store.ts'
import { runEnding } from '../runs/ending.ts'

/** What lists show of a run before it has begun. */
export const SubmittedAbout = z.strictObject({
  prompt: Document,
  /** Path that each host has; empty: the run gets a folder of its own. */
  workspace: z.string().max(4_096),
  /** Empty: what the host that carries it out has as its own. */
  model: Line,
  metadata: RunMetadata,
})
export type SubmittedAbout = z.infer<typeof SubmittedAbout>

const unknownRun: SubmittedAbout = { prompt: '', workspace: '', model: '', metadata: {} }

/** @param about undefined: nobody knows */
export async function endUncarried(
  paths: RunPaths,
  fence: JournalFence,
  about: SubmittedAbout | undefined,
  error: unknown,
): Promise<void> {
  await mkdir(paths.directory, { recursive: true, mode: 0o700 })
  await using record = await RunRecord.open(paths, { fence })
  const { prompt, workspace, model, metadata } = about ?? unknownRun
  if (record.seq === 0)
    await record.host({
      ...{ type: 'run-start', prompt, model, provider: 'none', directory: workspace, metadata },
      limits: RunLimits.parse({}),
    })
  const { usage, checkpoint } = record.state
  await record.host({ type: 'run-end', ...runEnding(error), usage, durationMs: checkpoint?.elapsedMs ?? 0 })
}
