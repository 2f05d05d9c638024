/** A change set as a tar archive: a list of all changes, and the new files, directories and links. */
import { createHash } from 'node:crypto'
import { closeSync } from 'node:fs'
import { encodeEnd, encodeEntry, encodePadding, type TarEntry } from '../control/tar.ts'
import {
  type ChangeSet,
  openContents,
  readSlices,
  type StoredChange,
  WorkspaceFailure,
} from '../workspace/index.ts'

const listName = 'changes.json'
const filesFolder = 'files'

/** Each piece is valid until the next. @throws {WorkspaceFailure} `damaged` */
export function* changesAsTar({ entries, paths }: ChangeSet): Generator<Buffer, void, undefined> {
  const changes = [...entries.values()].map((change) => ({ ...change, offset: undefined }))
  const list = Buffer.from(`${JSON.stringify({ changes })}\n`)
  yield headerOf({ path: listName, type: 'file', mode: 0o644, size: list.length })
  yield list
  yield encodePadding(list.length)
  const contents = openContents(paths.contents)
  try {
    for (const change of entries.values()) yield* entryOf(change, contents)
  } finally {
    closeSync(contents)
  }
  yield encodeEnd()
}

/** What is gone, or has a new mode alone, is in the list. */
function* entryOf(change: StoredChange, contents: number): Generator<Buffer, void, undefined> {
  const path = `${filesFolder}/${change.path}`
  if (change.kind === 'directory') yield headerOf({ path: `${path}/`, type: 'directory', mode: change.mode })
  if (change.kind === 'link') yield headerOf({ path, type: 'link', mode: 0o777, target: change.target })
  if (change.kind !== 'file') return
  const { mode, size, offset, sha256 } = change
  yield headerOf({ path, type: 'file', mode, size })
  const hash = createHash('sha256')
  for (const piece of readSlices(contents, offset, size)) {
    hash.update(piece)
    // The next piece takes its place.
    yield Buffer.from(piece)
  }
  if (hash.digest('hex') !== sha256)
    throw new WorkspaceFailure(
      'damaged',
      `the stored content of ${JSON.stringify(change.path)} is not what the run made`,
    )
  yield encodePadding(size)
}

function headerOf({ mode, ...entry }: Pick<TarEntry, 'path' | 'type' | 'mode'> & Partial<TarEntry>): Buffer {
  return encodeEntry({ size: 0, target: '', mtimeMs: 0, mode: mode & 0o777, ...entry })
}
