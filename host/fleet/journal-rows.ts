/** Reads the journal of a run from the rows of a fleet: by the same rules as a file, without holding all of it. */
import { CaissonError } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { type JournalPoint, journalStart, readLine } from '../journal/journal-lines.ts'
import type { FleetDatabase } from './database.ts'
import type { FleetNotices } from './notices.ts'
import type { RunTable } from './run-table.ts'

export interface ReadRow {
  readonly event: JournalEvent
  readonly body: string
  readonly end: JournalPoint
}

/** Rows that one query reads. */
const rowsAtOnce = 200
const bytesAtOnce = 8 * 1024 * 1024
/** Half of how long the fleet knows of a follower. */
const followMs = 30_000

/**
 * All lines behind `from`, in order. Some may be there that were added meanwhile.
 * @throws {CaissonError} `state_corrupted` when a line was changed or lost, `run_not_found`
 */
export async function* readRows(
  database: FleetDatabase,
  table: RunTable,
  runId: string,
  from: JournalPoint = journalStart,
): AsyncGenerator<ReadRow, JournalPoint> {
  // Read first: the journal only becomes longer.
  const head = await table.head(runId)
  if (head === undefined) throw new CaissonError('run_not_found', `the fleet has no run ${runId}`)
  let end = from
  for (;;) {
    const rows = await database.query<{ seq: number; body: string }>(
      `SELECT seq, body FROM (
         SELECT seq, body, sum(octet_length(body)) OVER (ORDER BY seq) - octet_length(body) AS before
           FROM (SELECT seq, body FROM caisson.journal
                  WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3) AS next
       ) AS part WHERE before < $4 ORDER BY seq`,
      [runId, end.seq, rowsAtOnce, bytesAtOnce],
    )
    for (const { body } of rows) {
      const line = Buffer.from(body)
      const event = readLine(line, runId, end)
      end = { seq: event.seq, bytes: end.bytes + line.length + 1, hash: event.hash }
      if (end.seq === head.seq && end.hash !== head.hash) throw lostLines(runId, head.seq, 'another line')
      yield { event, body, end }
    }
    if (rows.length > 0) continue
    if (end.seq < head.seq) throw lostLines(runId, head.seq, `${end.seq} lines`)
    return end
  }
}

/** Like {@link readRows}, and then lines as they are added, until the run has ended or the signal is aborted. */
export async function* followRows(
  parts: { readonly database: FleetDatabase; readonly table: RunTable; readonly notices: FleetNotices },
  runId: string,
  { from = journalStart, signal }: { readonly from?: JournalPoint; readonly signal?: AbortSignal } = {},
): AsyncGenerator<ReadRow, void> {
  const { database, table, notices } = parts
  let followAt = 0
  for (let end = from; signal?.aborted !== true; ) {
    if (performance.now() >= followAt) {
      await table.follow(runId)
      followAt = performance.now() + followMs
    }
    const changed = notices.wait(runId, signal)
    for await (const row of readRows(database, table, runId, end)) {
      end = row.end
      yield row
    }
    const now = await table.head(runId)
    if (now?.hasEnded === true && now.seq === end.seq) return
    await changed
  }
}

function lostLines(runId: string, seq: number, found: string): CaissonError {
  return new CaissonError(
    'state_corrupted',
    `the journal of ${runId} in the fleet lost lines or was modified: it ends at line ${seq}, and ${found} are there`,
  )
}
