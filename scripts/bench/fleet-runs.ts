/**
 * Runs of a fleet of 1 to 8 hosts: from the submission to the first line, from an answer to the next host's line, from the
 * kill of a host to the next one's line, and runs in a second beside jobs of bare pg-boss.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Fleet } from '../../host/fleet/fleet.ts'
import { newRunId } from '../../host/journal/run-store.ts'
import type { PostgresServer } from '../../test/support/postgres.ts'
import type { Figures } from './bench.ts'
import { type Figure, figureOf, repeats, reportProgress, round } from './figures.ts'
import type { BossOrder, BossReport } from './fleet-boss.ts'
import { nowMs } from './fleet-host.ts'
import { HostProcesses, machineLoad, newDatabase, openObserver } from './fleet-place.ts'

const hostCounts = repeats(2) === 1 ? [1, 2] : [1, 2, 4, 8]
const slots = 4
/** pg-boss allows no shorter heartbeat. */
const heartbeatMs = 10_000
const waiting = { priority: 'normal', isContinued: false } as const
const continued = { priority: 'normal', isContinued: true } as const

export async function measureRuns(server: PostgresServer): Promise<Figures> {
  const figures: Record<string, unknown> = {}
  for (const count of hostCounts) {
    reportProgress(`${count} hosts`)
    const address = await newDatabase(server)
    await using fleet = await openObserver(address)
    await using hosts = new HostProcesses(address, slots)
    await hosts.set(count, 'end')
    const loadBefore = machineLoad()
    const dispatchMs = await dispatch(fleet, hosts)
    const fleetPerS = await throughput(fleet, hosts, count)
    await hosts.set(count, 'wait')
    const answerMs = await answer(fleet, hosts)
    const recovery = count === 1 ? {} : await recover(fleet, hosts, count)
    const bossPerS = await bareBoss((await newDatabase(server)).connection, count)
    figures[`hosts${count}`] = {
      ...{ dispatchMs, answerMs, ...recovery },
      ...{ runsPerS: fleetPerS, bareBossJobsPerS: bossPerS, runsToBareBoss: round(fleetPerS / bossPerS) },
      load: [loadBefore, machineLoad()],
    }
    reportProgress(JSON.stringify(figures[`hosts${count}`]))
  }
  return figures
}

async function submit(fleet: Fleet): Promise<string> {
  const runId = newRunId()
  await fleet.add(runId, waiting)
  return runId
}

/** From the transaction that submits to the first line by the host that took it, while slots are free. */
async function dispatch(fleet: Fleet, hosts: HostProcesses): Promise<Figure> {
  const samples: number[] = []
  for (let count = -1; count < repeats(30); count += 1) {
    const since = nowMs()
    const runId = await submit(fleet)
    const { atMs } = await hosts.report(runId)
    await hosts.report(runId)
    // The first one finds code that was never used.
    if (count >= 0) samples.push(atMs - since)
    // A slot looks again a second after it began, so that this measures free slots.
    await sleep(Math.random() * 250)
  }
  return figureOf(samples)
}

/** From the answer's transaction to the first line by the host that continues the run. */
async function answer(fleet: Fleet, hosts: HostProcesses): Promise<Figure> {
  const samples: number[] = []
  for (let count = -1; count < repeats(20); count += 1) {
    const runId = await submit(fleet)
    await hosts.report(runId)
    let seen = await fleet.runs.head(runId)
    for (; seen?.waits !== true; seen = await fleet.runs.head(runId)) await sleep(5)
    const since = nowMs()
    const event = { type: 'vm-keep-failed', message: 'the answer' } as const
    const said = await fleet.runs.writeFree(runId, seen, event, (tx) => fleet.jobs.add(tx, runId, continued))
    if (said !== 'written') throw new Error(`the answer was ${said}`)
    const { atMs } = await hosts.report(runId)
    await hosts.report(runId)
    if (count >= 0) samples.push(atMs - since)
    await sleep(Math.random() * 250)
  }
  return figureOf(samples)
}

/** From the kill of a host to the first line of its run by another one; and what is above the end of the heartbeat. */
async function recover(fleet: Fleet, hosts: HostProcesses, count: number): Promise<Figures> {
  const samples: number[] = []
  const above: number[] = []
  for (let turn = 0; turn < repeats(3); turn += 1) {
    await hosts.set(count, 'hold')
    const runId = await submit(fleet)
    const { host } = await hosts.report(runId)
    // Somewhere between two signs of life.
    await sleep(Math.random() * 5_000)
    const heartbeatAgeMs = await ageOfHeartbeat(fleet, runId)
    const since = nowMs()
    hosts.kill(host)
    const { atMs } = await hosts.report(runId)
    await hosts.report(runId)
    samples.push(atMs - since)
    above.push(atMs - since - (heartbeatMs - heartbeatAgeMs))
  }
  return { recoveryMs: figureOf(samples), recoveryAboveHeartbeatMs: figureOf(above) }
}

/** Since the last sign of life of the host that has the run. */
async function ageOfHeartbeat({ database }: Fleet, runId: string): Promise<number> {
  const [job] = await database.query<{ ageMs: number }>(
    `SELECT 1000 * extract(epoch FROM clock_timestamp() - heartbeat_on)::float AS "ageMs" FROM caisson_queue.job
      WHERE singleton_key = $1 AND state = 'active'`,
    [runId],
  )
  if (job === undefined) throw new Error(`no host has ${runId}`)
  return job.ageMs
}

/** Runs that wait when the measurement begins, by the time until the last one has ended. */
async function throughput(fleet: Fleet, hosts: HostProcesses, count: number): Promise<number> {
  const runs = repeats(2) === 1 ? 10 : 30 * count
  const since = nowMs()
  const ended: Promise<unknown>[] = []
  for (let index = 0; index < runs; index += 1) {
    const runId = await submit(fleet)
    ended.push(hosts.report(runId).then(() => hosts.report(runId)))
  }
  await Promise.all(ended)
  return round((runs * 1_000) / (nowMs() - since))
}

/** As many jobs of a bare queue, which as many processes with as many slots do. */
async function bareBoss(connection: string, count: number): Promise<number> {
  const jobs = repeats(2) === 1 ? 10 : 30 * count
  const children = Array.from({ length: count }, () =>
    fork(path.join(import.meta.dirname, 'fleet-boss.ts'), {
      execArgv: ['--conditions=caisson-source'],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    }),
  )
  try {
    for (const [index, child] of children.entries()) {
      const order: BossOrder = { connection, slots, jobs: index === 0 ? jobs : 0 }
      child.send(order)
      await once(child, 'message')
    }
    const since = nowMs()
    let done = 0
    const all = Promise.withResolvers<void>()
    for (const child of children)
      child.on('message', (said: BossReport) => {
        done += said === 'done' ? 1 : 0
        if (done === jobs) all.resolve()
      })
    children[0]?.send('submit')
    await all.promise
    return round((jobs * 1_000) / (nowMs() - since))
  } finally {
    const gone = children.map((child) => once(child, 'exit'))
    for (const child of children) child.kill('SIGKILL')
    await Promise.all(gone)
  }
}
