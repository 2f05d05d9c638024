/** Renames that calls of a run report, by move_file and by patches, and the paths from which a file came. */
import type { JournalEvent } from '#specs/protocol/event.ts'

export interface Move {
  readonly from: string
  readonly to: string
}

/** Renames that are remembered, those of one patch, and paths that are followed for one file. */
const movesMaxCount = 10_000
const patchMovesMaxCount = 50
const pathsMaxCount = 32
const openMaxCalls = 10_000

/** Renames that a patch asks for: in the form of git, or by "*** Move to:". */
export function patchMoves(tool: string, argumentsText: string): readonly Move[] {
  if (tool !== 'apply_patch' || !/rename to |Move to:/.test(argumentsText)) return []
  const moves: Move[] = []
  let from: string | undefined
  for (const line of readPatch(argumentsText).split('\n')) {
    const source = /^(?:\*\*\* Update File: |rename from )(.+)$/.exec(line)
    const target = /^(?:\*\*\* Move to: |rename to )(.+)$/.exec(line)
    if (source !== null) from = plain(source[1])
    if (target === null || from === undefined || moves.length === patchMovesMaxCount) continue
    moves.push({ from, to: plain(target[1]) })
    from = undefined
  }
  return moves
}

/** Renames that a call made. @param asked what its arguments ask for */
export function movesOf(tool: string, writes: readonly string[], asked: readonly Move[]): readonly Move[] {
  const [from, to, ...others] = writes
  if (tool === 'move_file')
    return from === undefined || to === undefined || others.length > 0 ? [] : [{ from, to }]
  return asked.filter((move) => writes.includes(move.from) && writes.includes(move.to))
}

/** Collects the renames of a run. */
export class Moves {
  readonly #moves: Move[] = []
  readonly #asked = new Map<string, readonly Move[]>()

  next({ event, ...line }: JournalEvent): void {
    if (line.source !== 'agent') return
    if (event.type === 'tool-start') {
      const asked = patchMoves(event.tool, event.arguments)
      if (asked.length > 0 && this.#asked.size < openMaxCalls)
        this.#asked.set(`${line.agentPath} ${event.callId}`, asked)
    }
    if (event.type !== 'tool-end') return
    const key = `${line.agentPath} ${event.callId}`
    const moves = movesOf(event.tool, event.writes ?? [], this.#asked.get(key) ?? [])
    this.#asked.delete(key)
    for (const move of moves) if (this.#moves.length < movesMaxCount) this.#moves.push(move)
  }

  /** The path and those that it may have had before. */
  pathsBehind(path: string): ReadonlySet<string> {
    const paths = new Set([path])
    for (const one of paths)
      for (const { from, to } of this.#moves) {
        const rest = one === to ? '' : one.startsWith(`${to}/`) ? one.slice(to.length) : undefined
        if (rest !== undefined && paths.size < pathsMaxCount) paths.add(`${from}${rest}`)
      }
    return paths
  }
}

function readPatch(argumentsText: string): string {
  try {
    const given: unknown = JSON.parse(argumentsText)
    const { patch } = Object(given) as Readonly<Record<string, unknown>>
    return typeof patch === 'string' ? patch : ''
  } catch {
    return ''
  }
}

function plain(path = ''): string {
  return path
    .trim()
    .replace(/^"(.*)"$/, '$1')
    .replace(/^(\.\/)+/, '')
}
