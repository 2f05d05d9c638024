/**
 * Decides which paths are copied into the VM: .gitignore at each level and .git/info/exclude exclude, .caissonignore
 * excludes more, `--include` patterns add back, likely secrets stay out. Uses git's patterns through a library; runs no
 * git and obeys no git configuration.
 */
import ignore, { type Ignore } from 'ignore'
import { WorkspaceFailure } from '../workspace-error.ts'
import { isSecretByName } from './secret-files.ts'

export type Verdict = 'take' | 'ignored' | 'secret'
export type RuleKind = 'git' | 'caisson'

/** Maximum stars in one name of a pattern; more make the library's regular expressions extremely slow. */
const MAX_STARS = 5
/**
 * Maximum `**` in one pattern: each multiplies the time by a path's depth, and a hostile .gitignore could take hours.
 */
const MAX_DEEP_STARS = 3

interface Level {
  /** Directory of the rules with a trailing slash; empty for the root. */
  readonly prefix: string
  readonly rules: Ignore
}

export class ScanRules {
  readonly #git: Level[] = []
  readonly #caisson: Level[] = []
  readonly #includes: readonly { readonly pattern: string; readonly rules: Ignore }[]
  /** Include patterns that have matched a path. */
  readonly #matched = new Set<string>()
  readonly #root: string

  /**
   * @param include patterns as in a .gitignore, relative to the workspace
   * @param root real path of the workspace: what a file is can follow from directories above it, such as `.docker`
   */
  constructor(include: readonly string[], root = '') {
    this.#root = root
    this.#includes = include.map((pattern) => ({ pattern, rules: compile(pattern, 'include') }))
  }

  /** Adds the text of an ignore file in `directory` (empty for the root) until {@link leave}. */
  add(kind: RuleKind, directory: string, text: string, source: string): void {
    const level = { prefix: directory === '' ? '' : `${directory}/`, rules: compile(text, source) }
    ;(kind === 'git' ? this.#git : this.#caisson).push(level)
  }

  /** Removes the rules of a directory. */
  leave(directory: string): void {
    for (const levels of [this.#git, this.#caisson]) {
      while (levels.length > 0 && levels.at(-1)?.prefix === `${directory}/`) levels.pop()
    }
  }

  decide(path: string, isDirectory: boolean): Verdict {
    const tested = isDirectory ? `${path}/` : path
    const included = this.isIncluded(path, isDirectory)
    // A secret must be named explicitly: a pattern for a parent directory does not include it.
    if (isSecretByName(`${this.#root}/${path}`, isDirectory))
      return this.isNamed(path, isDirectory) ? 'take' : 'secret'
    if (included) return 'take'
    // git itself never ignores .git, and a rule such as `.*` must not break the agent's git.
    if (path === '.git' || path.startsWith('.git/'))
      return matches(this.#caisson, tested) ? 'ignored' : 'take'
    return matches(this.#git, tested) || matches(this.#caisson, tested) ? 'ignored' : 'take'
  }

  /** Whether an include pattern matches the path, or a parent directory. */
  isIncluded(path: string, isDirectory: boolean): boolean {
    const tested = isDirectory ? `${path}/` : path
    const matching = this.#includes.filter(({ rules }) => rules.ignores(tested))
    for (const { pattern } of matching) this.#matched.add(pattern)
    return matching.length > 0
  }

  /** Include patterns without a match. */
  get unmatched(): string[] {
    return this.#includes.map(({ pattern }) => pattern).filter((pattern) => !this.#matched.has(pattern))
  }

  /** Whether an include pattern matches the path itself, not only a parent directory. */
  isNamed(path: string, isDirectory: boolean): boolean {
    const parent = path.includes('/') ? `${path.slice(0, path.lastIndexOf('/'))}/` : undefined
    return this.#includes.some(
      ({ rules }) =>
        rules.ignores(isDirectory ? `${path}/` : path) && (parent === undefined || !rules.ignores(parent)),
    )
  }

  /**
   * Whether an include pattern could match below an ignored directory. Only patterns with an inner slash do: a bare
   * `*.log` does not search every ignored directory.
   */
  mayIncludeBelow(directory: string): boolean {
    const names = directory.split('/')
    return this.#includes.some(({ pattern }) => {
      const body = pattern.replace(/^\//, '').replace(/\/$/, '')
      if (!body.includes('/')) return false
      return names.every((name, at) => {
        const wanted = body.split('/')
        if (wanted.slice(0, at + 1).includes('**')) return true
        const part = wanted[at]
        return part !== undefined && at < wanted.length - 1 && (/[*?[\\]/.test(part) || part === name)
      })
    })
  }
}

/** The deepest ignore file with a rule for the path decides, as in git. */
function matches(levels: readonly Level[], path: string): boolean {
  for (let at = levels.length - 1; at >= 0; at--) {
    const level = levels[at]
    if (level === undefined || !path.startsWith(level.prefix)) continue
    const result = level.rules.test(path.slice(level.prefix.length))
    if (result.ignored) return true
    if (result.unignored) return false
  }
  return false
}

function compile(text: string, source: string): Ignore {
  for (const line of text.split('\n')) {
    if (line.startsWith('#')) continue
    if (line.split('/').filter((part) => /^!?\*\*\s*$/.test(part)).length > MAX_DEEP_STARS) {
      throw new WorkspaceFailure(
        'refused_directory',
        `${source}: the pattern "${line.slice(0, 80)}" has "**" more than ${MAX_DEEP_STARS} times; simplify it`,
      )
    }
    if (line.split('/').some((part) => part !== '**' && (part.match(/\*+/g)?.length ?? 0) > MAX_STARS)) {
      throw new WorkspaceFailure(
        'refused_directory',
        `${source}: the pattern "${line.slice(0, 80)}" has more than ${MAX_STARS} stars in one name; simplify it`,
      )
    }
  }
  return ignore({ ignorecase: process.platform === 'darwin' }).add(text.replace(/^\uFEFF/, ''))
}
