/**
 * What the journal costs in rows: an append beside a file that is flushed, bytes for each line, and appends of many
 * connections at once with and without a notice.
 */
import { mkdtempDisposable, open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { FleetDatabase } from '../../host/fleet/database.ts'
import { RunTable } from '../../host/fleet/run-table.ts'
import { newRun, rowsBehind, takeNow } from '../../host/test/fleet/fleet-place.ts'
import type { PostgresServer } from '../../test/support/postgres.ts'
import type { Figures } from './bench.ts'
import { figureOf, repeats, reportProgress, round } from './figures.ts'
import { machineLoad, newDatabase } from './fleet-place.ts'

const lines = repeats(2) === 1 ? 20 : 400
const batch = 20
/** About the median line of a run: a call of a tool. */
const message = 'x'.repeat(400)
const event = { type: 'vm-keep-failed', message } as const

export async function measureAppends(server: PostgresServer): Promise<Figures> {
  reportProgress('appends')
  await using database = await FleetDatabase.open(await newDatabase(server))
  const table = new RunTable(database)
  await using folder = await mkdtempDisposable(path.join(tmpdir(), 'caisson-bench-'))
  const file = await open(path.join(folder.path, 'journal.jsonl'), 'a')
  try {
    const runId = await newRun(database)
    const hold = await takeNow(table, runId, 'host')
    let end = { seq: 0, hash: '0'.repeat(64) }
    const next = (count: number) => {
      const rows = rowsBehind(runId, end, Array<typeof event>(count).fill(event), Date.now())
      end = rows.at(-1) ?? end
      return rows
    }
    const [fileMs, rowMs, batchMs] = [[] as number[], [] as number[], [] as number[]]
    // In turns, since the machine has other work.
    for (let round = 0; round < lines; round += 1) {
      const [row] = next(1)
      fileMs.push(
        await timed(async () => {
          await file.appendFile(`${row?.body}\n`)
          await file.datasync()
        }),
      )
      rowMs.push(await timed(() => table.append(hold, row === undefined ? [] : [row])))
      if (round % batch === 0) {
        const rows = next(batch)
        batchMs.push((await timed(() => table.append(hold, rows))) / batch)
      }
    }
    const [fileOf, rowOf, batchOf] = [figureOf(fileMs), figureOf(rowMs), figureOf(batchMs)]
    return {
      ...{ fileLineMs: fileOf, rowLineMs: rowOf, batchedRowLineMs: batchOf },
      rowToFile: round(rowOf.p50 / fileOf.p50),
      batchedRowToFile: round(batchOf.p50 / fileOf.p50),
      ...{ single: await bytesOf(database, table, 1), batched: await bytesOf(database, table, batch) },
    }
  } finally {
    await file.close()
  }
}

/** Bytes that a line takes: itself, heap, indexes, and write-ahead log. */
async function bytesOf(database: FleetDatabase, table: RunTable, atOnce: number): Promise<Figures> {
  const count = repeats(2) === 1 ? 40 : 2_000
  const runId = await newRun(database)
  const hold = await takeNow(table, runId, 'host')
  // So that no page is written whole into the log because of what was before.
  await database.query('CHECKPOINT')
  const before = await sizes(database)
  let end = { seq: 0, hash: '0'.repeat(64) }
  let bytes = 0
  for (let added = 0; added < count; added += atOnce) {
    const rows = rowsBehind(runId, end, Array<typeof event>(atOnce).fill(event), Date.now())
    bytes += rows.reduce((sum, { body }) => sum + body.length, 0)
    end = rows.at(-1) ?? end
    await table.append(hold, rows)
  }
  const after = await sizes(database)
  const each = (name: keyof typeof after) => Math.round((after[name] - before[name]) / count)
  return { body: Math.round(bytes / count), heap: each('heap'), indexes: each('indexes'), wal: each('wal') }
}

async function sizes(database: FleetDatabase) {
  const [row] = await database.query<{ heap: string; indexes: string; wal: string }>(
    `SELECT pg_table_size('caisson.journal') AS heap, pg_indexes_size('caisson.journal') AS indexes,
            pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS wal`,
  )
  return { heap: Number(row?.heap), indexes: Number(row?.indexes), wal: Number(row?.wal) }
}

/** Appends in a second by 1 to 64 connections, each with a run of its own: of runs that somebody follows, and of others. */
export async function measureNotices(server: PostgresServer): Promise<Figures> {
  const counts = repeats(2) === 1 ? [1, 2] : [1, 2, 4, 8, 16, 32, 64]
  const address = await newDatabase(server)
  await using database = await FleetDatabase.open(address)
  const figures: Record<string, unknown> = {}
  for (const count of counts) {
    reportProgress(`notices, ${count} connections`)
    const connections = await Promise.all(Array.from({ length: count }, () => FleetDatabase.open(address)))
    try {
      const [noticed, quiet] = [[] as number[], [] as number[]]
      for (let turn = -1; turn < repeats(3); turn += 1)
        for (const [rates, isFollowed] of [[quiet, false] as const, [noticed, true] as const]) {
          const rate = await appendsPerS(database, connections, isFollowed)
          if (turn >= 0) rates.push(rate)
        }
      const [withOf, withoutOf] = [figureOf(noticed), figureOf(quiet)]
      figures[`connections${count}`] = {
        ...{ noticedPerS: withOf, quietPerS: withoutOf, noticedToQuiet: round(withOf.p50 / withoutOf.p50) },
        load: machineLoad(),
      }
      reportProgress(JSON.stringify(figures[`connections${count}`]))
    } finally {
      await Promise.all(connections.map((one) => one[Symbol.asyncDispose]()))
    }
  }
  return { notices: figures }
}

async function appendsPerS(
  database: FleetDatabase,
  connections: readonly FleetDatabase[],
  isFollowed: boolean,
): Promise<number> {
  const table = new RunTable(database)
  const writers = await Promise.all(
    connections.map(async (own) => {
      const runId = await newRun(database)
      const hold = await takeNow(table, runId, 'host')
      if (isFollowed) await table.follow(runId)
      return { hold, own: new RunTable(own) }
    }),
  )
  const since = performance.now()
  const until = since + (repeats(2) === 1 ? 100 : 1_000)
  let added = 0
  await Promise.all(
    writers.map(async ({ hold, own }) => {
      for (let end = { seq: 0, hash: '0'.repeat(64) }; performance.now() < until; added += 1) {
        const rows = rowsBehind(hold.runId, end, [event])
        await own.append(hold, rows)
        end = rows[0] ?? end
      }
    }),
  )
  return (added * 1_000) / (performance.now() - since)
}

async function timed(work: () => Promise<void>): Promise<number> {
  const since = performance.now()
  await work()
  return performance.now() - since
}
