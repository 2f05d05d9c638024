/**
 * Lists of runs by the index of a host. It is compared with the files of each run first, so it does not matter which process
 * changed them; a run whose journal cannot be read has no row, and is always listed.
 */
import { stat } from 'node:fs/promises'
import { hasCode } from '#specs/errors.ts'
import { RunOutcome } from '#specs/protocol/task.ts'
import type { HostIndex } from '../database/host-index.ts'
import type { IndexedRun, IndexQuery } from '../database/run-table.ts'
import { mapBounded } from '../files/bounded-map.ts'
import { parseJson } from '../files/json.ts'
import { summaryFile } from './journal-summary.ts'
import { RunOutline } from './run-outline.ts'
import { begunAt, type CheckedRunQuery } from './run-query.ts'

/** A run that may match, with its outline where that is known. */
export interface ListedRun {
  readonly id: string
  readonly outline?: RunOutline
}

interface RunFiles {
  readonly journalOf: (runId: string) => string
  /** @throws {CaissonError} `state_corrupted` */
  readonly outlineOf: (runId: string) => Promise<RunOutline>
}

export class RunIndex {
  readonly #index: () => HostIndex | undefined
  readonly #files: RunFiles

  constructor(index: () => HostIndex | undefined, files: RunFiles) {
    this.#index = index
    this.#files = files
  }

  /** All runs that match, and others that may: whoever asks looks at what it gets. Without an index all runs. */
  async find(ids: readonly string[], query: Partial<CheckedRunQuery>): Promise<ListedRun[]> {
    const index = this.#index()
    const others = index === undefined ? undefined : await this.#refresh(index, ids)
    const found = others && index?.runs((table) => table.find(indexQuery(query)))
    if (others === undefined || found === undefined) return ids.map((id) => ({ id }))
    const known = found.map(({ id, outline }): ListedRun => {
      const { data } = RunOutline.safeParse(parseJson(outline))
      return data === undefined ? { id } : { id, outline: data }
    })
    return [...known, ...others.map((id) => ({ id }))]
  }

  /** Makes rows anew where the files are others. @returns runs without a row; undefined where the index cannot be used */
  async #refresh(index: HostIndex, ids: readonly string[]): Promise<string[] | undefined> {
    const rows = index.runs((table) => table.stamps())
    if (rows === undefined) return undefined
    const changed: IndexedRun[] = []
    const others: string[] = []
    await mapBounded(ids, async (id) => {
      // Before the outline: what is written meanwhile makes it old.
      const stamp = await stampOf(this.#files.journalOf(id))
      if (stamp !== undefined && rows.get(id) === stamp) return
      const row = stamp === undefined ? undefined : await this.#rowOf(id, stamp)
      if (row === undefined) others.push(id)
      else changed.push(row)
    })
    const present = new Set(ids)
    const without = new Set(others)
    const removed = [...rows.keys()].filter((id) => !present.has(id) || without.has(id))
    return index.runs((table) => {
      table.update(changed, removed)
      return others
    })
  }

  /** Undefined: its journal is damaged. */
  async #rowOf(id: string, stamp: string): Promise<IndexedRun | undefined> {
    try {
      const outline = await this.#files.outlineOf(id)
      const { startedAt, forkedAt, workspace, model, metadata = {}, state } = outline
      return {
        ...{ id, stamp, workspace, model, metadata },
        begunAt: begunAt({ startedAt: startedAt ?? 0, forkedAt }),
        outcome: state.end?.outcome ?? null,
        outline: JSON.stringify(outline),
      }
    } catch (error) {
      if (hasCode(error, 'state_corrupted')) return undefined
      throw error
    }
  }
}

/** A status that is no outcome depends on more than the index has. */
function indexQuery({
  filter: { status, ...filter } = {},
  after,
  limit,
}: Partial<CheckedRunQuery>): IndexQuery {
  const outcome = status === undefined ? undefined : (RunOutcome.safeParse(status).data ?? null)
  const isExact = outcome !== null
  return {
    ...filter,
    outcome,
    // One more tells whether there is another page.
    ...(isExact && limit !== undefined ? { limit: limit + 1 } : {}),
    ...(isExact && after !== undefined ? { after } : {}),
  }
}

/** What is other once anything was written. Undefined: there is no journal. */
async function stampOf(journal: string): Promise<string | undefined> {
  const of = async (file: string): Promise<string | undefined> => {
    const found = await stat(file).catch(() => undefined)
    return found === undefined ? undefined : `${found.ino} ${found.size} ${found.mtimeMs}`
  }
  const [lines, summary = ''] = await Promise.all([of(journal), of(summaryFile(journal))])
  return lines === undefined ? undefined : `${lines}, ${summary}`
}
