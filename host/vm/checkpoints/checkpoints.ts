/**
 * Checkpoints of a running VM's scratch disk. Each seals the layer that the VM writes to and puts an empty one on top;
 * the guest continues meanwhile. Layers between two checkpoints that nobody wants any more are merged.
 */

import { stat, truncate } from 'node:fs/promises'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { CheckpointId } from '#specs/protocol/text.ts'
import { runBlockJob } from '../qemu/block-job.ts'
import { layerFile } from '../qemu/qemu-args.ts'
import type { Qmp } from '../qemu/qmp.ts'
import type { PrivilegedPort } from '../reseed.ts'
import { CheckpointDisk, layersMaxCount, type PreparedDisk, type SealedLayer } from './checkpoint-disk.ts'

/** A guest that writes much may have much to flush. */
const flushDeadlineMs = 30_000
const mergeDeadlineMs = 300_000
/** Unit of `stat.blocks`. */
const blockBytes = 512
/** Node name of the layer that the VM starts with: the drive's. */
const firstNode = 'scratch'

/** A file that can be a layer, and how QEMU names it. */
interface Layer {
  readonly file: string
  readonly node: string
  /** Its number among the spares; undefined for the first. */
  readonly spare?: number
}

export interface CheckpointTimes {
  /** Until the guest had written what it held back. */
  readonly flushMs: number
  /** Until the next layer was on top. */
  readonly layerMs: number
  /** Until the record was on the disk. */
  readonly recordMs: number
}

export class Checkpoints {
  readonly #qmp: Qmp
  readonly #root: Pick<PrivilegedPort, 'flush'>
  readonly #disk: CheckpointDisk
  /** Sealed before this VM started: never written to, as other disks may share their files. */
  readonly #inherited: readonly SealedLayer[]
  /** Sealed by this VM, oldest first. */
  #own: { readonly layer: Layer; checkpoint: string | null }[] = []
  #top: Layer
  readonly #spares: Layer[]
  #last: Promise<unknown> = Promise.resolve()

  constructor(
    qmp: Qmp,
    root: Pick<PrivilegedPort, 'flush'>,
    disk: CheckpointDisk,
    { top, spares }: PreparedDisk,
  ) {
    this.#qmp = qmp
    this.#root = root
    this.#disk = disk
    this.#inherited = disk.sealed
    this.#top = { file: top, node: firstNode }
    this.#spares = spares.map((file, spare) => ({ file, node: `layer${spare}`, spare }))
  }

  /** Names of the checkpoints, oldest first. */
  get list(): string[] {
    return this.#sealed().flatMap(({ checkpoint }) => checkpoint ?? [])
  }

  /** Layers that this VM has sealed. */
  get ownCount(): number {
    return this.#own.length
  }

  /** All layers below the one that the VM writes to, oldest first. */
  get sealed(): readonly SealedLayer[] {
    return this.#sealed()
  }

  /** Size of the disk, and what its layers take on the host's disk. */
  async measure(): Promise<{ readonly diskBytes: number; readonly layerBytes: number }> {
    const { directory, diskBytes } = this.#disk
    const files = [this.#top.file, ...this.#sealed().map(({ file }) => path.join(directory, file))]
    const sizes = await Promise.all(files.map(async (file) => (await stat(file)).blocks * blockBytes))
    return { diskBytes, layerBytes: sizes.reduce((sum, bytes) => sum + bytes, 0) }
  }

  /** The file that the VM writes to. */
  get top(): string {
    return this.#top.file
  }

  /**
   * Makes a checkpoint of what the guest has written until now. The checkpoint is there when this resolves, whatever ends
   * afterwards. One at a time; others wait.
   * @param id new; 1 to 64 of a-z, 0-9 and `-`
   * @throws {CaissonError} `limit_reached` when the disk has too many layers; else the guest, QEMU or the host's disk
   *   failed, the VM continues, and there is no such checkpoint
   */
  async make(id: string): Promise<CheckpointTimes> {
    return await this.#inTurn(() => this.#make(id))
  }

  /**
   * Gives up checkpoints, except the last one, and merges their layers with those above. Layers that were there before
   * this VM stay as they are.
   */
  async drop(ids: ReadonlySet<string>): Promise<void> {
    await this.#inTurn(async () => {
      for (const entry of this.#own.slice(0, -1))
        if (entry.checkpoint !== null && ids.has(entry.checkpoint)) entry.checkpoint = null
      // Before the merge, which changes what these checkpoints consist of.
      await this.#disk.write(this.#sealed())
      while (await this.#mergeOne());
    })
  }

  /** Another disk that begins at a checkpoint, see {@link CheckpointDisk.fork}; this VM keeps the files that it needs. */
  async fork(to: string, id: string): Promise<CheckpointDisk> {
    return await this.#inTurn(() => CheckpointDisk.fork(this.#disk.directory, to, id))
  }

  async #make(id: string): Promise<CheckpointTimes> {
    if (!CheckpointId.safeParse(id).success || this.list.includes(id))
      throw new TypeError(`bad name of a checkpoint: ${id}`)
    const next = this.#spares[0]
    if (next === undefined || this.#sealed().length >= layersMaxCount)
      throw new CaissonError(
        'limit_reached',
        `the disk has ${this.#sealed().length} layers, which is the most`,
        {
          remedy: 'drop checkpoints that are not needed',
        },
      )
    const startedAt = performance.now()
    await this.#root.flush(flushDeadlineMs)
    const flushedAt = performance.now()
    await this.#putOnTop(next)
    const layeredAt = performance.now()
    const entry = this.#own.at(-1)
    if (entry !== undefined) entry.checkpoint = id
    try {
      await this.#disk.write(this.#sealed())
    } catch (error) {
      if (entry !== undefined) entry.checkpoint = null
      throw error
    }
    const recordMs = performance.now() - layeredAt
    return { flushMs: flushedAt - startedAt, layerMs: layeredAt - flushedAt, recordMs }
  }

  /** From here on the guest writes to this layer; the one below is sealed, as yet without a name. */
  async #putOnTop(next: Layer): Promise<void> {
    await this.#disk.fill(next.file)
    await this.#qmp.execute('blockdev-add', {
      driver: 'qcow2',
      'node-name': next.node,
      discard: 'unmap',
      'detect-zeroes': 'unmap',
      file: layerFile(next.spare ?? 0),
      backing: null,
    })
    try {
      await this.#qmp.execute('blockdev-snapshot', { node: this.#top.node, overlay: next.node })
    } catch (error) {
      await this.#qmp.execute('blockdev-del', { 'node-name': next.node }).catch(() => undefined)
      throw error
    }
    this.#spares.shift()
    this.#own.push({ layer: this.#top, checkpoint: null })
    this.#top = next
  }

  /** Merges one row of layers whose checkpoints are not wanted with the layer above them. False when there is none. */
  async #mergeOne(): Promise<boolean> {
    const [from, to] = await this.#findRow()
    const [base, top] = [this.#own[from], this.#own[to]]
    if (base === undefined || top === undefined) return false
    const args = {
      'job-id': 'merge',
      device: this.#top.node,
      'top-node': top.layer.node,
      'base-node': base.layer.node,
      'auto-dismiss': false,
    }
    await runBlockJob(this.#qmp, 'block-commit', args, mergeDeadlineMs)
    base.checkpoint = top.checkpoint
    const merged = this.#own.splice(from + 1, to - from)
    await this.#disk.write(this.#sealed())
    // The highest first: each still has the next one below it.
    for (const { layer } of merged.toReversed()) await this.#recycle(layer)
    return true
  }

  /** The first layer without a wanted checkpoint, and the one to merge it with; without files that forks share. */
  async #findRow(): Promise<[from: number, to: number]> {
    const own = this.#own
    const isFree = await Promise.all(own.map(async ({ layer }) => (await stat(layer.file)).nlink === 1))
    for (const [from, { checkpoint }] of own.entries()) {
      if (checkpoint !== null || !isFree[from]) continue
      let to = from
      while (isFree[to + 1] && (to === from || own[to]?.checkpoint === null)) to++
      if (to > from) return [from, to]
    }
    return [-1, -1]
  }

  async #recycle(layer: Layer): Promise<void> {
    await this.#qmp.execute('blockdev-del', { 'node-name': layer.node })
    await truncate(layer.file, 0)
    this.#spares.push(layer)
  }

  #sealed(): SealedLayer[] {
    const own = this.#own.map(({ layer, checkpoint }) => ({ file: path.basename(layer.file), checkpoint }))
    return [...this.#inherited, ...own]
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(work)
    this.#last = turn.catch(() => undefined)
    return turn
  }
}
