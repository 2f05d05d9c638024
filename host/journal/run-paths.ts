import type { JournalFence } from './journal.ts'

/** Where lines of a run are stored that no process carries out; see `RunFences`. */
export type EnterFence = (paths: RunPaths) => Promise<(JournalFence & AsyncDisposable) | undefined>

/** Paths of one run's files; any of them may be missing. */
export interface RunPaths {
  readonly runId: string
  readonly directory: string
  readonly journal: string
  /** The folder of locks. */
  readonly locks: string
  /** The agent's log lines and the VM's console, with a size limit. */
  readonly agentLog: string
  readonly console: string
  /** Exchanges with the model and the web: see host/recording. */
  readonly exchanges: string
  /** The workspace disk; exists only during the run. */
  readonly disk: string
  /** What an unfinished run was started with: see host/runs/stored-run.ts. */
  readonly options: string
  /** What the run was set up with, for a replay: see host/runs/replay/setup.ts. */
  readonly setup: string
  /** Where the files of an unfinished run lie on its workspace disk. */
  readonly diskFiles: string
  /** The scratch disk with its checkpoints. */
  readonly scratch: string
  /** What of these an ended run keeps: see host/journal/kept-moments.ts. */
  readonly moments: string
  /** Disks and logs of sub-agents in VMs of their own; exists only during the run. */
  readonly agents: string
  /** The saved VM while it waits for a person; exists only during the run. */
  readonly hibernated: string
  /** The VM kept for a later run. */
  readonly kept: string
  /** Control socket of its host process; exists only during the run. */
  readonly control: string
  /** What its background process printed; absent for others. */
  readonly hostLog: string
  /** Asked before lines are added while no process carries the run out. Absent: its journal is on this machine alone. */
  readonly enterFence?: () => ReturnType<EnterFence>
}
