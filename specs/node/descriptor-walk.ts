/**
 * Resolves a path below a root by opening one directory after the other, so that no link, no `..` and no concurrent
 * change leads outside. Returns a {@link Place}.
 * Links inside the root are resolved here: a relative target from the link's directory, an absolute one only if it
 * begins with the root's own path. A link that leads out fails with `outside_workspace`.
 */
import { mkdirSync, readlinkSync } from 'node:fs'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Directory, type Owner } from './directory.ts'
import { attempt, errnoOf, failure, fileFailure, ifPermitted } from './file-error.ts'
import { decodePath, encodePath, isPathText, quotePath } from './path-text.ts'
import { Place } from './place.ts'

/** Maximum links in one path; Linux's own limit. */
const MAX_LINKS = 40
/** Maximum directories opened for one path, including links and `..`; a chain of links could require far more. */
const MAX_STEPS = 10_000

export interface RootOptions {
  /** Owner of created entries; absent, or not permitted: this process's user. */
  readonly owner?: Owner
  /** Path by which links and callers name this root, when it differs from the opened one. */
  readonly knownAs?: string
  /** Whether places have absolute paths, below that path. Absent: paths below the root. */
  readonly hasAbsolutePlaces?: boolean
}

export interface LocateOptions {
  /**
   * `follow` (the default) resolves links that stay inside, including the last name's. `keep` does not resolve the
   * last name, for operations on the link itself (delete, move). `refuse` accepts no link before the last name and no
   * `..`.
   */
  readonly links?: 'follow' | 'keep' | 'refuse'
  /** Creates missing directories before the last name (mode 0777 less the umask). */
  readonly createParents?: boolean
}

interface Walk {
  /** The current directory. */
  directory: Directory
  /** Resolved names that lead to it. */
  resolved: string[]
  /** Remaining names, the next one last. */
  pending: string[]
  links: number
  steps: number
}

export class Root implements Disposable {
  readonly path: string
  readonly owner: Owner | undefined
  readonly #directory: Directory
  /** Before the paths of places. */
  readonly #prefix: readonly string[]

  private constructor(directory: Directory, path: string, { owner, hasAbsolutePlaces }: RootOptions) {
    this.#directory = directory
    this.path = path
    this.owner = owner
    this.#prefix = hasAbsolutePlaces === true ? [path] : []
  }

  /** Opens the root; `path` itself is trusted. */
  static open(path: string, options: RootOptions = {}): Result<Root> {
    return attempt(`cannot open the directory ${quotePath(path)}`, () => {
      const known = (options.knownAs ?? path).replace(/\/+$/, '')
      return new Root(Directory.openTrusted(path), known, options)
    })
  }

  /** Another handle of the root's directory. */
  openDirectory(): Directory {
    return this.#directory.reopen()
  }

  /**
   * Resolves `path`, relative to the root or absolute below {@link path}; empty or `.` is the root itself. The last
   * name need not exist. The caller disposes the place. Failures: `outside_workspace`, `not_found` (a missing
   * directory), `not_a_directory`, `invalid_input`, `permission_denied`.
   */
  locate(path: string, options: LocateOptions = {}): Result<Place> {
    const names = this.#names(path)
    if (!names.ok) return names
    if (options.links === 'refuse' && names.value.includes('..')) {
      return failure('outside_workspace', `${quotePath(path)} must not contain ".." here.`)
    }
    const walk: Walk = {
      directory: this.#directory.reopen(),
      resolved: [],
      pending: names.value.reverse(),
      links: 0,
      steps: 0,
    }
    try {
      const found = this.#walk(walk, path, options)
      if (!found.ok) walk.directory[Symbol.dispose]()
      return found
    } catch (thrown) {
      walk.directory[Symbol.dispose]()
      return fileFailure(`cannot reach ${quotePath(path)}`, thrown)
    }
  }

  [Symbol.dispose](): void {
    this.#directory[Symbol.dispose]()
  }

  #walk(walk: Walk, path: string, options: LocateOptions): Result<Place> {
    for (;;) {
      const name = walk.pending.pop()
      if (name === undefined) return this.#found(walk, '.')
      if (++walk.steps > MAX_STEPS)
        return failure('invalid_input', `${quotePath(path)} takes too many steps to resolve.`)
      if (name === '' || name === '.') continue
      if (name === '..') {
        if (walk.resolved.pop() === undefined) return this.#outside(path)
        this.#restart(walk)
        continue
      }
      const isLast = walk.pending.every((later) => later === '' || later === '.')
      if (isLast) {
        const target =
          options.links === 'follow' || options.links === undefined ? linkTarget(walk, name) : undefined
        if (target === undefined) return this.#found(walk, name)
        const led = this.#redirect(walk, target, path)
        if (!led.ok) return led
        continue
      }
      const entered = this.#enter(walk, name, path, options)
      if (!entered.ok) return entered
    }
  }

  #found(walk: Walk, name: string): Result<Place> {
    const parent = [...this.#prefix, ...walk.resolved].join('/')
    return { ok: true, value: new Place(walk.directory, name, parent, this.owner) }
  }

  /** Opens the directory `name`, or continues at the target of a link of that name. */
  #enter(walk: Walk, name: string, path: string, options: LocateOptions): Result<void> {
    let next: Directory
    try {
      next = walk.directory.open(name)
    } catch (thrown) {
      const errno = errnoOf(thrown)
      const here = [...walk.resolved, name].join('/')
      if (errno === 'ENOENT' && options.createParents) {
        return this.#makeDirectory(walk, name, path)
      }
      if (errno === 'ENOENT')
        return failure('not_found', `${quotePath(path)}: the directory ${quotePath(here)} does not exist.`)
      if (errno !== 'ENOTDIR' && errno !== 'ELOOP')
        return fileFailure(`cannot open ${quotePath(here)}`, thrown)
      const target = linkTarget(walk, name)
      if (target === undefined)
        return failure('not_a_directory', `${quotePath(path)}: ${quotePath(here)} is not a directory.`)
      if (options.links === 'refuse') {
        return failure(
          'outside_workspace',
          `${quotePath(path)}: ${quotePath(here)} is a symbolic link, which is not followed here.`,
        )
      }
      return this.#redirect(walk, target, path)
    }
    step(walk, next, name)
    return { ok: true, value: undefined }
  }

  #makeDirectory(walk: Walk, name: string, path: string): Result<void> {
    const what = `${quotePath([...walk.resolved, name].join('/'))} for ${quotePath(path)}`
    return attempt(`cannot make the directory ${what}`, () => {
      try {
        mkdirSync(walk.directory.at(name))
      } catch (thrown) {
        // Another call may have created it first.
        if (errnoOf(thrown) !== 'EEXIST') throw thrown
        step(walk, walk.directory.open(name), name)
        return
      }
      step(walk, walk.directory.open(name), name)
      const owner = this.owner
      if (owner !== undefined) ifPermitted(() => walk.directory.chown(owner))
    })
  }

  /** Replaces a link by the names of its target. */
  #redirect(walk: Walk, target: string, path: string): Result<void> {
    if (++walk.links > MAX_LINKS)
      return failure('invalid_input', `${quotePath(path)} goes round in symbolic links.`)
    if (target.startsWith('/')) {
      const below = this.#below(target)
      if (below === undefined) return this.#outside(path)
      walk.resolved = []
      walk.pending.push(...below.split('/').reverse())
      this.#restart(walk)
    } else walk.pending.push(...target.split('/').reverse())
    return { ok: true, value: undefined }
  }

  /** Walks the resolved names again from the root; never uses the system's `..`. */
  #restart(walk: Walk): void {
    walk.pending.push(...walk.resolved.reverse())
    walk.resolved = []
    const root = this.#directory.reopen()
    walk.directory[Symbol.dispose]()
    walk.directory = root
  }

  #names(path: string): Result<string[]> {
    if (path.includes('\0')) return failure('invalid_input', 'A path must not contain a NUL character.')
    if (!isPathText(path)) return failure('invalid_input', 'The path is not valid text.')
    const relative = path.startsWith('/') ? this.#below(path) : path
    if (relative === undefined) return this.#outside(path)
    if (relative.length > limits.pathMaxBytes || encodePath(relative).length > limits.pathMaxBytes) {
      return failure('invalid_input', `The path is longer than ${limits.pathMaxBytes} bytes.`)
    }
    const names = relative.split('/')
    if (names.some((name) => name.length > 63 && encodePath(name).length > limits.nameMaxBytes)) {
      return failure('invalid_input', `A name in the path is longer than ${limits.nameMaxBytes} bytes.`)
    }
    return { ok: true, value: names }
  }

  /** The part of an absolute path below the root; nothing if it is outside. */
  #below(path: string): string | undefined {
    if (path === this.path) return ''
    return path.startsWith(`${this.path}/`) ? path.slice(this.path.length + 1) : undefined
  }

  #outside(path: string): ReturnType<typeof failure> {
    return failure(
      'outside_workspace',
      `${quotePath(path)} leads outside of ${quotePath(this.path)}. Use a path relative to that directory, without leaving it.`,
    )
  }
}

function step(walk: Walk, next: Directory, name: string): void {
  walk.directory[Symbol.dispose]()
  walk.directory = next
  walk.resolved.push(name)
}

/** The target of the link `name`; nothing if it is no link. */
function linkTarget(walk: Walk, name: string): string | undefined {
  try {
    return decodePath(readlinkSync(walk.directory.at(name), { encoding: 'buffer' }))
  } catch (thrown) {
    // EINVAL: not a link. ENOENT: missing, which the caller may expect.
    const errno = errnoOf(thrown)
    if (errno === 'EINVAL' || errno === 'ENOENT') return undefined
    throw thrown
  }
}
