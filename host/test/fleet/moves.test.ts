import { expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { FleetFence } from '../../fleet/fence.ts'
import type { Fleet } from '../../fleet/fleet.ts'
import { newRunId } from '../../journal/run-store.ts'
import { headOf, noteOf, rowsBehind, start, takeNow, useDatabases } from './fleet-place.ts'

const { openFleet: open } = useDatabases()
const openFleet = async (name: string) => await open(name, { slots: 2 })
const soon = { timeout: 15_000 }

/** Has each run until the run is asked to leave. */
async function hold(fleet: Fleet, begun: string[]): Promise<void> {
  await fleet.work(async ({ runId }, { lost, leave }) => {
    begun.push(runId)
    const over = AbortSignal.any([lost, leave])
    if (!over.aborted) await new Promise((resolve) => over.addEventListener('abort', resolve, { once: true }))
    return 'again'
  })
}

it('a host that is drained gives its runs to others and takes none, until that is undone', async () => {
  await using first = await openFleet('first')
  await using second = await openFleet('second')
  const runId = newRunId()
  const [ofFirst, ofSecond]: [string[], string[]] = [[], []]
  await hold(first, ofFirst)
  await first.add(runId, start)
  await expect.poll(() => ofFirst, soon).toEqual([runId])
  const since = performance.now()
  expect(await second.drainHost('first')).toMatchObject([{ name: 'first', isDraining: true }])
  await expect
    .poll(() => second.whyWaits(runId), { ...soon, interval: 50 })
    .toMatch(/^Its host gave it away or could not carry it out\. It is tried again in \d s\.$/)
  await hold(second, ofSecond)
  await expect.poll(() => ofSecond, soon).toEqual([runId])
  expect(performance.now() - since).toBeLessThan(9_000)
  expect(await headOf(second.runs, runId)).toMatchObject({ hostId: second.hostId, epoch: 2 })
  const more = [newRunId(), newRunId()]
  for (const one of more) await first.add(one, start)
  await expect.poll(() => ofSecond.length, soon).toBe(2)
  // The other one waits, although the drained host has free slots.
  await new Promise((resolve) => setTimeout(resolve, 2_500))
  expect(ofFirst).toEqual([runId])
  expect(await second.drainHost(first.hostId, { undo: true })).toMatchObject([{ isDraining: false }])
  await expect.poll(() => ofFirst.length, soon).toBe(2)
}, 60_000)

it('a run that is moved goes to the named host, or to any other one', async () => {
  const hosts = await Promise.all(['a', 'b', 'c'].map((name) => openFleet(name)))
  const begun: string[][] = [[], [], []]
  for (const [index, host] of hosts.entries()) await hold(host, begun[index] ?? [])
  const [a] = hosts
  if (a === undefined) throw new Error('no host')
  const runId = newRunId()
  await a.add(runId, start)
  const holder = async () => {
    const { hostId } = await headOf(a.runs, runId)
    return hosts.find((host) => host.hostId === hostId)
  }
  await expect.poll(holder, soon).toBeDefined()
  const first = await holder()
  const target = hosts.find((host) => host !== first)
  if (first === undefined || target === undefined) throw new Error('no host has it')
  expect(await a.move(runId, target.hostId)).toBe('moving')
  await expect.poll(holder, soon).toBe(target)
  expect(await a.move(runId)).toBe('moving')
  await expect.poll(async () => (await headOf(a.runs, runId)).epoch, soon).toBe(3)
  expect(await holder()).not.toBe(target)
  for (const host of hosts) await host[Symbol.asyncDispose]()
}, 60_000)

it('a host that nobody knows, that is gone or drained is refused', async () => {
  await using fleet = await openFleet('here')
  const gone = await openFleet('gone')
  await gone[Symbol.asyncDispose]()
  await expect(fleet.drainHost('nobody')).rejects.toThrow(/the fleet has no host "nobody"; list the hosts/)
  await expect(fleet.drainHost('gone')).rejects.toThrow(/other hosts take its runs already: gone is "gone"/)
  const runId = newRunId()
  await fleet.add(runId, start)
  await fleet.drainHost('here')
  await expect(fleet.move(runId, 'here')).rejects.toThrow(/the host here takes no runs: it is drained/)
  await expect(fleet.move(newRunId())).rejects.toMatchObject({ code: 'run_not_found' })
  expect(await fleet.hosts()).toMatchObject([
    { name: 'gone', isGone: true },
    { name: 'here', isGone: false, isDraining: true },
  ])
})

it('a host that was lost is listed as gone, and forgotten after a day', async () => {
  await using fleet = await openFleet('here')
  await fleet.database.query(
    `INSERT INTO caisson.hosts (host_id, name, version, slots, seen_at) VALUES
       ('lost', 'lost', '1', 1, now() - interval '30 seconds'), ('old', 'old', '1', 1, now() - interval '25 hours')`,
  )
  expect(await fleet.hosts()).toMatchObject([
    { name: 'here', isGone: false },
    { name: 'lost', isGone: true },
  ])
  const left = async () =>
    (await fleet.database.query<{ name: string }>('SELECT name FROM caisson.hosts ORDER BY name')).map(
      ({ name }) => name,
    )
  await expect.poll(left, soon).toEqual(['here', 'lost'])
})

it('a run leaves behind its next checkpoint, and without one after a while', async () => {
  await using fleet = await openFleet('here')
  const checkpoint: HostEvent = {
    ...{ type: 'checkpoint', checkpointId: 'cp-1', durationMs: 1, elapsedMs: 1, exchanges: 0 },
  }
  for (const hasCheckpoint of [true, false]) {
    const runId = newRunId()
    await fleet.add(runId, start)
    const held = await takeNow(fleet.runs, runId, 'here')
    const head = await headOf(fleet.runs, runId)
    const fence = new FleetFence(fleet.runs, held, head)
    const [one, two] = rowsBehind(runId, head, [noteOf('before'), checkpoint])
    if (one === undefined || two === undefined) throw new Error('no rows')
    fence.leaveSoon(hasCheckpoint ? 60_000 : 2_000)
    await fence.append(one, { event: noteOf('before'), isBarrier: true })
    expect(fence.isOwn()).toBe(true)
    if (hasCheckpoint) await fence.append(two, { event: checkpoint, isBarrier: true })
    await expect.poll(() => fence.isOwn(), soon).toBe(false)
    expect(await headOf(fleet.runs, runId)).toMatchObject({ seq: hasCheckpoint ? 2 : 1, hostId: 'here-1' })
    await expect(fence.append(two, { event: checkpoint, isBarrier: true })).rejects.toThrow(
      /another host continues it/,
    )
  }
})
