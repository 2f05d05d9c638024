/**
 * Walks a directory and lists what is copied into the VM. Never follows a link, opens only plain files, and never
 * enters another file system; lists excluded paths with their reasons.
 */
import { type BigIntStats, lstatSync, readFileSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Directory } from '#specs/node/directory.ts'
import { errnoOf } from '#specs/node/file-error.ts'
import { encodePath } from '#specs/node/path-text.ts'
import { Place } from '#specs/node/place.ts'
import type { LeftOut } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { isStagedName } from '../apply/staged-files.ts'
import { checkDirectory, checkFolder, checkSamePlace, type OwnPlaces } from '../directory-check.ts'
import { failureOf, WorkspaceFailure, type WorkspaceResult, workspaceSuccess } from '../workspace-error.ts'
import { ancestorsOf, contentOf, namesByDirectory } from './given-contents.ts'
import { HeldRules, IGNORE_FILE_MAX_BYTES, type RuleChange } from './rule-changes.ts'
import { type RuleKind, ScanRules, type Verdict } from './scan-rules.ts'
import { holdsSecret, mayHoldSecret } from './secret-files.ts'

/** Maximum directory depth; each level holds a descriptor. */
const MAX_DEPTH = 200
/** Maximum time before other tasks of the process get a turn, in milliseconds. */
const TURN_MS = 20

export interface ScanOptions extends OwnPlaces {
  /** The workspace, any path. */
  readonly directory: string
  /** Whether `directory` is a real path of earlier: a link in it is refused. Default: false. */
  readonly isReal?: boolean
  /** Whether it is an added folder, which only goes in. Default: false. */
  readonly isFolder?: boolean
  /** Patterns as in a .gitignore; matching paths are copied although they are ignored. */
  readonly include?: readonly string[]
  /** Changes of ignore rules that no person accepted; the files they admit stay out. */
  readonly ruleChanges?: readonly RuleChange[]
  /** Content in the place of a file's, or of a new file in a directory that goes in, by path. The rules hold for it. */
  readonly contents?: ReadonlyMap<string, Buffer>
  /** Looks at these paths alone. Absent: at all. */
  readonly only?: readonly string[]
  /** Maximum entries. Absent: `limits.workspaceMaxEntries`. */
  readonly maxEntries?: number
  /** Maximum bytes of content. Absent: {@link workspaceMaxBytes}. */
  readonly maxBytes?: number
  readonly signal?: AbortSignal
}

/** Half of the workspace disk's fixed size; the other half covers rounding to blocks. */
export const workspaceMaxBytes = 8 * 1024 ** 3

export interface ScannedEntry {
  /** Path text below the workspace (PEP 383). */
  readonly path: string
  readonly kind: 'file' | 'directory' | 'link'
  /** Permission bits with set-uid, set-gid and sticky. */
  readonly mode: number
  /** Bytes of a file; 0 for others. */
  readonly size: number
  readonly device: bigint
  readonly inode: bigint
  readonly mtimeNs: bigint
  readonly ctimeNs: bigint
  /** A link's unresolved target. */
  readonly target?: string
  /** Of a file: what is copied in the place of what the disk has. */
  readonly content?: Buffer
}

export interface Scan {
  /** The real path of the workspace. */
  readonly root: string
  readonly device: bigint
  readonly inode: bigint
  readonly rootMode: number
  /** In the order of `comparePaths`: a directory before what is in it. */
  readonly entries: readonly ScannedEntry[]
  /** A directory's path ends with `/` and includes everything below it. */
  readonly leftOut: readonly LeftOut[]
  readonly files: number
  readonly bytes: number
  /** Include patterns without a match. */
  readonly unmatched: readonly string[]
}

/** Walks the directory. Failures: `refused_directory`, `too_large`, `unreadable`, `cancelled`. */
export async function scanWorkspace(options: ScanOptions): Promise<WorkspaceResult<Scan>> {
  const place =
    options.isReal === true ? checkSamePlace(options.directory) : workspaceSuccess(options.directory)
  if (!place.ok) return place
  const checked = (options.isFolder === true ? checkFolder : checkDirectory)(place.value, options)
  if (!checked.ok) return checked
  try {
    using root = Directory.openTrusted(checked.value)
    const walk = new Walk(options, checked.value, lstatSync(root.at('.'), { bigint: true }))
    await walk.run(root)
    return workspaceSuccess(walk.result())
  } catch (thrown) {
    return failureOf(`reading ${nameOf(options, checked.value)}`, thrown)
  }
}

class Walk {
  readonly #rules: ScanRules
  readonly #held: HeldRules
  readonly #options: ScanOptions
  readonly #place: string
  readonly #root: BigIntStats
  /** Names with a given content, by directory. */
  readonly #given: ReadonlyMap<string, readonly string[]>
  /** Paths to look at, with the directories on the way; undefined: all. */
  readonly #only: ReadonlySet<string> | undefined
  readonly #entries: ScannedEntry[] = []
  readonly #leftOut: LeftOut[] = []
  #bytes = 0
  #turnStart = performance.now()

  /** @param place real path of `root` */
  constructor(options: ScanOptions, place: string, root: BigIntStats) {
    this.#options = options
    this.#place = place
    this.#root = root
    this.#rules = new ScanRules(options.include ?? [], place)
    this.#held = new HeldRules(options.ruleChanges ?? [])
    this.#given = namesByDirectory(options.contents?.keys() ?? [])
    this.#only = options.only && new Set(options.only.flatMap((name) => [name, ...ancestorsOf(name)]))
  }

  async run(root: Directory): Promise<void> {
    await this.#directory(root, '', 0)
  }

  result(): Scan {
    return {
      root: this.#place,
      device: this.#root.dev,
      inode: this.#root.ino,
      rootMode: Number(this.#root.mode) & 0o7777,
      entries: this.#entries,
      leftOut: this.#leftOut,
      files: this.#entries.filter(({ kind }) => kind === 'file').length,
      bytes: this.#entries.reduce((sum, { size }) => sum + size, 0),
      unmatched: this.#rules.unmatched,
    }
  }

  async #directory(directory: Directory, path: string, depth: number): Promise<void> {
    const names = directory
      .list()
      .map(({ name }) => name)
      .sort(byCodeUnits)
    this.#readRules(directory, path, names)
    const given = this.#given.get(path) ?? []
    const all = given.length === 0 ? names : [...new Set([...names, ...given])].sort(byCodeUnits)
    for (const name of all) {
      await this.#pause()
      const below = path === '' ? name : `${path}/${name}`
      if (this.#only !== undefined && !this.#only.has(below)) continue
      await this.#entry(directory, name, below, depth)
    }
    if (path === '') return
    this.#rules.leave(path)
    this.#held.leave(path)
  }

  async #entry(directory: Directory, name: string, path: string, depth: number): Promise<void> {
    let stat: BigIntStats
    try {
      stat = lstatSync(directory.at(name), { bigint: true })
    } catch (thrown) {
      // Removed since it was listed, or only given. Other errors mean that it is unreadable.
      if (errnoOf(thrown) !== 'ENOENT') this.#leave(path, 'unreadable')
      else this.#newFile(path)
      return
    }
    if (stat.isDirectory()) return this.#subdirectory(directory, name, path, stat, depth)
    if (isStagedName(name)) return this.#leave(path, 'staged')
    const verdict = this.#decide(path, false)
    if (verdict !== 'take') return this.#leave(path, verdict)
    if (encodePath(path).length > limits.pathMaxBytes) return this.#leave(path, 'too_large')
    if (stat.isSymbolicLink()) {
      const target = new Place(directory, name, '').readLink()
      return target.ok
        ? this.#take({ ...common(path, stat), kind: 'link', target: target.value })
        : this.#leave(path, 'unreadable')
    }
    if (stat.isSocket()) return this.#leave(path, 'socket')
    if (stat.isFIFO()) return this.#leave(path, 'fifo')
    if (!stat.isFile()) return this.#leave(path, 'device')
    const given = this.#options.contents?.get(path)
    const text = () => (given === undefined ? readSmall(directory, name) : given.toString('utf8'))
    const reason = this.#reasonOf(path, text)
    if (reason !== undefined) return this.#leave(path, reason)
    const own = given === undefined ? { size: Number(stat.size) } : contentOf(given)
    this.#take({ ...common(path, stat), kind: 'file', ...own })
  }

  /** A file that only its given content makes. */
  #newFile(path: string): void {
    const given = this.#options.contents?.get(path)
    if (given === undefined) return
    const verdict = this.#decide(path, false)
    const reason = verdict === 'take' ? this.#reasonOf(path, () => given.toString('utf8')) : verdict
    const mtimeNs = BigInt(Date.now()) * 1_000_000n
    const device = this.#root.dev
    if (reason === undefined)
      this.#take({ path, kind: 'file', mode: 0o644, device, mtimeNs, ...contentOf(given) })
    else this.#leave(path, reason)
  }

  /** Why a file that the rules take stays out by its content. */
  #reasonOf(path: string, read: () => string | undefined): LeftOut['reason'] | undefined {
    const place = `${this.#place}/${path}`
    if (!mayHoldSecret(place) || this.#rules.isNamed(path, false)) return undefined
    const text = read()
    if (text === undefined) return 'unreadable'
    return holdsSecret(place, text) ? 'secret' : undefined
  }

  async #subdirectory(
    parent: Directory,
    name: string,
    path: string,
    stat: BigIntStats,
    depth: number,
  ): Promise<void> {
    const shown = `${path}/`
    const verdict = this.#decide(path, true)
    if (verdict === 'secret') return this.#leave(shown, 'secret')
    const descend = verdict === 'take' || this.#rules.mayIncludeBelow(path)
    if (!descend) return this.#leave(shown, verdict)
    if (stat.dev !== this.#root.dev) return this.#leave(shown, 'other_filesystem')
    if (depth >= MAX_DEPTH || encodePath(path).length > limits.pathMaxBytes)
      return this.#leave(shown, 'too_large')
    const before = { entries: this.#entries.length, leftOut: this.#leftOut.length }
    this.#take({ ...common(path, stat), kind: 'directory' })
    try {
      using directory = parent.open(name)
      await this.#directory(directory, path, depth + 1)
    } catch (thrown) {
      if (thrown instanceof WorkspaceFailure || !isDenied(thrown)) throw thrown
      this.#entries.length = before.entries
      return this.#leave(shown, 'unreadable')
    }
    // An ignored directory without included files is excluded as a whole.
    if (verdict !== 'take' && this.#entries.length === before.entries + 1) {
      this.#entries.length = before.entries
      this.#leftOut.length = before.leftOut
      this.#leave(shown, verdict)
    }
  }

  #decide(path: string, isDirectory: boolean): Verdict | 'rules_changed' {
    const verdict = this.#rules.decide(path, isDirectory)
    const isHeld =
      verdict === 'take' && this.#held.holds(path, isDirectory) && !this.#rules.isIncluded(path, isDirectory)
    return isHeld ? 'rules_changed' : verdict
  }

  #readRules(directory: Directory, path: string, names: readonly string[]): void {
    const read = (kind: RuleKind, file: string) => {
      const shown = path === '' ? file : `${path}/${file}`
      if (!names.includes(file)) return this.#held.add(kind, path, shown, undefined)
      const text = readSmall(directory, file)
      if (text === undefined) {
        throw new WorkspaceFailure(
          'refused_directory',
          `the ignore file "${shown}" cannot be read (a plain readable file of at most 1 MiB is expected), so the files that it excludes are unknown`,
        )
      }
      this.#rules.add(kind, path, text, shown)
      this.#held.add(kind, path, shown, text)
    }
    if (path === '') {
      const exclude = names.includes('.git') ? readExclude(directory) : undefined
      if (exclude !== undefined) this.#rules.add('git', '', exclude, '.git/info/exclude')
      this.#held.add('git', '', '.git/info/exclude', exclude)
    }
    read('git', '.gitignore')
    read('caisson', '.caissonignore')
  }

  #take(entry: ScannedEntry): void {
    this.#entries.push(entry)
    const maxEntries = this.#options.maxEntries ?? limits.workspaceMaxEntries
    if (this.#entries.length > maxEntries)
      throw this.#tooLarge(`more than ${maxEntries} files and directories`)
    if (entry.kind !== 'file') return
    this.#bytes += entry.size
    const maxBytes = this.#options.maxBytes ?? workspaceMaxBytes
    if (this.#bytes > maxBytes) throw this.#tooLarge(`more than ${sizeOf(maxBytes)} of files`)
  }

  #tooLarge(what: string): WorkspaceFailure {
    const largest = [...this.#entries].sort((a, b) => b.size - a.size).slice(0, 3)
    const named = largest.map(({ path, size }) => `"${path}" (${sizeOf(size)})`).join(', ')
    return new WorkspaceFailure(
      'too_large',
      `${nameOf(this.#options, this.#options.directory)} holds ${what}${this.#options.isFolder === true ? ' (all added folders count together)' : ''}; the largest seen: ${named}. List what is not needed in .caissonignore, or choose a smaller directory`,
    )
  }

  #leave(path: string, reason: LeftOut['reason']): void {
    this.#leftOut.push({ path, reason })
  }

  async #pause(): Promise<void> {
    if (performance.now() - this.#turnStart < TURN_MS) return
    await nextTurn()
    this.#options.signal?.throwIfAborted()
    this.#turnStart = performance.now()
  }
}

function nameOf({ isFolder }: ScanOptions, directory: string): string {
  return `the ${isFolder === true ? 'folder' : 'workspace'} "${directory}"`
}

function common(path: string, stat: BigIntStats): Omit<ScannedEntry, 'kind'> {
  return {
    path,
    mode: Number(stat.mode) & 0o7777,
    size: 0,
    device: stat.dev,
    inode: stat.ino,
    mtimeNs: stat.mtimeNs,
    ctimeNs: stat.ctimeNs,
  }
}

/** The repository's own ignore file, which git does not track. */
function readExclude(root: Directory): string | undefined {
  try {
    using git = root.open('.git')
    using info = git.open('info')
    return readSmall(info, 'exclude')
  } catch {
    // No repository, or a worktree's link file: there is no such file.
    return undefined
  }
}

/** The text of a small plain file, or undefined. */
function readSmall(directory: Directory, name: string): string | undefined {
  const opened = new Place(directory, name, '').openFile()
  if (!opened.ok) return undefined
  using file = opened.value
  if (file.stat.size > IGNORE_FILE_MAX_BYTES) return undefined
  return readFileSync(file.fd, 'utf8')
}

function isDenied(thrown: unknown): boolean {
  return (
    thrown instanceof Error &&
    'code' in thrown &&
    ['EACCES', 'EPERM', 'ENOENT', 'ENOTDIR', 'ELOOP', 'EIO'].includes(String(thrown.code))
  )
}

/** With this order of names, the walk follows `comparePaths`. */
function byCodeUnits(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0
}

function sizeOf(bytes: number): string {
  const million = bytes / 1_000_000
  return million < 1_000 ? `${million.toFixed(1)} MB` : `${(million / 1_000).toFixed(1)} GB`
}
