/** What an application may pass for a host; `check-options.ts` refuses everything else. */
import type { ConfigInput } from './config/schema.ts'
import type { RunOptions } from './run-options.ts'
import type { VmPoolOptions } from './vm/vm-pool.ts'

/** VMs that are kept ready for runs of one kind; other runs start their own as without a pool. */
export interface HostPoolOptions extends VmPoolOptions {
  /** What the VMs are; a run that says the same of its VM gets one of these. */
  readonly vm?: RunOptions['vm']
}

export interface HostOptions {
  /** Warm VMs for runs, which begin to work the sooner; absent: none. A host with a pool is to be closed. */
  readonly pool?: HostPoolOptions
  /** The configuration, as the file would say it; absent: the user's file, read when a run starts. */
  readonly config?: ConfigInput
  /** Where keys, model, and folders are read from; absent: the process's own environment. */
  readonly env?: Readonly<Record<string, string | undefined>>
}
