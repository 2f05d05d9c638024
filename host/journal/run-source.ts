/** Where the runs are read that other hosts carry out. Their folders on this host are copies, which reading brings up to date. */
import type { JournalEvent } from '#specs/protocol/event.ts'
import type { JournalPoint } from './journal-lines.ts'
import type { RunPaths } from './run-paths.ts'
import type { CheckedRunQuery } from './run-query.ts'
import type { SharedRun } from './shared-run.ts'

export interface SharedRunQuery extends Partial<Pick<CheckedRunQuery, 'filter' | 'after'>> {
  readonly limit: number
  /** Only these. */
  readonly ids?: readonly string[]
  /** Only those with open questions. */
  readonly asks?: boolean
}

/** Of a fleet. Every method throws `state_unavailable` while its database is away. */
export interface RunSource {
  /** Undefined: it is no run of the fleet. */
  run(runId: string): Promise<SharedRun | undefined>
  /** Newest first, at most `limit`. */
  find(query: SharedRunQuery): Promise<SharedRun[]>
  /** Ids that begin so, in order. */
  idsFrom(prefix: string, limit: number): Promise<string[]>
  /** Whether this process carries the run out: then its folder here is the truth. */
  isHere(runId: string): boolean
  /** Its lines, in order. @throws {CaissonError} `state_corrupted`, `run_not_found` */
  lines(runId: string): AsyncIterable<{ readonly event: JournalEvent; readonly end: JournalPoint }>
  /** The lines of the open questions, without those that are damaged. */
  requests(runs: readonly SharedRun[]): Promise<JournalEvent[]>
  /**
   * Appends what the journal here lacks. Does nothing for a run that this host carries out, or that is none of the fleet.
   * @throws {CaissonError} `state_corrupted` when a line of the fleet is none, or breaks the chain; `run_not_found` for a copy
   * of a run that the fleet has no more
   */
  refresh(paths: RunPaths): Promise<SharedRun | undefined>
  /**
   * Removes an ended run from the fleet; folders here stay. Does nothing for a run that is none of the fleet.
   * @throws {CaissonError} `not_possible_now` until it has ended, `run_busy` while a host writes to it, `permission_denied`
   */
  remove(runId: string): Promise<void>
  /**
   * Refuses what needs files that one host of the fleet has alone: the disk of a run, or the log of what was applied.
   * @throws {CaissonError} `not_possible_now`, which names that host
   */
  requireHere(paths: RunPaths, need: 'disk' | 'apply log'): Promise<void>
  /**
   * Makes runs that are made of others, such as forks, runs of the fleet that has the others: all of them, or none. They sleep,
   * unless they have ended, and any host continues them. Does nothing where one of the others is none of the fleet.
   * @param made nobody works on them yet
   * @throws {CaissonError} the database's or the store's; then the fleet has none of them
   */
  adopt(made: readonly RunPaths[], of: readonly string[]): Promise<void>
  /** Also fetches what was stored of its changes and its recording. @throws {CaissonError} `state_corrupted` */
  fetch(paths: RunPaths): Promise<SharedRun | undefined>
}
