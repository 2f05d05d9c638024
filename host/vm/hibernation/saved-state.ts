// The state of a whole machine leaves QEMU and enters it: what QEMU calls migration, to and from files of ours.
// QEMU writes to a socket that this process makes in the VM's folder, since it may open no file and no program; it
// reads from a descriptor that it was born with. Format: QEMU's own, of the version that wrote it.
// https://www.qemu.org/docs/master/devel/migration/main.html

import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { chmod, type FileHandle, open, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { errorMessage } from '#specs/errors.ts'
import { type ReachablePath, reachSocket } from '../../state/socket-path.ts'
import type { Qmp } from '../qemu/qmp.ts'
import { MachineStream, MachineStreamError } from './machine-stream.ts'
import { syncFile } from './sparse-file.ts'

const POLL_MS = 1
/** For a QEMU whose socket was taken away; what comes next fails by itself if that does not suffice. */
const GIVE_UP_MS = 5_000
const statusSchema = z.looseObject({ status: z.string() })
const migrationSchema = z.looseObject({
  status: z.string().optional(),
  'error-desc': z.string().optional(),
})

/** QEMU refused, failed, or took too long. */
export class SavedStateError extends Error {
  override readonly name = 'SavedStateError'
}

/** Where a state goes; resolves once everything is in the files and on the disk. */
export type StateReceiver = (source: Readable) => Promise<void>

export interface SaveOptions {
  /** The VM's socket folder as this process and as QEMU sees it. */
  readonly socketFolder: string
  readonly insidePath: (name: string) => string
  readonly receive: StateReceiver
  /** The memory is in a shared file that stays: only the devices are saved. */
  readonly withoutMemory: boolean
  readonly deadlineMs: number
}

/**
 * Stops the VM and writes its state; it stays stopped. From here its disks do not change either.
 * A failure leaves it stopped and able to go on. @throws {SavedStateError}
 */
export async function saveState(qmp: Qmp, options: SaveOptions): Promise<void> {
  await pauseCpus(qmp)
  await setIgnoreShared(qmp, options.withoutMemory)
  // Bytes a second: no bound.
  await qmp.execute('migrate-set-parameters', { 'max-bandwidth': 2 ** 40 })
  const receiver = await Receiver.open(join(options.socketFolder, 'state'), options.receive)
  try {
    await qmp.execute('migrate', { uri: `unix:${options.insidePath('state')}` })
    await Promise.race([waitForMigration(qmp, options.deadlineMs), receiver.failed])
    await receiver.finish()
  } catch (error) {
    // A socket that the receiver has closed is all that QEMU can tell of it.
    const refused = await receiver.stop()
    await giveUp(qmp)
    throw asSavedStateError(refused instanceof MachineStreamError ? refused : error)
  } finally {
    await receiver.close()
  }
}

/** The whole state as one file, written anew: what {@link loadState} takes in one piece. */
export function intoFile(file: string): StateReceiver {
  return async (source) => {
    await pipeline(source, createWriteStream(file, { mode: 0o600 }))
    await syncFile(file)
  }
}

/**
 * The memory as a file to be mapped, pages of zeros as holes, and the rest of the state as one to be loaded over it: both
 * exist, and are empty, the first as long as the memory. Fails with a {@link MachineStreamError} as the cause where QEMU
 * sends what this file does not know: then {@link intoFile} serves.
 */
export function intoMemoryAndRest(files: {
  readonly memory: string
  readonly memoryBytes: number
  readonly rest: string
}): StateReceiver {
  return async (source) => {
    await using memory = await open(files.memory, 'r+')
    await using rest = await open(files.rest, 'r+')
    const stream = new MachineStream(files.memoryBytes)
    let restAt = 0
    for await (const chunk of source) {
      const taken = stream.push(chunk as Buffer)
      for (const { at, bytes } of taken.memory) await writeAll(memory, bytes, at)
      restAt += await writeAll(rest, taken.rest, restAt)
    }
    if (!stream.isWhole) throw new Error('the state ended before the end of the memory')
    await Promise.all([memory.sync(), rest.sync()])
  }
}

/** @returns how many bytes that were */
async function writeAll(file: FileHandle, buffers: readonly Buffer[], at: number): Promise<number> {
  const length = buffers.reduce((sum, { byteLength }) => sum + byteLength, 0)
  if (length === 0) return 0
  const { bytesWritten } = await file.writev(buffers, at)
  if (bytesWritten === length) return length
  if (bytesWritten === 0) throw new Error('nothing more could be written')
  const left = Buffer.concat(buffers).subarray(bytesWritten)
  return bytesWritten + (await writeAll(file, [left], at + bytesWritten))
}

/** Loads the state that QEMU waits for; the VM is stopped afterwards. @throws {SavedStateError} */
export async function loadState(
  qmp: Qmp,
  options: { readonly uri: string; readonly withoutMemory: boolean; readonly deadlineMs: number },
): Promise<void> {
  try {
    // QEMU takes them in order; to wait for the first answer would be one turn of both processes more.
    await Promise.all([
      setIgnoreShared(qmp, options.withoutMemory),
      qmp.execute('migrate-incoming', { uri: options.uri }),
    ])
    const deadline = performance.now() + options.deadlineMs
    for (;;) {
      const { status } = statusSchema.parse(await qmp.execute('query-status'))
      if (status !== 'inmigrate') return
      if (performance.now() > deadline) throw new SavedStateError('QEMU did not load the state in time')
      await sleep(POLL_MS)
    }
  } catch (error) {
    throw asSavedStateError(error)
  }
}

/** Stops the guest's CPUs and lets its disks come to rest. */
export async function pauseCpus(qmp: Qmp): Promise<void> {
  await qmp.execute('stop')
}

/** Lets the guest's CPUs run; after a save, once QEMU has finished with it. */
export async function resumeCpus(qmp: Qmp): Promise<void> {
  await qmp.execute('cont')
}

async function setIgnoreShared(qmp: Qmp, state: boolean): Promise<void> {
  await qmp.execute('migrate-set-capabilities', {
    capabilities: [{ capability: 'x-ignore-shared', state }],
  })
}

async function waitForMigration(qmp: Qmp, deadlineMs: number): Promise<void> {
  const deadline = performance.now() + deadlineMs
  for (;;) {
    const info = migrationSchema.parse(await qmp.execute('query-migrate'))
    if (info.status === 'completed') return
    if (info.status === 'failed' || info.status === 'cancelled') {
      throw new SavedStateError(`QEMU could not save the state: ${info['error-desc'] ?? info.status}`)
    }
    if (performance.now() > deadline) throw new SavedStateError('QEMU did not save the state in time')
    await sleep(POLL_MS)
  }
}

/** Waits until QEMU has given the save up, so that it can save anew or go on. */
async function giveUp(qmp: Qmp): Promise<void> {
  await qmp.execute('migrate_cancel').catch(() => undefined)
  for (const deadline = performance.now() + GIVE_UP_MS; performance.now() < deadline; await sleep(POLL_MS)) {
    const answer = await qmp.execute('query-migrate').catch(() => undefined)
    const { data } = migrationSchema.safeParse(answer)
    if (!['setup', 'active', 'device', 'cancelling'].includes(data?.status ?? '')) return
  }
}

/** A listening socket whose one connection goes where a state goes. */
class Receiver {
  readonly #path: string
  readonly #reachable: ReachablePath
  readonly #done: Promise<void>
  readonly #server
  #socket: Socket | undefined
  /** Rejects when the files cannot be written, or what comes is not known. */
  readonly failed: Promise<never>

  private constructor(
    path: string,
    reachable: ReachablePath,
    server: ReturnType<typeof createServer>,
    receive: StateReceiver,
  ) {
    this.#path = path
    this.#reachable = reachable
    this.#server = server
    this.#done = this.#accept(receive)
    this.failed = new Promise((_, reject) => {
      this.#done.catch(reject)
    })
    this.failed.catch(() => undefined)
  }

  static async open(path: string, receive: StateReceiver): Promise<Receiver> {
    const server = createServer({ pauseOnConnect: true })
    const reachable = await reachSocket(path)
    try {
      server.listen(reachable.path)
      await once(server, 'listening')
    } catch (error) {
      await reachable[Symbol.asyncDispose]()
      throw error
    }
    const receiver = new Receiver(path, reachable, server, receive)
    // QEMU may be another user; the folder above is ours alone.
    await chmod(path, 0o666)
    return receiver
  }

  /** Once everything is in the files and on the disk. */
  async finish(): Promise<void> {
    await this.#done
  }

  /** Takes no more; what failed, if anything came at all. */
  async stop(): Promise<unknown> {
    if (this.#socket === undefined) return undefined
    this.#socket.destroy()
    return await this.#done.catch((error: unknown) => error)
  }

  async close(): Promise<void> {
    this.#server.close()
    await rm(this.#path, { force: true })
    await this.#reachable[Symbol.asyncDispose]()
  }

  async #accept(receive: StateReceiver): Promise<void> {
    const [socket] = (await once(this.#server, 'connection')) as [Socket]
    this.#socket = socket
    await receive(socket)
  }
}

function asSavedStateError(error: unknown): SavedStateError {
  if (error instanceof SavedStateError) return error
  return new SavedStateError(errorMessage(error), { cause: error })
}
