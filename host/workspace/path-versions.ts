/** The three versions of a path that a run changed: as it went into the VM, as the run made it, as the host has it now. */
import { hash } from 'node:crypto'
import { closeSync } from 'node:fs'
import { Root } from '#specs/node/descriptor-walk.ts'
import { readBase } from './base-contents.ts'
import { type ChangeSet, openContents, readWhole } from './change-set.ts'
import type { Manifest } from './manifest.ts'
import { type WorkspaceResult, workspaceFailure, workspaceSuccess } from './workspace-error.ts'

/** Bytes of the largest file whose versions are read. */
const MAX_BYTES = 64 * 1024 * 1024

/** The content of a file, or why there is none. */
export type FileVersion = { readonly content: Buffer } | { readonly none: string }

export interface PathVersions {
  readonly base: FileVersion
  readonly run: FileVersion
  readonly host: FileVersion
}

/** Failures: `damaged`, `unreadable`, `too_large`. @param path of a change */
export function readVersions(
  manifest: Manifest,
  changes: ChangeSet,
  runDirectory: string,
  path: string,
): WorkspaceResult<PathVersions> {
  const run = runVersion(changes, path)
  if (!run.ok) return run
  const host = hostVersion(manifest.root, path)
  if (!host.ok) return host
  return workspaceSuccess({
    base: baseVersion(manifest, runDirectory, path, host.value),
    run: run.value,
    host: host.value,
  })
}

/** A file as it went into the VM, whether the run changed it or not. Failures: `unreadable`, `too_large`. */
export function readBefore(
  manifest: Manifest,
  runDirectory: string,
  path: string,
): WorkspaceResult<FileVersion> {
  const host = hostVersion(manifest.root, path)
  return host.ok ? workspaceSuccess(baseVersion(manifest, runDirectory, path, host.value)) : host
}

/** Whether a content was given in the place of the host's file, which nobody has written since. */
export function isStillReplaced(manifest: Manifest, path: string): boolean {
  const entry = manifest.entries.get(path)
  // A given content has no inode.
  if (entry?.kind !== 'file' || entry.inode !== '0') return false
  const opened = Root.open(manifest.root)
  if (!opened.ok) return false
  using root = opened.value
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return false
  using place = located.value
  const stat = place.statExact()
  return stat.ok && stat.value.isFile() && String(stat.value.mtimeNs) === entry.mtimeNs
}

function runVersion(changes: ChangeSet, path: string): WorkspaceResult<FileVersion> {
  const change = changes.entries.get(path)
  if (change?.kind === 'deleted') return workspaceSuccess({ none: 'the run deleted it' })
  if (change?.kind !== 'file') return workspaceSuccess({ none: 'the run made no file of it' })
  if (change.size > MAX_BYTES) return tooLarge(path)
  const contents = openContents(changes.paths.contents)
  try {
    const content = readWhole(contents, change.offset, change.size)
    if (hash('sha256', content) === change.sha256) return workspaceSuccess({ content })
    return workspaceFailure('damaged', `the stored content of "${path}" is damaged; it cannot be read`)
  } finally {
    closeSync(contents)
  }
}

function hostVersion(directory: string, path: string): WorkspaceResult<FileVersion> {
  const opened = Root.open(directory)
  if (!opened.ok) return workspaceFailure('unreadable', opened.error.message)
  using root = opened.value
  const located = root.locate(path, { links: 'refuse' })
  if (!located.ok) return workspaceSuccess({ none: `on the host, ${located.error.message}` })
  using place = located.value
  const found = place.openFile()
  if (!found.ok) return workspaceSuccess({ none: `on the host, ${found.error.message}` })
  using file = found.value
  if (file.stat.size > MAX_BYTES) return tooLarge(path)
  return workspaceSuccess({ content: readWhole(file.fd, 0, file.stat.size) })
}

function baseVersion(manifest: Manifest, runDirectory: string, path: string, host: FileVersion): FileVersion {
  const entry = manifest.entries.get(path)
  if (entry?.kind !== 'file') return { none: 'no file went into the VM' }
  if ('content' in host && hash('sha256', host.content) === entry.sha256) return host
  const content = readBase(runDirectory, entry.sha256)
  return content === undefined
    ? {
        none: 'what went into the VM was not kept, because it is binary, larger than 1 MiB, beyond 64 MiB in total, or of an earlier version',
      }
    : { content }
}

function tooLarge(path: string): WorkspaceResult<never> {
  return workspaceFailure('too_large', `"${path}" is larger than ${MAX_BYTES} bytes; apply it to have it`)
}
