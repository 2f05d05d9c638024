/**
 * Merges a sub-agent's changes into its parent's workspace. Returns both versions of conflicts; single paths can be
 * taken later.
 */
import { Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { fileFailure } from '#specs/node/file-error.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { AgentConflict, AgentResult } from '../tool-calls/sub-agent-types.ts'
import { toolFailure } from '../tool-calls/tool.ts'
import { mergeView, takeName } from '../workspace/merge.ts'
import { readTextAt, removeAt } from '../workspace/trees.ts'
import type { AgentView } from './views.ts'

export type MergeOutcome = Pick<AgentResult, 'merged' | 'conflicts' | 'leftOut'>

export const nothingMerged: MergeOutcome = { merged: [], conflicts: [], leftOut: [] }

/** Maximum conflicts shown with both versions, and characters of each. */
const shownConflicts = 20
const shownChars = 2_000

/** Merges the view into `root`. */
export async function mergeChanges(
  view: AgentView,
  root: string,
  owner: Owner,
  signal: AbortSignal,
): Promise<MergeOutcome> {
  const { path, start, upper } = view
  const { merged, conflicts, leftOut } = await mergeView(
    { child: path, start, parent: root, upper },
    { owner, signal },
  )
  const shown = conflicts.map((conflict, index) =>
    index < shownConflicts ? withTexts(conflict, root, path) : { path: conflict },
  )
  return { merged, conflicts: shown, leftOut }
}

function withTexts(path: string, parent: string, child: string): AgentConflict {
  const parentText = textOf(parent, path)
  const childText = textOf(child, path)
  return {
    path,
    ...(parentText === undefined ? {} : { parentText }),
    ...(childText === undefined ? {} : { childText }),
  }
}

function textOf(root: string, path: string): string | undefined {
  const opened = Root.open(root)
  if (!opened.ok) return undefined
  using tree = opened.value
  const found = tree.locate(path, { links: 'refuse' })
  if (!found.ok) return undefined
  using place = found.value
  try {
    return readTextAt(place, shownChars)
  } catch {
    return undefined
  }
}

/** Makes `path` in `to` equal to `from`; returns the normalized path. */
export async function takeFile(
  from: string,
  to: string,
  path: string,
  owner: Owner,
): Promise<Result<string>> {
  const opened = [Root.open(from, { knownAs: to }), Root.open(to, { owner })] as const
  const [source, target] = opened
  try {
    if (!source.ok) return source
    if (!target.ok) return target
    // The child may have deleted the directory too.
    const found = source.value.locate(path, { links: 'refuse' })
    using place = found.ok ? found.value : undefined
    if (!found.ok && found.error.code !== 'not_found' && found.error.code !== 'not_a_directory') return found
    const reached = target.value.locate(path, { links: 'refuse', createParents: place !== undefined })
    if (!reached.ok)
      return place === undefined && reached.error.code === 'not_found' ? { ok: true, value: path } : reached
    using goal = reached.value
    if (goal.path === '')
      return toolFailure('invalid_input', 'take a file or a directory, not the whole workspace')
    if (place === undefined) removeAt(goal.directory, goal.name)
    else await takeName(place.directory, goal.directory, goal.name, owner)
    return { ok: true, value: goal.path }
  } catch (thrown) {
    return fileFailure(`cannot take "${path}"`, thrown)
  } finally {
    for (const root of opened) if (root.ok) root.value[Symbol.dispose]()
  }
}
