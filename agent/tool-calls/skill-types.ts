/** A run's skills: one line for each, and the installation of the user's, once per run. */
import type { Result } from '#specs/protocol/error.ts'

export interface KnownSkill {
  readonly skillId: string
  /** One line; may be empty. */
  readonly description: string
  readonly source: 'user' | 'workspace'
  /** Folder of a workspace skill, relative to the workspace, with links resolved. */
  readonly folder?: string
}

export interface SkillCatalog {
  /** The user's first, each part sorted by id; constant for the run. */
  readonly list: readonly KnownSkill[]
  /** Problems of workspace skills, in text, up to a limit. */
  readonly problems: readonly string[]
  /** Installs the files of a user's skill once per run, however many agents load it; retries after a failure. */
  installOnce(skillId: string, install: () => Promise<Result<void>>): Promise<Result<void>>
}
