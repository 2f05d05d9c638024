/** The options of a host, its pool and its sandboxes. `check-options.ts` refuses all else. */
import type { ConfigInput } from './config/schema.ts'
import type { RunOptions } from './run-options.ts'
import type { VmOptions } from './vm/vm-options.ts'
import type { VmPoolOptions } from './vm/vm-pool.ts'

/** VMs that are kept ready for runs of one kind; other runs start their own as without a pool. */
export interface HostPoolOptions extends VmPoolOptions {
  /** Kind of the VMs. A run with the same options gets one of them. */
  readonly vm?: Omit<VmOptions, 'start'>
}

export interface HostOptions {
  /** Warm VMs, with which runs start sooner. Close a host that has a pool. Default: no pool. */
  readonly pool?: HostPoolOptions
  /** The configuration, in the form of the file. Default: the user's file, read when a run starts. */
  readonly config?: ConfigInput
  /**
   * Settings over those of the configuration, as `KEY=VALUE` with a value in TOML or a text: `limits.maxTokens=50000`. A
   * variable of `env` for the same setting does not count then. At most 64. Default: none.
   */
  readonly overrides?: readonly string[]
  /** The variables from which keys, model and folders are read. Default: `process.env`. */
  readonly env?: Readonly<Record<string, string | undefined>>
}

export interface SandboxOptions extends Pick<RunOptions, 'egress' | 'onProgress' | 'signal'> {
  /** The directory whose content is copied to /mnt/workspace. Default: an empty workspace. */
  readonly workspace?: string
  /** Size and machine. */
  readonly vm?: VmOptions
}
