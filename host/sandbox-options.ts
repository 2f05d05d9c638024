/** What an application may pass for a sandbox; `check-options.ts` refuses everything else. */
import type { RunOptions } from './run-options.ts'

export interface SandboxOptions extends Pick<RunOptions, 'egress' | 'onProgress' | 'signal'> {
  /** The directory whose content is copied to /mnt/workspace; absent: an empty workspace. */
  readonly workspace?: string
  /** Size and machine, as of a run. */
  readonly vm?: Omit<NonNullable<RunOptions['vm']>, 'hibernateAfterMs'>
}
