/**
 * Which changes could run code on the host, or redirect what does, without the person noticing. Such paths are left
 * out of "all" and are applied only when named. A list of places finds the usual ones, not every one: programs that
 * the person starts deliberately (a new script, a test) are not in it.
 */

import path from 'node:path'
import ignore, { type Ignore } from 'ignore'
import { flagTable } from './flag-table.ts'

const compiled: readonly { readonly reason: string; readonly rules: Ignore }[] = flagTable.map(
  ({ reason, patterns }) => ({
    reason,
    rules: ignore({ ignorecase: true }).add([...patterns]),
  }),
)

/** First folders of the table's longer patterns that do not look hidden: a link there brings a whole folder with it. */
const leadingNames: ReadonlySet<string> = new Set(
  flagTable
    .flatMap(({ patterns }) => patterns)
    .map((pattern) => pattern.replace(/^\*\*\//, '').toLowerCase())
    .filter((pattern) => pattern.includes('/'))
    .map((pattern) => pattern.slice(0, pattern.indexOf('/'))),
)

const gitSetting = "it is in git's own directory and more than history, which can name programs that git runs"
/** What commits, branches and clean-up write below `.git`; everything else there is a setting, a hook or a list of orders. */
const gitHistory =
  /^([a-z_]+_(head|msg|editmsg)|head|merge_mode|index|shallow|packed-refs|description|info\/(exclude|refs)|(logs|refs)\/.+|objects\/[0-9a-f]{2}\/[0-9a-f]+|objects\/pack\/[^/]+|objects\/info\/(packs|commit-graphs?(\/[^/]+)?))$/
/** Names that say where settings are, wherever a submodule's name puts them. */
const gitPointers = /(^|\/)(config|config\.worktree|commondir|gitdir|attributes|alternates|hooks\/[^/]+)$/

/** Whether a path lies below a `.git` and is not plainly history. */
function isGitSetting(plain: string): boolean {
  const below = /(?:^|\/)\.git\/(.+)$/s.exec(plain)?.[1]
  if (below === undefined) return false
  // The history of a submodule or worktree lies deeper, in a folder whose name is as long as it likes.
  const nested = /^(?:modules|worktrees)\/(.+)$/s.exec(below)?.[1]
  if (nested === undefined) return !gitHistory.test(below)
  const names = nested.split('/')
  return (
    gitPointers.test(below) || !names.some((_, at) => at > 0 && gitHistory.test(names.slice(at).join('/')))
  )
}

/** What {@link flagOf} needs to know of a change. */
export interface FlagSubject {
  readonly path: string
  readonly kind: 'file' | 'directory' | 'link'
  /** A link's target. */
  readonly target?: string
  /** Whether a path is there after the change, as far as the change set and the manifest tell. */
  exists(path: string): boolean
}

/** Why a change has to be named to be applied, or nothing. */
export function flagOf(subject: FlagSubject): string | undefined {
  const plain = foldPath(subject.path)
  if (subject.kind === 'link') {
    if (leadsOutside(subject.path, subject.target ?? '')) return 'a link that leads out of the workspace'
    if (path.posix.basename(plain).startsWith('.')) return 'a link in the place of hidden configuration'
    if (plain.split('/').includes('.git')) return "a link inside git's own directory"
    if (leadingNames.has(path.posix.basename(plain))) return 'a link in the place of a folder that is obeyed'
  }
  // A worktree's or submodule's .git is a file that says where the repository lies.
  if (subject.kind !== 'directory' && path.posix.basename(plain) === '.git')
    return 'it tells git where its configuration lies'
  if (subject.kind !== 'directory' && isGitSetting(plain)) return gitSetting
  for (const { reason, rules } of compiled) {
    // A directory alone runs nothing; what is in it is flagged by itself.
    if (subject.kind !== 'directory' && rules.ignores(plain)) return reason
  }
  return bareRepository(subject, plain)
}

/** git takes a directory with HEAD, objects and refs for a repository and obeys the config in it. */
function bareRepository({ path: at, exists }: FlagSubject, plain: string): string | undefined {
  const folder = path.posix.dirname(at)
  const below = (name: string) => (folder === '.' ? name : `${folder}/${name}`)
  const name = path.posix.basename(plain)
  const isPart = ['config', 'head', 'commondir'].includes(name) || /(^|\/)hooks$/.test(foldPath(folder))
  if (!isPart || plain.split('/').includes('.git')) return
  const home = /(^|\/)hooks$/.test(foldPath(folder)) ? path.posix.dirname(folder) : undefined
  const looksBare =
    home === undefined
      ? exists(below('HEAD')) && exists(below('objects'))
      : exists(home === '.' ? 'HEAD' : `${home}/HEAD`)
  return looksBare ? 'its directory looks like a git repository, whose configuration git obeys' : undefined
}

/**
 * Whether a link at `at` with this target leads out of the workspace, or may: `..` behind a name goes up from
 * wherever that name leads, which may be a link to a shallower place, so the text alone does not tell.
 */
export function leadsOutside(at: string, target: string): boolean {
  if (target.startsWith('/')) return true
  const names = target.split('/').filter((name) => name !== '' && name !== '.')
  if (
    names.slice(names.findIndex((name) => name !== '..')).includes('..') &&
    names.some((name) => name !== '..')
  )
    return true
  const reached = path.posix.normalize(path.posix.join(path.posix.dirname(at), target))
  return reached === '..' || reached.startsWith('../')
}

/** A path as the most forgiving file system takes it: what folds letters or drops characters must not slip past the table. */
export function foldPath(text: string): string {
  return text.split('/').map(foldName).join('/')
}

/** Folding must leave one plain name: characters such as U+FF0F and U+2025 would become `/` and `..`. */
function foldName(name: string): string {
  const bare = (text: string) => text.replace(/\p{Default_Ignorable_Code_Point}/gu, '').toLowerCase()
  const isPlain = (text: string) => text !== '' && text !== '.' && text !== '..' && !text.includes('/')
  return [bare(name.normalize('NFKC')), bare(name)].find(isPlain) ?? name
}

/**
 * Whether a changed package.json runs something else than before: its scripts, or what it names for the package
 * manager. Text that is no JSON counts as changed.
 */
export function changesPackageScripts(before: string | undefined, after: string): boolean {
  const kept = (text: string | undefined): string | undefined => {
    if (text === undefined) return JSON.stringify(runsOf({}))
    try {
      const value: unknown = JSON.parse(text)
      if (typeof value !== 'object' || value === null) return
      return JSON.stringify(runsOf(value as Record<string, unknown>))
    } catch {
      return
    }
  }
  const [old, now] = [kept(before), kept(after)]
  return now === undefined || old !== now
}

const packageSettings = [
  ...['packageManager', 'gypfile', 'husky', 'lint-staged', 'simple-git-hooks', 'pre-commit', 'gitHooks'],
  ...['overrides', 'resolutions', 'pnpm', 'trustedDependencies', 'devEngines'],
]
const dependencyLists = ['dependencies', 'devDependencies', 'optionalDependencies', 'peerDependencies']

/** What of a package.json runs or decides what runs; a dependency from elsewhere than the registry brings its scripts. */
function runsOf(manifest: Record<string, unknown>): unknown[] {
  const foreign = dependencyLists.map((list) =>
    Object.entries(manifest[list] ?? {}).filter(([, from]) => typeof from !== 'string' || /[:/]/.test(from)),
  )
  return [manifest.scripts ?? {}, ...packageSettings.map((name) => manifest[name] ?? null), ...foreign]
}
