/**
 * The files of a scratch disk with checkpoints: a raw base and qcow2 layers, each with what changed since the one below.
 * Once a layer is sealed, the files up to it are the disk as it was at that checkpoint. No qcow2 file names the one
 * below it; the record has their order, and QEMU gets it with the descriptors.
 */
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { CheckpointId } from '#specs/protocol/text.ts'
import { replaceFile } from '../../files/durable.ts'
import { parseJson } from '../../files/json.ts'
import { linkOrCopy, makeSparseFile } from '../hibernation/sparse-file.ts'
import { writeEmptyQcow2 } from './qcow2.ts'

const recordName = 'disk.json'
const baseName = 'base.raw'
/** Layers that a VM can put on top while it runs. Each costs QEMU two descriptors. */
const sparesCount = 24
/** Layers of a chain, after which a checkpoint is refused unless layers are merged first. */
export const layersMaxCount = 128

const LayerName = z.string().regex(/^layer-\d{1,9}\.qcow2$/)
/** Oldest first. `checkpoint`: the disk's state with this layer and those below; null: one that is no longer wanted. */
export const SealedLayers = z
  .array(z.strictObject({ file: LayerName, checkpoint: CheckpointId.nullable() }))
  .max(layersMaxCount)
export type SealedLayer = z.infer<typeof SealedLayers>[number]

/** Which layers a disk has, as its record says. */
export const DiskRecord = z.strictObject({
  version: z.literal(1),
  diskBytes: z.int().min(1),
  sealed: SealedLayers,
})
export type DiskRecord = z.infer<typeof DiskRecord>

/** What a disk without checkpoints begins with: a raw file that stays as it is, or zeros. */
export type DiskStart =
  | { readonly kind: 'overlay'; readonly base: string }
  | { readonly kind: 'blank'; readonly bytes: number }

/** The disk of a saved VM. */
export interface SavedDisk {
  /** The qcow2 file that it wrote to. */
  readonly top: string
  readonly base: string
  /** Files of `directory`. */
  readonly sealed: readonly SealedLayer[]
  readonly directory: string
}

/** Paths of the files for a start. */
export interface PreparedDisk {
  readonly base: string
  /** Oldest first. */
  readonly sealed: readonly string[]
  /** The layer that the VM writes to. */
  readonly top: string
  /** Files of no content, open in QEMU, for layers that {@link CheckpointDisk.fill} makes usable. */
  readonly spares: readonly string[]
}

/** One VM uses it at a time; its owner sees to that. */
export class CheckpointDisk {
  readonly directory: string
  #record: DiskRecord | undefined
  #next = 0

  private constructor(directory: string, record: DiskRecord | undefined) {
    this.directory = directory
    this.#record = record
  }

  /** A disk without checkpoints. `directory` must not exist, its parent must. */
  static async create(directory: string): Promise<CheckpointDisk> {
    await mkdir(directory, { mode: 0o700 })
    return new CheckpointDisk(directory, undefined)
  }

  /**
   * The disk as it was at a checkpoint, by default the last; what came later is removed with the first start.
   * @throws {CaissonError} `state_corrupted` when it has no such checkpoint, or a file is missing or damaged
   */
  static async open(directory: string, checkpoint?: string): Promise<CheckpointDisk> {
    const record = await readRecord(directory)
    const at =
      checkpoint === undefined
        ? record.sealed.findLastIndex((layer) => layer.checkpoint !== null)
        : record.sealed.findIndex((layer) => layer.checkpoint === checkpoint)
    if (at < 0)
      throw damaged(
        directory,
        checkpoint === undefined ? 'it has no checkpoint' : `it has no checkpoint ${checkpoint}`,
      )
    const sealed = record.sealed.slice(0, at + 1)
    for (const name of [baseName, ...sealed.map(({ file }) => file)]) {
      const found = await stat(path.join(directory, name)).catch(() => undefined)
      if (found?.isFile() !== true) throw damaged(directory, `its file ${name} is missing`)
    }
    return new CheckpointDisk(directory, { ...record, sealed })
  }

  /**
   * Another disk that begins at a checkpoint of this folder, and shares its files by further names. This one stays as it
   * is, also while a VM uses it: a sealed layer changes no more, unless its checkpoint is dropped meanwhile.
   * @param to must not exist; on the same file system it takes no room
   * @throws {CaissonError} as {@link open}
   */
  static async fork(directory: string, to: string, checkpoint: string): Promise<CheckpointDisk> {
    const record = (await CheckpointDisk.open(directory, checkpoint)).#require()
    const disk = await CheckpointDisk.create(to)
    for (const name of [baseName, ...record.sealed.map(({ file }) => file)])
      await linkOrCopy(path.join(directory, name), path.join(to, name))
    disk.#record = record
    await disk.write(record.sealed)
    return disk
  }

  /**
   * Removes the files that no checkpoint of this folder needs; no VM may use it.
   * @returns whether it has a checkpoint
   */
  static async trim(directory: string): Promise<boolean> {
    const disk = await CheckpointDisk.open(directory).catch(() => undefined)
    if (disk === undefined) return false
    await disk.#removeUnused(disk.#require())
    await disk.write(disk.sealed)
    return true
  }

  get sealed(): readonly SealedLayer[] {
    return this.#record?.sealed ?? []
  }

  /** Size of the disk as the guest sees it. */
  get diskBytes(): number {
    return this.#require().diskBytes
  }

  /** Makes the files for a start: over its checkpoint, or over the state that a new VM begins with. */
  async prepare(start: DiskStart): Promise<PreparedDisk> {
    const known = this.#record
    const record = known === undefined || known.sealed.length === 0 ? await this.#begin(start) : known
    this.#record = record
    await this.#removeUnused(record)
    await this.write(record.sealed)
    const top = await this.#newFile()
    await this.fill(top)
    return await this.#withSpares(record, top)
  }

  /**
   * Makes the disk of a saved VM this one, whose own files go first if they are others. Moves its top, and links the
   * files below.
   */
  async adopt({ top: saved, base, sealed, directory }: SavedDisk): Promise<PreparedDisk> {
    const own = this.#file(baseName)
    await takeFile(base, own)
    for (const { file } of sealed) await takeFile(path.join(directory, file), this.#file(file))
    const record = { version: 1 as const, diskBytes: (await stat(own)).size, sealed: [...sealed] }
    this.#record = record
    await this.#removeUnused(record)
    await this.write(sealed)
    const top = this.#file(`layer-${this.#next++}.qcow2`)
    await rename(saved, top)
    return await this.#withSpares(record, top)
  }

  /**
   * The same disk in another folder, which must not exist, on the same file system; a VM may use it meanwhile, and this
   * object no more.
   */
  async moveTo(
    directory: string,
    prepared: PreparedDisk,
  ): Promise<{ disk: CheckpointDisk; prepared: PreparedDisk }> {
    await rename(this.directory, directory)
    const disk = new CheckpointDisk(directory, this.#record)
    disk.#next = this.#next
    const moved = (file: string) => path.join(directory, path.basename(file))
    const { base, sealed, top, spares } = prepared
    const files = { base: moved(base), sealed: sealed.map(moved), top: moved(top), spares: spares.map(moved) }
    return { disk, prepared: files }
  }

  /** Makes an empty layer of a file. */
  async fill(file: string): Promise<void> {
    await writeEmptyQcow2(file, this.#require().diskBytes)
  }

  /** Writes which layers are sealed, for whoever opens the disk after a crash. */
  async write(sealed: readonly SealedLayer[]): Promise<void> {
    this.#record = { ...this.#require(), sealed: [...sealed] }
    await replaceFile(this.#file(recordName), `${JSON.stringify(this.#record)}\n`)
  }

  #require(): DiskRecord {
    if (this.#record === undefined) throw new TypeError('the disk was not prepared')
    return this.#record
  }

  /** The base of a new disk. */
  async #begin(start: DiskStart): Promise<DiskRecord> {
    // Of a start that failed, or whose template was rejected.
    const base = this.#file(baseName)
    await rm(base, { force: true })
    if (start.kind === 'overlay') await linkOrCopy(start.base, base)
    else await makeSparseFile(base, start.bytes)
    return { version: 1, diskBytes: (await stat(base)).size, sealed: [] }
  }

  /** Layers of an earlier VM that nothing needs. */
  async #removeUnused({ sealed }: DiskRecord): Promise<void> {
    const needed = new Set(sealed.map(({ file }) => file))
    for (const name of await readdir(this.directory)) {
      const number = /^layer-(\d+)\.qcow2$/.exec(name)?.[1]
      if (number === undefined) continue
      if (!needed.has(name)) await rm(this.#file(name), { force: true })
      this.#next = Math.max(this.#next, Number(number) + 1)
    }
  }

  async #withSpares({ sealed }: DiskRecord, top: string): Promise<PreparedDisk> {
    const spares: string[] = []
    for (let count = 0; count < sparesCount; count++) spares.push(await this.#newFile())
    return { base: this.#file(baseName), sealed: sealed.map(({ file }) => this.#file(file)), top, spares }
  }

  async #newFile(): Promise<string> {
    const file = this.#file(`layer-${this.#next++}.qcow2`)
    await (await open(file, 'wx', 0o600)).close()
    return file
  }

  #file(name: string): string {
    return path.join(this.directory, name)
  }
}

async function readRecord(directory: string): Promise<DiskRecord> {
  const text = await readFile(path.join(directory, recordName), 'utf8').catch((cause: unknown) => {
    throw damaged(directory, `its record cannot be read`, cause)
  })
  const parsed = DiskRecord.safeParse(parseJson(text))
  if (!parsed.success) throw damaged(directory, 'its record is of another version or damaged')
  return parsed.data
}

/** Gives a file this name too, if it does not have it. */
async function takeFile(file: string, name: string): Promise<void> {
  const [found, there] = await Promise.all([stat(file), stat(name).catch(() => undefined)])
  if (found.dev === there?.dev && found.ino === there.ino) return
  await rm(name, { force: true })
  await linkOrCopy(file, name)
}

function damaged(directory: string, why: string, cause?: unknown): CaissonError {
  return new CaissonError('state_corrupted', `the disk in ${directory} cannot be used: ${why}`, { cause })
}
