/**
 * A short look at what differs from the base now, for people who watch a run. Walks like the collection of the change
 * set, within bounds of names, paths and time, and compares contents of small files alone: a large file counts as
 * modified when its size or time differs. Directories are not listed, only what is in them.
 */
import { Buffer, isUtf8 } from 'node:buffer'
import { closeSync, constants, fstatSync, lstatSync, openSync, type Stats } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Directory, type EntryKind } from '#specs/node/directory.ts'
import { fileFailure } from '#specs/node/file-error.ts'
import { lookMaxChars, lookMaxPaths, type WorkspaceLook } from '#specs/protocol/change.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { type CollectOptions, guestPaths, MAX_DIRECTORY_PATH, openIfThere } from './collect.ts'
import { type DirectoryPair, Examiner, isSameInode, openPair, readPiece } from './examine.ts'

type LookedPath = WorkspaceLook['paths'][number]

/** Larger files are not read. */
const SMALL_BYTES = 64 * 1024
/** Time of a look, with its pauses for the agent's other work. */
const LOOK_MS = 400
/** How long the walk runs before a pause. */
const TURN_MS = 8
/** Files whose comparison is remembered. */
const REMEMBERED_MAX = 8_000
const OPEN_FILE = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

interface Walk {
  readonly paths: LookedPath[]
  readonly until: number
  turnEnd: number
  chars: number
  isPartial: boolean
}

/** Remembers what it compared, so that the next look reads only what was written since. One look runs at a time. */
export class Looker {
  readonly #places: Required<Pick<CollectOptions, 'merged' | 'base' | 'upper'>>
  readonly #examiner = new Examiner()
  /** By path: the file that was compared, and what was found. */
  readonly #compared = new Map<string, { readonly stamp: string; readonly found: LookedPath | undefined }>()
  #underWay: Promise<Result<WorkspaceLook>> | undefined

  constructor(places: Pick<CollectOptions, 'merged' | 'base' | 'upper'> = {}) {
    this.#places = { ...guestPaths, ...places }
  }

  /** Fails with the system's error when there is no workspace. */
  look(): Promise<Result<WorkspaceLook>> {
    this.#underWay ??= this.#look().finally(() => {
      this.#underWay = undefined
    })
    return this.#underWay
  }

  /** For another workspace in the same place: a look under way ends first. */
  async forget(): Promise<void> {
    await this.#underWay
    this.#compared.clear()
  }

  async #look(): Promise<Result<WorkspaceLook>> {
    const now = performance.now()
    const walk: Walk = { paths: [], until: now + LOOK_MS, turnEnd: now + TURN_MS, chars: 0, isPartial: false }
    try {
      using merged = Directory.openTrusted(this.#places.merged)
      using base = openIfThere(this.#places.base)
      using upper = base === undefined ? undefined : openIfThere(this.#places.upper)
      await this.#visit(openPair({ merged, base, upper }, '', 0), walk)
      return { ok: true, value: { paths: walk.paths, isPartial: walk.isPartial } }
    } catch (thrown) {
      return fileFailure('cannot look at the workspace', thrown)
    }
  }

  async #visit(pair: DirectoryPair, walk: Walk): Promise<void> {
    const before = new Map(pair.before.map(({ name, kind }) => [name, kind]))
    const after = new Map(pair.after.map(({ name, kind }) => [name, kind]))
    // As in the collection: only at the top is a name untouched that the upper directory does not have.
    const touched = pair.depth === 0 ? pair.written : undefined
    for (const name of [...new Set([...after.keys(), ...before.keys()])].sort()) {
      const was = before.get(name)
      const is = after.get(name)
      if (was === is && was !== 'other' && touched?.has(name) === false) continue
      if (performance.now() > walk.turnEnd) await this.#pause(walk)
      if (walk.isPartial) return
      try {
        if (is === 'directory') await this.#enter(pair, name, was, walk)
        else this.#note(await this.#compare(pair, name, was, is), walk)
      } catch {
        // Whoever works in the workspace has changed it meanwhile: the next look sees it.
      }
    }
  }

  async #pause(walk: Walk): Promise<void> {
    await nextTurn()
    const now = performance.now()
    walk.turnEnd = now + TURN_MS
    if (now > walk.until) walk.isPartial = true
  }

  async #enter(pair: DirectoryPair, name: string, was: EntryKind | undefined, walk: Walk): Promise<void> {
    const path = pathOf(pair, name)
    const enter = this.#examiner.examine(pair, name, was, 'directory', 0)?.enter
    if (enter === undefined) return
    try {
      if (was !== undefined && was !== 'directory') this.#note({ path, kind: 'deleted' }, walk)
      if (enter.depth > limits.changeMaxDepth || path.length > MAX_DIRECTORY_PATH) walk.isPartial = true
      else await this.#visit(enter, walk)
    } finally {
      for (const directory of [enter.merged, enter.base, enter.upper]) directory?.[Symbol.dispose]()
    }
  }

  #note(found: LookedPath | undefined, walk: Walk): void {
    if (found === undefined) return
    walk.chars += found.path.length
    if (walk.paths.length < lookMaxPaths && walk.chars <= lookMaxChars) walk.paths.push(found)
    else walk.isPartial = true
  }

  async #compare(
    pair: DirectoryPair,
    name: string,
    was: EntryKind | undefined,
    is: EntryKind | undefined,
  ): Promise<LookedPath | undefined> {
    const path = pathOf(pair, name)
    if (is === undefined) return { path, kind: 'deleted' }
    if (is === 'other') return undefined
    const kind = was === undefined ? 'added' : 'modified'
    if (is === 'link') {
      if (was === 'link' && this.#examiner.examine(pair, name, was, is, 0) === undefined) return undefined
      return { path, kind }
    }
    const base = was === 'file' ? pair.base : undefined
    const seen = lstatSync(pair.merged.at(name))
    const stood = base === undefined ? undefined : lstatSync(base.at(name))
    if (stood !== undefined && isSameInode(seen, stood)) return undefined
    const stamp = [seen.ino, seen.ctimeMs, seen.size].join(' ')
    const known = this.#compared.get(path)
    if (known?.stamp === stamp) return known.found
    const contents = {
      after: readSmall(pair.merged, name, seen),
      before: base === undefined || stood === undefined ? undefined : readSmall(base, name, stood),
    }
    const found = await findChange({ path, kind }, contents, { seen, stood })
    if (known !== undefined || this.#compared.size < REMEMBERED_MAX)
      this.#compared.set(path, { stamp, found })
    return found
  }
}

async function findChange(
  change: Pick<LookedPath, 'path' | 'kind'>,
  { after, before }: { readonly after: Buffer | undefined; readonly before: Buffer | undefined },
  { seen, stood }: { readonly seen: Stats; readonly stood: Stats | undefined },
): Promise<LookedPath | undefined> {
  const isSameMode = stood !== undefined && (seen.mode & 0o777) === (stood.mode & 0o777)
  if (after === undefined) {
    const isSame = isSameMode && seen.size === stood.size && seen.mtimeMs === stood.mtimeMs
    return isSame ? undefined : change
  }
  if (stood === undefined) return { ...change, ...(await countLines(Buffer.alloc(0), after)) }
  if (before === undefined) return change
  if (!after.equals(before)) return { ...change, ...(await countLines(before, after)) }
  return isSameMode ? undefined : change
}

/** Added and removed lines; nothing for binary contents, and for texts that differ too much to compare at once. */
async function countLines(before: Buffer, after: Buffer): Promise<Pick<LookedPath, 'added' | 'removed'>> {
  for (const bytes of [before, after]) if (bytes.includes(0) || !isUtf8(bytes)) return {}
  if (before.length === 0) return { added: linesOf(after.toString()), removed: 0 }
  // Loaded with the first comparison, as for the edits of calls.
  const { createTwoFilesPatch } = await import('diff/lib/patch/create.js')
  const options = { context: 0, maxEditLength: 1_000, timeout: 50 }
  const texts = [before.toString(), after.toString()] as const
  const patch = createTwoFilesPatch('a', 'b', ...texts, undefined, undefined, options)
  const lines = patch?.split('\n').slice(3)
  if (lines === undefined) return {}
  const starting = (mark: string) => lines.filter((line) => line.startsWith(mark)).length
  return { added: starting('+'), removed: starting('-') }
}

function linesOf(text: string): number {
  return text === '' ? 0 : text.replace(/\n$/, '').split('\n').length
}

/** The content of a small regular file; nothing of others. */
function readSmall(directory: Directory, name: string, { size }: Stats): Buffer | undefined {
  if (size > SMALL_BYTES) return undefined
  const fd = openSync(directory.at(name), OPEN_FILE)
  try {
    return fstatSync(fd).isFile() ? readPiece(fd, Buffer.alloc(SMALL_BYTES), 0) : undefined
  } finally {
    closeSync(fd)
  }
}

function pathOf({ path }: DirectoryPair, name: string): string {
  return path === '' ? name : `${path}/${name}`
}
