import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { FleetFence } from '../../fleet/fence.ts'
import { readRows } from '../../fleet/journal-rows.ts'
import { type Hold, RunTable } from '../../fleet/run-table.ts'
import { Journal } from '../../journal/journal.ts'
import { headOf, newDatabase, newRun, noteOf, rowsBehind, takeNow, takerOf } from './fleet-place.ts'

let server: PostgresServer
let database: FleetDatabase
let table: RunTable

beforeAll(async () => {
  server = await PostgresServer.start()
  database = await FleetDatabase.open(await newDatabase(server))
  table = new RunTable(database)
}, 60_000)

afterAll(async () => {
  await database[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
})

const barrier: HostEvent = { type: 'run-interrupt', reason: 'environment', message: 'a barrier' }
const effect: HostEvent = { type: 'egress-start', kind: 'http', target: 'example.com:443', rule: 'rule' }

async function openJournal(hold: Hold): Promise<{ journal: Journal; fence: FleetFence; file: string }> {
  const folder = await temporaryFolder('fence')
  const file = path.join(folder, 'journal.jsonl')
  const { runId } = hold
  const fence = new FleetFence(table, hold, await headOf(table, runId))
  const journal = await Journal.open({ runId, path: file, locks: path.join(folder, 'locks'), fence })
  return { journal, fence, file }
}

function write(journal: Journal, event: HostEvent) {
  return journal.append({ source: 'host', event })
}

async function bodies(runId: string): Promise<string[]> {
  const found: string[] = []
  for await (const { body } of readRows(database, table, runId)) found.push(body)
  return found
}

it('the rows of the fleet are the lines of the file', async () => {
  const runId = await newRun(database)
  const { journal, file } = await openJournal(await takeNow(table, runId, 'host'))
  const writing = Array.from({ length: 200 }, (_, index) => write(journal, noteOf(`line ${index}`)))
  await Promise.all(writing)
  await write(journal, barrier)
  expect((await headOf(table, runId)).seq).toBe(201)
  await write(journal, noteOf('last'))
  // Nothing waits for this one.
  await expect.poll(async () => (await headOf(table, runId)).seq, { interval: 10 }).toBe(202)
  await write(journal, noteOf('at the end'))
  await journal.close()
  expect(`${(await bodies(runId)).join('\n')}\n`).toBe(await readFile(file, 'utf8'))
  expect(await headOf(table, runId)).toMatchObject({ seq: 203, hash: journal.head })
})

it('fence: a line that starts an effect fails once another host has the run, and no line follows it', async () => {
  const runId = await newRun(database)
  const { journal, fence } = await openJournal(await takeNow(table, runId, 'frozen'))
  await write(journal, barrier)
  const { hash } = await headOf(table, runId)
  await takeNow(table, runId, 'next')
  // Nothing waits for this line, so it still seems to be written.
  await write(journal, noteOf('unseen'))
  await expect(write(journal, effect)).rejects.toThrow(expect.objectContaining({ code: 'run_busy' }))
  expect(journal.isOwn()).toBe(false)
  expect(fence.lost.aborted).toBe(true)
  await expect(write(journal, barrier)).rejects.toThrow(expect.objectContaining({ code: 'run_busy' }))
  await journal.close()
  expect((await bodies(runId)).map((body) => JSON.parse(body).event.type)).toEqual([
    'run-interrupt',
    'run-take',
  ])
  expect(JSON.parse((await bodies(runId))[1] ?? '').prev).toBe(hash)
})

it('fence: a host that may have lost the run writes nothing more', async () => {
  const runId = await newRun(database)
  const { journal, fence } = await openJournal(await takeNow(table, runId, 'host'))
  await write(journal, barrier)
  fence.lose('no sign of life of this host arrived')
  await expect(write(journal, effect)).rejects.toThrow(expect.objectContaining({ code: 'run_busy' }))
  await journal.close()
  expect(await bodies(runId)).toHaveLength(1)
})

it('what starts an effect waits while the database is away, and is stored once', async () => {
  const place = await PostgresServer.start()
  try {
    await using own = await FleetDatabase.open(await newDatabase(place))
    const rows = new RunTable(own)
    const runId = await newRun(own)
    const hold = await takeNow(rows, runId, 'host')
    const fence = new FleetFence(rows, hold, await headOf(rows, runId))
    const folder = await temporaryFolder('fence')
    const file = path.join(folder, 'journal.jsonl')
    const journal = await Journal.open({ runId, path: file, locks: path.join(folder, 'locks'), fence })
    await write(journal, barrier)
    await place.kill()
    let isStored = false
    const writing = write(journal, effect).then(() => {
      isStored = true
    })
    await new Promise((resolve) => setTimeout(resolve, 700))
    expect(isStored).toBe(false)
    await place.restart()
    await writing
    await journal.close()
    expect(await headOf(rows, runId)).toMatchObject({ seq: 2 })
  } finally {
    await place[Symbol.asyncDispose]()
  }
})

const checkpoint: HostEvent = {
  ...{ type: 'checkpoint', checkpointId: 'cp-1', durationMs: 1, elapsedMs: 1, exchanges: 0 },
}
const end: HostEvent = {
  ...{ type: 'run-end', outcome: 'completed', reason: 'completed', message: '', summary: '', durationMs: 1 },
  usage: { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 },
}

/** Its answers are lost while it is away; notes what each call that was answered said besides its lines. */
class LossyTable extends RunTable {
  isAway = false
  readonly said: { readonly lines: number; readonly ends: boolean; readonly files: unknown }[] = []

  override async append(...[hold, rows, what = {}]: Parameters<RunTable['append']>): Promise<void> {
    if (this.isAway) throw new CaissonError('state_unavailable', 'away', { cause: new Error('no answer') })
    await super.append(hold, rows, what)
    this.said.push({ lines: rows.length, ends: what.ends === true, files: what.files })
  }
}

it('lines that are stored late say neither the end of the run nor the files of a later checkpoint', async () => {
  for (const last of [checkpoint, end]) {
    const runId = await newRun(database)
    const lossy = new LossyTable(database)
    const hold = await takeNow(lossy, runId, 'host')
    const head = await headOf(lossy, runId)
    const stored = [await storedFile()]
    const asked: unknown[] = []
    const fence = new FleetFence(lossy, hold, head, async (moment, hasEnded) => {
      asked.push([moment, hasEnded])
      return stored
    })
    const events = [noteOf('stored late'), last, noteOf('after it')]
    const [late, barrierRow, after] = rowsBehind(runId, head, events)
    if (late === undefined || barrierRow === undefined || after === undefined) throw new Error('no rows')
    lossy.isAway = true
    await fence.append(late, { event: noteOf('stored late'), isBarrier: false })
    const flushed = fence.flush()
    await new Promise((resolve) => setTimeout(resolve, 20))
    const written = fence.append(barrierRow, { event: last, isBarrier: true })
    await new Promise((resolve) => setTimeout(resolve, 20))
    lossy.isAway = false
    await Promise.all([flushed, written])
    await fence.append(after, { event: noteOf('after it'), isBarrier: true })
    expect(asked).toEqual([last === checkpoint ? ['cp-1', false] : [null, true]])
    const files = stored
    expect(lossy.said).toEqual([
      { lines: 1, ends: false, files: undefined },
      { lines: 1, ends: last === end, files },
      // The row has both already.
      { lines: 1, ends: false, files: undefined },
    ])
    expect(await lossy.files(runId)).toEqual(files)
  }
})

it('stores the files of a checkpoint again when they were removed before its line, and waits while the store is away', async () => {
  const runId = await newRun(database)
  const hold = await takeNow(table, runId, 'host')
  const head = await headOf(table, runId)
  const gone = { sha256: 'f'.repeat(64) }
  const stored = await storedFile()
  const answers = [
    async () =>
      Promise.reject(new CaissonError('state_unavailable', 'away', { cause: new Error('no answer') })),
    async () => [gone],
    async () => [stored],
  ]
  const moments: (string | null)[] = []
  const fence = new FleetFence(table, hold, head, async (moment) => {
    moments.push(moment)
    return (await answers.shift()?.()) ?? []
  })
  const [line] = rowsBehind(runId, head, [checkpoint])
  if (line === undefined) throw new Error('no row')
  await fence.append(line, { event: checkpoint, isBarrier: true })
  expect(moments).toEqual(['cp-1', 'cp-1', 'cp-1'])
  expect(await table.files(runId)).toEqual([stored])
  expect((await headOf(table, runId)).seq).toBe(1)
})

async function storedFile(): Promise<{ sha256: string }> {
  const sha256 = randomBytes(32).toString('hex')
  await database.query("INSERT INTO caisson.blobs VALUES ($1, 1, $1, true, now() + interval '1 hour')", [
    sha256,
  ])
  return { sha256 }
}

it('refuses a file of this host that is not the journal of the fleet', async () => {
  const runId = await newRun(database)
  const first = await openJournal(await takeNow(table, runId, 'host'))
  await write(first.journal, barrier)
  await first.journal.close()
  const hold = await table.take(runId, await headOf(table, runId), takerOf('host'))
  if (hold === undefined) throw new Error('the run was not taken')
  await expect(openJournal(hold)).rejects.toThrow(
    expect.objectContaining({
      code: 'state_corrupted',
      message: expect.stringMatching(/on this host ends at line 0, and that of the fleet at another line 2/),
    }),
  )
})
