// The folder of a run of two steps with its checkpoints, as a host process leaves it: no VM takes part.
import { mkdir, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { RunLimits, Task } from '#specs/protocol/task.ts'
import type { Host } from '../../host.ts'
import { RunRecord } from '../../journal/run-record.ts'
import type { RunPaths } from '../../journal/run-store.ts'
import { RunDisk } from '../../runs/run-disk.ts'
import { storeRun } from '../../stored-run.ts'
import { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'

const step = (id: string) => ({
  ...{ id, title: id, instructions: 'do', needs: [], writes: [] },
  onFailure: 'abort' as const,
})

/** The lines of such a run: `first` begins at `cp-1`, `second` at `cp-3`. */
export const momentLines: readonly (HostEvent | AgentEvent)[] = [
  { type: 'plan-update', revision: 1, plan: { goal: 'g', steps: [step('first'), step('second')] } },
  checkpoint('cp-1', 1),
  { type: 'step-start', stepId: 'first' },
  checkpoint('cp-2', 2),
  { type: 'step-end', stepId: 'first', state: 'completed', text: 'done' },
  checkpoint('cp-3', 3),
  { type: 'step-start', stepId: 'second' },
  checkpoint('cp-4', 4),
]
const agentTypes: ReadonlySet<string> = new Set(['plan-update', 'step-start', 'step-end'])

export function checkpoint(checkpointId: string, exchanges: number): HostEvent {
  return { type: 'checkpoint', checkpointId, durationMs: 1, elapsedMs: exchanges * 1_000, exchanges }
}

interface MomentRunOptions {
  readonly runId?: string
  /** Lines after those of the run. */
  readonly later?: readonly HostEvent[]
  /** Whether the run has ended. */
  readonly isOver?: boolean
  readonly metadata?: Readonly<Record<string, string>>
}

export async function runWithMoments(
  host: Host,
  directory: string,
  { runId = `run-${'0'.repeat(20)}`, later = [], isOver = false, metadata }: MomentRunOptions = {},
): Promise<RunPaths> {
  const paths = host.runs.paths(runId)
  await mkdir(paths.directory, { recursive: true, mode: 0o700 })
  const limits = RunLimits.parse({})
  const task = Task.parse({ runId, prompt: 'do it', model: 'scripted', limits })
  await storeRun(paths, { prompt: 'do it', workspace: directory, model: 'scripted' }, task)
  let at = 1_000
  {
    await using record = await RunRecord.open(paths, { now: () => (at += 1_000) })
    await using disk = new RunDisk(paths)
    if (!isOver) disk.keep()
    const start = { type: 'run-start', prompt: 'do it', model: 'scripted', provider: 'custom' } as const
    const given = metadata === undefined ? {} : { metadata }
    await record.host({ ...start, directory, limits, ...given })
    let n = 0
    for (const event of [...momentLines, ...later])
      if (agentTypes.has(event.type)) await record.agent('root', ++n, event as AgentEvent)
      else await record.host(event as HostEvent)
    await writeDisk(paths)
    const recorder = await record.openRecorder({ model: 'scripted', name: 'custom' })
    for (const number of [1, 2, 3, 4, 5]) recorder.web('call', { number }, { ok: true, value: { number } })
    await recorder.flush()
    const usage = { requests: 1, inputTokens: 1, outputTokens: 1, reasoningTokens: 0 }
    const end = { outcome: 'completed', reason: 'completed', message: '', summary: 'done' } as const
    if (isOver) await record.host({ type: 'run-end', ...end, usage, durationMs: 1 })
  }
  return paths
}

async function writeDisk(paths: RunPaths): Promise<void> {
  await writeFile(paths.disk, 'the workspace')
  await writeFile(paths.diskFiles, '[]')
  await writeFile(path.join(paths.directory, 'manifest.jsonl'), 'the manifest')
  const disk = await CheckpointDisk.create(paths.scratch)
  const { top, spares } = await disk.prepare({ kind: 'blank', bytes: 1_048_576 })
  const layers = [top, ...spares.slice(0, 3)]
  await disk.write(
    layers.map((file, index) => ({ file: path.basename(file), checkpoint: `cp-${index + 1}` })),
  )
}
