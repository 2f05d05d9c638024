/** Compares the changes of several runs path by path. */
import type { RunStore } from '../journal/run-store.ts'
import { changedPaths, openResults, type RunOutcomeFiles, signatureOf } from './results.ts'

/** What one run did with a path. */
export interface ComparedChange {
  readonly change: 'added' | 'modified' | 'deleted' | 'mode' | 'unsupported'
  /** Lines; absent for what has none, and where they were not counted. */
  readonly added?: number
  readonly removed?: number
  /** Number of its content among those of this path, from 1: runs with the same number left the same. */
  readonly content: number
}

export interface ComparedPath {
  readonly path: string
  /** In the order of the runs; null: the run left the path as it was. */
  readonly runs: readonly (ComparedChange | null)[]
  /** Whether all runs left the same. */
  readonly isSame: boolean
}

export interface ComparedRun {
  readonly runId: string
  readonly outcome: string
  /** The agent's answer. Untrusted text. */
  readonly summary: string
  readonly entries: number
  readonly requests: number
  readonly costUsd: number | null
}

export interface RunComparison {
  readonly runs: readonly ComparedRun[]
  readonly paths: readonly ComparedPath[]
}

/** @throws {CaissonError} `not_possible_now`, `invalid_options`: see {@link openResults} */
export async function compareRuns(store: RunStore, runIds: readonly string[]): Promise<RunComparison> {
  const results = await openResults(store, runIds)
  return {
    runs: results.map(({ runId, state: { end, usage, costUsd }, changes }) => ({
      ...{ runId, outcome: end?.outcome ?? 'not ended', summary: end?.summary ?? '' },
      ...{ entries: changes.entries.size, requests: usage.requests, costUsd },
    })),
    paths: changedPaths(results).map((path) => comparePath(path, results)),
  }
}

function comparePath(path: string, results: readonly RunOutcomeFiles[]): ComparedPath {
  const numbers = new Map<string, number>()
  const runs = results.map((result): ComparedChange | null => {
    const change = result.changes.entries.get(path)
    if (change === undefined) return null
    const signature = signatureOf(change)
    const content = numbers.get(signature) ?? numbers.size + 1
    numbers.set(signature, content)
    const { added, removed } = result.lines.get(path) ?? {}
    return {
      change: wordOf(change.kind, result.manifest.entries.has(path)),
      ...(added === undefined ? {} : { added }),
      ...(removed === undefined ? {} : { removed }),
      content,
    }
  })
  return { path, runs, isSame: numbers.size === 1 && !runs.includes(null) }
}

function wordOf(kind: string, wasThere: boolean): ComparedChange['change'] {
  if (kind === 'deleted' || kind === 'mode' || kind === 'unsupported') return kind
  return wasThere ? 'modified' : 'added'
}
