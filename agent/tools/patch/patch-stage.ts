/**
 * Stages a patch in memory: resolves every path, reads every file and applies every hunk. Writes nothing; a problem
 * in one file refuses the whole patch.
 */

import { Buffer } from 'node:buffer'
import type { Root } from '#specs/node/descriptor-walk.ts'
import { quotePath } from '#specs/node/path-text.ts'
import type { Place } from '#specs/node/place.ts'
import type { Result, ToolError } from '#specs/protocol/error.ts'
import { toolFailure, toolSuccess } from '../../tool-calls/tool.ts'
import type { Reader, ReadLedger } from '../../workspace/read-ledger.ts'
import { editMaxBytes, type FileText, readFileText } from '../files/file-text.ts'
import { applyHunks, type Patched } from './patch-hunks.ts'
import { badPatch, type FilePatch } from './patch-model.ts'

/** One file ready to be written. The stage owns its descriptors. */
export interface StagedFile {
  readonly patch: FilePatch
  /** The current entry; absent for a new file. */
  readonly source?: Place
  /** Its text; absent when the content is not needed. */
  readonly read?: FileText
  /** Where content is written; absent for a deletion. */
  readonly target?: PatchTarget
  /** New content; absent when it stays. */
  readonly bytes?: Buffer
  /** Permission bits to set; absent: unchanged, or those of a new file. */
  readonly mode?: number
  readonly change: Omit<Patched, 'text'>
}

/** A free path, or the file to replace. */
interface PatchTarget {
  /** Resolved, below the root. */
  readonly path: string
  /** Absent when parent directories are missing. */
  readonly place?: Place
}

/** Maximum bytes of all files of a patch, before or after it. */
const totalMaxBytes = 64 * 1024 * 1024
/** Maximum failures in one message. */
const maxFailures = 5

export interface StageParts {
  readonly root: Root
  /** Closes the descriptors. */
  readonly scope: DisposableStack
  readonly ledger: ReadLedger | undefined
  readonly reader: Reader
}

export function stagePatch(files: readonly FilePatch[], parts: StageParts): Result<readonly StagedFile[]> {
  const staged: StagedFile[] = []
  const failures: ToolError[] = []
  const taken = new Map<string, string>()
  let totalBytes = 0
  for (const file of files) {
    const made = findMade(staged, file, parts)
    if (made !== undefined) {
      const again = stageMade(made, file, parts)
      if (again.ok) staged[staged.indexOf(made)] = again.value
      else failures.push(again.error)
      totalBytes += again.ok ? (again.value.bytes?.length ?? 0) : 0
      continue
    }
    const one = stageFile(file, parts)
    if (!one.ok) {
      failures.push(one.error)
      if (failures.length === maxFailures) break
      continue
    }
    const paths = new Set(
      [one.value.source?.path, one.value.target?.path].filter((path) => path !== undefined),
    )
    for (const path of paths) {
      const other = taken.get(path)
      if (other !== undefined)
        return badPatch(
          `${quotePath(other)} and ${quotePath(file.path)} are the same file: put all hunks of a file under one head`,
          1,
        )
      taken.set(path, file.path)
    }
    totalBytes += Math.max(one.value.bytes?.length ?? 0, one.value.read?.bytes.length ?? 0)
    if (totalBytes > totalMaxBytes)
      return toolFailure(
        'too_large',
        `the files of the patch have more than ${totalMaxBytes} bytes together: give it in parts.`,
      )
    staged.push(one.value)
  }
  const [first] = failures
  if (first === undefined) return toolSuccess(staged)
  const text = failures.map(({ message }) => message).join('\n')
  const message = `${text}\nNothing was changed in any file; correct the patch, and give the whole of it again.`
  return { ok: false, error: { ...first, message } }
}

/** The file that an earlier part of the patch creates or renames to the path of `file`. */
function findMade(
  staged: readonly StagedFile[],
  { action, path }: FilePatch,
  parts: StageParts,
): StagedFile | undefined {
  const made = staged.filter(({ source, target }) => target !== undefined && target.path !== source?.path)
  if (action === 'add' || made.length === 0) return undefined
  const free = findFree(path, parts)
  return free.ok ? made.find(({ target }) => target?.path === free.value.path) : undefined
}

/** Applies hunks to a file that the patch itself creates. */
function stageMade(made: StagedFile, file: FilePatch, { ledger, reader }: StageParts): Result<StagedFile> {
  const name = quotePath(file.path)
  if (file.action === 'delete' || file.to !== undefined) {
    const what = file.action === 'delete' ? 'deleted' : 'renamed'
    return toolFailure(
      'invalid_input',
      `${name} is made by this patch, and ${what} again: say once what it becomes.`,
    )
  }
  let { read } = made
  if (made.source !== undefined && read === undefined) {
    const known = readFileText(made.source)
    if (!known.ok) return known
    const isUnchanged = ledger?.checkBytes(reader, made.source, known.value.bytes)
    if (isUnchanged?.ok === false) return isUnchanged
    read = known.value
  }
  const before = made.bytes?.toString('utf8') ?? read?.text ?? ''
  const patched = applyHunks(name, before, file.hunks)
  if (!patched.ok) return patched
  const { text, added, removed, notes } = patched.value
  const bytes = Buffer.from(text, 'utf8')
  if (bytes.length > editMaxBytes)
    return toolFailure(
      'too_large',
      `${name} would have more than ${editMaxBytes} bytes; use run_python for it.`,
    )
  const mode = file.mode ?? made.mode ?? read?.mode
  return toolSuccess({
    ...made,
    patch: { ...made.patch, hunks: [...made.patch.hunks, ...file.hunks] },
    ...(read === undefined ? {} : { read }),
    bytes,
    ...(mode === undefined ? {} : { mode }),
    change: {
      added: made.change.added + added,
      removed: made.change.removed + removed,
      notes: [...made.change.notes, ...notes],
    },
  })
}

function stageFile(file: FilePatch, parts: StageParts): Result<StagedFile> {
  if (file.action === 'add') return stageNew(file, parts)
  const found = locate(
    file.path,
    file.action === 'delete' || file.to !== undefined ? 'keep' : 'follow',
    parts,
  )
  if (!found.ok) return found
  const source = found.value
  return file.action === 'delete' ? stageDeletion(file, source, parts) : stageUpdate(file, source, parts)
}

function stageNew(file: FilePatch, parts: StageParts): Result<StagedFile> {
  const target = findFree(file.path, parts)
  if (!target.ok) return target
  const patched = applyHunks(quotePath(file.path), '', file.hunks)
  if (!patched.ok) return patched
  const { text, ...change } = patched.value
  const { mode } = file
  return toolSuccess({
    patch: file,
    target: target.value,
    bytes: Buffer.from(text, 'utf8'),
    change,
    ...(mode === undefined ? {} : { mode }),
  })
}

function stageDeletion(file: FilePatch, source: Place, { ledger, reader }: StageParts): Result<StagedFile> {
  const stat = source.stat()
  if (!stat.ok) return stat
  if (stat.value.isDirectory()) {
    return toolFailure(
      'not_a_file',
      `${source} is a directory; a patch deletes files alone, delete_file whole directories.`,
    )
  }
  const known = ledger?.check(reader, source)
  if (known?.ok === false) return known
  const none = { added: 0, removed: 0, notes: [] }
  if (file.hunks.length === 0) return toolSuccess({ patch: file, source, change: none })
  const read = readFileText(source)
  if (!read.ok) return read
  const patched = applyHunks(quotePath(file.path), read.value.text, file.hunks)
  if (!patched.ok) return patched
  const { text, ...change } = patched.value
  if (text === '') return toolSuccess({ patch: file, source, read: read.value, change })
  return toolFailure(
    'no_match',
    `the patch deletes ${source}, but the file has more lines than the patch takes away: read it again, or use delete_file.`,
  )
}

function stageUpdate(file: FilePatch, source: Place, parts: StageParts): Result<StagedFile> {
  const { ledger, reader } = parts
  const target =
    file.to === undefined ? toolSuccess({ path: source.path, place: source }) : findFree(file.to, parts)
  if (!target.ok) return target
  const what = { patch: file, source, target: target.value }
  const none = { added: 0, removed: 0, notes: [] }
  if (file.hunks.length === 0) {
    const stat = source.stat()
    if (!stat.ok) return stat
    if (stat.value.isDirectory()) return toolFailure('not_a_file', `${source} is a directory; use move_file.`)
    const known = ledger?.check(reader, source)
    if (known?.ok === false) return known
    if (file.mode === undefined) return toolSuccess({ ...what, change: none })
  }
  const read = readFileText(source)
  if (!read.ok) return read
  const known = ledger?.checkBytes(reader, source, read.value.bytes)
  if (known?.ok === false) return known
  const patched = applyHunks(quotePath(file.path), read.value.text, file.hunks)
  if (!patched.ok) return patched
  const { text, ...change } = patched.value
  const bytes = Buffer.from(text, 'utf8')
  if (bytes.length > editMaxBytes)
    return toolFailure(
      'too_large',
      `${source} would have more than ${editMaxBytes} bytes; use run_python for it.`,
    )
  return toolSuccess({ ...what, read: read.value, bytes, mode: file.mode ?? read.value.mode, change })
}

function locate(path: string, links: 'keep' | 'follow', { root, scope }: StageParts): Result<Place> {
  const found = root.locate(path, { links })
  if (!found.ok) return found
  return toolSuccess(scope.use(found.value))
}

/** A free path; parent directories may be missing. */
function findFree(path: string, parts: StageParts): Result<PatchTarget> {
  if (path.endsWith('/'))
    return toolFailure('invalid_input', `${quotePath(path)} names a directory; name a file in it.`)
  const found = locate(path, 'keep', parts)
  if (!found.ok) return found.error.code === 'not_found' ? findBelowMissing(path, parts) : found
  if (!found.value.exists()) return toolSuccess({ path: found.value.path, place: found.value })
  return toolFailure(
    'already_exists',
    `${found.value} exists already: update it, or delete it first with a patch of its own.`,
  )
}

/** The path below the deepest existing directory. */
function findBelowMissing(path: string, { root }: StageParts): Result<PatchTarget> {
  const names = path
    .split('/')
    .filter((name, at) => (name !== '' && name !== '.') || (at === 0 && name === ''))
  for (let kept = names.length - 1; kept >= 0; kept--) {
    const head = names.slice(0, kept).join('/')
    const found = root.locate(head === '' ? '.' : head)
    if (!found.ok && found.error.code === 'not_found') continue
    if (!found.ok) return found
    using place = found.value
    const stat = place.stat()
    if (!stat.ok && stat.error.code === 'not_found') continue
    const rest = names.slice(kept)
    if (!stat.ok) return stat
    if (!stat.value.isDirectory())
      return toolFailure('not_a_directory', `${quotePath(path)}: ${place} is not a directory.`)
    if (rest.includes('..'))
      return toolFailure('not_found', `${quotePath(path)}: a directory before ".." does not exist.`)
    return toolSuccess({ path: [...(place.path === '' ? [] : [place.path]), ...rest].join('/') })
  }
  return toolFailure('not_found', `${quotePath(path)} cannot be reached.`)
}
