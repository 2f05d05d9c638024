/**
 * Moves one path of the host's workspace atomically from one state to another: stages new content beside it, syncs it,
 * and renames it. Never follows a link; where possible, the system call itself refuses a path of an unexpected kind.
 */

import { createHash } from 'node:crypto'
import { fchmodSync, fchownSync, fsync, writeSync } from 'node:fs'
import { promisify } from 'node:util'
import { errorMessage } from '#specs/errors.ts'
import type { Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { attempt, errnoOf, failure } from '#specs/node/file-error.ts'
import type { OpenFile, Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { PathState } from '../path-state.ts'

export interface Transition {
  readonly path: string
  readonly from: PathState
  readonly to: PathState
  /** Name of the staged file beside the path; a leftover of an earlier attempt is removed. */
  readonly temporary: string
  /** Content of the new file; called at most once. */
  readonly content: () => Iterable<Buffer>
  /** Called just before something is replaced or removed: whether it is still unchanged. */
  readonly isUnchanged?: (() => boolean) | undefined
  /** Owner of the new file. Absent, or not permitted: this process's user. */
  readonly owner?: Owner | undefined
}

type Done = Result<void>

const fsyncFile = promisify(fsync)
/** Maximum staged files at a time; each holds two descriptors. */
const MAX_STAGED = 64

const done: Done = { ok: true, value: undefined }

/**
 * Executes transitions in order. Files are staged, synced together and renamed, so that one disk sync covers many.
 * Other transitions are executed immediately, after the staged files.
 */
export class TransitionQueue implements Disposable {
  readonly #root: Root
  readonly #staged: { readonly file: StagedFile; readonly settle: (made: Done) => void }[] = []
  readonly #paths = new Set<string>()

  constructor(root: Root) {
    this.#root = root
  }

  /** Whether a transition of this path is pending. */
  has(path: string): boolean {
    return this.#paths.has(path)
  }

  /**
   * Adds a transition. Failures are the file system's, in words; `internal` if content is not as expected.
   * @param settle receives the outcome, at the latest during {@link flush}
   */
  async add(transition: Transition, settle: (made: Done) => void): Promise<void> {
    if (!isPut(transition)) {
      await this.flush()
      settle(makeTransition(this.#root, transition))
      return
    }
    if (this.#staged.length >= MAX_STAGED) await this.flush()
    const staged = StagedFile.stage(this.#root, transition)
    if (!staged.ok) return settle(staged)
    this.#paths.add(transition.path)
    this.#staged.push({ file: staged.value, settle })
  }

  /** Completes all added transitions. */
  async flush(): Promise<void> {
    const synced = await Promise.all(this.#staged.map(({ file }) => file.sync()))
    for (let at = 0; this.#staged.length > 0; at++) {
      const next = this.#staged.shift()
      if (next === undefined) break
      using file = next.file
      const result = synced[at]
      next.settle(result?.ok === true ? file.commit() : (result ?? failure('internal', 'not forced to disk')))
    }
    this.#paths.clear()
  }

  /** Removes the files that are still staged. */
  [Symbol.dispose](): void {
    for (const { file } of this.#staged.splice(0)) file[Symbol.dispose]()
  }
}

/** Whether a transition writes content, and so is worth staging. */
function isPut({ from, to }: Transition): boolean {
  return to.kind === 'file' && !(from.kind === 'file' && from.sha256 === to.sha256 && from.size === to.size)
}

/** Executes any transition except one that writes content. */
function makeTransition(root: Root, transition: Transition): Done {
  const located = root.locate(transition.path, { links: 'refuse' })
  if (!located.ok) return located
  using place = located.value
  const { from, to } = transition
  if (transition.isUnchanged?.() === false) return changed(place)
  switch (to.kind) {
    case 'absent':
      if (from.kind === 'absent') return done
      return from.kind === 'directory' ? place.removeDirectory() : place.unlink()
    case 'directory':
      return from.kind === 'directory'
        ? place.setMode(to.mode)
        : makeDirectory(place, to.mode, transition.owner)
    case 'link':
      return from.kind === 'absent'
        ? place.makeLink(to.target)
        : replaceByLink(place, to.target, transition.temporary)
    case 'file':
      return place.setMode(to.mode)
    case 'other':
      return failure('internal', `${place} cannot be made again: it was a device, FIFO or socket.`)
  }
}

function changed(place: Place): Done {
  return failure('unavailable', `${place} changed on the host at the last moment; it was left as it is.`)
}

/** New content beside its target, not renamed yet. Removed unless it was committed. */
class StagedFile implements Disposable {
  readonly #place: Place
  readonly #file: OpenFile
  readonly #transition: Transition
  #isCommitted = false

  private constructor(place: Place, file: OpenFile, transition: Transition) {
    this.#place = place
    this.#file = file
    this.#transition = transition
  }

  static stage(root: Root, transition: Transition): Result<StagedFile> {
    const { to, path, temporary } = transition
    if (to.kind !== 'file') throw new TypeError('only a file is staged')
    const located = root.locate(path, { links: 'refuse' })
    if (!located.ok) return located
    const place = located.value
    place.sibling(temporary).unlink()
    const created = place.sibling(temporary).createFile(0o600)
    if (!created.ok) {
      place[Symbol.dispose]()
      return created
    }
    const staged = new StagedFile(place, created.value, transition)
    const written = writeContent(created.value, transition, to)
    if (written.ok) return { ok: true, value: staged }
    staged[Symbol.dispose]()
    return written
  }

  /** Syncs the content to disk; never rejects. */
  async sync(): Promise<Done> {
    try {
      await fsyncFile(this.#file.fd)
      return done
    } catch (thrown) {
      return writeFailure(this.#transition.path, thrown)
    }
  }

  /** Renames it to its target; a target that should be new never replaces anything. */
  commit(): Done {
    if (this.#transition.isUnchanged?.() === false) return changed(this.#place)
    const staged = this.#place.sibling(this.#transition.temporary)
    const isNew = this.#transition.from.kind === 'absent'
    let moved = staged.renameTo(this.#place, { replace: !isNew })
    // File systems without hard links: check just before instead.
    if (!moved.ok && isNew && moved.error.code !== 'already_exists' && !this.#place.exists()) {
      moved = staged.renameTo(this.#place, { replace: true })
    }
    this.#isCommitted = moved.ok
    return moved
  }

  [Symbol.dispose](): void {
    if (!this.#isCommitted) this.#place.sibling(this.#transition.temporary).unlink()
    this.#file[Symbol.dispose]()
    this.#place[Symbol.dispose]()
  }
}

function makeDirectory(place: Place, mode: number, owner: Owner | undefined): Done {
  const made = place.makeDirectory(0o700)
  if (!made.ok) return made
  const owned = owner === undefined ? done : giveDirectory(place, owner)
  const set = owned.ok ? place.setMode(mode) : owned
  // A failed transition leaves the path unchanged.
  if (!set.ok) place.removeDirectory()
  return set
}

function giveDirectory(place: Place, owner: Owner): Done {
  return attempt(`cannot give away ${place}`, () => {
    using directory = place.directory.open(place.name)
    permitting(() => directory.chown(owner))
  })
}

function replaceByLink(place: Place, target: string, temporary: string): Done {
  const staged = place.sibling(temporary)
  staged.unlink()
  const made = staged.makeLink(target)
  if (!made.ok) return made
  const moved = staged.renameTo(place, { replace: true })
  if (!moved.ok) staged.unlink()
  return moved
}

function writeContent(
  file: OpenFile,
  transition: Transition,
  to: Extract<PathState, { kind: 'file' }>,
): Done {
  const hash = createHash('sha256')
  try {
    for (const piece of transition.content()) {
      hash.update(piece)
      for (let written = 0; written < piece.length; ) written += writeSync(file.fd, piece, written)
    }
    if (hash.digest('hex') !== to.sha256) {
      return failure(
        'internal',
        `The stored content for ${JSON.stringify(transition.path)} is damaged; it was not written.`,
      )
    }
    const { owner } = transition
    if (owner !== undefined && (owner.uid !== file.stat.uid || owner.gid !== file.stat.gid)) {
      permitting(() => fchownSync(file.fd, owner.uid, owner.gid))
    }
    // After chown, which clears set-uid and set-gid.
    fchmodSync(file.fd, to.mode)
    return done
  } catch (thrown) {
    return writeFailure(transition.path, thrown)
  }
}

function writeFailure(path: string, thrown: unknown): Extract<Done, { ok: false }> {
  const errno = errnoOf(thrown)
  const text = errorMessage(thrown)
  const code = errno === 'ENOSPC' || errno === 'EDQUOT' ? 'no_space' : 'internal'
  return failure(code, `cannot write ${JSON.stringify(path)}: ${text}`)
}

/** Only root may change an owner; other users keep what they create. */
function permitting(action: () => void): void {
  try {
    action()
  } catch (thrown) {
    if (errnoOf(thrown) !== 'EPERM') throw thrown
  }
}
