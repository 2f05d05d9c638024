/** The commands that lines of ours name as the next ones: of the shell, or in a conversation its own. */
import type { InConversation } from '../options.ts'

export interface NextCommands {
  readonly diff: string
  readonly apply: string
  /** Takes a path that was left out. */
  readonly applyPath: string
  /** Merges a path in conflict. */
  readonly merge: string
  readonly undo: string
}

/** @param io of a conversation only where the run is the one that its commands are about */
export function nextCommands({ conversation }: InConversation, runId: string): NextCommands {
  if (conversation !== undefined)
    return {
      diff: '/diff',
      apply: '/apply',
      applyPath: '/apply PATH…',
      merge: '/merge PATH',
      undo: '/undo',
    }
  const apply = `caisson workspace apply ${runId}`
  return {
    diff: `caisson workspace diff ${runId}`,
    apply: `${apply} --all`,
    applyPath: `${apply} PATH…`,
    merge: `caisson workspace merge ${runId} PATH`,
    undo: `caisson workspace undo ${runId}`,
  }
}
