/**
 * The state of a path in the host's workspace, as used by apply and undo: kind, permission bits, content by digest,
 * link target. Reads through descriptors, never through a link.
 */

import { createHash } from 'node:crypto'
import { readSync } from 'node:fs'
import { z } from 'zod'
import { errorMessage } from '#specs/errors.ts'
import type { Root } from '#specs/node/descriptor-walk.ts'
import type { Place } from '#specs/node/place.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Count, Sha256 } from '#specs/protocol/text.ts'
import type { ManifestEntry } from './manifest.ts'
import { type WorkspaceResult, workspaceFailure, workspaceSuccess } from './workspace-error.ts'

/** Permission bits with set-uid, set-gid and sticky, so that undo restores the exact state. */
const FullMode = z.int().min(0).max(0o7777)

export const PathState = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('absent') }),
  z.strictObject({ kind: z.literal('file'), mode: FullMode, size: Count, sha256: Sha256 }),
  z.strictObject({ kind: z.literal('link'), target: z.string().max(limits.pathMaxBytes) }),
  z.strictObject({ kind: z.literal('directory'), mode: FullMode }),
  /** A device, socket or FIFO: never created, replaced or removed. */
  z.strictObject({ kind: z.literal('other') }),
])
export type PathState = z.infer<typeof PathState>

export const absent: PathState = { kind: 'absent' }

/** A state and its owner. */
export interface CapturedState {
  readonly state: PathState
  /** Absent if the path does not exist. */
  readonly owner?: { readonly uid: number; readonly gid: number }
  /** Inode, size and change time; differs after the file or link was replaced or written. */
  readonly mark?: string
}

/** The mark of a path now; undefined if it does not exist. */
export function markOf(root: Root, path: string): string | undefined {
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return
  using place = located.value
  return markAt(place)
}

function markAt(place: Place): string | undefined {
  const stat = place.statExact()
  return stat.ok ? `${stat.value.ino}:${stat.value.size}:${stat.value.ctimeNs}` : undefined
}

/**
 * Reads the state of a path. Failure `unreadable`: a parent is a link or no directory, or it cannot be read.
 * @param keep receives a file's content in pieces; each piece is valid until it returns
 */
export function captureState(
  root: Root,
  path: string,
  keep?: (piece: Buffer) => void,
): WorkspaceResult<CapturedState> {
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) {
    if (located.error.code === 'not_found') return workspaceSuccess({ state: absent })
    return workspaceFailure('unreadable', located.error.message)
  }
  using place = located.value
  return captureAt(place, keep)
}

function captureAt(place: Place, keep?: (piece: Buffer) => void): WorkspaceResult<CapturedState> {
  const stat = place.stat()
  if (!stat.ok) {
    if (stat.error.code === 'not_found') return workspaceSuccess({ state: absent })
    return workspaceFailure('unreadable', stat.error.message)
  }
  const { uid, gid } = stat.value
  const mode = stat.value.mode & 0o7777
  // Read before the content, so that a concurrent write is detected.
  const mark = markAt(place)
  const found = (state: PathState) =>
    workspaceSuccess({ state, owner: { uid, gid }, ...(mark === undefined ? {} : { mark }) })
  if (stat.value.isDirectory()) return found({ kind: 'directory', mode })
  if (stat.value.isSymbolicLink()) {
    const target = place.readLink()
    return target.ok
      ? found({ kind: 'link', target: target.value })
      : workspaceFailure('unreadable', target.error.message)
  }
  if (!stat.value.isFile()) return found({ kind: 'other' })
  const opened = place.openFile()
  if (!opened.ok) return workspaceFailure('unreadable', opened.error.message)
  using file = opened.value
  try {
    return found({ kind: 'file', mode: file.stat.mode & 0o7777, ...digestFile(file.fd, keep) })
  } catch (thrown) {
    return workspaceFailure('unreadable', `cannot read ${place}: ${errorMessage(thrown)}`)
  }
}

function digestFile(fd: number, keep?: (piece: Buffer) => void): { size: number; sha256: string } {
  const hash = createHash('sha256')
  const buffer = Buffer.allocUnsafe(256 * 1024)
  let size = 0
  for (
    let count = readSync(fd, buffer, 0, buffer.length, 0);
    count > 0;
    count = readSync(fd, buffer, 0, buffer.length, size)
  ) {
    const piece = buffer.subarray(0, count)
    hash.update(piece)
    keep?.(piece)
    size += count
  }
  return { size, sha256: hash.digest('hex') }
}

/** Whether two states are equal in all fields. */
export function isSameState(left: PathState, right: PathState): boolean {
  if (left.kind === 'file' && right.kind === 'file') {
    return left.mode === right.mode && left.size === right.size && left.sha256 === right.sha256
  }
  if (left.kind === 'link' && right.kind === 'link') return left.target === right.target
  if (left.kind === 'directory' && right.kind === 'directory') return left.mode === right.mode
  return left.kind === right.kind && left.kind !== 'other'
}

/** The state recorded in the manifest. */
export function manifestState(entry: ManifestEntry | undefined): PathState {
  if (entry === undefined) return absent
  if (entry.kind === 'link') return { kind: 'link', target: entry.target }
  if (entry.kind === 'directory') return { kind: 'directory', mode: entry.mode }
  return { kind: 'file', mode: entry.mode, size: entry.size, sha256: entry.sha256 }
}

/** Describes the state for messages. */
export function describeState(state: PathState): string {
  const names = {
    absent: 'nothing',
    file: 'a file',
    link: 'a symbolic link',
    directory: 'a directory',
    other: 'a device, FIFO or socket',
  }
  return names[state.kind]
}
