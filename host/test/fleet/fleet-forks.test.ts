// Forks, rewinds and merged runs of runs of a fleet, which are runs of the fleet too: rows of a real database, files in a store.
import { existsSync } from 'node:fs'
import { readFile, utimes } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { lockForks, unendedMax } from '../../fleet/adopted-rows.ts'
import { DirectoryBlobs } from '../../fleet/blob-store.ts'
import { BlobsGone, FleetBlobs, referTo } from '../../fleet/blobs.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import type { Fleet } from '../../fleet/fleet.ts'
import { makerOf } from '../../fleet-member.ts'
import { adoptRuns, removeLeftAdoptions } from '../../fleet-runs/adopt.ts'
import { forkRun } from '../../forks/fork-run.ts'
import { findFleetMark, markFleet } from '../../journal/fleet-mark.ts'
import { newRunId, type RunPaths, RunStore } from '../../journal/run-store.ts'
import { readStoredRun } from '../../stored-run.ts'
import { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
import { RunLock } from '../../workspace/run-lock.ts'
import { beginChanging } from '../support/changed-run.ts'
import { checkpoint, runWithMoments } from '../support/run-with-moments.ts'
import { type Sketch, treeOf, writeTree } from '../workspace/support.ts'
import { type FleetNode, FleetNodes } from './fleet-nodes.ts'
import { headOf, noteOf } from './fleet-place.ts'

let server: PostgresServer
let nodes: FleetNodes
/** Has the disks of the runs. */
let one: FleetNode
let two: FleetNode

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

afterAll(() => server[Symbol.asyncDispose]())

beforeEach(async () => {
  nodes = await FleetNodes.open(server)
  one = await nodes.add('one')
  two = await nodes.add('two')
  return () => nodes[Symbol.asyncDispose]()
}, 60_000)

const idOf = (number: number) => `run-${String(number).padStart(20, '0')}`
const submitted = { caller: 'key ana', lane: 'ana', key: { key: 'ana/once', body: 'a' } }

/** A run of the fleet that sleeps, whose disk the first host has. */
async function newRun(options: Parameters<typeof runWithMoments>[2] = {}): Promise<string> {
  const { runId } = await runWithMoments(one.alone, one.home, options)
  const files = options.isOver === true ? null : 'cp-4'
  await nodes.enter(one, runId, { ...submitted, checkpointId: files })
  return runId
}

const rowOf = async (runId: string) =>
  (
    await one.fleet.database.query<Record<string, unknown>>(
      `SELECT lane, caller, class_id, request::text AS request, start_key, waits, has_ended, host_id, carried_by, outcome, epoch
         FROM caisson.runs WHERE run_id = $1`,
      [runId],
    )
  )[0]

const bodiesOf = async (runId: string) =>
  (
    await one.fleet.database.query<{ body: string }>(
      'SELECT body FROM caisson.journal WHERE run_id = $1 ORDER BY seq',
      [runId],
    )
  ).map(({ body }) => `${body}\n`)

it('forks of a run of the fleet are runs of it, with the bytes of their journals, the caller and the request of the run [R.01, V.05]', async () => {
  // More lines than one statement adds.
  const later = [...Array.from({ length: 1_100 }, (_, at) => noteOf(`${at}`)), checkpoint('cp-4', 4)]
  const runId = await newRun({ later })
  const upload = await new FleetBlobs(one.fleet.database, one.store).put(async function* () {
    yield Buffer.from('an upload')
  })
  await one.fleet.database.transaction((tx) => referTo(tx, runId, 'request', [upload.sha256]))
  const { runIds } = await one.host.fork(runId, { at: 'end', count: 2, prompts: ['use tabs'], by: 'ana' })
  const row = await rowOf(runId)
  for (const [index, id] of runIds.entries()) {
    const journal = await readFile(one.host.runs.paths(id).journal, 'utf8')
    expect((await bodiesOf(id)).join('')).toBe(journal)
    expect(await headOf(one.fleet.runs, id)).toMatchObject({ seq: index === 0 ? 1_111 : 1_110, hostId: null })
    expect(await rowOf(id)).toEqual({ ...row, start_key: null, waits: true, epoch: 0, carried_by: 'one' })
    const [kept] = await one.fleet.database.query(
      `SELECT count(*)::integer AS count FROM caisson.run_blobs WHERE run_id = $1 AND part = 'request'`,
      [id],
    )
    expect(kept).toEqual({ count: 1 })
    for (const { host } of [one, two]) {
      expect(await host.runs.summary(id)).toMatchObject({ status: 'sleeping', forkedFrom: runId })
      expect((await host.runs.read(id)).map(({ hash }) => hash)).toEqual(
        (await one.host.runs.read(id)).map(({ hash }) => hash),
      )
    }
    // As the run has it, but for its first line.
    expect((await one.host.runs.read(id)).slice(1, 1_110).map(({ at, event }) => ({ at, event }))).toEqual(
      (await one.host.runs.read(runId)).slice(1, 1_110).map(({ at, event }) => ({ at, event })),
    )
  }
  expect(await one.fleet.requests.findByKey('ana/once')).toMatchObject({ runId })
  expect(await one.fleet.status()).toMatchObject({ waitingForPeople: 3, waiting: 0 })
  // A process that knows nothing of the fleet makes nothing of its runs.
  const refused = { code: 'not_possible_now', message: expect.stringContaining('belongs to') }
  await expect(one.alone.fork(runId, { at: 'end' })).rejects.toMatchObject(refused)
  await expect(one.alone.rewind(runId, { to: 'end' })).rejects.toMatchObject(refused)
  // On the host that made it, only the fleet continues it.
  await expect(one.host.resume(runIds[0] ?? '')).rejects.toMatchObject({ code: 'run_busy' })
}, 30_000)

it.each([
  ['one', 'second', 'cp-3'],
  ['one', 'start', null],
  ['two', 'second', 'cp-3'],
  ['two', 'start', null],
] as const)(
  'another host takes a fork that %s made at %s, with its disk and workspace',
  async (maker, at, checkpointId) => {
    const runId = await newRun()
    const { host } = maker === 'one' ? one : two
    const { runIds } = await host.fork(runId, { at, prompts: ['use tabs'] })
    const [id = ''] = runIds
    await one.runs.wake(id)
    const worker = await nodes.add('three', { slots: 1 })
    const paths = worker.host.runs.paths(id)
    const seen = Promise.withResolvers<unknown>()
    await worker.runs.work(worker.host.runs, async ({ isNew }) => {
      const { sealed } = checkpointId === null ? { sealed: [] } : await CheckpointDisk.open(paths.scratch)
      const { task } = await readStoredRun(paths)
      seen.resolve({
        ...{ isNew, checkpoint: sealed.at(-1)?.checkpoint ?? null, hasScratch: existsSync(paths.scratch) },
        ...{ disk: await readFile(paths.disk, 'utf8'), runId: task.runId, idSeed: task.idSeed },
        exchanges: (await readFile(paths.exchanges, 'utf8')).trim().split('\n').length,
      })
      return { ended: Promise.resolve(null), cancel: async () => undefined }
    })
    expect(await seen.promise).toEqual({
      ...{ isNew: false, checkpoint: checkpointId, hasScratch: checkpointId !== null },
      ...{ disk: 'the workspace', runId: id, idSeed: runId, exchanges: checkpointId === null ? 1 : 4 },
    })
    expect((await bodiesOf(id)).at(-1)).toContain('"type":"run-take"')
  },
)

interface Listed {
  readonly name: string
  readonly sha256: string
}
const filesOf = async (runId: string) => (await one.fleet.runs.files(runId)) as Listed[]

it('fork determinism: a fork that a host without the disk makes has the lines and files of one where the disk is, and reads no disk [R.01, V.05]', async () => {
  const runId = await newRun()
  for (const at of ['second', 'end', 'start', 'now']) {
    const here = await one.host.fork(runId, { at })
    two.store.digestsRead.length = 0
    const there = await two.host.fork(runId, { at })
    expect({ ...there, runIds: [] }).toEqual({ ...here, runIds: [] })
    const disks = (await filesOf(runId)).filter(({ name }) => /\.(erofs|raw|qcow2)$/.test(name))
    expect(disks.length).toBeGreaterThan(4)
    for (const { sha256 } of disks) expect(two.store.digestsRead).not.toContain(sha256)
    const [made = '', other = ''] = [here.runIds[0], there.runIds[0]]
    const own = /^(run\.json|exchanges\.jsonl)$/
    const lists = await Promise.all([made, other].map(filesOf))
    const [files, others] = lists.map((list) => list.filter(({ name }) => !own.test(name)))
    expect(others).toEqual(files)
    expect(lists[1]?.map(({ name }) => name)).toEqual(lists[0]?.map(({ name }) => name))
    const lines = async (id: string) =>
      (await two.host.runs.read(id)).slice(1).map(({ at: time, event }) => [time, event])
    expect(await lines(other)).toEqual(await lines(made))
    expect(await rowOf(other)).toEqual({ ...(await rowOf(made)), carried_by: null })
  }
  // What it had in its own folder of them, it has as a copy.
  expect(
    (await two.alone.runs.ids()).every((id) =>
      existsSync(path.join(two.host.folders.runs, id, 'fleet.json')),
    ),
  ).toBe(true)
  await expect(two.host.fork(runId, { at: 'third' })).rejects.toThrow(/no moment "third".*no such step/)
}, 30_000)

it('a run that sleeps or waits in the queue is rewound by any host, without its disk', async () => {
  for (const isQueued of [false, true]) {
    const { runId } = await runWithMoments(one.alone, one.home, { runId: idOf(isQueued ? 2 : 1) })
    await nodes.enter(one, runId, { caller: 'key ana', lane: 'ana', checkpointId: 'cp-4' })
    if (isQueued) await one.runs.wake(runId)
    const rewound = await two.host.rewind(runId, { to: 'second', prompt: 'use tabs', by: 'ana' })
    expect(rewound).toMatchObject({ step: 'second', effects: [] })
    expect(await rowOf(runId)).toMatchObject({ has_ended: true, outcome: 'cancelled' })
    expect(await rowOf(rewound.runId)).toMatchObject({ waits: true, caller: 'key ana' })
    const [cancelled] = (await two.host.runs.read(runId)).flatMap(({ event }) =>
      event.type === 'cancel-request' ? [event.by] : [],
    )
    expect(cancelled).toBe(`rewind to second as ${rewound.runId}`)
    // It has ended, and its disk is in the store.
    expect(await two.host.fork(runId, { at: 'first' })).toMatchObject({ checkpointId: 'cp-1' })
    expect((await one.host.fork(runId, { at: 'first' })).runIds).toHaveLength(1)
  }
  expect((await one.fleet.jobs.counts()).waiting).toBe(0)
})

const never = async () => await new Promise<never>(() => undefined)

it('the host that has the disk of an ended run forks and rewinds it for the others, and its refusals reach who asked', async () => {
  const runId = await newRun({ isOver: true })
  await one.runs.work(one.host.runs, never, {}, makerOf(one.host))
  const forks = await two.host.fork(runId, {
    ...{ at: 'second', count: 2, prompts: ['use tabs \u0000'], by: 'ana', metadata: { team: 'red' } },
  })
  expect(forks).toMatchObject({ step: 'second', checkpointId: 'cp-3' })
  expect(forks.runIds).toHaveLength(2)
  for (const id of forks.runIds) {
    expect(await rowOf(id)).toMatchObject({ carried_by: 'one', waits: true, caller: 'key ana' })
    expect(await two.host.runs.summary(id)).toMatchObject({ forkedFrom: runId, metadata: { team: 'red' } })
  }
  const [first] = await two.host.runs.read(forks.runIds[0] ?? '')
  expect(first?.event).toMatchObject({ forkedFrom: { by: 'ana' } })
  expect(await two.host.fork(runId, { at: 'now' })).toMatchObject({
    step: 'end',
    notNow: 'the run has ended',
  })
  const rewound = await two.host.rewind(runId, { to: 'first', by: 'ana' })
  expect(await rowOf(rewound.runId)).toMatchObject({ carried_by: 'one', waits: true })
  await one.host.runs.removeMoments(runId)
  const refusals = await Promise.all(
    [one, two].map(
      async ({ host }) =>
        await host
          .fork(runId, { at: 'second' })
          .catch(({ code, message, remedy }: CaissonError) => ({ code, message, remedy })),
    ),
  )
  expect(refusals[0]).toMatchObject({ message: expect.stringContaining('does not keep its disk') })
  expect(refusals[1]).toEqual(refusals[0])
}, 30_000)

it('of two hosts with one name, the one that has the disk forks and rewinds the run, whichever is asked first', async () => {
  const runId = await newRun({ isOver: true })
  const namesake = await nodes.add('one', { slots: 9, home: path.join(one.home, 'namesake') })
  for (const { runs, host } of [one, namesake]) await runs.work(host.runs, never, {}, makerOf(host))
  const { runIds } = await two.host.fork(runId, { at: 'second', count: 2 })
  expect(runIds).toHaveLength(2)
  const { runId: rewound } = await two.host.rewind(runId, { to: 'second' })
  for (const id of [...runIds, rewound])
    expect(await two.host.runs.summary(id)).toMatchObject({ status: 'sleeping', forkedFrom: runId })
  expect(await askedHosts()).toEqual([namesake, one, namesake, one].map(({ fleet }) => fleet.hostId))
  // Any other refusal of the first one counts.
  await expect(two.host.fork(runId, { at: 'third' })).rejects.toThrow(/no moment "third"/)
  await one.host.runs.removeMoments(runId)
  await expect(two.host.fork(runId, { at: 'second' })).rejects.toThrow('does not keep its disk')
})

/** By acts, in their order. */
const askedHosts = async () =>
  (
    await two.fleet.database.query<{ hostId: string }>(
      'SELECT host_id AS "hostId" FROM caisson.acts ORDER BY act_id',
    )
  ).map(({ hostId }) => hostId)

it('where the host that has the disk is gone, the refusal names it and the moments that any host forks', async () => {
  const runId = await newRun({ isOver: true })
  await one.fleet.database.query('UPDATE caisson.hosts SET left_at = now() WHERE host_id = $1', [
    one.fleet.hostId,
  ])
  const refusal = {
    code: 'not_possible_now',
    message: expect.stringContaining(
      `only the host one of the fleet has the disk of ${runId} at this moment, and that host is gone; start`,
    ),
    remedy:
      'start Caisson on one again (caisson fleet hosts shows it), or name a moment that any host forks: start',
  }
  await expect(two.host.fork(runId, { at: 'second' })).rejects.toMatchObject(refusal)
  await expect(two.host.rewind(runId, { to: 'second' })).rejects.toMatchObject(refusal)
  expect((await two.host.fork(runId, { at: 'start' })).runIds).toHaveLength(1)
  const unbegun = newRunId()
  await one.fleet.add(unbegun, { priority: 'normal', isContinued: false })
  await expect(two.host.fork(unbegun, { at: 'start' })).rejects.toMatchObject({ code: 'not_possible_now' })
})

it('a host that ends before or while it forks for another leaves an error that says whether there may be forks', async () => {
  const runId = await newRun({ isOver: true })
  const leave = async () =>
    await one.fleet.database.query('UPDATE caisson.hosts SET left_at = now() WHERE host_id = $1', [
      one.fleet.hostId,
    ])
  const asked = async () => {
    await expect.poll(async () => (await one.fleet.acts.open(one.fleet.hostId)).length).toBe(1)
    return (await one.fleet.acts.open(one.fleet.hostId))[0]?.actId ?? ''
  }
  const before = two.host.fork(runId, { at: 'second' })
  const beforeRefused = expect(before).rejects.toMatchObject({
    ...{ code: 'not_possible_now', message: expect.stringContaining('gives no answer, so nothing was done') },
    remedy: expect.stringContaining('start Caisson on one again'),
  })
  await asked()
  await leave()
  await beforeRefused
  await one.fleet.database.query('UPDATE caisson.hosts SET left_at = NULL')
  const during = two.host.fork(runId, { at: 'second' })
  const duringRefused = expect(during).rejects.toMatchObject({
    ...{ code: 'connection_lost', message: expect.stringContaining('it may have made forks') },
    remedy: expect.stringContaining('caisson runs list'),
  })
  const actId = await asked()
  // Nobody else begins it, and it once.
  expect(await one.fleet.acts.begin(actId, two.fleet.hostId)).toBe(false)
  expect(await one.fleet.acts.begin(actId, one.fleet.hostId)).toBe(true)
  expect(await one.fleet.acts.begin(actId, one.fleet.hostId)).toBe(false)
  expect(await two.fleet.acts.withdraw(actId)).toBeUndefined()
  await leave()
  await duringRefused
})

it('what is asked of a host that has a disk, and what it answers, is checked', async () => {
  const runId = await newRun({ isOver: true })
  const whole = { at: 'second', count: 1, prompts: [] }
  const { acts, hostId } = one.fleet
  const hostile: [kind: string, body: unknown, by?: string][] = [
    ...[null, 7, [], {}, { ...whole, count: 0 }, { ...whole, count: 17 }, { ...whole, despite: ['x'] }].map(
      (body): [string, unknown] => ['fork', body],
    ),
    ...[
      { ...whole, by: 'x' },
      { ...whole, metadata: { a: 7 } },
      { ...whole, prompts: ['a', 7] },
    ].map((body): [string, unknown] => ['fork', body]),
    ...[{}, { to: 'second' }, { to: '', despiteEffects: true }, { to: 'second', despiteEffects: 'yes' }].map(
      (body): [string, unknown] => ['rewind', body],
    ),
    ['cancel', { now: true }],
    ['__proto__', {}],
    ['fork', whole, 'a'.repeat(100_000)],
  ]
  const asked: string[] = []
  for (const [kind, body, by = 'ana'] of hostile)
    asked.push(await acts.askHost(runId, hostId, kind, body, by))
  await one.runs.work(one.host.runs, never, {}, makerOf(one.host))
  for (const [at, actId] of asked.entries()) {
    await expect.poll(async () => (await acts.look(actId)).outcome, { timeout: 10_000 }).toBeDefined()
    expect((await acts.look(actId)).outcome, JSON.stringify(hostile[at])).toMatchObject({
      error: { code: 'invalid_options' },
    })
  }
  expect(await one.fleet.database.query('SELECT run_id FROM caisson.runs')).toEqual([{ run_id: runId }])
  await expect(acts.askHost(idOf(9), hostId, 'fork', whole, 'ana')).rejects.toMatchObject({
    code: 'run_not_found',
  })
  // Another process of that name, which answers anything.
  const { runId: other } = await runWithMoments(one.alone, one.home, { runId: idOf(3), isOver: true })
  await nodes.enter(one, other, { caller: 'key ana', lane: 'ana', checkpointId: null })
  const impostor = await nodes.add('one', { slots: 9 })
  for (const value of [null, 'x', {}, { step: 'x', checkpointId: null, runIds: ['../x'] }, { runIds: [] }]) {
    const forked = two.host.fork(other, { at: 'second' })
    const refused = expect(forked, JSON.stringify(value)).rejects.toMatchObject({ code: 'internal' })
    await expect.poll(async () => (await impostor.fleet.acts.open(impostor.fleet.hostId)).length).toBe(1)
    const [act] = await impostor.fleet.acts.open(impostor.fleet.hostId)
    await impostor.fleet.acts.end(act?.actId ?? '', { value })
    await refused
  }
}, 30_000)

it('while the files of a fork are stored, the run is free for whoever continues it', async () => {
  const runId = await newRun()
  const [storing, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const { store } = one
  store.write = async (...given) => {
    storing.resolve()
    await go.promise
    await DirectoryBlobs.prototype.write.apply(store, given)
  }
  const forking = one.host.fork(runId, { at: 'second', prompts: ['use tabs'] })
  await storing.promise
  expect(await one.host.runs.isLive(runId)).toBe(false)
  const held = await RunLock.take(one.host.folders.locks, runId)
  go.resolve()
  const { runIds } = await forking
  await held[Symbol.asyncDispose]()
  expect(await two.host.runs.summary(runIds[0] ?? '')).toMatchObject({ status: 'sleeping' })
})

it('a fork that cannot be stored leaves no folder, no row and no mark behind', async () => {
  const runId = await newRun()
  const before = await one.host.runs.ids()
  one.store.failure = new CaissonError('no_space', 'the store is full')
  await expect(one.host.fork(runId, { at: 'second', count: 3 })).rejects.toMatchObject({ code: 'no_space' })
  expect(await one.host.runs.ids()).toEqual(before)
  one.store.failure = undefined
  expect(await one.fleet.database.query('SELECT run_id FROM caisson.runs')).toEqual([{ run_id: runId }])
  // Those of the rows that were added before the one that fails.
  await one.fleet.database.query(
    `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       IF (SELECT count(*) FROM caisson.runs) > 2 THEN RAISE 'no more'; END IF; RETURN NULL; END $$`,
  )
  await one.fleet.database.query(
    'CREATE TRIGGER refuse AFTER INSERT ON caisson.runs FOR EACH ROW EXECUTE FUNCTION refuse()',
  )
  await expect(one.host.fork(runId, { at: 'second', count: 3 })).rejects.toThrow('no more')
  expect(await one.host.runs.ids()).toEqual(before)
  expect(await one.fleet.database.query('SELECT run_id FROM caisson.runs')).toEqual([{ run_id: runId }])
  // While the database is away, too.
  await server.kill()
  try {
    await expect(one.host.fork(runId, { at: 'second' })).rejects.toMatchObject({ code: 'state_unavailable' })
  } finally {
    await server.restart()
  }
  expect(await one.alone.runs.ids()).toEqual(before)
}, 60_000)

type Transaction = (work: () => Promise<unknown>) => Promise<unknown>

/** The first host, whose next transactions do what is given. */
function failing(transactions: Transaction[], more: Partial<Fleet> = {}): Fleet {
  const { database } = one.fleet
  const changed = new Proxy(database, {
    get: (of, part) => {
      const value: unknown = Reflect.get(of, part, of)
      if (part !== 'transaction') return typeof value === 'function' ? value.bind(of) : value
      return async (work: Parameters<typeof database.transaction>[0]) => {
        const run = async () => await database.transaction(work)
        return await (transactions.shift() ?? (async (given: typeof run) => await given()))(run)
      }
    },
  })
  return new Proxy(one.fleet, {
    get: (target, name) =>
      name === 'database' ? changed : Reflect.get({ ...more, __proto__: target }, name, target),
  })
}

const lost = new CaissonError('state_unavailable', 'the connection ended', { cause: new Error('reset') })
const loseAnswer: Transaction = async (work) => {
  await work()
  throw lost
}

/** Forks in the folder of the first host, which no fleet has. */
async function newForks(runId: string, count: number): Promise<RunPaths[]> {
  const store = new RunStore(one.host.folders)
  const { runIds } = await forkRun({ store, runId }, { at: 'second', count, prompts: [], by: 'ana' })
  return runIds.map((id) => store.paths(id))
}

const blobsOf = ({ fleet, store }: FleetNode) => new FleetBlobs(fleet.database, store)

it('rows whose answer was lost are not added twice, and files that were removed meanwhile are stored again', async () => {
  const runId = await newRun()
  const forks = await newForks(runId, 2)
  const gone: Transaction = async () => {
    throw new BlobsGone(['a'])
  }
  const transactions = [gone, loseAnswer]
  await adoptRuns({ fleet: failing(transactions), blobs: blobsOf(one) }, forks, [runId])
  expect(transactions).toEqual([])
  for (const fork of forks) {
    expect(await one.host.runs.summary(fork.runId)).toMatchObject({ status: 'sleeping' })
    expect(await findFleetMark(fork.journal)).toEqual({ fleet: one.fleet.database.address.shown })
  }
})

it('a fork whose answer stays lost says that it may have been made; one whose rows were not whole does not', async () => {
  const runId = await newRun()
  const closing = { closing: AbortSignal.abort() }
  const [made, other] = [await newForks(runId, 2), await newForks(runId, 1)]
  const unclear = adoptRuns({ fleet: failing([loseAnswer], closing), blobs: blobsOf(one) }, made, [runId])
  await expect(unclear).rejects.toMatchObject({
    code: 'connection_lost',
    message: expect.stringContaining(`may have been made: ${made.map((fork) => fork.runId).join(', ')}`),
    remedy: expect.stringContaining('caisson runs list'),
  })
  for (const fork of made)
    expect(await two.host.runs.summary(fork.runId)).toMatchObject({ status: 'sleeping' })
  const never: Transaction = async () => {
    throw lost
  }
  const clear = adoptRuns({ fleet: failing([never], closing), blobs: blobsOf(one) }, other, [runId])
  await expect(clear).rejects.toBe(lost)
})

it('what a process left that was killed before the fleet had its forks is removed later, and nothing else', async () => {
  const runId = await newRun()
  const { shown } = one.fleet.database.address
  const [left, ofOther, held, plain, made] = await newForks(runId, 5)
  if (!left || !ofOther || !held || !plain || !made) throw new Error('forks are missing')
  await adoptRuns({ fleet: one.fleet, blobs: blobsOf(one) }, [made], [runId])
  for (const { journal } of [left, held, made]) await markFleet(journal, shown, { isBeingAdopted: true })
  await markFleet(ofOther.journal, 'postgres://other/fleet', { isBeingAdopted: true })
  // Of a run that the fleet had and that was removed, or of a fleet that lost rows.
  await markFleet(plain.journal, shown)
  const before = await one.alone.runs.ids()
  const { folders } = one.host
  expect(await removeLeftAdoptions(folders, one.fleet)).toEqual([])
  const old = new Date(Date.now() - 10 * 60_000)
  for (const { directory } of [left, ofOther, held, plain, made]) await utimes(directory, old, old)
  await using _ = await RunLock.take(folders.locks, held.runId)
  // As the service of a host does each minute.
  one.runs.source.boundBy(folders, async () => ({ maxRuns: 1_000, maxBytes: 2 ** 40 }))
  await one.runs.source.bound()
  const expected = before.filter((id) => id !== left.runId)
  expect((await one.alone.runs.ids()).toSorted()).toEqual(expected.toSorted())
  expect(await findFleetMark(made.journal)).toEqual({ fleet: shown })
})

it('a caller with a thousand runs that have not ended forks no more, on no host; other callers and the owner do [V.05]', async () => {
  const runId = await newRun()
  const { runId: other } = await runWithMoments(one.alone, one.home, { runId: idOf(9) })
  await nodes.enter(one, other, { caller: 'key ana', lane: 'ana', checkpointId: 'cp-4' })
  const { database } = one.fleet
  const addMore = async (count: number) =>
    await database.query(
      `INSERT INTO caisson.runs (run_id, caller, waits)
       SELECT 'run-' || lpad(number::text, 20, 'a'), 'key ana', true FROM generate_series(1, $1::integer) AS number`,
      [count],
    )
  const setCaller = async (caller: string | null) =>
    await database.query('UPDATE caisson.runs SET caller = $2 WHERE run_id = $1', [runId, caller])
  await addMore(unendedMax - 3)
  const before = await one.host.runs.ids()
  const refused = {
    code: 'queue_full',
    message: expect.stringContaining(
      '999 runs of this caller have not ended, and with 2 forks at most 1000 may',
    ),
    remedy: expect.stringContaining('continue or cancel forks'),
  }
  one.store.failure = new Error('files were stored')
  await expect(one.host.fork(runId, { at: 'second', count: 2 })).rejects.toMatchObject(refused)
  await expect(two.host.fork(runId, { at: 'second', count: 2 })).rejects.toMatchObject(refused)
  expect(await one.host.runs.ids()).toEqual(before)
  one.store.failure = undefined
  const looked = Promise.withResolvers<void>()
  const { store } = one
  let storing = 0
  // Both have looked before one adds its own.
  store.write = async (...given) => {
    storing += 1
    if (storing === 2) looked.resolve()
    await looked.promise
    await DirectoryBlobs.prototype.write.apply(store, given)
  }
  const both = await Promise.allSettled([runId, other].map((id) => one.host.fork(id, { at: 'second' })))
  expect(both.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected'])
  expect(both.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'queue_full' } })
  for (const caller of ['key ben', null]) {
    await setCaller(caller)
    expect((await two.host.fork(runId, { at: 'second' })).runIds).toHaveLength(1)
  }
  await setCaller('key ana')
  await expect(one.host.rewind(runId, { to: 'second' })).rejects.toMatchObject({ code: 'queue_full' })
  await database.query(
    `UPDATE caisson.runs SET has_ended = true, ended_at = now() WHERE run_id = 'run-' || lpad('1', 20, 'a')`,
  )
  expect((await one.host.fork(runId, { at: 'second' })).runIds).toHaveLength(1)
}, 30_000)

it('a rewound run of the fleet ends in its rows, and the run that takes its place sleeps in the fleet', async () => {
  const runId = await newRun()
  const { runId: next } = await one.host.rewind(runId, { to: 'second', prompt: 'use tabs', by: 'ana' })
  expect(await rowOf(runId)).toMatchObject({ has_ended: true, outcome: 'cancelled', host_id: null })
  expect(await rowOf(next)).toMatchObject({ waits: true, caller: 'key ana', lane: 'ana' })
  expect((await two.host.runs.read(next)).at(-1)?.event).toMatchObject({
    type: 'steer-request',
    text: 'use tabs',
  })
  // A fork of a fork that no host has begun, where it was made.
  const again = await one.host.fork(next, { at: 'end' })
  expect(await two.host.runs.summary(again.runIds[0] ?? '')).toMatchObject({
    forkedFrom: next,
    status: 'sleeping',
  })
})

it('a run that an ended run is forked into is a run of the fleet; one that keeps no disk says so', async () => {
  const runId = await newRun({ isOver: true })
  const { runIds } = await one.host.fork(runId, { at: 'second' })
  expect(await two.host.runs.summary(runIds[0] ?? '')).toMatchObject({ status: 'sleeping' })
  await one.host.runs.removeMoments(runId)
  await expect(one.host.fork(runId, { at: 'second' })).rejects.toThrow('does not keep its disk')
})

it('a merged run of runs of the fleet has ended in it, and its changes are read on any host; with another run it is one of its host', async () => {
  const before: Sketch = { 'one.txt': 'one\n', 'two.txt': 'two\n' }
  const directory = await temporaryFolder('workspace')
  writeTree(directory, treeOf(before))
  for (const [number, name] of [
    [1, 'one.txt'],
    [2, 'two.txt'],
    [3, 'three.txt'],
  ] as const) {
    const end = await beginChanging(one.alone, directory, idOf(number))
    await end(treeOf(before), treeOf({ ...before, [name]: 'changed\n' }))
    const given = { caller: `key ${number}`, lane: 'ana', checkpointId: null }
    if (number < 3) await nodes.enter(one, idOf(number), given)
  }
  const { runId: merged = '' } = await two.host.merge([idOf(1), idOf(2)])
  expect(await rowOf(merged)).toMatchObject({
    ...{ has_ended: true, outcome: 'completed', waits: false, caller: null, carried_by: null },
  })
  expect((await bodiesOf(merged)).join('')).toBe(
    await readFile(path.join(two.host.folders.runs, merged, 'journal.jsonl'), 'utf8'),
  )
  const changes = await one.host.changes(merged)
  expect((await changes.review()).map((change) => change.path)).toEqual(['one.txt', 'two.txt'])
  for (const { host } of [one, two])
    await expect(host.fork(merged, { at: 'start' })).rejects.toMatchObject({
      ...{
        code: 'not_possible_now',
        message: expect.stringContaining(`no host of the fleet has a disk of ${merged}`),
      },
    })
  const { runId: ofHost = '' } = await one.host.merge([idOf(1), idOf(3)])
  expect(await rowOf(ofHost)).toBeUndefined()
  expect(await one.host.runs.summary(ofHost)).toMatchObject({ status: 'completed' })
})

it('forks of one caller that wait for each other leave connections for everything else on the host', async () => {
  const runId = await newRun()
  await using other = await FleetDatabase.connect(one.fleet.database.address)
  const isOver = Promise.withResolvers<void>()
  const hasLock = Promise.withResolvers<void>()
  // As a fork of a long run does on another host.
  const holding = other.transaction(async (tx) => {
    await tx.query('SET LOCAL idle_in_transaction_session_timeout = 0')
    await lockForks(tx, runId)
    hasLock.resolve()
    await isOver.promise
  })
  await hasLock.promise
  const forking = Promise.all(Array.from({ length: 12 }, () => two.host.fork(runId, { at: 'start' })))
  const waiting = async () => {
    const rows = await other.query(
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`,
    )
    return rows.length
  }
  await expect.poll(waiting).toBeGreaterThan(0)
  await sleep(1_000)
  const answered = two.fleet.status().then(() => 'answered')
  expect(await Promise.race([answered, sleep(5_000, 'no answer')])).toBe('answered')
  isOver.resolve()
  await holding
  expect((await forking).map(({ runIds }) => runIds.length)).toEqual(Array.from({ length: 12 }, () => 1))
}, 60_000)
