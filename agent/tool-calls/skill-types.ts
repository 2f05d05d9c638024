/** What is known of a run's skills: a line of each, and where the user's are laid once. */
import type { Result } from '#specs/protocol/error.ts'

export interface KnownSkill {
  readonly skillId: string
  /** One line; may be empty. */
  readonly description: string
  readonly source: 'user' | 'workspace'
  /** Of the workspace's: its folder, relative to the workspace, links followed. */
  readonly folder?: string
}

export interface SkillCatalog {
  /** The user's first, each part sorted by id; the same for the whole run. */
  readonly list: readonly KnownSkill[]
  /** What is wrong with skills of the workspace, in words; its beginning. */
  readonly problems: readonly string[]
  /**
   * Has the files of a skill of the user's laid where programs find them, once in the run however many agents load it; what
   * failed is tried again.
   */
  installOnce(skillId: string, install: () => Promise<Result<void>>): Promise<Result<void>>
}
