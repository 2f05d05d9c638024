/** What VMs of this machine start with, for a fleet that places runs: a working accelerator, and the image. Builds nothing. */
import { findImage, type Image } from './image/image.ts'
import { searchProgram } from './processes/programs.ts'
import type { Folders } from './state/folders.ts'
import { probeMachine } from './vm/qemu/accelerator.ts'
import type { Accelerator } from './vm/qemu/qemu-args.ts'
import { QEMU } from './vm/qemu/qemu-programs.ts'

export interface MachineFacts {
  /** Null: not known yet. */
  readonly accelerator: Accelerator | null
  /** Of root image and agent: a run continues only with both. Null: none is built. */
  readonly image: string | null
}

/** How old facts may be: an image may be built or replaced while a service runs. */
const freshMs = 60_000

/** Facts that are there at once, and are brought up to date in the background. */
export class KnownMachineFacts {
  readonly #folders: Pick<Folders, 'cache'>
  #facts: MachineFacts = { accelerator: null, image: null }
  #readAt = Number.NEGATIVE_INFINITY

  private constructor(folders: Pick<Folders, 'cache'>) {
    this.#folders = folders
  }

  /** Knows the image already. A trial of the accelerator takes up to 15 s, so it is known later. */
  static async open(folders: Pick<Folders, 'cache'>): Promise<KnownMachineFacts> {
    const known = new KnownMachineFacts(folders)
    known.#facts = { accelerator: null, image: imageFactOf(await findBuilt(folders)) }
    return known
  }

  get now(): MachineFacts {
    if (performance.now() - this.#readAt > freshMs) {
      this.#readAt = performance.now()
      void this.#read().catch(() => undefined)
    }
    return this.#facts
  }

  async #read(): Promise<void> {
    const built = await findBuilt(this.#folders)
    this.#facts = { ...this.#facts, image: imageFactOf(built) }
    this.#facts = { ...this.#facts, accelerator: await acceleratorOf(this.#folders, built) }
  }
}

async function findBuilt({ cache }: Pick<Folders, 'cache'>): Promise<Image | undefined> {
  // A damaged one starts no VM.
  return await findImage({ cacheDir: cache }).catch(() => undefined)
}

function imageFactOf(image: Image | undefined): string | null {
  return image === undefined ? null : `${image.key.slice(0, 16)}-${image.agentDigest.slice(0, 16)}`
}

async function acceleratorOf(
  { cache }: Pick<Folders, 'cache'>,
  built: Image | undefined,
): Promise<MachineFacts['accelerator']> {
  const qemu = (await searchProgram(QEMU)).path
  // Without a kernel nothing is tried.
  if (qemu === undefined || built === undefined) return null
  const { kernel } = built
  return (await probeMachine({ qemu, kernel, cacheDirectory: cache, confine: 'auto' })).accelerator
}
