/** Both sides of a changed file, from its unified diff and its new content. Pure. */
import { applyPatch, parsePatch, reversePatch } from 'diff'
import type { ServiceReply } from '../../client/index.ts'

export type Change = ServiceReply<'listChanges'>['changes'][number]
export type Hunk = Change['hunks'][number]

export interface Sides {
  readonly before: string
  readonly after: string
}

/**
 * @param diff between the file on the host now and its content in the run
 * @param after content in the run; undefined: the diff has all of it, as for a new or deleted file
 * @returns undefined where the diff does not fit the content
 */
export function sidesOf({ change }: Change, diff: string, after: string | undefined): Sides | undefined {
  const [patch] = parsePatch(diff)
  if (patch === undefined) return undefined
  if (change === 'deleted') {
    const before = applyPatch('', reversePatch(patch))
    return before === false ? undefined : { before, after: '' }
  }
  const whole = after ?? (change === 'added' ? applyPatch('', patch) : false)
  if (whole === false) return undefined
  const before = applyPatch(whole, reversePatch(patch), { fuzzFactor: 0 })
  return before === false ? undefined : { before, after: whole }
}

/** The hunk with a line of the new content, from 1, its unchanged lines included; undefined between two. */
export function hunkAt(hunks: readonly Hunk[], line: number): Hunk | undefined {
  return hunks.find(({ newStart, newLines }) => line >= newStart && line < newStart + Math.max(1, newLines))
}

/** Whether it can be applied now: neither in conflict nor done. */
export function canApply({ change, state }: Change): boolean {
  return change !== 'unsupported' && state.kind === 'clear'
}
