/** What a fleet does for the runs of a host: stores their journals, reads those of other hosts, finds workspaces. */
import type { RunHandle } from '../control/run-handle.ts'
import type { ForkRequest, Forks } from '../forks/fork-run.ts'
import type { Rewound } from '../forks/rewind.ts'
import type { JournalFence } from '../journal/journal.ts'
import type { EnterFence, RunPaths } from '../journal/run-paths.ts'
import type { RunSource } from '../journal/run-source.ts'
import type { SharedKeys } from '../providers/shared-keys.ts'

/** A run of a fleet whose disk this host has not got. */
export interface RunElsewhere {
  /** Whether a host carries it out. */
  readonly isAtWork: boolean
  /** Forks it by what the store of files has. Undefined: the store has not what the moment needs. */
  forkStored(request: ForkRequest): Promise<Forks | undefined>
  /** Has the host that has the disk fork it there. Undefined: that was this host. */
  fork(request: ForkRequest): Promise<Forks | undefined>
  /** Has that host rewind it there. Undefined: that was this host. */
  rewind(
    options: { readonly to: string; readonly prompt?: string | undefined; readonly despiteEffects: boolean },
    by: string,
  ): Promise<Rewound | undefined>
  /** Ends it as cancelled, if it has not ended. */
  end(by: string): Promise<void>
}

/** Where the journal of each run is stored besides: by a fleet, which decides which host may write. */
export interface RunFences {
  /** Asked when a run starts or is resumed. Undefined: its journal is on this machine alone. */
  of(runId: string): JournalFence | undefined
  /**
   * Asked when lines are added to a run that no process carries out, such as of changes that are applied. Undefined: its
   * journal is on this machine alone. @throws {CaissonError} `run_busy` when another host has it
   */
  readonly enter?: EnterFence
  /** What the hosts know of model keys together. Absent: this host uses its keys alone. */
  readonly keys?: SharedKeys
  /** Where runs of other hosts are read. Absent: there are none. */
  readonly source?: RunSource
  /**
   * A run of the fleet that this process does not carry out, to watch it and to act on it. Null: it has ended; undefined: it is
   * none of the fleet, or is carried out here.
   * @param options.orBeginning also one that this process has taken and not begun, whose folder may not be there yet
   */
  elsewhere?(
    paths: RunPaths,
    options?: { readonly orBeginning?: boolean },
  ): Promise<RunHandle | null | undefined>
  /** To fork or rewind a run of the fleet. Undefined: this host has its disk, or it is none of the fleet. */
  makeThere?(paths: RunPaths): Promise<RunElsewhere | undefined>
  /**
   * Where the workspace of a run is on this machine, which makes it where it is empty or uploaded. Undefined: where the run
   * had it. @throws {CaissonError} `workspace_refused`, `file_not_found` where this machine has none
   */
  workspaceOf?(runId: string): Promise<string | undefined>
}
