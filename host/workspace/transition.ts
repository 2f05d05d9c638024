/**
 * Takes one path of the host's workspace from one state to another, atomically: what is new is staged beside it,
 * forced to disk and renamed over it. Never through a link; a path that is not in the expected kind is refused by
 * the system call itself where that is possible.
 */
import { createHash } from 'node:crypto'
import { fchmodSync, fchownSync, fsyncSync, writeSync } from 'node:fs'
import type { Root } from '#specs/node/descriptor-walk.ts'
import type { Owner } from '#specs/node/directory.ts'
import { failure } from '#specs/node/file-error.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { PathState } from './path-state.ts'

export interface Transition {
  readonly path: string
  readonly from: PathState
  readonly to: PathState
  /** The name beside the path for what is staged; what an earlier attempt left there is removed. */
  readonly temporary: string
  /** Content of the file that `to` is; called at most once. */
  readonly content: () => Iterable<Buffer>
  /** Who is to own what is made; absent, or not permitted: whoever this process is. */
  readonly owner?: Owner | undefined
}

type Done = Result<void>

const done: Done = { ok: true, value: undefined }

/** Makes the transition. Failures are the file system's, in words; `internal` when content is not what it should be. */
export function makeTransition(root: Root, transition: Transition): Done {
  const located = root.locate(transition.path, { links: 'refuse' })
  if (!located.ok) return located
  using place = located.value
  const { from, to } = transition
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
      if (from.kind === 'file' && from.sha256 === to.sha256 && from.size === to.size)
        return place.setMode(to.mode)
      return putFile(place, transition, to)
    case 'other':
      return failure('internal', `${place} cannot be made again: it was a device, FIFO or socket.`)
  }
}

/** Removes what a transition that did not end may have left beside a path. */
export function removeTemporary(root: Root, path: string, temporary: string): void {
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return
  using place = located.value
  place.sibling(temporary).unlink()
}

function makeDirectory(place: Place, mode: number, owner: Owner | undefined): Done {
  const made = place.makeDirectory(0o700)
  if (!made.ok) return made
  if (owner !== undefined) {
    const opened = place.openDirectory()
    if (!opened.ok) return opened
    using directory = opened.value
    permitting(() => directory.chown(owner))
  }
  return place.setMode(mode)
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

function putFile(place: Place, transition: Transition, to: Extract<PathState, { kind: 'file' }>): Done {
  const staged = place.sibling(transition.temporary)
  staged.unlink()
  const written = stage(staged, transition, to)
  const moved = written.ok ? moveOver(staged, place, transition.from.kind === 'absent') : written
  if (!moved.ok) staged.unlink()
  return moved
}

/** Renames what is staged over its place; what is expected to be new does not replace anything. */
function moveOver(staged: Place, place: Place, isNew: boolean): Done {
  const moved = staged.renameTo(place, { replace: !isNew })
  if (moved.ok || !isNew || moved.error.code === 'already_exists') return moved
  // A file system without hard links: looked at just before instead.
  if (place.exists()) return failure('already_exists', `${place} exists already.`)
  return staged.renameTo(place, { replace: true })
}

function stage(staged: Place, transition: Transition, to: Extract<PathState, { kind: 'file' }>): Done {
  const created = staged.createFile(0o600)
  if (!created.ok) return created
  using file = created.value
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
    fsyncSync(file.fd)
    return done
  } catch (thrown) {
    const text = thrown instanceof Error ? thrown.message : String(thrown)
    const isFull =
      thrown instanceof Error && 'code' in thrown && (thrown.code === 'ENOSPC' || thrown.code === 'EDQUOT')
    return failure(
      isFull ? 'no_space' : 'internal',
      `cannot write ${JSON.stringify(transition.path)}: ${text}`,
    )
  }
}

/** Only root may give files away; anyone else keeps what they make. */
function permitting(action: () => void): void {
  try {
    action()
  } catch (thrown) {
    if (!(thrown instanceof Error && 'code' in thrown && thrown.code === 'EPERM')) throw thrown
  }
}
