/**
 * Writes a staged patch: all of it or nothing. New content is written beside its place first; then names change one
 * by one, and an error reverts the earlier ones. If the process dies, each file is old or new.
 */
import type { Root } from '#specs/node/descriptor-walk.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result } from '#specs/protocol/error.ts'
import { toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import { placeBeside, writeBeside, writeWhole } from '../../workspace/file-access.ts'
import { checkUnchanged } from '../files/file-text.ts'
import type { StagedFile, StageParts } from './patch-stage.ts'

export function commitPatch(staged: readonly StagedFile[], parts: StageParts): Result<void> {
  const log: Log = { undo: [], besides: [], asides: [] }
  const done = write(staged, parts, log)
  if (done.ok) {
    // Leftovers of a deleted file belong to nobody; failing to remove them is harmless.
    for (const aside of log.asides) aside.unlink()
    noteAll(staged, parts)
    return done
  }
  const { code, message, retryable } = done.error
  // Steps that need space first, since reverting needs some.
  for (const beside of log.besides) beside.unlink()
  const stuck = log.undo.reverse().filter(({ back }) => !back())
  const state =
    stuck.length === 0
      ? 'Nothing was changed in any file.'
      : `What was written before could not all be restored: look at ${stuck.map(({ path }) => path).join(', ')}.`
  return toolFailure(code, `${message} ${state}`, retryable)
}

/** Progress so far. */
interface Log {
  /** Changes made, newest last. */
  readonly undo: Undo[]
  /** New content that may not be in its place. */
  readonly besides: Place[]
  /** Files to delete once nothing can fail any more. */
  readonly asides: Place[]
}

interface Undo {
  readonly path: string
  /** Reverts it; returns whether the old state is restored. */
  back(): boolean
}

/** A file with the places to write. */
interface Ready {
  readonly file: StagedFile
  readonly target?: Place
  /** Its new content, beside its place. */
  readonly beside?: Place
}

function write(staged: readonly StagedFile[], parts: StageParts, log: Log): Result<void> {
  const ready: Ready[] = []
  for (const file of staged) {
    const one = prepare(file, parts, log)
    if (!one.ok) return one
    ready.push(one.value)
  }
  // Nothing of the patch is visible yet, and nothing else in this process runs from here on.
  for (const { source, read } of staged) {
    const unchanged = source === undefined || read === undefined ? null : checkUnchanged(source, read)
    if (unchanged?.ok === false) return unchanged
  }
  for (const one of ready) {
    const put = putInPlace(one, log)
    if (!put.ok) return put
  }
  return toolSuccess(undefined)
}

function prepare(file: StagedFile, parts: StageParts, log: Log): Result<Ready> {
  if (file.target === undefined) return toolSuccess({ file })
  const found =
    file.target.place === undefined
      ? makeParents(file.target.path, parts, log.undo)
      : toolSuccess(file.target.place)
  if (!found.ok) return found
  const target = found.value
  if (file.bytes === undefined) return toolSuccess({ file, target })
  const written = writeBeside(target, file.bytes, file.mode)
  if (!written.ok) return written
  log.besides.push(written.value)
  return toolSuccess({ file, target, beside: written.value })
}

/** Creates missing parent directories of a new file and opens its place. */
function makeParents(path: string, { root, scope }: StageParts, undo: Undo[]): Result<Place> {
  const names = path.split('/')
  for (let count = 1; count < names.length; count++) {
    const found = locate(root, names.slice(0, count).join('/'), scope)
    if (!found.ok) return found
    const directory = found.value
    const made = directory.makeDirectory()
    if (made.ok) undo.push({ path: directory.path, back: () => directory.removeDirectory().ok })
    else if (made.error.code !== 'already_exists') return made
  }
  return locate(root, path, scope)
}

function locate(root: Root, path: string, scope: DisposableStack): Result<Place> {
  const found = root.locate(path, { links: 'keep' })
  return found.ok ? toolSuccess(scope.use(found.value)) : found
}

function putInPlace({ file, target, beside }: Ready, log: Log): Result<void> {
  const { source, read } = file
  if (target === undefined) return source === undefined ? toolSuccess(undefined) : setAside(source, log)
  if (source !== undefined && source === target)
    return beside === undefined ? toolSuccess(undefined) : replace(file, beside, log.undo)
  if (beside === undefined) {
    if (source === undefined) return toolSuccess(undefined)
    const moved = source.renameTo(target, { replace: false })
    if (moved.ok)
      log.undo.push({ path: source.path, back: () => target.renameTo(source, { replace: false }).ok })
    return moved
  }
  const put = beside.renameTo(target, { replace: false })
  if (!put.ok) return put
  log.undo.push({ path: target.path, back: () => target.unlink().ok })
  return source === undefined || read === undefined ? put : setAside(source, log)
}

/**
 * Puts new content under the old name. A revert writes the old content from memory, since hard links would become two
 * copies on disk.
 */
function replace({ source, read }: StagedFile, beside: Place, undo: Undo[]): Result<void> {
  if (source === undefined || read === undefined) return toolSuccess(undefined)
  const put = beside.renameTo(source, { replace: true })
  const { bytes, mode } = read
  if (put.ok)
    undo.push({ path: source.path, back: () => writeWhole(source, bytes, { mode, replace: true }).ok })
  return put
}

/** Removes a file's name; the file remains until nothing can fail any more. */
function setAside(source: Place, { undo, asides }: Log): Result<void> {
  const aside = placeBeside(source)
  const moved = source.renameTo(aside, { replace: true })
  if (!moved.ok) return moved
  asides.push(aside)
  undo.push({ path: source.path, back: () => aside.renameTo(source, { replace: false }).ok })
  return moved
}

/** Records what this conversation knows of the files from now on. */
function noteAll(staged: readonly StagedFile[], { root, scope, ledger, reader }: StageParts): void {
  if (ledger === undefined) return
  for (const { source, target, bytes } of staged) {
    const place = target === undefined ? undefined : locate(root, target.path, scope)
    if (source !== undefined && target !== undefined && source.path !== target.path)
      ledger.move(reader, source.path, target.path)
    if (source !== undefined && source.path !== target?.path) ledger.note(reader, source, 'absent')
    if (place?.ok === true && bytes !== undefined) ledger.noteBytes(reader, place.value, bytes)
  }
}
