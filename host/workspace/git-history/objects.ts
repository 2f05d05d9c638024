/**
 * Reads a repository's objects from the change set and the host's store. Never follows alternates; every object must
 * match its name by content.
 */
import { createHash } from 'node:crypto'
import type { Root } from '#specs/node/descriptor-walk.ts'
import { decodePath } from '#specs/node/path-text.ts'
import type { OpenFile } from '#specs/node/place.ts'
import type { StoredChange } from '../change-set.ts'
import type { ManifestIndex } from '../conflicts.ts'
import { foldPath } from '../flags/folded-path.ts'
import { ByteRange, type HistoryBudget, NotExaminable } from './budget.ts'
import {
  type GitObject,
  inflate,
  inflateStart,
  OBJECT_MAX_BYTES,
  type ObjectType,
  Pack,
  PackIndex,
} from './pack.ts'

/** Maximum packs opened; git itself suggests a clean-up at 50. */
const MAX_PACKS = 200
const unchecked = 'git trusts what it says of the objects without looking at them'

export interface HistorySurroundings {
  readonly root: Root
  readonly index: ManifestIndex
  readonly changes: ReadonlyMap<string, StoredChange>
  /** Descriptor of the change set's contents; -1 if there are none. */
  readonly contents: number
}

interface StoreOptions {
  /** The repository's directory below the workspace, such as `.git`. */
  readonly directory: string
  /** Length of an object name in bytes: 20 (SHA-1) or 32 (SHA-256). */
  readonly idBytes: number
  readonly budget: HistoryBudget
}

export class ObjectStore implements Disposable {
  readonly idBytes: number
  readonly #around: HistorySurroundings
  readonly #directory: string
  readonly #budget: HistoryBudget
  readonly #changedLoose = new Map<string, ByteRange>()
  /** By the pack's path without its extension. */
  readonly #changedPacks = new Map<string, Pack>()
  readonly #hostPacks = new Map<string, Pack>()
  readonly #opened: OpenFile[] = []

  /** @throws {NotExaminable} */
  constructor(around: HistorySurroundings, { directory, idBytes, budget }: StoreOptions) {
    this.#around = around
    this.#directory = `${directory}/objects`
    this.idBytes = idBytes
    this.#budget = budget
    try {
      this.#findChanged()
      this.#findHostPacks()
    } catch (thrown) {
      this[Symbol.dispose]()
      throw thrown
    }
  }

  /** Whether an object exists once all changes are applied. */
  isThereAfter(id: string): boolean {
    if (this.#changedLoose.has(id)) return true
    for (const pack of this.#changedPacks.values()) if (pack.index.find(id) !== undefined) return true
    for (const [name, pack] of this.#hostPacks)
      if (
        !this.#isDeleted(`${name}.pack`) &&
        !this.#isDeleted(`${name}.idx`) &&
        pack.index.find(id) !== undefined
      )
        return true
    const loose = this.#loosePath(id)
    return !this.#isDeleted(loose) && this.#hostHas(loose)
  }

  /** @throws {NotExaminable} when it is missing, damaged or too large */
  read(id: string): GitObject {
    // A cached pack object costs nothing more, and one tree can be named a million times.
    this.#budget.object(0)
    const object = this.#find(id)
    if (object === undefined) throw new NotExaminable(`the object ${id.slice(0, 12)} is missing`)
    if (this.#nameOf(object) !== id)
      throw new NotExaminable(`the object ${id.slice(0, 12)} has another content`)
    return object
  }

  /** Checks all changes below `objects`; returns why paths must be named to be applied. */
  async checkChanges(): Promise<Map<string, string>> {
    const reasons = new Map<string, string>()
    for (const change of this.#around.changes.values()) {
      const isExact = change.path === this.#directory || change.path.startsWith(`${this.#directory}/`)
      if (!isExact && !this.#isOtherSpelling(change.path)) continue
      const reason = isExact ? await this.#check(change) : unchecked
      if (reason !== undefined) reasons.set(change.path, reason)
    }
    return reasons
  }

  /** A path that some file systems treat as one below `objects`. */
  #isOtherSpelling(path: string): boolean {
    const end = this.#directory.lastIndexOf('/') + 1
    return path.startsWith(this.#directory.slice(0, end)) && /^objects(\/|$)/.test(foldPath(path.slice(end)))
  }

  [Symbol.dispose](): void {
    for (const file of this.#opened.splice(0)) file[Symbol.dispose]()
  }

  async #check(change: StoredChange): Promise<string | undefined> {
    try {
      if (change.kind === 'deleted') return await this.#checkDeletion(change.path)
      if (change.kind !== 'file') return
      const name = change.path.slice(this.#directory.length + 1)
      if (/^[0-9a-f]{2}\/[0-9a-f]+$/.test(name)) return this.#checkLoose(name.replace('/', ''))
      const ending = /^pack\/[^/]+\.(pack|idx|rev|keep|mtimes)$/.exec(name)?.[1]
      if (ending === 'pack' || ending === 'idx') return await this.#checkPack(change.path, ending)
      if (ending === 'rev') return await this.#checkReverse(change)
      return ending !== undefined || name === 'info/packs' ? undefined : unchecked
    } catch (thrown) {
      if (thrown instanceof NotExaminable) return `git's objects could not be examined: ${thrown.message}`
      throw thrown
    }
  }

  #checkLoose(id: string): undefined {
    if (id.length !== this.idBytes * 2) throw new NotExaminable('a name is too short or too long')
    this.read(id)
  }

  /** Checks that every object of a pack matches its name in the index. */
  async #checkPack(path: string, ending: 'pack' | 'idx'): Promise<undefined> {
    const name = path.slice(0, -ending.length - 1)
    const pack = this.#changedPacks.get(name)
    if (pack === undefined)
      throw new NotExaminable('a pack is there without its index, or an index without its pack')
    // The pair is looked at once.
    if (ending === 'idx' && this.#changeAt(`${name}.pack`) !== undefined) return
    for (let place = 0; place < pack.index.count; place++) {
      await this.#budget.pause()
      const id = pack.index.idAt(place)
      if (this.#nameOf(pack.read(pack.index.offsetAt(place))) !== id)
        throw new NotExaminable(`the object ${id.slice(0, 12)} has another content`)
    }
  }

  /** A reverse index lists the places of the index in the order of their offsets. */
  async #checkReverse(change: StoredChange & { kind: 'file' }): Promise<undefined> {
    const name = change.path.slice(0, -'.rev'.length)
    const index = (this.#changedPacks.get(name) ?? this.#hostPacks.get(name))?.index
    if (index === undefined) throw new NotExaminable('a reverse index has no pack')
    const bytes = new ByteRange(this.#around.contents, change.offset, change.size)
    let last = -1
    for (let at = 0; at < index.count; at++) {
      await this.#budget.pause()
      const place = bytes.read(12 + at * 4, 4).readUInt32BE(0)
      const offset = place < index.count ? index.offsetAt(place) : -1
      if (offset <= last) throw new NotExaminable('a reverse index is not in order')
      last = offset
    }
  }

  /** Objects may be removed only if they exist elsewhere afterwards; a branch of the host may need them. */
  async #checkDeletion(path: string): Promise<string | undefined> {
    const { index } = this.#around
    for (const file of [path, ...index.below(path)]) {
      const name = file.slice(this.#directory.length + 1)
      const loose = /^([0-9a-f]{2})\/([0-9a-f]+)$/.exec(name)
      const ids = loose === null ? this.#idsOfPack(file) : [`${loose[1]}${loose[2]}`]
      for (const id of ids) {
        await this.#budget.pause()
        this.#budget.object(0)
        if (!this.isThereAfter(id)) return 'it deletes objects of git that are nowhere else'
      }
    }
    return
  }

  *#idsOfPack(file: string): Generator<string> {
    if (!/\.(pack|idx)$/.test(file)) return
    const pack = this.#hostPacks.get(file.replace(/\.(pack|idx)$/, ''))
    if (pack === undefined) throw new NotExaminable('a pack of the host that is deleted cannot be read')
    for (let place = 0; place < pack.index.count; place++) yield pack.index.idAt(place)
  }

  #find(id: string): GitObject | undefined {
    const changed = this.#changedLoose.get(id)
    if (changed !== undefined) return this.#parseLoose(changed)
    for (const pack of [...this.#changedPacks.values(), ...this.#hostPacks.values()]) {
      const offset = pack.index.find(id)
      if (offset !== undefined) return pack.read(offset)
    }
    const file = this.#open(this.#loosePath(id))
    if (file === undefined) return
    using own = file
    return this.#parseLoose(new ByteRange(own.fd, 0, own.stat.size))
  }

  #parseLoose(bytes: ByteRange): GitObject {
    if (bytes.size > OBJECT_MAX_BYTES) throw new NotExaminable('an object is too large')
    const compressed = bytes.read(0, bytes.size)
    const size = sizeOfLoose(compressed)
    this.#budget.object(size.size)
    const data = inflate(compressed, size.size + size.head)
    return { type: size.type, data: data.subarray(size.head) }
  }

  #nameOf({ type, data }: GitObject): string {
    return createHash(this.idBytes === 20 ? 'sha1' : 'sha256')
      .update(`${type} ${data.length}\0`)
      .update(data)
      .digest('hex')
  }

  #loosePath(id: string): string {
    return `${this.#directory}/${id.slice(0, 2)}/${id.slice(2)}`
  }

  #changeAt(path: string): Extract<StoredChange, { kind: 'file' }> | undefined {
    const change = this.#around.changes.get(path)
    return change?.kind === 'file' ? change : undefined
  }

  #isDeleted(path: string): boolean {
    for (let at = path; at.length >= this.#directory.length; at = at.slice(0, at.lastIndexOf('/')))
      if (this.#around.changes.get(at)?.kind === 'deleted') return true
    return false
  }

  #hostHas(path: string): boolean {
    const located = this.#around.root.locate(path, { links: 'refuse' })
    if (!located.ok) return false
    using place = located.value
    const stat = place.stat()
    return stat.ok && stat.value.isFile()
  }

  #open(path: string): OpenFile | undefined {
    const located = this.#around.root.locate(path, { links: 'refuse' })
    if (!located.ok) return
    using place = located.value
    const opened = place.openFile()
    return opened.ok ? opened.value : undefined
  }

  #findChanged(): void {
    const packs = new Set<string>()
    for (const change of this.#around.changes.values()) {
      if (change.kind !== 'file' || !change.path.startsWith(`${this.#directory}/`)) continue
      const name = change.path.slice(this.#directory.length + 1)
      if (/^[0-9a-f]{2}\/[0-9a-f]+$/.test(name))
        this.#changedLoose.set(name.replace('/', ''), this.#rangeOf(change))
      else if (/^pack\/[^/]+\.(pack|idx)$/.test(name)) packs.add(change.path.replace(/\.(pack|idx)$/, ''))
    }
    // Every object is searched in each of them.
    if (packs.size > MAX_PACKS) throw new NotExaminable('too many packs come')
    for (const name of packs) {
      const pack = this.#openPack(name, (path) => {
        const change = this.#changeAt(path)
        return change === undefined ? this.#hostRange(path) : this.#rangeOf(change)
      })
      if (pack !== undefined) this.#changedPacks.set(name, pack)
    }
  }

  #findHostPacks(): void {
    const located = this.#around.root.locate(`${this.#directory}/pack`, { links: 'refuse' })
    if (!located.ok) return
    using place = located.value
    const opened = place.openDirectory()
    if (!opened.ok) return
    using directory = opened.value
    for (const { name } of directory.list()) {
      if (!name.endsWith('.idx')) continue
      if (this.#hostPacks.size >= MAX_PACKS) throw new NotExaminable('the repository has too many packs')
      const path = `${this.#directory}/pack/${name.slice(0, -'.idx'.length)}`
      const pack = this.#openPack(path, (file) => this.#hostRange(file))
      if (pack !== undefined) this.#hostPacks.set(path, pack)
    }
  }

  #openPack(name: string, range: (path: string) => ByteRange | undefined): Pack | undefined {
    const [index, pack] = [range(`${name}.idx`), range(`${name}.pack`)]
    if (index === undefined || pack === undefined) return
    return new Pack(pack, new PackIndex(index, this.idBytes), this.idBytes, this.#budget)
  }

  #rangeOf(change: { offset: number; size: number }): ByteRange {
    return new ByteRange(this.#around.contents, change.offset, change.size)
  }

  #hostRange(path: string): ByteRange | undefined {
    const file = this.#open(path)
    if (file === undefined) return
    this.#opened.push(file)
    return new ByteRange(file.fd, 0, file.stat.size)
  }
}

/** The header of a loose object: its type, its size, and the length of the header. */
function sizeOfLoose(compressed: Buffer): { type: ObjectType; size: number; head: number } {
  // A thousand bytes expand to a million at most.
  const start = inflateStart(compressed.subarray(0, 1_024))
  const end = start.indexOf(0)
  const header = /^(commit|tree|blob|tag) (0|[1-9][0-9]{0,11})$/.exec(
    start.toString('latin1', 0, Math.max(0, end)),
  )
  if (header === null) throw new NotExaminable('an object is of an unknown type')
  const size = Number(header[2])
  if (size > OBJECT_MAX_BYTES) throw new NotExaminable('an object is too large')
  return { type: header[1] as ObjectType, size, head: end + 1 }
}

export interface Commit {
  readonly tree: string
  readonly parents: readonly string[]
  /** Committer time in seconds since 1970, as claimed by the commit. */
  readonly date: number
}

/** @throws {NotExaminable} */
export function parseCommit({ type, data }: GitObject): Commit {
  if (type !== 'commit') throw new NotExaminable('an object is not the commit that it is named as')
  const end = data.indexOf('\n\n')
  const lines = data.toString('latin1', 0, end === -1 ? data.length : end).split('\n')
  const tree = /^tree ([0-9a-f]{40,64})$/.exec(lines[0] ?? '')?.[1]
  if (tree === undefined) throw new NotExaminable('a commit has no tree')
  const parents: string[] = []
  for (const line of lines.slice(1)) {
    const parent = /^parent ([0-9a-f]{40,64})$/.exec(line)?.[1]
    if (parent === undefined) break
    parents.push(parent)
  }
  const date = lines
    .map((line) => /^committer .*> (\d{1,12}) [-+]\d{4}$/.exec(line)?.[1])
    .find((found) => found)
  return { tree, parents, date: Number(date ?? 0) }
}

export interface TreeEntry {
  readonly name: string
  /** `tree`, a plain file, a link, or a submodule's commit. */
  readonly kind: 'tree' | 'file' | 'link' | 'submodule'
  readonly mode: number
  readonly id: string
}

/** @throws {NotExaminable} */
export function parseTree({ type, data }: GitObject, idBytes: number): Map<string, TreeEntry> {
  if (type !== 'tree') throw new NotExaminable('an object is not the tree that it is named as')
  const entries = new Map<string, TreeEntry>()
  for (let at = 0; at < data.length; ) {
    const space = data.indexOf(0x20, at)
    const end = data.indexOf(0, at)
    if (space === -1 || end === -1 || space > end || end + 1 + idBytes > data.length)
      throw new NotExaminable('a tree is damaged')
    const mode = Number.parseInt(data.toString('latin1', at, space), 8)
    const name = decodePath(data.subarray(space + 1, end))
    const id = data.toString('hex', end + 1, end + 1 + idBytes)
    if (name === '' || name.includes('/') || entries.has(name)) throw new NotExaminable('a tree is damaged')
    entries.set(name, { name, kind: kindOfMode(mode), mode, id })
    at = end + 1 + idBytes
  }
  return entries
}

/** @throws {NotExaminable} */
export function kindOfMode(mode: number): TreeEntry['kind'] {
  const kind = ({ 4: 'tree', 8: 'file', 10: 'link', 14: 'submodule' } as const)[mode >> 12]
  if (kind === undefined) throw new NotExaminable('a tree has an entry of an unknown kind')
  return kind
}
