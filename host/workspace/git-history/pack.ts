/**
 * Reads git's packs (gitformat-pack(5), version 2 of pack and index) by offset. Limits every claimed length before it
 * allocates memory.
 */
import { constants, inflateSync } from 'node:zlib'
import { type ByteRange, type HistoryBudget, NotExaminable } from './budget.ts'

/** Maximum bytes of one object; larger ones are not examined. */
export const OBJECT_MAX_BYTES = 64 * 1024 * 1024
/** Maximum chain of deltas; git writes 50, or 250 with aggressive packing. */
const MAX_CHAIN = 512
/** Bytes of cached objects for deltas. */
const CACHE_BYTES = 32 * 1024 * 1024

export type ObjectType = 'commit' | 'tree' | 'blob' | 'tag'
export interface GitObject {
  readonly type: ObjectType
  readonly data: Buffer
}

const types: Readonly<Record<number, ObjectType>> = { 1: 'commit', 2: 'tree', 3: 'blob', 4: 'tag' }

/** @throws {NotExaminable} unless the result has exactly `size` bytes */
export function inflate(compressed: Buffer, size: number): Buffer {
  let data: Buffer
  try {
    data = inflateSync(compressed, { maxOutputLength: Math.max(1, size) })
  } catch {
    throw new NotExaminable('an object is damaged')
  }
  if (data.length !== size) throw new NotExaminable('an object has another size than it claims')
  return data
}

/** Decompresses the beginning of the data. @throws {NotExaminable} */
export function inflateStart(compressed: Buffer): Buffer {
  try {
    return inflateSync(compressed, { finishFlush: constants.Z_SYNC_FLUSH })
  } catch {
    throw new NotExaminable('an object is damaged')
  }
}

/** The index of a pack. */
export class PackIndex {
  readonly count: number
  readonly #bytes: ByteRange
  readonly #idBytes: number

  /** @throws {NotExaminable} */
  constructor(bytes: ByteRange, idBytes: number) {
    this.#bytes = bytes
    this.#idBytes = idBytes
    if (bytes.size < 1032 || bytes.read(0, 8).toString('hex') !== 'ff744f6300000002')
      throw new NotExaminable('the index of a pack is not of version 2')
    this.count = bytes.read(8 + 255 * 4, 4).readUInt32BE(0)
    if (bytes.size < 1032 + this.count * (idBytes + 8) + 2 * idBytes)
      throw new NotExaminable('the index of a pack is too short')
  }

  idAt(place: number): string {
    return this.#bytes.read(1032 + place * this.#idBytes, this.#idBytes).toString('hex')
  }

  offsetAt(place: number): number {
    const offsets = 1032 + this.count * (this.#idBytes + 4)
    const offset = this.#bytes.read(offsets + place * 4, 4).readUInt32BE(0)
    if (offset < 0x80000000) return offset
    const large = this.#bytes.read(offsets + this.count * 4 + (offset - 0x80000000) * 8, 8).readBigUInt64BE(0)
    if (large > BigInt(Number.MAX_SAFE_INTEGER)) throw new NotExaminable('the index of a pack is damaged')
    return Number(large)
  }

  /** Offset of an object in the pack; undefined if it is missing. */
  find(id: string): number | undefined {
    const first = Number.parseInt(id.slice(0, 2), 16)
    let low = first === 0 ? 0 : this.#bytes.read(8 + (first - 1) * 4, 4).readUInt32BE(0)
    let high = Math.min(this.count, this.#bytes.read(8 + first * 4, 4).readUInt32BE(0))
    while (low < high) {
      const middle = (low + high) >> 1
      const found = this.idAt(middle)
      if (found === id) return this.offsetAt(middle)
      if (found < id) low = middle + 1
      else high = middle
    }
    return undefined
  }
}

interface Entry {
  readonly type: number
  readonly size: number
  /** Offset of the compressed data. */
  readonly dataAt: number
  /** Offset of a delta's base object. */
  readonly base?: number
}

export class Pack {
  readonly index: PackIndex
  readonly #bytes: ByteRange
  readonly #idBytes: number
  readonly #budget: HistoryBudget
  readonly #cache = new Map<number, GitObject>()
  #cached = 0

  /** @throws {NotExaminable} */
  constructor(bytes: ByteRange, index: PackIndex, idBytes: number, budget: HistoryBudget) {
    const head = bytes.read(0, 12)
    const version = head.readUInt32BE(4)
    if (head.toString('latin1', 0, 4) !== 'PACK' || (version !== 2 && version !== 3))
      throw new NotExaminable('a pack is of an unknown form')
    this.#bytes = bytes
    this.index = index
    this.#idBytes = idBytes
    this.#budget = budget
  }

  /** Reads the object at an offset. @throws {NotExaminable} */
  read(offset: number): GitObject {
    const deltas: { readonly at: number; readonly delta: Buffer }[] = []
    let at = offset
    let object = this.#cache.get(at)
    while (object === undefined) {
      const entry = this.#entry(at)
      const data = this.#inflate(entry)
      const type = types[entry.type]
      if (type !== undefined) object = this.#keep(at, { type, data })
      else if (entry.base === undefined || deltas.length >= MAX_CHAIN)
        throw new NotExaminable('a pack has deltas without an end')
      else {
        deltas.push({ at, delta: data })
        at = entry.base
        object = this.#cache.get(at)
      }
    }
    for (const { at: place, delta } of deltas.reverse()) {
      const data = applyDelta(object.data, delta)
      this.#budget.object(data.length)
      object = this.#keep(place, { type: object.type, data })
    }
    return object
  }

  #keep(at: number, object: GitObject): GitObject {
    if (object.data.length > CACHE_BYTES / 4 || this.#cache.has(at)) return object
    for (const [oldest, { data }] of this.#cache) {
      if (this.#cached + object.data.length <= CACHE_BYTES) break
      this.#cache.delete(oldest)
      this.#cached -= data.length
    }
    this.#cache.set(at, object)
    this.#cached += object.data.length
    return object
  }

  #entry(at: number): Entry {
    const head = this.#bytes.read(at, Math.min(64, Math.max(0, this.#bytes.size - at)))
    let place = 0
    const next = () => {
      const byte = head[place++]
      if (byte === undefined) throw new NotExaminable('a pack ends within an object')
      return byte
    }
    let byte = next()
    const type = (byte >> 4) & 7
    let size = byte & 15
    for (let scale = 16; byte & 0x80; scale *= 128) {
      byte = next()
      size += (byte & 0x7f) * scale
      if (size > OBJECT_MAX_BYTES) throw new NotExaminable('an object is too large')
    }
    if (type === 6) {
      byte = next()
      let distance = byte & 0x7f
      while (byte & 0x80) {
        byte = next()
        distance = (distance + 1) * 128 + (byte & 0x7f)
      }
      if (distance <= 0 || distance > at) throw new NotExaminable('a pack has a delta on nothing')
      return { type, size, dataAt: at + place, base: at - distance }
    }
    if (type === 7) {
      const base = this.index.find(head.toString('hex', place, place + this.#idBytes))
      if (base === undefined) throw new NotExaminable('a pack has a delta on an object elsewhere')
      return { type, size, dataAt: at + place + this.#idBytes, base }
    }
    if (types[type] === undefined) throw new NotExaminable('a pack has an object of an unknown type')
    return { type, size, dataAt: at + place }
  }

  #inflate({ size, dataAt }: Entry): Buffer {
    // Deflate adds a few bytes per block to incompressible data.
    const most = size + Math.ceil(size / 100) + 1_024
    this.#budget.object(size)
    return inflate(this.#bytes.read(dataAt, Math.max(0, Math.min(most, this.#bytes.size - dataAt))), size)
  }
}

/** @throws {NotExaminable} */
export function applyDelta(base: Buffer, delta: Buffer): Buffer {
  let at = 0
  const next = () => {
    const byte = delta[at++]
    if (byte === undefined) throw new NotExaminable('a delta ends too early')
    return byte
  }
  const length = () => {
    let value = 0
    let scale = 1
    for (;;) {
      const byte = next()
      value += (byte & 0x7f) * scale
      if (value > OBJECT_MAX_BYTES) throw new NotExaminable('an object is too large')
      if ((byte & 0x80) === 0) return value
      scale *= 128
    }
  }
  if (length() !== base.length) throw new NotExaminable('a delta is on another object')
  const result = Buffer.alloc(length())
  let done = 0
  while (at < delta.length) {
    const order = next()
    let from = 0
    let size = order
    let source = delta
    if (order & 0x80) {
      size = 0
      for (let bit = 0; bit < 4; bit++) if (order & (1 << bit)) from += next() * 2 ** (8 * bit)
      for (let bit = 0; bit < 3; bit++) if (order & (0x10 << bit)) size += next() * 2 ** (8 * bit)
      if (size === 0) size = 0x10000
      source = base
    } else {
      from = at
      at += size
    }
    if (size === 0 || from + size > source.length || done + size > result.length)
      throw new NotExaminable('a delta is damaged')
    source.copy(result, done, from, from + size)
    done += size
  }
  if (done !== result.length) throw new NotExaminable('a delta is damaged')
  return result
}
