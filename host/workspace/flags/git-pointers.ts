/**
 * Finds workspace paths named by git's configuration on the host: hooks, included files, and programs. Reads
 * `.git/config` and its includes, and never runs git.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { decodePath } from '#specs/node/path-text.ts'
import { ancestorsOf } from '../conflicts.ts'
import { Inherited } from '../inherited.ts'
import { foldPath } from './folded-path.ts'
import { parseGitConfig } from './git-config.ts'

/** A larger file is not parsed; any change may then be one that it names. */
const CONFIG_MAX_BYTES = 4 * 1024 * 1024
const MAX_FILES = 100
/** Maximum names of a path in a command that are checked one by one. */
const WORD_MAX_NAMES = 40

const includeSettings = /^include(if\..*)?\.path$/s
/** Settings that name a file or folder git reads; a folder includes all its contents. */
const pathSettings = /^(core\.(hookspath|attributesfile)|init\.templatedir)$/
/** Settings that name no program or file. Any other may, since the settings of git and its helpers grow in number. */
const plainSettings =
  /^(branch\..+|remote\..+\.(url|pushurl|fetch|push|tagopt)|user\..+|submodule\..+\.(url|active|branch|path)|url\..+|init\.defaultbranch|color\..+|column\..+)$/s
/** Characters of a shell line that separate words. */
const betweenWords = /[\s;|&()<>"'`$={}!,]+/
/** A word before the name of a directory in which, or of a module which, is run. */
const directoryWords: ReadonlySet<string> = new Set(['cd', 'pushd', '-C', '--prefix', '--directory', '--cwd'])

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
  readonly #wholeAbove = new Inherited((directory) => this.#pointers.whole.get(directory))
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
    const setting = named.get(plain) ?? this.#wholeAbove.above(plain) ?? whole.get('')
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
      else if (!plainSettings.test(key) && (!key.startsWith('alias.') || value.startsWith('!')))
        this.#addCommand(value, tree, key)
    }
  }

  /** Every file that a line for the shell may mean. */
  #addCommand(line: string, tree: string, setting: string): void {
    const words = line.split(betweenWords).filter((word) => word !== '')
    for (const word of new Set([line, ...words])) {
      for (const place of placesOf(word, tree)) this.#add(place, setting, false)
    }
    for (const [at, word] of words.entries()) {
      const before = words[at - 1] ?? ''
      if (directoryWords.has(before) && path.resolve(tree, word) !== tree)
        this.#add(resolve(word, tree), setting, true)
      if (before === '-m')
        for (const file of moduleFiles(word)) this.#add(path.join(tree, file), setting, false)
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

/**
 * What a word means, taken as a path from the working tree, and every end of it: what stands before may be a variable
 * or a command that gives the tree's own path, such as `$(git rev-parse --show-toplevel)/tools/run`.
 */
function placesOf(word: string, tree: string): string[] {
  const names = word.split('/').filter((name) => name !== '' && name !== '.')
  const ends = names.length > WORD_MAX_NAMES ? [] : names.map((_, at) => names.slice(at).join('/'))
  // A name alone behind others is too common a word.
  const whole = ends.filter((end, at) => at === 0 || end.includes('/'))
  return [resolve(word, tree), ...whole.map((end) => path.resolve(tree, end))]
}

/** Where Python finds a module that is run by its name. */
function moduleFiles(name: string): string[] {
  if (!/^[\w.]+$/.test(name)) return []
  const names = name.split('.').filter((one) => one !== '')
  const place = names.join('/')
  const packages = names.map((_, at) => `${names.slice(0, at + 1).join('/')}/__init__.py`)
  return [`${place}.py`, `${place}/__main__.py`, ...packages]
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
