// The state of a whole machine leaves QEMU and enters it: what QEMU calls migration, to and from a file of ours.
// QEMU writes to a socket that this process makes in the VM's folder, since it may open no file and no program; it
// reads from a descriptor that it was born with. Format: QEMU's own, of the version that wrote it.
// https://www.qemu.org/docs/master/devel/migration/main.html

import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { chmod, open, rm } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { z } from 'zod'
import { type ReachablePath, reachSocket } from '../control/socket-path.ts'
import type { Qmp } from './qmp.ts'

const POLL_MS = 1
const statusSchema = z.looseObject({ status: z.string() })
const migrationSchema = z.looseObject({
  status: z.string().optional(),
  'error-desc': z.string().optional(),
})

/** QEMU refused, failed, or took too long. */
export class SavedStateError extends Error {
  override readonly name = 'SavedStateError'
}

export interface SaveOptions {
  /** The VM's socket folder as this process and as QEMU sees it. */
  readonly socketFolder: string
  readonly insidePath: (name: string) => string
  /** Written anew and synced. */
  readonly file: string
  /** The memory is in a shared file that stays: only the devices are saved. */
  readonly withoutMemory: boolean
  readonly deadlineMs: number
}

/**
 * Stops the VM and writes its state; it stays stopped. From here its disks do not change either.
 * A failure leaves it stopped and able to go on. @throws {SavedStateError}
 */
export async function saveState(qmp: Qmp, options: SaveOptions): Promise<void> {
  await stopVm(qmp)
  await setIgnoreShared(qmp, options.withoutMemory)
  // Bytes a second: no bound.
  await qmp.execute('migrate-set-parameters', { 'max-bandwidth': 2 ** 40 })
  const receiver = await Receiver.open(join(options.socketFolder, 'state'), options.file)
  try {
    await qmp.execute('migrate', { uri: `unix:${options.insidePath('state')}` })
    await Promise.race([waitForMigration(qmp, options.deadlineMs), receiver.failed])
    await receiver.finish()
  } catch (error) {
    await qmp.execute('migrate_cancel').catch(() => undefined)
    throw asSavedStateError(error)
  } finally {
    await receiver.close()
  }
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
export async function stopVm(qmp: Qmp): Promise<void> {
  await qmp.execute('stop')
}

/** Lets the guest's CPUs run; after a save, once QEMU has finished with it. */
export async function continueVm(qmp: Qmp): Promise<void> {
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

/** A listening socket whose one connection goes to a file. */
class Receiver {
  readonly #path: string
  readonly #reachable: ReachablePath
  readonly #done: Promise<void>
  readonly #server
  /** Rejects when the file cannot be written. */
  readonly failed: Promise<never>

  private constructor(
    path: string,
    reachable: ReachablePath,
    server: ReturnType<typeof createServer>,
    file: string,
  ) {
    this.#path = path
    this.#reachable = reachable
    this.#server = server
    this.#done = this.#receive(file)
    this.failed = new Promise((_, reject) => {
      this.#done.catch(reject)
    })
    this.failed.catch(() => undefined)
  }

  static async open(path: string, file: string): Promise<Receiver> {
    const server = createServer({ pauseOnConnect: true })
    const reachable = await reachSocket(path)
    try {
      server.listen(reachable.path)
      await once(server, 'listening')
    } catch (error) {
      await reachable[Symbol.asyncDispose]()
      throw error
    }
    const receiver = new Receiver(path, reachable, server, file)
    // QEMU may be another user; the folder above is ours alone.
    await chmod(path, 0o666)
    return receiver
  }

  /** Once everything is in the file and on the disk. */
  async finish(): Promise<void> {
    await this.#done
  }

  async close(): Promise<void> {
    this.#server.close()
    await rm(this.#path, { force: true })
    await this.#reachable[Symbol.asyncDispose]()
  }

  async #receive(file: string): Promise<void> {
    const [socket] = (await once(this.#server, 'connection')) as [Socket]
    await pipeline(socket, createWriteStream(file, { mode: 0o600 }))
    const handle = await open(file, 'r')
    try {
      await handle.sync()
    } finally {
      await handle.close()
    }
  }
}

function asSavedStateError(error: unknown): SavedStateError {
  if (error instanceof SavedStateError) return error
  return new SavedStateError(error instanceof Error ? error.message : String(error), { cause: error })
}
