import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import type { FleetAddress } from '../../fleet/address.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { followRows, type ReadRow, readRows } from '../../fleet/journal-rows.ts'
import { FleetNotices } from '../../fleet/notices.ts'
import { journalChannel, RunTable } from '../../fleet/run-table.ts'
import { journalStart } from '../../journal/journal-lines.ts'
import { headOf, newDatabase, newRun, noteOf, rowsBehind, takeNow, takerOf } from './fleet-place.ts'

let server: PostgresServer
let address: FleetAddress
let database: FleetDatabase
let table: RunTable

beforeAll(async () => {
  server = await PostgresServer.start()
  address = await newDatabase(server)
  database = await FleetDatabase.open(address)
  table = new RunTable(database)
}, 60_000)

afterAll(async () => {
  await database[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
})

it('prefix continuation: the lines of two hosts are one chain, byte by byte as they were written [R.01]', async () => {
  const runId = await newRun(database)
  const first = await takeNow(table, runId, 'first')
  const text = 'ä \u0000 \ud800 "quoted" \u{1f600}\n'
  const rows = rowsBehind(runId, await headOf(table, runId), [noteOf(text), noteOf('two')])
  await table.append(first, rows)
  const second = await takeNow(table, runId, 'second')
  const more = rowsBehind(runId, await headOf(table, runId), [noteOf('three')])
  await table.append(second, more)
  const read = await readAll(runId)
  const { body } = read[2] ?? { body: '' }
  expect(JSON.parse(body).event).toEqual({
    ...{ type: 'run-take', epoch: 2, host: 'second', message: 'the test says so' },
  })
  expect(read.map((row) => row.body)).toEqual([...rows.map((row) => row.body), body, more[0]?.body])
  const bytes = read.reduce((sum, row) => sum + Buffer.byteLength(row.body) + 1, 0)
  expect(read.at(-1)?.end).toEqual({ seq: 4, bytes, hash: more[0]?.hash })
})

it('fence: what a host still writes is refused once another host has the run', async () => {
  const runId = await newRun(database)
  const frozen = await takeNow(table, runId, 'frozen')
  await table.append(frozen, rowsBehind(runId, await headOf(table, runId), [noteOf('before')]))
  const prepared = rowsBehind(runId, await headOf(table, runId), [noteOf('late')])
  const next = await takeNow(table, runId, 'next')
  await expect(table.append(frozen, prepared)).rejects.toThrow(
    expect.objectContaining({
      code: 'run_busy',
      message: expect.stringContaining('another host has taken it'),
    }),
  )
  // Nor does it with the hash of now.
  const fresh = rowsBehind(runId, await headOf(table, runId), [noteOf('late')])
  await expect(table.append(frozen, fresh)).rejects.toThrow(expect.objectContaining({ code: 'run_busy' }))
  await expect(table.append({ ...frozen, epoch: next.epoch }, fresh)).rejects.toThrow(/another host/)
  await table.append(next, fresh)
  expect(await headOf(table, runId)).toMatchObject({ seq: 3, epoch: 2, hostId: next.hostId })
})

it('fence: of 16 hosts that take a run at once, one gets it', async () => {
  await using others = new AsyncDisposableStack()
  const tables = [table]
  for (let index = 0; index < 3; index += 1)
    tables.push(new RunTable(others.use(await FleetDatabase.open(address))))
  for (let round = 0; round < perTier(3, 30); round += 1) {
    const runId = await newRun(database)
    const seen = await headOf(table, runId)
    const holds = await Promise.all(
      Array.from({ length: 16 }, (_, index) => {
        const taker = takerOf(`host${index}`)
        return (tables[index % tables.length] ?? table).take(runId, seen, taker)
      }),
    )
    expect(holds.filter((hold) => hold !== undefined)).toHaveLength(1)
    expect(await headOf(table, runId)).toMatchObject({ epoch: 1 })
  }
})

it('fence: a run that has ended is taken by nobody', async () => {
  const runId = await newRun(database)
  const hold = await takeNow(table, runId, 'host')
  await table.append(hold, rowsBehind(runId, await headOf(table, runId), [noteOf('the end')]), { ends: true })
  expect(await table.take(runId, await headOf(table, runId), takerOf('other'))).toBeUndefined()
})

it('recovery determinism: a host clock that is wrong by a year changes nothing [R.01]', async () => {
  const runId = await newRun(database)
  const year = 366 * 86_400_000
  const first = await takeNow(table, runId, 'ahead')
  const ahead = rowsBehind(runId, await headOf(table, runId), [noteOf('ahead')], Date.now() + year)
  await table.append(first, ahead)
  const second = await takeNow(table, runId, 'behind')
  const behind = rowsBehind(runId, await headOf(table, runId), [noteOf('behind')], Date.now() - year)
  await table.append(second, behind)
  const stale = rowsBehind(runId, await headOf(table, runId), [noteOf('late')], Date.now() + year)
  await expect(table.append(first, stale)).rejects.toThrow(expect.objectContaining({ code: 'run_busy' }))
  expect(await readAll(runId)).toHaveLength(3)
})

it('consume once: of answers from several hosts at once, one is written, with what follows from it [R.01]', async () => {
  await using others = new AsyncDisposableStack()
  const tables = [table]
  for (let index = 0; index < 3; index += 1)
    tables.push(new RunTable(others.use(await FleetDatabase.open(address))))
  await database.query('CREATE TABLE IF NOT EXISTS effects (run_id text, who integer)')
  for (let round = 0; round < perTier(3, 30); round += 1) {
    const runId = await newRun(database)
    const seen = await headOf(table, runId)
    const results = await Promise.all(
      Array.from({ length: 16 }, (_, who) =>
        (tables[who % tables.length] ?? table).writeFree(runId, seen, noteOf(`answer ${who}`), async (tx) => {
          await tx.query('INSERT INTO effects VALUES ($1, $2)', [runId, who])
        }),
      ),
    )
    expect(results.filter((result) => result === 'written')).toHaveLength(1)
    expect(results.filter((result) => result === 'changed')).toHaveLength(15)
    expect(await database.query('SELECT who FROM effects WHERE run_id = $1', [runId])).toEqual([
      { who: results.indexOf('written') },
    ])
    const lines = await readAll(runId)
    expect(lines.map(({ event }) => event.event)).toEqual([noteOf(`answer ${results.indexOf('written')}`)])
  }
})

it('consume once: an answer whose transaction fails leaves neither line nor effect [R.01]', async () => {
  const runId = await newRun(database)
  const seen = await headOf(table, runId)
  const fails = table.writeFree(runId, seen, noteOf('answer'), async () => {
    throw new Error('the wake-up failed')
  })
  await expect(fails).rejects.toThrow(/the wake-up failed/)
  expect(await headOf(table, runId)).toEqual(seen)
  expect(await readAll(runId)).toEqual([])
  expect(await table.writeFree(runId, seen, noteOf('answer'), async () => undefined)).toBe('written')
})

it('consume once: a run that a host has is answered by that host [R.01]', async () => {
  const runId = await newRun(database)
  const hold = await takeNow(table, runId, 'host')
  const answer = async () =>
    await table.writeFree(runId, await headOf(table, runId), noteOf('answer'), async () => undefined)
  expect(await answer()).toBe('busy')
  await table.release(hold, true)
  expect(await answer()).toBe('written')
  // A host that gave the run back has it no more.
  const late = rowsBehind(runId, await headOf(table, runId), [noteOf('late')])
  await expect(table.append(hold, late)).rejects.toThrow(expect.objectContaining({ code: 'run_busy' }))
})

it('adds lines all or none, and refuses some that do not continue the journal', async () => {
  const runId = await newRun(database)
  const hold = await takeNow(table, runId, 'host')
  const start = await headOf(table, runId)
  const rows = rowsBehind(runId, start, [noteOf('one'), noteOf('two')])
  await expect(table.append(hold, rows.slice(1))).rejects.toThrow(/ends at line 0 with another hash/)
  await table.append(hold, rows)
  await expect(table.append(hold, rowsBehind(runId, start, [noteOf('fork')]))).rejects.toThrow(
    /ends at line 2 with another hash/,
  )
  expect(await readAll(runId)).toHaveLength(2)
})

it('a line is added once, although its host asks again after the server died meanwhile', async () => {
  const place = await PostgresServer.start()
  try {
    const own = await FleetDatabase.open(await newDatabase(place))
    await using _ = own
    const rows = new RunTable(own)
    const runId = await newRun(own)
    const hold = await takeNow(rows, runId, 'host')
    let added = 0
    for (let round = 0; round < perTier(2, 25); round += 1) {
      const lines = rowsBehind(runId, await headOf(rows, runId), [noteOf(`${round}`)])
      // Now before the server has the line, now after it, now in between.
      const first = rows.append(hold, lines).then(
        () => 'added',
        () => 'unknown',
      )
      await sleep((round % 5) * 2)
      await place.kill()
      await first
      await place.restart()
      await rows.append(hold, lines)
      await rows.append(hold, lines)
      added += 1
    }
    const read = await readAll(runId, own)
    expect(read.map(({ event }) => event.seq)).toEqual(Array.from({ length: added }, (_, index) => index + 1))
  } finally {
    await place[Symbol.asyncDispose]()
  }
})

it('a host that stops within a transaction holds nobody up for long', async () => {
  const runId = await newRun(database)
  const seen = await headOf(table, runId)
  const frozen = Promise.withResolvers<void>()
  const inside = Promise.withResolvers<void>()
  const stopped = table.writeFree(runId, seen, noteOf('stopped'), async () => {
    inside.resolve()
    await frozen.promise
  })
  const failed = expect(stopped).rejects.toThrow(expect.objectContaining({ code: 'state_unavailable' }))
  await inside.promise
  const since = performance.now()
  expect(await table.take(runId, seen, takerOf('next'))).toMatchObject({ epoch: 1 })
  expect(performance.now() - since).toBeLessThan(20_000)
  frozen.resolve()
  await failed
  expect(await headOf(table, runId)).toMatchObject({ seq: 0, epoch: 1 })
})

it('tells of rows that somebody changed or removed', async () => {
  const runId = await newRun(database)
  const hold = await takeNow(table, runId, 'host')
  const events = [noteOf('one'), noteOf('two'), noteOf('three')]
  await table.append(hold, rowsBehind(runId, await headOf(table, runId), events))
  const read = () => readAll(runId)
  const change = (sql: string) => database.query(`${sql} AND run_id = '${runId}'`)
  await change("UPDATE caisson.journal SET body = replace(body, 'two', 'owt') WHERE seq = 2")
  await expect(read()).rejects.toThrow(/journal line 2: the hash of the line does not agree/)
  await change("UPDATE caisson.journal SET body = replace(body, 'owt', 'two') WHERE seq = 2")
  expect(await read()).toHaveLength(3)
  await change('DELETE FROM caisson.journal WHERE seq = 3')
  await expect(read()).rejects.toThrow(/lost lines or was modified: it ends at line 3, and 2 lines are there/)
})

it('notices lines of runs that somebody follows, and of no others', async () => {
  const noticed: string[] = []
  const listening = await database.listen([journalChannel], (runId) => noticed.push(runId))
  try {
    const [quiet, followed] = [await newRun(database), await newRun(database)]
    await table.follow(followed)
    await table.follow(followed)
    for (const runId of [quiet, followed]) {
      const hold = await takeNow(table, runId, 'host')
      await table.append(hold, rowsBehind(runId, await headOf(table, runId), [noteOf('one')]))
    }
    await expect.poll(() => noticed).toEqual([followed])
    // Whoever followed an hour ago is forgotten with the next one.
    await database.query("UPDATE caisson.followed SET until = now() - interval '2 hours'")
    await table.follow(quiet)
    expect(await database.query('SELECT run_id FROM caisson.followed')).toEqual([{ run_id: quiet }])
  } finally {
    await listening[Symbol.asyncDispose]()
  }
})

it('a follower on another host sees each line once, over a restart of the server, until the run ends', async () => {
  const place = await PostgresServer.start()
  try {
    const own = await newDatabase(place)
    await using writer = await FleetDatabase.open(own)
    await using reader = await FleetDatabase.open(own)
    await using notices = new FleetNotices(reader, journalChannel)
    const rows = new RunTable(writer)
    const runId = await newRun(writer)
    const hold = await takeNow(rows, runId, 'host')
    const following = followAll(reader, notices, runId)
    const append = async (text: string, ends = false) =>
      await rows.append(hold, rowsBehind(runId, await headOf(rows, runId), [noteOf(text)]), { ends })
    await append('one')
    await sleep(200)
    await append('two')
    await place.kill()
    await place.restart()
    await append('three')
    await append('four', true)
    expect(await following).toEqual(['one', 'two', 'three', 'four'])
  } finally {
    await place[Symbol.asyncDispose]()
  }
})

async function readAll(runId: string, from = database): Promise<ReadRow[]> {
  const rows: ReadRow[] = []
  for await (const row of readRows(from, new RunTable(from), runId)) rows.push(row)
  return rows
}

/** From where it came, over lost connections. */
async function followAll(reader: FleetDatabase, notices: FleetNotices, runId: string): Promise<string[]> {
  const seen: string[] = []
  let from = journalStart
  for (;;) {
    try {
      const parts = { database: reader, table: new RunTable(reader), notices }
      for await (const { event, end } of followRows(parts, runId, { from })) {
        if (event.event.type === 'vm-keep-failed') seen.push(event.event.message)
        from = end
      }
      return seen
    } catch {
      await sleep(50)
    }
  }
}
