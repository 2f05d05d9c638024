/**
 * Search over an agent's workspace: one index per tree, created by the first search and released with its run or
 * sub-agent. Decides which passages answer a query.
 */
import { comparePaths } from '#specs/node/path-text.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { OpenExtension } from '../extensions/extension.ts'
import type { GatewayClient } from '../tool-calls/gateway-client.ts'
import { type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import { type CodeSearchRequest, type CodeSearchResult, createSearchCode } from '../tools/search-code.ts'
import { defaultRoot, type FileToolsOptions } from '../workspace/file-access.ts'
import { IndexMemoryBudget } from './index-memory-budget.ts'
import { fuseRankings, nearness, Vectors } from './vectors.ts'
import { leftOutReasons, type SearchLeftOut } from './walk.ts'
import { matchOf } from './words.ts'
import { type FoundPassage, type IndexBounds, WorkspaceIndex } from './workspace-index.ts'

/** Maximum passages of one file in a result. */
const perFile = 2
/** Maximum passages of one file among the text matches for a semantic search. */
const perFileMeant = 8
/** Maximum passages that one search embeds. */
const meantMaxPassages = 256

const noModel =
  'No embedding model is configured, so there is no search by meaning: search by words. The user can set one: model, under [embeddings] of the configuration.'

interface CodeSearch {
  /** `search_code` over one tree. */
  toolOver(files: FileToolsOptions): Tool
  /** Provides no tools; releases indexes together with their workspaces. */
  readonly extension: OpenExtension
}

export interface CodeSearchOptions {
  /** Access to the embedding model, for runs that have one; absent: none. */
  readonly gateway?: Pick<GatewayClient, 'post'>
  /** Memory of all indexes together. */
  readonly room?: IndexMemoryBudget
  readonly bounds?: IndexBounds
}

export function createCodeSearch(options: CodeSearchOptions = {}): CodeSearch {
  const { gateway, room = new IndexMemoryBudget(), bounds = {} } = options
  /** State of the current run. */
  let vectors: Vectors | undefined
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
  const dropAll = async (): Promise<void> => void (await Promise.all([...indexes.keys()].map(drop)))
  return {
    toolOver: (files) => {
      const { root = defaultRoot } = files
      return createSearchCode((request, signal) => searchIn(indexOf(root), vectors, request, signal), files)
    },
    extension: async ({ task }) => {
      // Discard what a late call of the previous run created: the same paths may be other files now.
      await dropAll()
      vectors = task.embeddingModel === undefined || gateway === undefined ? undefined : new Vectors(gateway)
      return {
        toolsFor: async ({ root }, signal) => {
          signal.addEventListener('abort', () => void drop(root), { once: true })
          return []
        },
        close: async () => {
          vectors = undefined
          await dropAll()
        },
      }
    },
  }
}

/** Chooses the ranking: text alone, or text and vectors. */
async function searchIn(
  index: WorkspaceIndex,
  vectors: Vectors | undefined,
  request: CodeSearchRequest,
  signal: AbortSignal,
): Promise<Result<CodeSearchResult>> {
  const match = matchOf(request.query)
  if (match === null) {
    const text = 'The query has no letter or digit; search_files finds signs.'
    return toolFailure('invalid_input', text)
  }
  if (request.by === 'words') return await searchByWords(index, match, request, signal)
  if (vectors === undefined) return toolFailure('unavailable', noModel)
  return await searchByMeaning(index, vectors, match, request, signal)
}

async function searchByWords(
  index: WorkspaceIndex,
  match: string,
  { path, limit }: CodeSearchRequest,
  signal: AbortSignal,
): Promise<Result<CodeSearchResult>> {
  const found = await index.find({ match, path, limit, perFile }, signal)
  if (!found.ok) return found
  const { passages, files, leftOut } = found.value
  return toolSuccess({ passages: [...passages], files, notes: notesOf(leftOut) })
}

/**
 * Embeds all passages when they are few, else the best text matches: a whole repository would cost millions of
 * tokens. Then fuses the two rankings.
 */
async function searchByMeaning(
  index: WorkspaceIndex,
  vectors: Vectors,
  match: string,
  { query, path, limit }: CodeSearchRequest,
  signal: AbortSignal,
): Promise<Result<CodeSearchResult>> {
  const byWords = await index.find({ match, path, limit: meantMaxPassages, perFile: perFileMeant }, signal)
  if (!byWords.ok) return byWords
  const every = { match: null, path, limit: meantMaxPassages + 1, perFile: Number.POSITIVE_INFINITY }
  const all = await index.find(every, signal)
  if (!all.ok) return all
  const isFew = all.value.passages.length <= meantMaxPassages
  // A fixed order, so that the same search sends the same request.
  const candidates = (isFew ? all.value.passages : byWords.value.passages).toSorted(
    (a, b) => comparePaths(a.path, b.path) || a.firstLine - b.firstLine,
  )
  const { files, leftOut } = all.value
  const notes = notesOf(leftOut)
  if (!isFew)
    notes.push(
      `by meaning only the ${candidates.length} passages were ranked that words find best: name a path to rank all of it`,
    )
  if (candidates.length === 0) return toolSuccess({ passages: [], files, notes })
  const asked = await vectors.of([query], 'query', signal)
  if (!asked.ok) return asked
  const made = await vectors.of(
    candidates.map(({ path: file, text }) => `${file}\n${text}`),
    'passage',
    signal,
  )
  if (!made.ok) return made
  const [wanted = new Float32Array()] = asked.value
  const near = new Map(
    candidates.map((passage, at) => [keyOf(passage), nearness(wanted, made.value[at] ?? wanted)]),
  )
  const byMeaning = candidates.map(keyOf).toSorted((a, b) => (near.get(b) ?? 0) - (near.get(a) ?? 0))
  const known = new Map(candidates.map((passage) => [keyOf(passage), passage]))
  const ranked = fuseRankings([byMeaning, byWords.value.passages.map(keyOf)])
  return toolSuccess({
    passages: best(
      ranked.flatMap((key) => known.get(key) ?? []),
      limit,
    ),
    files,
    notes,
  })
}

const keyOf = ({ path, firstLine }: FoundPassage) => `${firstLine} ${path}`

/** The first `limit` passages, with the maximum per file. */
function best(passages: readonly FoundPassage[], limit: number): FoundPassage[] {
  const counts = new Map<string, number>()
  return passages
    .filter(({ path }) => {
      const count = (counts.get(path) ?? 0) + 1
      counts.set(path, count)
      return count <= perFile
    })
    .slice(0, limit)
}

/** What was not searched, and why. */
function notesOf(leftOut: Readonly<Partial<Record<SearchLeftOut, number>>>): string[] {
  const parts = Object.entries(leftOutReasons).flatMap(([reason, words]) => {
    const count = leftOut[reason as SearchLeftOut]
    return count === undefined ? [] : [`${words} (${count})`]
  })
  return parts.length === 0 ? [] : [`not searched: ${parts.join(', ')}`]
}
