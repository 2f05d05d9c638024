import { expect, it } from 'vitest'
import type { Fleet, NewRun } from '../../fleet/fleet.ts'
import { compareVersions, faultOf, HostFacts, Requires } from '../../fleet/placement.ts'
import { addRun, headOf, noteOf, rowsBehind, start, useDatabases } from './fleet-place.ts'

const { openFleet } = useDatabases()
const soon = { timeout: 20_000 }

/** Ends each run at once. */
async function workAll(fleet: Fleet, order: string[]): Promise<void> {
  await fleet.work(async (hold) => {
    order.push(hold.runId)
    const rows = rowsBehind(hold.runId, await headOf(fleet.runs, hold.runId), [noteOf('end')])
    await fleet.runs.append(hold, rows, { ends: true })
    return 'ended'
  })
}

it('a run that is next says so while a host has a free slot, and else how many slots are taken', async () => {
  await using fleet = await openFleet('free')
  const first = await addRun(fleet)
  expect(await fleet.whyWaits(first)).toBe('It is next, and a host with a free slot takes it.')
  const second = await addRun(fleet)
  expect(await fleet.whyWaits(second)).toBe('0 of 1 slots are taken, and 1 run of its caller is before it.')
})

it('a run is taken by a host that has what it requires, and says what others lack', async () => {
  await using plain = await openFleet('plain', { facts: () => ({ architecture: 'x64', freeMib: 1_024 }) })
  const order: string[] = []
  await workAll(plain, order)
  const cases: readonly (readonly [NonNullable<NewRun['requires']>, RegExp])[] = [
    [{ labels: ['zone=eu', 'gpu'] }, /^No host can serve it: plain has no label gpu, zone=eu\.$/],
    [{ architecture: 'arm64' }, /plain has the architecture x64, not arm64/],
    [{ accelerator: 'kvm' }, /plain has the accelerator null, not kvm/],
    [{ memoryMib: 2_048 }, /plain has 1024 MiB free of 2048/],
  ]
  const runIds: string[] = []
  for (const [requires, why] of cases) {
    const runId = await addRun(plain, { requires })
    runIds.push(runId)
    expect(await plain.whyWaits(runId)).toMatch(why)
  }
  const served = await addRun(plain, { requires: { architecture: 'x64', memoryMib: 512 } })
  await expect.poll(() => order, soon).toEqual([served])
  expect((await plain.signals()).unservable).toMatchObject({
    ...{ labels: 1, architecture: 1, accelerator: 1, memory: 1, image: 0, hosts: 0 },
  })
  const facts = () => ({
    ...{ labels: ['gpu', 'zone=eu'], architecture: 'arm64', accelerator: 'kvm' as const, freeMib: 4_096 },
  })
  await using large = await openFleet('large', { facts })
  const ofLarge: string[] = []
  await workAll(large, ofLarge)
  await expect.poll(() => ofLarge.toSorted(), soon).toEqual(runIds.toSorted())
  expect(order).toEqual([served])
}, 60_000)

it('a thousand runs that a host cannot serve do not delay those that it can, in their lane or another', async () => {
  await using fleet = await openFleet('plain', { slots: 4 })
  const timeOf = async (count: number, lane: string): Promise<number> => {
    const order: string[] = []
    const runIds = await Promise.all(Array.from({ length: count }, () => addRun(fleet, { lane })))
    const since = performance.now()
    await using worker = await openFleet('worker', { slots: 4 })
    await workAll(worker, order)
    await expect.poll(() => order.length, { timeout: 60_000, interval: 5 }).toBe(count)
    expect(order.toSorted()).toEqual(runIds.toSorted())
    return performance.now() - since
  }
  const before = await timeOf(20, 'a')
  const requires = { labels: ['nowhere'] }
  for (let round = 0; round < 40; round += 1)
    await Promise.all(
      Array.from({ length: 25 }, (_, index) => addRun(fleet, { requires, lane: index % 2 ? 'a' : 'b' })),
    )
  expect(await fleet.signals()).toMatchObject({ waiting: 1_000, unservable: { hosts: 0, labels: 1_000 } })
  // A machine under load is not exact; without the classes each choice reads all thousand.
  expect(await timeOf(20, 'a')).toBeLessThan(3 * before + 2_000)
  expect(await timeOf(5, 'c')).toBeLessThan(3 * before + 2_000)
}, 180_000)

/** Resolves when the host has seen that it takes no more runs. */
async function drain(fleet: Fleet, name: string): Promise<void> {
  await fleet.drainHost(name)
  const [drained] = await fleet.database.query<{ at: string }>('SELECT now()::text AS at')
  const sees = () =>
    fleet.database.query('SELECT FROM caisson.hosts WHERE name = $1 AND seen_at > $2', [name, drained?.at])
  await expect.poll(sees, soon).toHaveLength(1)
}

it('the machine that keeps the VM of a run has it first, and then any other', async () => {
  await using kept = await openFleet('kept')
  await using other = await openFleet('other')
  const taken: string[] = []
  const work = async (fleet: Fleet, name: string) =>
    await fleet.work(async () => {
      taken.push(name)
      return 'kept'
    })
  await work(kept, 'kept')
  const runId = await addRun(kept)
  await expect.poll(() => kept.status(), soon).toMatchObject({ waitingForPeople: 1 })
  await work(other, 'other')
  const answer = async () => {
    const seen = await headOf(other.runs, runId)
    const queue = (tx: Parameters<typeof other.jobs.add>[0]) =>
      other.jobs.add(tx, runId, { ...start, isContinued: true })
    expect(await other.runs.writeFree(runId, seen, noteOf('answer'), queue)).toBe('written')
  }
  for (let round = 2; round < 5; round += 1) {
    await answer()
    await expect.poll(() => taken.length, soon).toBe(round)
    await expect.poll(() => kept.status(), soon).toMatchObject({ waitingForPeople: 1 })
  }
  expect(taken).toEqual(['kept', 'kept', 'kept', 'kept'])
  await drain(kept, 'kept')
  await answer()
  expect(await other.whyWaits(runId)).toBe(
    'It waits for the host kept for up to 30 s, and then for any other.',
  )
  await new Promise((resolve) => setTimeout(resolve, 1_500))
  expect(taken).toHaveLength(4)
  await other.database.query(`UPDATE caisson.runs SET wants_until = now() WHERE run_id = $1`, [runId])
  await expect.poll(() => taken.at(-1), soon).toBe('other')
}, 60_000)

it('a run that a newer version or another image has begun is left to hosts that have it', async () => {
  await using old = await openFleet('old', { version: '1.9.0', facts: () => ({ image: 'one' }) })
  await using newer = await openFleet('newer', { version: '1.10.0', facts: () => ({ image: 'one' }) })
  const [ofOld, ofNewer, ofNext]: string[][] = [[], [], []]
  const again = async (fleet: Fleet, list: string[] = []) =>
    await fleet.work(async ({ runId }) => {
      list.push(runId)
      return 'waits'
    })
  const wake = async (runId: string) =>
    await old.database.transaction((tx) => old.jobs.add(tx, runId, { ...start, isContinued: true }))
  await again(newer, ofNewer)
  const runId = await addRun(newer)
  await expect.poll(() => old.status(), soon).toMatchObject({ waitingForPeople: 1 })
  await drain(newer, 'newer')
  await again(old, ofOld)
  await wake(runId)
  expect(await old.whyWaits(runId)).toBe(
    'No host can serve it: old has the older version 1.9.0; the run was written by 1.10.0.',
  )
  await using next = await openFleet('next', { version: '1.10.1', facts: () => ({ image: 'two' }) })
  await again(next, ofNext)
  await new Promise((resolve) => setTimeout(resolve, 1_500))
  expect(await old.whyWaits(runId)).toMatch(/next has another image than one/)
  expect((await old.signals()).unservable).toMatchObject({ version: 1 })
  await newer.drainHost('newer', { undo: true })
  await expect.poll(() => ofNewer, soon).toEqual([runId, runId])
  expect([ofOld, ofNext]).toEqual([[], []])
}, 60_000)

it('a run that requires an accelerator is served where the host has that one, also hvf of macOS', () => {
  const accelerators = ['kvm', 'hvf', 'tcg'] as const
  for (const accelerator of accelerators)
    for (const other of accelerators) {
      const requires = Requires.parse({ accelerator })
      const fault = faultOf(requires, HostFacts.parse({ accelerator: other }), '1')
      expect(fault?.text).toBe(
        accelerator === other ? undefined : `has the accelerator ${other}, not ${accelerator}`,
      )
    }
  expect(Requires.safeParse({ accelerator: 'whpx' }).success).toBe(false)
})

it('versions are compared by their numbers', () => {
  const sorted = ['1.2.0-rc.1', '1.2.0', '1.9.9', '1.10.0', '2.0.0']
  for (const [index, version] of sorted.entries()) {
    expect(compareVersions(version, version)).toBe(0)
    for (const later of sorted.slice(index + 1))
      expect(compareVersions(version, later), later).toBeLessThan(0)
  }
  const facts = HostFacts.parse({ image: null })
  expect(faultOf({ image: 'one', memoryMib: 1 }, facts, '1')).toBeUndefined()
})

it('requirements that no waiting run has any more cost a choice nothing', async () => {
  await using fleet = await openFleet('one')
  const order: string[] = []
  await workAll(fleet, order)
  const timeOfRuns = async () => {
    const [since, before] = [performance.now(), order.length]
    for (let count = 0; count < 20; count += 1) await addRun(fleet, { requires: { memoryMib: 1 } })
    await expect.poll(() => order.length - before, soon).toBe(20)
    return performance.now() - since
  }
  const first = await timeOfRuns()
  await fleet.database.query(
    `INSERT INTO caisson.classes (requires) SELECT jsonb_build_object('labels', jsonb_build_array('l' || number))
       FROM generate_series(1, 100000) AS number`,
  )
  // It took more than 8 s, since each choice went through all of them.
  expect(await timeOfRuns()).toBeLessThan(2 * first + 2_000)
}, 60_000)
