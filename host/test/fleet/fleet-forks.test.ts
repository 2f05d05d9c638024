// Forks, rewinds and merged runs of runs of a fleet, which are runs of the fleet too: rows of a real database, files in a store.
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { BlobsGone, FleetBlobs, referTo } from '../../fleet/blobs.ts'
import { adoptRuns } from '../../fleet-runs/adopt.ts'
import { forkRun } from '../../forks/fork-run.ts'
import { RunStore } from '../../journal/run-store.ts'
import { readStoredRun } from '../../stored-run.ts'
import { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
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
  // On the host that made it, only the fleet continues it.
  await expect(one.host.resume(runIds[0] ?? '')).rejects.toMatchObject({ code: 'run_busy' })
}, 30_000)

it.each([
  ['second', 'cp-3'],
  ['start', null],
] as const)(
  'another host takes a fork at %s that is woken, with its disk and workspace',
  async (at, checkpointId) => {
    const runId = await newRun()
    const { runIds } = await one.host.fork(runId, { at, prompts: ['use tabs'] })
    const [id = ''] = runIds
    await one.runs.wake(id)
    const paths = two.host.runs.paths(id)
    const seen = Promise.withResolvers<unknown>()
    const worker = await nodes.add('three', { slots: 1, home: two.home })
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

it('rows whose answer was lost are not added twice, and files that were removed meanwhile are stored again', async () => {
  const runId = await newRun()
  const runs = new RunStore(one.host.folders)
  const { runIds } = await forkRun({ store: runs, runId }, { at: 'second', count: 2, prompts: [], by: 'ana' })
  const { database } = one.fleet
  const lost = new CaissonError('state_unavailable', 'the connection ended', { cause: new Error('reset') })
  const failures = [
    async () => {
      throw new BlobsGone(['a'])
    },
    async (work: () => Promise<unknown>) => {
      await work()
      throw lost
    },
  ]
  const fleet = new Proxy(one.fleet, {
    get: (target, name) => {
      if (name !== 'database') return Reflect.get(target, name, target)
      return new Proxy(database, {
        get: (of, part) => {
          if (part !== 'transaction') return Reflect.get(of, part, of)
          return async (work: Parameters<typeof database.transaction>[0]) => {
            const run = async () => await database.transaction(work)
            return await (failures.shift() ?? (async (given: typeof run) => await given()))(run)
          }
        },
      })
    },
  })
  const blobs = new FleetBlobs(database, one.store)
  await adoptRuns(
    { fleet, blobs },
    runIds.map((id) => runs.paths(id)),
    [runId],
  )
  expect(failures).toEqual([])
  for (const id of runIds) expect(await one.host.runs.summary(id)).toMatchObject({ status: 'sleeping' })
})

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
    ...{ has_ended: true, outcome: 'completed', waits: false, caller: null, carried_by: 'two' },
  })
  expect((await bodiesOf(merged)).join('')).toBe(
    await readFile(path.join(two.host.folders.runs, merged, 'journal.jsonl'), 'utf8'),
  )
  const changes = await one.host.changes(merged)
  expect((await changes.review()).map((change) => change.path)).toEqual(['one.txt', 'two.txt'])
  await expect(one.host.fork(merged, { at: 'start' })).rejects.toMatchObject({ code: 'not_possible_now' })
  const { runId: ofHost = '' } = await one.host.merge([idOf(1), idOf(3)])
  expect(await rowOf(ofHost)).toBeUndefined()
  expect(await one.host.runs.summary(ofHost)).toMatchObject({ status: 'completed' })
})
