/**
 * From `POST /v1/runs` to an agent at work, in a VM of a warm pool; alternating with what no run can be faster than: to take
 * such a VM and get one answer of its agent.
 */
import path from 'node:path'
import { warmUp } from '../../host/runs/guest/warm-up.ts'
import { VmPool } from '../../host/vm/vm-pool.ts'
import { type Bench, type Figures, openLink, vmOptions, waitForAgent } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'
import { endRun, type Served, serve, startRun } from './served.ts'

const RUNS = repeats(20)

export async function measureServiceStart(bench: Bench): Promise<Figures> {
  await using served = await serve(bench, { pool: { size: 1 } })
  await using pool = new VmPool(vmOptions(bench), { warmUp, onProgress: reportProgress }, { size: 1 })
  const starts: Start[] = []
  const pings: number[] = []
  // The first one finds code that was never used.
  for (let index = -1; index < RUNS; index += 1) {
    reportProgress(`start of a run ${index + 1} of ${RUNS}`)
    await served.host.warm()
    const start = await timeStart(served)
    await pool.whenFull()
    const pingMs = await timePing(pool, path.join(bench.work, `ping-${index}`))
    if (index < 0) continue
    starts.push(start)
    pings.push(pingMs)
  }
  const readyMs = figureOf(starts.map((start) => start.readyMs))
  const poolPingMs = figureOf(pings)
  return {
    runPostMs: figureOf(starts.map(({ postMs }) => postMs)),
    runReadyMs: readyMs,
    runStartMs: figureOf(starts.map(({ workMs }) => workMs)),
    poolPingMs,
    runReadyToPing: round(readyMs.p50 / poolPingMs.p50),
  }
}

/** ms since the request was sent. */
interface Start {
  /** To its answer. */
  readonly postMs: number
  /** To `vm-ready`: the agent has answered, and gets the task. */
  readonly readyMs: number
  /** To the first event of the agent at work: its request to the model. */
  readonly workMs: number
}

async function timeStart(served: Served): Promise<Start> {
  const startedAt = performance.now()
  const since = () => performance.now() - startedAt
  const run = await startRun(served, 'Run the command `true`')
  const postMs = since()
  let readyMs = Number.NaN
  for await (const item of served.client.events(run)) {
    if (item.source === 'delta') continue
    const { type } = item.event
    if (type === 'vm-ready') readyMs = since()
    if (type === 'run-end') throw new Error(`the run ended before its agent worked: ${item.event.message}`)
    if (type !== 'model-start') continue
    const workMs = since()
    await endRun(served, run)
    return { postMs, readyMs, workMs }
  }
  throw new Error('the run has no end')
}

async function timePing(pool: VmPool, workspaceDisk: string): Promise<number> {
  const startedAt = performance.now()
  const { vm } = await pool.take({ workspaceDisk })
  try {
    await using link = openLink(vm, { cloned: true })
    await waitForAgent(link)
    return performance.now() - startedAt
  } finally {
    await vm.stop()
  }
}
