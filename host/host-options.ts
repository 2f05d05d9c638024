/** The options of a host, its pool and its sandboxes. `check-options.ts` refuses all else. */

import { availableParallelism, totalmem } from 'node:os'
import type { ApiKeyStore } from './api-keys/api-keys.ts'
import type { ConfigInput } from './config/schema.ts'
import type { RunFences } from './fleet-runs/run-fences.ts'
import type { NoteStorage } from './memory/note-storage.ts'
import type { RunOptions } from './run-options.ts'
import { DEFAULT_MEMORY_BYTES, type VmOptions } from './vm/vm-options.ts'
import type { VmPoolOptions } from './vm/vm-pool.ts'
import type { WorkflowStore } from './workflows/workflow-store.ts'

/** VMs that are kept ready for runs of one kind; other runs start their own as without a pool. */
export interface HostPoolOptions extends VmPoolOptions {
  /** Kind of the VMs. A run with the same options gets one of them. */
  readonly vm?: Omit<VmOptions, 'start'>
}

/** How many runs of a host use a VM at once. The others wait, one lane after another. */
export interface HostQueueOptions {
  /** Runs at work at once. One that sleeps, or whose VM is saved, is not at work. Default: see {@link defaultMaxAtWork}. */
  readonly maxAtWork?: number
  /** Runs that wait at once, up to 10,000; beyond it a new one is refused with `queue_full`. Default: 1,000. */
  readonly maxWaiting?: number
  /** The same for the runs of one lane. Default: 200. */
  readonly maxWaitingPerLane?: number
}

/** Two runs for each processor, as far as the memory of this machine allows. */
export function defaultMaxAtWork(): number {
  const byMemory = Math.floor(totalmem() / DEFAULT_MEMORY_BYTES)
  return Math.max(1, Math.min(2 * availableParallelism(), byMemory))
}

export interface HostOptions {
  /** Warm VMs, with which runs start sooner. Close a host that has a pool. Default: no pool. */
  readonly pool?: HostPoolOptions
  /** Bounds the runs at work; the database \`index.sqlite\` in the state folder has their order. Default: no bound, no queue. */
  readonly queue?: HostQueueOptions
  /** The configuration, in the form of the file. Default: the user's file, read when a run starts. */
  readonly config?: ConfigInput
  /**
   * Settings over those of the configuration, as `KEY=VALUE` with a value in TOML or a text: `limits.maxTokens=50000`. A
   * variable of `env` for the same setting does not count then. At most 64. Default: none.
   */
  readonly overrides?: readonly string[]
  /** Where the notes of workspaces and proposals are kept. Default: a file in the state folder. */
  readonly notes?: NoteStorage
  /** Where published workflows are. Default: `workflows.sqlite` in the state folder. */
  readonly workflows?: WorkflowStore
  /** For a host of a fleet. Default: journals are on this machine alone. */
  readonly fences?: RunFences
  /** Where API keys are kept for several services, such as a fleet's. Default: a file in the state folder. */
  readonly apiKeys?: ApiKeyStore
  /** The variables from which keys, model and folders are read. Default: `process.env`. */
  readonly env?: Readonly<Record<string, string | undefined>>
}

export interface SandboxOptions extends Pick<RunOptions, 'egress' | 'onProgress' | 'signal'> {
  /** The directory whose content is copied to /mnt/workspace. Default: an empty workspace. */
  readonly workspace?: string
  /** Size and machine. */
  readonly vm?: VmOptions
  /**
   * Names of secrets that programs may use, as `{{NAME}}` in a header of a request that the host makes by https in their
   * place. They are in the configuration or set through `Host.secrets`. Default: none.
   */
  readonly secrets?: readonly string[]
}
