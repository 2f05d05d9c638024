/**
 * The scratch disk of the machine: a folder while it runs. A flush writes all of the folder into the layer on top, in
 * place of what a file system would have changed in it; so the highest layer with a content is the disk, and a layer
 * merged with the one below replaces it.
 */
import {
  chmodSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import path from 'node:path'

interface Entry {
  readonly path: string
  readonly mode: number
  readonly kind: 'file' | 'folder' | 'link'
  /** In base64; the target of a link. */
  readonly content: string
}

/** Behind the clusters that the host writes for an empty qcow2 file. */
const CONTENT_OFFSET = 4 * 65_536
const HEAD_BYTES = 8
const MAGIC = 'DISK'

export interface Layer {
  readonly node: string
  readonly fd: number
}

export class LayeredDisk {
  readonly #folder: string
  /** The highest first. */
  readonly #chain: Layer[]
  /** Added by the host, below or above nothing yet. */
  readonly #loose = new Map<string, Layer>()

  constructor(folder: string, chain: readonly Layer[]) {
    this.#folder = folder
    this.#chain = [...chain]
  }

  /** Whether the disk had a content, which is now in the folder. */
  load(): boolean {
    for (const { fd } of this.#chain) {
      const entries = readContent(fd)
      if (entries === undefined) continue
      for (const entry of entries) writeEntry(this.#folder, entry)
      return true
    }
    return false
  }

  flush(): void {
    const [top] = this.#chain
    if (top !== undefined) writeContent(top.fd, listEntries(this.#folder))
  }

  add(layer: Layer): void {
    this.#loose.set(layer.node, layer)
  }

  putOnTop(node: string): boolean {
    const layer = this.#loose.get(node)
    if (layer === undefined) return false
    this.#loose.delete(node)
    this.#chain.unshift(layer)
    return true
  }

  /** The lower layer gets what those up to the upper one have. */
  merge(upper: string, lower: string): boolean {
    const from = this.#chain.findIndex(({ node }) => node === upper)
    const to = this.#chain.findIndex(({ node }) => node === lower)
    const below = this.#chain[to]
    if (from < 0 || below === undefined || to <= from) return false
    const merged = this.#chain.slice(from, to)
    const content = merged.map(({ fd }) => readContent(fd)).find((found) => found !== undefined)
    if (content !== undefined) writeContent(below.fd, content)
    this.#chain.splice(from, to - from)
    for (const layer of merged) this.#loose.set(layer.node, layer)
    return true
  }

  remove(node: string): boolean {
    return this.#loose.delete(node)
  }
}

function readContent(fd: number): Entry[] | undefined {
  const head = Buffer.alloc(HEAD_BYTES)
  const bytes = readSync(fd, head, 0, HEAD_BYTES, CONTENT_OFFSET)
  if (bytes < HEAD_BYTES || head.toString('latin1', 0, 4) !== MAGIC) return undefined
  const text = Buffer.alloc(head.readUInt32BE(4))
  readSync(fd, text, 0, text.length, CONTENT_OFFSET + HEAD_BYTES)
  return JSON.parse(text.toString('utf8')) as Entry[]
}

function writeContent(fd: number, entries: readonly Entry[]): void {
  const text = Buffer.from(JSON.stringify(entries))
  const head = Buffer.alloc(HEAD_BYTES)
  head.write(MAGIC, 'latin1')
  head.writeUInt32BE(text.length, 4)
  writeSync(fd, Buffer.concat([head, text]), 0, undefined, CONTENT_OFFSET)
  fsyncSync(fd)
}

function listEntries(folder: string, below = ''): Entry[] {
  return readdirSync(path.join(folder, below)).flatMap((name) => {
    const at = path.join(below, name)
    const full = path.join(folder, at)
    const found = lstatSync(full, { throwIfNoEntry: false })
    if (found === undefined) return []
    const mode = found.mode & 0o7777
    if (found.isDirectory())
      return [{ path: at, mode, kind: 'folder' as const, content: '' }, ...listEntries(folder, at)]
    if (found.isSymbolicLink())
      return [{ path: at, mode, kind: 'link' as const, content: readlinkSync(full) }]
    if (!found.isFile()) return []
    return [{ path: at, mode, kind: 'file' as const, content: readFileSync(full).toString('base64') }]
  })
}

function writeEntry(folder: string, { path: at, mode, kind, content }: Entry): void {
  const full = path.join(folder, at)
  if (kind === 'link') symlinkSync(content, full)
  else if (kind === 'folder') mkdirSync(full, { recursive: true })
  else writeFileSync(full, Buffer.from(content, 'base64'))
  if (kind !== 'link') chmodSync(full, mode)
}
