// Saves and loads the state of a machine (QEMU's "migration") with files of the host. QEMU may open no file or program:
// it writes to a socket that this process creates in the VM's folder, and reads from an inherited descriptor. Format:
// QEMU's own, of the version that wrote it. https://www.qemu.org/docs/master/devel/migration/main.html

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
/** For a QEMU whose socket was closed; if this is too short, the next command fails. */
const GIVE_UP_MS = 5_000
const statusSchema = z.looseObject({ status: z.string() })
const migrationSchema = z.looseObject({
  status: z.string().optional(),
  'error-desc': z.string().optional(),
})

/** QEMU refused, failed, or timed out. */
export class SavedStateError extends Error {
  override readonly name = 'SavedStateError'
}

/** Receives a state; resolves once everything is written and synced to disk. */
export type StateReceiver = (source: Readable) => Promise<void>

interface SaveOptions {
  /** The VM's socket folder, as this process and as QEMU sees it. */
  readonly socketFolder: string
  readonly insidePath: (name: string) => string
  readonly receive: StateReceiver
  /** The memory is in a shared file that stays: only the devices are saved. */
  readonly withoutMemory: boolean
  readonly deadlineMs: number
}

/**
 * Pauses the VM and writes its state; the VM stays paused and its disks no longer change. After a failure it is paused
 * and can be resumed. @throws {SavedStateError}
 */
export async function saveState(qmp: Qmp, options: SaveOptions): Promise<void> {
  await pauseCpus(qmp)
  await setIgnoreShared(qmp, options.withoutMemory)
  // Bytes per second: unlimited.
  await qmp.execute('migrate-set-parameters', { 'max-bandwidth': 2 ** 40 })
  const receiver = await Receiver.open(join(options.socketFolder, 'state'), options.receive)
  try {
    await qmp.execute('migrate', { uri: `unix:${options.insidePath('state')}` })
    await Promise.race([waitForMigration(qmp, options.deadlineMs), receiver.failed])
    await receiver.finish()
  } catch (error) {
    // QEMU only reports the closed socket; the receiver knows why.
    const refused = await receiver.stop()
    await giveUp(qmp)
    throw asSavedStateError(refused instanceof MachineStreamError ? refused : error)
  } finally {
    await receiver.close()
  }
}

/** Writes the whole state to a new file for {@link loadState}. */
export function intoFile(file: string): StateReceiver {
  return async (source) => {
    await pipeline(source, createWriteStream(file, { mode: 0o600 }))
    await syncFile(file)
  }
}

/**
 * Writes the memory to a mappable file, with holes for zero pages, and the rest of the state to another. Both files
 * exist and are empty; the first is as long as the memory. Fails with a {@link MachineStreamError} as its cause if
 * QEMU's format is unknown: then use {@link intoFile}.
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

/** @returns the number of bytes written */
async function writeAll(file: FileHandle, buffers: readonly Buffer[], at: number): Promise<number> {
  const length = buffers.reduce((sum, { byteLength }) => sum + byteLength, 0)
  if (length === 0) return 0
  const { bytesWritten } = await file.writev(buffers, at)
  if (bytesWritten === length) return length
  if (bytesWritten === 0) throw new Error('nothing more could be written')
  const left = Buffer.concat(buffers).subarray(bytesWritten)
  return bytesWritten + (await writeAll(file, [left], at + bytesWritten))
}

/** Loads the state that QEMU waits for; the VM is paused afterwards. @throws {SavedStateError} */
export async function loadState(
  qmp: Qmp,
  options: { readonly uri: string; readonly withoutMemory: boolean; readonly deadlineMs: number },
): Promise<void> {
  try {
    // QEMU executes them in order; waiting for the first answer would cost one more round trip.
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

/** Pauses the guest's CPUs and flushes its disks. */
export async function pauseCpus(qmp: Qmp): Promise<void> {
  await qmp.execute('stop')
}

/** Resumes the guest's CPUs; after a save, once QEMU has finished it. */
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

/** Waits until QEMU has cancelled the save, so that it can save again or resume. */
async function giveUp(qmp: Qmp): Promise<void> {
  await qmp.execute('migrate_cancel').catch(() => undefined)
  for (const deadline = performance.now() + GIVE_UP_MS; performance.now() < deadline; await sleep(POLL_MS)) {
    const answer = await qmp.execute('query-migrate').catch(() => undefined)
    const { data } = migrationSchema.safeParse(answer)
    if (!['setup', 'active', 'device', 'cancelling'].includes(data?.status ?? '')) return
  }
}

/** A listening socket that forwards its one connection to a receiver. */
class Receiver {
  readonly #path: string
  readonly #reachable: ReachablePath
  readonly #done: Promise<void>
  readonly #server
  #socket: Socket | undefined
  /** Rejects when the files cannot be written, or the format is unknown. */
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
    // QEMU may run as another user; only this user can enter the parent folder.
    await chmod(path, 0o666)
    return receiver
  }

  /** Resolves once everything is written and synced to disk. */
  async finish(): Promise<void> {
    await this.#done
  }

  /** Stops receiving; returns the failure, if any data arrived. */
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
