/** Runs of a workflow whose agent, VM or host dies at lines of the journal. */
import { readFile } from 'node:fs/promises'
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { Asked, ServerReply } from '#specs/testing/model-server.ts'
import type { Run } from '../../host/runs/run.ts'
import type { Worlds } from './kills.ts'
import { answerWorkflow, resumeWorkflowRun } from './workflow-scenario.ts'
import type { World } from './world.ts'

/** A workflow in a world, the same each time. */
export interface KilledWorkflow {
  readonly answers: (asked: Asked) => ServerReply
  /** @param orders receives what its functions outside the VM were called with */
  start(world: World, orders: string[]): Promise<Run>
}

export interface KilledRun {
  readonly seq: number
  readonly type: string
  readonly victim: 'agent' | 'machine'
  /** `completed`, or why not. */
  readonly end: string
  readonly value: unknown
  readonly orders: readonly string[]
  /** Whether the victim died. */
  readonly killed: boolean
  readonly events: readonly JournalEvent[]
}

const retryMs = 10

/** The journal of a run that nobody disturbs. */
export async function undisturbed(
  worlds: Worlds,
  workflow: KilledWorkflow,
): Promise<readonly JournalEvent[]> {
  await using world = await worlds.openWorld()
  world.answers = workflow.answers
  const run = await workflow.start(world, [])
  const { outcome, message } = await run.result()
  if (outcome !== 'completed') throw new Error(`the undisturbed run ${outcome}: ${message}`)
  return await world.host.runs.read(run.id)
}

/** The victim dies when the line is written; while there is none, as soon as there is one. */
export async function killAt(
  worlds: Worlds,
  workflow: KilledWorkflow,
  { seq, victim }: Pick<KilledRun, 'seq' | 'victim'>,
): Promise<KilledRun> {
  await using world = await worlds.openWorld()
  world.answers = workflow.answers
  const orders: string[] = []
  let [killed, type] = [false, 'none']
  const run = await workflow.start(world, orders)
  const strike = (): void => {
    const pid = world.findMachine()?.[victim]
    if (killed || run.state.end !== null) return
    if (pid === undefined) setTimeout(strike, retryMs)
    else {
      process.kill(pid, 'SIGKILL')
      killed = true
    }
  }
  let isDue = false
  worlds.watch(run.id, (line, cut) => {
    if (isDue || cut !== 'after' || line.seq < seq) return
    ;[isDue, type] = [true, line.type]
    strike()
  })
  const { outcome, reason, message, value } = await run.result()
  const end = outcome === 'completed' ? outcome : `${reason}: ${message}`
  return { seq, type, victim, end, value, orders, killed, events: await world.host.runs.read(run.id) }
}

/** Two at once: much of each run is waiting. */
export async function killAtAll(
  worlds: Worlds,
  workflow: KilledWorkflow,
  kills: readonly Pick<KilledRun, 'seq' | 'victim'>[],
): Promise<KilledRun[]> {
  const runs: KilledRun[] = []
  const left = kills.values()
  const work = async (): Promise<void> => {
    for (const kill of left) runs.push(await killAt(worlds, workflow, kill))
  }
  await Promise.all([work(), work()])
  return runs.toSorted((a, b) => a.seq - b.seq)
}

/** What another process made of a run whose host process died. */
export interface ContinuedRun
  extends Pick<KilledRun, 'seq' | 'type' | 'end' | 'value' | 'orders' | 'events'> {
  readonly victim: 'host' | 'power'
}

/** The host process of the workflow of `workflow-scenario.ts` dies behind a line, and this one continues the run. */
export async function killHostAt(
  worlds: Worlds,
  { seq, victim }: Pick<ContinuedRun, 'seq' | 'victim'>,
): Promise<ContinuedRun> {
  await using world = await worlds.openWorld()
  world.answers = answerWorkflow
  const { runId, killedAfter } = await worlds.killHost(world, { victim, seq, cut: 'after' })
  if (killedAfter === undefined) throw new Error('the host process was not killed')
  const { event } = JSON.parse(killedAfter.at(-1) ?? '{}') as Partial<JournalEvent>
  const run = await resumeWorkflowRun(world.host, runId, world.scene)
  const { outcome, reason, message, value } = await run.result()
  const orders = (await readFile(world.scene.ledger, 'utf8')).split('\n').filter((line) => line !== '')
  return {
    ...{ seq, type: event?.type ?? 'none', victim, value, orders },
    end: outcome === 'completed' ? outcome : `${reason}: ${message}`,
    events: await world.host.runs.read(runId),
  }
}
