// A host process of the tests: waits for an order, starts the run or does what a rival does, and kills itself at the line
// that the order names. Started ahead of time, so that a kill costs no start.
import { once } from 'node:events'
import { errorMessage, hasCode } from '#specs/errors.ts'
import { Host } from '../../host/host.ts'
import { type Cut, type CutLine, watchLines } from './journal-cuts.ts'
import { accompany, resumeRun, type Scene, startRun } from './scenario.ts'
import { startWorkflowRun } from './workflow-scenario.ts'

export interface HostOrder {
  readonly scene: Scene
  readonly env: Readonly<Record<string, string>>
  /** Where to kill itself; absent: nowhere. The last line of the run counts for every later one. */
  readonly dieAt?: { readonly seq: number; readonly cut: Cut }
  /** Absent: it starts the run. */
  readonly rival?:
    | { readonly does: 'resume'; readonly runId: string }
    /** Answers a question several times at once, each time otherwise. */
    | {
        readonly does: 'answer'
        readonly runId: string
        readonly approvalId: string
        readonly answers: readonly string[]
      }
}

/** What it says at its end. */
export interface HostReport {
  readonly runId: string
  /** How a rival fared: the outcome of the run, or the error; answers that were taken. */
  readonly said?: string
  readonly taken?: readonly string[]
}

const [order] = (await once(process, 'message')) as [HostOrder]
const { scene, env, dieAt, rival } = order
if (dieAt !== undefined) await dieAtLine(dieAt)
const host = new Host({ env: { ...process.env, ...env } })
if (rival?.does === 'answer') process.send?.(await answerAtOnce(rival))
else if (rival?.does === 'resume') process.send?.(await resume(rival.runId))
else if (scene.isWorkflow === true) {
  const run = await startWorkflowRun(host, scene)
  process.send?.({ runId: run.id } satisfies HostReport)
  await run.result()
} else {
  const run = await startRun(host, scene)
  process.send?.({ runId: run.id } satisfies HostReport)
  await accompany(host, run, scene)
  await run.result()
}
await host.close()
process.disconnect?.()

async function dieAtLine({ seq, cut }: NonNullable<HostOrder['dieAt']>): Promise<void> {
  const isThere = (line: CutLine): boolean => line.seq === seq || (line.type === 'run-end' && line.seq < seq)
  await watchLines(
    (line, now) => {
      if (isThere(line) && now === cut) process.kill(process.pid, 'SIGKILL')
    },
    (line) => cut === 'torn' && isThere(line),
  )
}

async function resume(runId: string): Promise<HostReport> {
  try {
    const run = await resumeRun(host, runId, scene)
    await accompany(host, run, scene)
    const { outcome, message } = await run.result()
    return { runId, said: `${outcome}: ${message}` }
  } catch (error) {
    return { runId, said: hasCode(error, 'run_busy') ? 'run_busy' : errorMessage(error) }
  }
}

async function answerAtOnce({
  runId,
  approvalId,
  answers,
}: Extract<HostOrder['rival'], { does: 'answer' }>): Promise<HostReport> {
  const client = await host.attach(runId)
  if (client === null) return { runId, said: 'nobody carries the run out', taken: [] }
  const given = await Promise.all(
    answers.map(async (answer) => {
      const { taken } = await client.answer(approvalId, { decision: 'allow', scope: 'once', answer })
      return taken ? [answer] : []
    }),
  )
  await client.detach()
  return { runId, taken: given.flat() }
}
