/**
 * Writes what a patch was staged to be: all of it, or nothing. New content is written beside its place first; then names change
 * one after another, and where one cannot, those before it are changed back. Whatever ends the process meanwhile leaves each
 * file old or new.
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
    // What is left of a file that is gone is nobody's any more; that it cannot be removed harms nothing.
    for (const aside of log.asides) aside.unlink()
    noteAll(staged, parts)
    return done
  }
  const { code, message, retryable } = done.error
  // First what takes room, for putting content back needs some.
  for (const beside of log.besides) beside.unlink()
  const stuck = log.undo.reverse().filter(({ back }) => !back())
  const state =
    stuck.length === 0
      ? 'Nothing was changed in any file.'
      : `What was written before could not all be taken back: look at ${stuck.map(({ path }) => path).join(', ')}.`
  return toolFailure(code, `${message} ${state}`, retryable)
}

/** What has been done so far. */
interface Log {
  /** Changes that were made, the last at the end. */
  readonly undo: Undo[]
  /** New content that may not be in its place. */
  readonly besides: Place[]
  /** Files that are gone once nothing can go wrong any more. */
  readonly asides: Place[]
}

interface Undo {
  readonly path: string
  /** Takes it back; whether it is as it was. */
  back(): boolean
}

/** A file with the places that it is written to. */
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
  // Nothing is to be seen of the patch yet, and from here on nobody else has a turn in this process.
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

/** Makes the directories before a new file that are missing, and finds its place. */
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

/** New content under the name of the old; the old comes back from memory, for two names of one file would be two copies on disk. */
function replace({ source, read }: StagedFile, beside: Place, undo: Undo[]): Result<void> {
  if (source === undefined || read === undefined) return toolSuccess(undefined)
  const put = beside.renameTo(source, { replace: true })
  const { bytes, mode } = read
  if (put.ok)
    undo.push({ path: source.path, back: () => writeWhole(source, bytes, { mode, replace: true }).ok })
  return put
}

/** Takes a file's name away; the file itself is there until nothing can go wrong any more. */
function setAside(source: Place, { undo, asides }: Log): Result<void> {
  const aside = placeBeside(source)
  const moved = source.renameTo(aside, { replace: true })
  if (!moved.ok) return moved
  asides.push(aside)
  undo.push({ path: source.path, back: () => aside.renameTo(source, { replace: false }).ok })
  return moved
}

/** What this conversation knows of the files from now on. */
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
