/**
 * The search over the workspace as an agent has it: an index for each tree that is searched, made by its first search and gone
 * with the run or the sub-agent that it was for. Decides which passages answer a query.
 */
import type { Result } from '#specs/protocol/error.ts'
import type { OpenExtension } from '../extensions.ts'
import { defaultRoot, type FileToolsOptions } from '../tools/file-access.ts'
import { type CodeSearchRequest, type CodeSearchResult, createSearchCode } from '../tools/search-code.ts'
import { type Tool, toolFailure, toolSuccess } from '../tools/tool.ts'
import { type LeftOut, leftOutReasons } from './walk.ts'
import { matchOf } from './words.ts'
import { type IndexBounds, IndexRoom, WorkspaceIndex } from './workspace-index.ts'

/** Passages of one file in one result. */
const perFile = 2

const noModel =
  'No embedding model is configured, so there is no search by meaning: search by words. The user can set one: model, under [embeddings] of the configuration.'

export interface CodeSearch {
  /** `search_code` over one tree. */
  toolOver(files: FileToolsOptions): Tool
  /** Brings no tools; gives indexes up with the workspaces that they are of. */
  readonly extension: OpenExtension
}

export interface CodeSearchOptions {
  /** Of all indexes together. */
  readonly room?: IndexRoom
  readonly bounds?: IndexBounds
}

export function createCodeSearch({
  room = new IndexRoom(),
  bounds = {},
}: CodeSearchOptions = {}): CodeSearch {
  const indexes = new Map<string, WorkspaceIndex>()
  const indexOf = (root: string): WorkspaceIndex => {
    const index = indexes.get(root) ?? new WorkspaceIndex({ root, room, bounds })
    indexes.set(root, index)
    return index
  }
  const drop = async (root: string): Promise<void> => {
    const index = indexes.get(root)
    indexes.delete(root)
    await index?.close()
  }
  return {
    toolOver: (files) => {
      const { root = defaultRoot } = files
      return createSearchCode((request, signal) => searchIn(indexOf(root), request, signal), files)
    },
    extension: async () => ({
      toolsFor: async ({ root }, signal) => {
        signal.addEventListener('abort', () => void drop(root), { once: true })
        return []
      },
      close: async () => {
        await Promise.all([...indexes.keys()].map(drop))
      },
    }),
  }
}

async function searchIn(
  index: WorkspaceIndex,
  { query, path, limit, by }: CodeSearchRequest,
  signal: AbortSignal,
): Promise<Result<CodeSearchResult>> {
  const match = matchOf(query)
  if (match === null) {
    const text = 'The query has no letter or digit; search_files finds signs.'
    return toolFailure('invalid_input', text)
  }
  if (by === 'meaning') return toolFailure('unavailable', noModel)
  const found = await index.find({ match, path, limit, perFile }, signal)
  if (!found.ok) return found
  const { passages, files, leftOut } = found.value
  return toolSuccess({ passages: [...passages], files, notes: notesOf(leftOut) })
}

/** What was not searched, and why. */
function notesOf(leftOut: Readonly<Partial<Record<LeftOut, number>>>): string[] {
  const parts = Object.entries(leftOutReasons).flatMap(([reason, words]) => {
    const count = leftOut[reason as LeftOut]
    return count === undefined ? [] : [`${words} (${count})`]
  })
  return [
    ...(leftOut.late === undefined ? [] : ['not all files are in the index yet: search again to go on']),
    ...(parts.length === 0 ? [] : [`not searched: ${parts.join(', ')}`]),
  ]
}
