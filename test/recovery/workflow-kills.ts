/** Runs of a workflow whose agent or VM dies at lines of the journal. */
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { Asked, ServerReply } from '#specs/testing/model-server.ts'
import type { Run } from '../../host/runs/run.ts'
import type { Worlds } from './kills.ts'
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
