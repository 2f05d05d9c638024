/**
 * Which paths of the workspace git's configuration on the host names: its hooks, included files, and the programs it
 * runs. Reads `.git/config` and what that includes, and never runs git.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { decodePath } from '#specs/node/path-text.ts'
import { ancestorsOf } from './conflicts.ts'
import { foldPath } from './flagged.ts'
import { parseGitConfig } from './git-config.ts'

/** A larger one is not looked through, and then any change may be one that it names. */
const CONFIG_MAX_BYTES = 4 * 1024 * 1024
const MAX_FILES = 100

const includeSettings = /^include(if\..*)?\.path$/s
/** Settings that name a folder or file git reads; of a folder, all that is in it counts. */
const pathSettings = /^(core\.(hookspath|attributesfile)|init\.templatedir)$/
/** Settings that name a program, mostly by a line for the shell. */
const commandSettings =
  /^(alias\..+|pager\..+|(.+\.)?(fsmonitor|sshcommand|pager|editor|askpass|gitproxy|alternaterefscommand|external|command|cmd|textconv|driver|clean|smudge|process|helper|program|defaultkeycommand|difffilter|packobjectshook|uploadpack|receivepack|update|path|smtpserver))$/s
/** What a shell's line is made of, besides words. */
const betweenWords = /[\s;|&()<>"'`$={}!]+/

interface Pointers {
  /** Folded path to the setting that names it. */
  readonly named: Map<string, string>
  /** Those of {@link named} that stand for all below them too; empty text is the workspace itself. */
  readonly whole: Map<string, string>
  /** Directories on the way to what is named. */
  readonly above: Set<string>
  /** A file that is not looked through. */
  unread: string | undefined
}

export class GitPointers {
  readonly #root: string
  readonly #pointers: Pointers = { named: new Map(), whole: new Map(), above: new Set(), unread: undefined }
  readonly #read = new Set<string>()

  /**
   * @param root the real path of the workspace
   * @param repositories directories of the workspace with a `.git` of their own; the one that the workspace is, or
   *   lies in, is found
   */
  constructor(root: string, repositories: readonly string[]) {
    this.#root = root
    const own = enclosingRepository(root)
    const all = new Set([
      ...(own === undefined ? [] : [own]),
      ...repositories.map((at) => path.join(root, at)),
    ])
    for (const tree of all) for (const file of configFiles(tree)) this.#readConfig(file, tree)
  }

  /** Why a change of this path changes what git runs or obeys; nothing if it does not. */
  reasonFor(changed: string, kind: 'file' | 'directory' | 'link'): string | undefined {
    const { named, whole, above, unread } = this.#pointers
    if (kind === 'directory') return
    if (unread !== undefined)
      return `git's configuration ("${unread}") cannot be looked through, and may name it`
    if (named.size === 0) return
    const plain = foldPath(changed)
    const setting =
      named.get(plain) ??
      ancestorsOf(plain)
        .map((at) => whole.get(at))
        .find((found) => found !== undefined) ??
      whole.get('')
    if (setting !== undefined) return `git's configuration names it (${setting})`.slice(0, 500)
    if (kind === 'link' && above.has(plain)) return "a link on the way to what git's configuration names"
    return
  }

  #readConfig(file: string, tree: string): void {
    if (this.#read.has(file)) return
    this.#read.add(file)
    const text = this.#read.size > MAX_FILES ? null : readSmall(file)
    if (text === null) this.#pointers.unread ??= file
    for (const { key, value } of parseGitConfig(text ?? '')) {
      if (value === '') continue
      if (includeSettings.test(key)) {
        const included = resolve(value, path.dirname(file))
        this.#add(included, key, false)
        this.#readConfig(included, tree)
      } else if (pathSettings.test(key)) this.#add(resolve(value, tree), key, true)
      else if (commandSettings.test(key) && (!key.startsWith('alias.') || value.startsWith('!'))) {
        const words = [value, ...value.split(betweenWords)]
        for (const word of new Set(words)) if (word !== '') this.#add(resolve(word, tree), key, false)
      }
    }
  }

  /** Notes what lies in the workspace, by the path that is named and by the one that links lead to. */
  #add(place: string, setting: string, isWhole: boolean): void {
    for (const one of new Set([place, realOrSame(place)])) {
      const below = one === this.#root ? '' : path.relative(this.#root, one)
      if (below.startsWith('../') || below === '..') {
        // A folder around the workspace: all of it counts.
        if (isWhole && this.#root.startsWith(`${one === '/' ? '' : one}/`))
          this.#pointers.whole.set('', setting)
        continue
      }
      const plain = foldPath(below)
      if (plain === '' && !isWhole) continue
      this.#pointers.named.set(plain, setting)
      if (isWhole) this.#pointers.whole.set(plain, setting)
      for (const above of ancestorsOf(plain)) this.#pointers.above.add(above)
    }
  }
}

/** The repository whose working tree the directory is, or lies in. */
function enclosingRepository(directory: string): string | undefined {
  for (let at = directory; ; at = path.dirname(at)) {
    if (kindOf(path.join(at, '.git')) !== undefined) return at
    if (path.dirname(at) === at) return
  }
}

/** Where the configuration of a working tree lies; a worktree's or submodule's `.git` is a file that says so. */
function configFiles(tree: string): string[] {
  const dotGit = path.join(tree, '.git')
  const pointer = kindOf(dotGit) === 'file' ? readSmall(dotGit) : undefined
  const named = /^gitdir: (.+?)\s*$/m.exec(pointer ?? '')?.[1]
  const own = named === undefined ? dotGit : path.resolve(tree, named)
  const shared = readSmall(path.join(own, 'commondir'))?.trim()
  const common = shared === undefined ? own : path.resolve(own, shared)
  return [path.join(common, 'config'), path.join(own, 'config.worktree')]
}

/** As git does: `~` is the home folder, anything else starts at `base`. */
function resolve(value: string, base: string): string {
  return value === '~' || value.startsWith('~/')
    ? path.join(homedir(), value.slice(1))
    : path.resolve(base, value)
}

function kindOf(place: string): 'file' | 'other' | undefined {
  try {
    return statSync(place).isFile() ? 'file' : 'other'
  } catch {
    return
  }
}

function realOrSame(place: string): string {
  try {
    return realpathSync(place)
  } catch {
    return place
  }
}

/** The text of a plain file; undefined when there is none that can be read, null when it is too large. */
function readSmall(file: string): string | undefined | null {
  let fd: number | undefined
  try {
    fd = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
    const stat = fstatSync(fd)
    if (!stat.isFile()) return undefined
    return stat.size > CONFIG_MAX_BYTES ? null : decodePath(readFileSync(fd))
  } catch {
    return undefined
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}
