/**
 * Reads git's index (gitformat-index(5), versions 2 to 4): what the next `git checkout -- .` would write and what `git
 * status` would hide.
 */
import { createHash } from 'node:crypto'
import { decodePath, encodePath } from '#specs/node/path-text.ts'
import { NotExaminable } from './budget.ts'

/** Maximum bytes of an index; half a million entries need about 60 MB. */
export const INDEX_MAX_BYTES = 128 * 1024 * 1024

/** Linux's path limit; version 4 shares prefixes, so a small file could expand to very long names. */
const PATH_MAX_BYTES = 4_096
const NAMES_MAX_BYTES = 128 * 1024 * 1024
const MAX_FOLDERS = 500_000

export interface IndexEntry {
  readonly path: string
  readonly mode: number
  readonly id: string
  /** 0, or 1 to 3 for the sides of a conflict. */
  readonly stage: number
  /** Whether `git status` assumes that the file is unchanged (assume-unchanged, skip-worktree). */
  readonly isHidden: boolean
  readonly isIntentToAdd: boolean
}

export interface GitIndex {
  /** By stage and path, such as `0:a/b`. */
  readonly entries: ReadonlyMap<string, IndexEntry>
  /** Digests of the extensions that let git skip files: the untracked cache and the monitor's. */
  readonly caches: ReadonlyMap<string, string>
}

/** @throws {NotExaminable} */
export function parseIndex(bytes: Buffer, idBytes: number): GitIndex {
  if (bytes.length < 12 + idBytes || bytes.toString('latin1', 0, 4) !== 'DIRC')
    throw new NotExaminable('the index is of an unknown form')
  const version = bytes.readUInt32BE(4)
  if (version < 2 || version > 4) throw new NotExaminable('the index is of an unknown version')
  const { entries, end } = parseEntries(bytes, version, idBytes)
  const caches = new Map<string, string>()
  const last = bytes.length - idBytes
  for (let at = end; at < last; ) {
    if (at + 8 > last) throw new NotExaminable('the index is damaged')
    const name = bytes.toString('latin1', at, at + 4)
    const size = bytes.readUInt32BE(at + 4)
    const content = bytes.subarray(at + 8, at + 8 + size)
    if (at + 8 + size > last) throw new NotExaminable('the index is damaged')
    if (name === 'TREE') checkCachedTree(content, entries, idBytes)
    else if (name === 'UNTR' || name === 'FSMN')
      caches.set(name, createHash('sha256').update(content).digest('hex'))
    // A split or sparse index has entries elsewhere.
    else if (!['REUC', 'EOIE', 'IEOT'].includes(name))
      throw new NotExaminable(`the index has the extension "${name.replace(/[^A-Za-z]/g, '?')}"`)
    at += 8 + size
  }
  return { entries, caches }
}

/** Whether a path of the workspace is a repository's index. */
export function isIndexPath(path: string): boolean {
  return /(^|\/)\.git\/(.+\/)?index$/s.test(path)
}

/** Digest of an index's content without the times and sizes that `git status` refreshes; undefined if unreadable. */
export function meaningOfIndex(bytes: Buffer): string | undefined {
  for (const idBytes of [20, 32]) {
    try {
      const hash = createHash('sha256')
      for (const entry of parseIndex(bytes, idBytes).entries.values())
        hash.update(`${JSON.stringify(entry)}\n`)
      return hash.digest('hex')
    } catch (thrown) {
      if (!(thrown instanceof NotExaminable)) throw thrown
    }
  }
  return undefined
}

function parseEntries(bytes: Buffer, version: number, idBytes: number) {
  const count = bytes.readUInt32BE(8)
  const last = bytes.length - idBytes
  const entries = new Map<string, IndexEntry>()
  let at = 12
  let before = Buffer.alloc(0)
  let nameBytes = 0
  for (let number = 0; number < count; number++) {
    const flagsAt = at + 40 + idBytes
    if (flagsAt + 4 > last) throw new NotExaminable('the index is damaged')
    const mode = bytes.readUInt32BE(at + 24)
    const flags = bytes.readUInt16BE(flagsAt)
    const more = (flags & 0x4000) !== 0 ? bytes.readUInt16BE(flagsAt + 2) : 0
    let nameAt = flagsAt + ((flags & 0x4000) !== 0 ? 4 : 2)
    let kept = Buffer.alloc(0)
    if (version === 4) {
      const cut = readCut(bytes, nameAt)
      if (cut.value > before.length) throw new NotExaminable('the index is damaged')
      kept = before.subarray(0, before.length - cut.value)
      nameAt = cut.next
    }
    const end = bytes.indexOf(0, nameAt)
    if (end === -1 || end >= last) throw new NotExaminable('the index is damaged')
    const name = Buffer.concat([kept, bytes.subarray(nameAt, end)])
    nameBytes += name.length
    if (name.length > PATH_MAX_BYTES || nameBytes > NAMES_MAX_BYTES)
      throw new NotExaminable('the index has paths that are too long')
    const entry: IndexEntry = {
      path: decodePath(name),
      mode,
      id: bytes.toString('hex', at + 40, flagsAt),
      stage: (flags >> 12) & 3,
      isHidden: (flags & 0x8000) !== 0 || (more & 0x4000) !== 0,
      isIntentToAdd: (more & 0x2000) !== 0,
    }
    const key = `${entry.stage}:${entry.path}`
    if (entries.has(key)) throw new NotExaminable('the index names a path twice')
    entries.set(key, entry)
    before = name
    // Before version 4, entries are padded with one to eight NULs to a multiple of eight bytes.
    at = version === 4 ? end + 1 : at + Math.ceil((end + 1 - at) / 8) * 8
  }
  return { entries, end: at }
}

/** Number of bytes to drop from the previous name; encoded like a pack's offsets. */
function readCut(bytes: Buffer, at: number): { value: number; next: number } {
  let place = at
  let byte = bytes[place++] ?? 0
  let value = byte & 0x7f
  while (byte & 0x80) {
    byte = bytes[place++] ?? 0
    value = (value + 1) * 128 + (byte & 0x7f)
    if (value > 0xffff) throw new NotExaminable('the index is damaged')
  }
  return { value, next: place }
}

interface Folder {
  readonly folders: Map<string, Folder>
  readonly files: { readonly name: Buffer; readonly mode: number; readonly id: string }[]
}

/**
 * The cached trees, which the next commit uses without checking, must match the entries. A tree's name follows from its
 * contents, so no object is read.
 */
function checkCachedTree(content: Buffer, entries: ReadonlyMap<string, IndexEntry>, idBytes: number): void {
  const root: Folder = { folders: new Map(), files: [] }
  let folders = 0
  for (const { path, mode, id, isIntentToAdd, stage } of entries.values()) {
    if (stage !== 0 || isIntentToAdd) continue
    const names = path.split('/')
    const file = names.pop() ?? ''
    let folder = root
    for (const name of names) {
      let next = folder.folders.get(name)
      if (next === undefined) {
        if (++folders > MAX_FOLDERS) throw new NotExaminable('the index has too many directories')
        next = { folders: new Map(), files: [] }
        folder.folders.set(name, next)
      }
      folder = next
    }
    folder.files.push({ name: encodePath(file), mode, id })
  }
  const ids = new Map<Folder, string>()
  const end = compareCached(content, 0, root, '', { ids, idBytes, depth: 0 })
  if (end !== content.length) throw new NotExaminable('the trees that the index keeps are damaged')
}

function compareCached(
  content: Buffer,
  at: number,
  folder: Folder | undefined,
  name: string,
  around: { readonly ids: Map<Folder, string>; readonly idBytes: number; readonly depth: number },
): number {
  const { ids, idBytes, depth } = around
  const nameEnd = content.indexOf(0, at)
  const lineEnd = content.indexOf(0x0a, nameEnd + 1)
  const counts = /^(-?\d{1,9}) (\d{1,9})$/.exec(
    content.toString('latin1', nameEnd + 1, Math.max(nameEnd + 1, lineEnd)),
  )
  if (nameEnd === -1 || lineEnd === -1 || counts === null || depth > 200)
    throw new NotExaminable('the trees that the index keeps are damaged')
  if (decodePath(content.subarray(at, nameEnd)) !== name)
    throw new NotExaminable('the trees that the index keeps are damaged')
  let next = lineEnd + 1
  if (Number(counts[1]) >= 0) {
    const id = content.toString('hex', next, next + idBytes)
    if (folder === undefined || treeId(folder, ids, idBytes) !== id)
      throw new NotExaminable('the trees that the index keeps are not those of its entries')
    next += idBytes
  }
  for (let number = 0; number < Number(counts[2]); number++) {
    const below = content.indexOf(0, next)
    if (below === -1) throw new NotExaminable('the trees that the index keeps are damaged')
    const child = decodePath(content.subarray(next, below))
    next = compareCached(content, next, folder?.folders.get(child), child, { ids, idBytes, depth: depth + 1 })
  }
  return next
}

function treeId(folder: Folder, ids: Map<Folder, string>, idBytes: number): string {
  const known = ids.get(folder)
  if (known !== undefined) return known
  const lines = [
    ...folder.files.map(({ name, mode, id }) => ({ order: name, name, mode, id })),
    ...[...folder.folders].map(([text, below]) => {
      const name = encodePath(text)
      // git sorts a directory as if its name ended with a slash.
      return {
        order: Buffer.concat([name, Buffer.from('/')]),
        name,
        mode: 0o40000,
        id: treeId(below, ids, idBytes),
      }
    }),
  ].sort((left, right) => Buffer.compare(left.order, right.order))
  const data = Buffer.concat(
    lines.flatMap(({ name, mode, id }) => [
      Buffer.from(`${mode.toString(8)} `),
      name,
      Buffer.from([0]),
      Buffer.from(id, 'hex'),
    ]),
  )
  const id = createHash(idBytes === 20 ? 'sha1' : 'sha256')
    .update(`tree ${data.length}\0`)
    .update(data)
    .digest('hex')
  ids.set(folder, id)
  return id
}
