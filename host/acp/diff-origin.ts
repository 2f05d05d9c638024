/** What a diff of version 1 of the protocol has no place for: what happened to the file, and where a part of it begins. */
import type { ToolCallContent } from '@agentclientprotocol/sdk'

export type Diff = Extract<ToolCallContent, { type: 'diff' }>

export interface DiffOrigin {
  readonly operation: 'add' | 'delete' | 'modify'
  /** First lines of a part, from 1, on both sides. Absent: the diff has the whole file. */
  readonly lines?: { readonly old: number; readonly new: number }
}

/** JSON leaves it out. */
const origin = Symbol('origin of a diff')

export function withOrigin(diff: Diff, of: DiffOrigin): Diff {
  return Object.assign(diff, { [origin]: of })
}

export function originOf(diff: Diff & { readonly [origin]?: DiffOrigin }): DiffOrigin {
  return diff[origin] ?? { operation: diff.oldText == null ? 'add' : 'modify' }
}
