/** Client of a running VM of this or another process of the same user, over its control socket. */

import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import * as z from 'zod'
import { CaissonError, errorMessage, hasCode } from '#specs/errors.ts'
import { waitForDrain } from '#specs/node/drain.ts'
import { frameKinds } from '#specs/node/typed-frames.ts'
import { Port, ShellOptions } from '#specs/protocol/methods.ts'
import { checkArguments, FunctionOption, type Names, SignalOption } from '../files/check-arguments.ts'
import { askControl, nextFrame, parseMessage, requireOk } from './client.ts'
import type { CopyOptions, CopyResult } from './copy.ts'
import { copyIn, writeArchive } from './copy-in.ts'
import { copyOut, readArchive } from './copy-out.ts'
import { ControlReply, InfoReply, InspectReply, type VmDetails, type VmInfo } from './messages.ts'
import { Shell } from './shell.ts'

/** Time for a host process to describe its VM. */
const infoTimeoutMs = 3_000

const badOptions = 'the options of the call cannot be used'
const ConsoleSchema = z.strictObject({ follow: z.boolean().optional(), signal: SignalOption })
const StopSchema = z.strictObject({
  now: z.boolean().optional(),
  timeoutMs: z.int().min(0).max(0x7fff_ffff).optional(),
})
const ForwardSchema = z.strictObject({
  guestPort: Port,
  hostPort: z.int().min(0).max(0xffff).optional(),
  onFailure: FunctionOption,
})
const forwardNames: Names = { '': Object.keys(ForwardSchema.shape) }

export class VmClient {
  readonly #path: string
  readonly info: VmInfo

  private constructor(path: string, info: VmInfo) {
    this.#path = path
    this.info = info
  }

  /** @param path the control socket. @throws {CaissonError} */
  static async connect(path: string): Promise<VmClient> {
    const stream = await askControl(path, { op: 'vm/info' })
    const timer = setTimeout(() => stream.destroy('no answer in time'), infoTimeoutMs)
    try {
      const { vm } = requireOk(parseMessage(stream, await nextFrame(stream), InfoReply))
      return new VmClient(path, vm)
    } finally {
      clearTimeout(timer)
      stream.end()
    }
  }

  /**
   * The guest's console output (the last 64 KiB), with `follow` until the VM ends or `signal` aborts. @throws
   * {CaissonError}
   */
  async *console(options: { follow?: boolean; signal?: AbortSignal } = {}): AsyncGenerator<Buffer> {
    checkArguments(badOptions, ConsoleSchema, options)
    const { follow = false, signal } = options
    const stream = await askControl(this.#path, { op: 'vm/console', follow })
    const stop = (): void => stream.destroy()
    signal?.addEventListener('abort', stop, { once: true })
    try {
      for (;;) {
        const frame = await nextFrame(stream)
        if (frame.kind === frameKinds.stdout) yield frame.payload
        else {
          requireOk(parseMessage(stream, frame, ControlReply))
          return
        }
      }
    } catch (error) {
      // The VM has ended, which ends the output too.
      if (!(follow && hasCode(error, 'connection_lost'))) throw error
    } finally {
      signal?.removeEventListener('abort', stop)
      stream.destroy()
    }
  }

  /** Resolves when the VM has ended or is unreachable, or `signal` aborts. */
  async ended(signal: AbortSignal): Promise<void> {
    checkArguments('the signal cannot be used', SignalOption.unwrap(), signal)
    const stream = await askControl(this.#path, { op: 'vm/wait' }).catch(() => null)
    if (stream === null) return
    const stop = (): void => stream.destroy()
    if (signal.aborted) stop()
    signal.addEventListener('abort', stop, { once: true })
    const drain = async (): Promise<void> => {
      while ((await stream.next()) !== null);
    }
    await drain().catch(() => undefined)
    signal.removeEventListener('abort', stop)
    stream.destroy()
  }

  /**
   * Ends the VM: its run is cancelled and its changes are collected, unless `now`. Resolves when it is gone.
   * @throws {CaissonError} `not_possible_now` when it still runs after `timeoutMs`
   */
  async stop(options: { now?: boolean; timeoutMs?: number } = {}): Promise<void> {
    checkArguments(badOptions, StopSchema, options)
    const { now = false, timeoutMs = 120_000 } = options
    const stream = await askControl(this.#path, { op: 'vm/stop', now })
    requireOk(parseMessage(stream, await nextFrame(stream), ControlReply))
    const late = Promise.withResolvers<'late'>()
    const timer = setTimeout(() => late.resolve('late'), timeoutMs)
    // Reading detects the end.
    const gone = stream.next().then(
      () => 'gone' as const,
      () => 'gone' as const,
    )
    const first = await Promise.race([gone, late.promise])
    clearTimeout(timer)
    stream.destroy()
    if (first === 'late')
      throw new CaissonError(
        'not_possible_now',
        `${this.info.id} was asked to stop, but still runs after ${timeoutMs / 1_000} s`,
      )
  }

  /** Pauses or resumes its processors. @throws {CaissonError} `not_possible_now` */
  async setPaused(paused: boolean): Promise<void> {
    checkArguments('whether to pause cannot be used', z.boolean(), paused)
    const stream = await askControl(this.#path, { op: 'vm/pause', paused })
    try {
      requireOk(parseMessage(stream, await nextFrame(stream), ControlReply))
    } finally {
      stream.destroy()
    }
  }

  /** All that its host process knows of it, with what it uses of this machine now. @throws {CaissonError} */
  async inspect(): Promise<VmDetails> {
    const stream = await askControl(this.#path, { op: 'vm/inspect' })
    const timer = setTimeout(() => stream.destroy('no answer in time'), infoTimeoutMs)
    try {
      return requireOk(parseMessage(stream, await nextFrame(stream), InspectReply)).vm
    } finally {
      clearTimeout(timer)
      stream.destroy()
    }
  }

  /**
   * Starts a shell or a command as the user `work` in the workspace. @throws {CaissonError} `connection_lost`,
   * `invalid_options`
   */
  async openShell(options: ShellOptions): Promise<Shell> {
    checkArguments('the shell cannot be opened', ShellOptions, options)
    return new Shell(await askControl(this.#path, { op: 'vm/shell', ...options }))
  }

  /**
   * Copies a file or directory of the VM to `to` on this machine, by the rules of `docker cp`. Nothing is written but
   * below `to`, and through no link there. Relative paths of the VM begin at /mnt/workspace.
   * @throws {CaissonError} `file_not_found`, `limit_reached`, `no_space`, `protocol_violation`, `not_possible_now`,
   * `invalid_options`, `cancelled`, `connection_lost`
   */
  async copyOut(from: string, to: string, options?: CopyOptions): Promise<CopyResult> {
    return await copyOut(this, from, to, options)
  }

  /** Copies a file or directory of this machine to `to` in the VM. @throws {CaissonError} as {@link copyOut} */
  async copyIn(from: string, to: string, options?: CopyOptions): Promise<CopyResult> {
    return await copyIn(this, from, to, options)
  }

  /** A file or directory of the VM as a tar archive. Its bytes are the guest's. @throws {CaissonError} as {@link copyOut} */
  readArchive(from: string, options?: CopyOptions): AsyncGenerator<Buffer> {
    return readArchive(this, from, options)
  }

  /** Unpacks a tar archive in a directory of the VM. @throws {CaissonError} as {@link copyOut} */
  async writeArchive(pieces: AsyncIterable<Uint8Array>, to: string, options?: CopyOptions): Promise<void> {
    await writeArchive(this, pieces, to, options)
  }

  /**
   * Listens on 127.0.0.1 and forwards each connection to `guestPort` in the guest.
   * @param hostPort 0 for any free one
   * @throws {CaissonError} `invalid_options`, `not_possible_now` where the port of the host cannot be used
   */
  async forward(options: ForwardOptions): Promise<Forwarding> {
    checkArguments('the port cannot be forwarded', ForwardSchema, options, forwardNames)
    const { guestPort, hostPort = 0, onFailure = () => undefined } = options
    const sockets = new Set<Socket>()
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
      sockets.add(socket)
      socket.on('close', () => sockets.delete(socket)).on('error', () => undefined)
      this.#carry(socket, guestPort).catch((error: unknown) => {
        // A disconnected client needs no error.
        if (socket.destroyed) return
        // A reset, so that partial data is not mistaken for all of it.
        socket.resetAndDestroy()
        onFailure(errorMessage(error))
      })
    })
    const listening = Promise.withResolvers<void>()
    server.once('error', listening.reject)
    server.listen({ host: '127.0.0.1', port: hostPort }, listening.resolve)
    await listening.promise.catch((cause: unknown) => {
      const message = `port ${hostPort} of 127.0.0.1 cannot be used: ${errorMessage(cause)}`
      const remedy = 'use a free port of this machine; 0 or none chooses one'
      throw new CaissonError('not_possible_now', message, { remedy, cause })
    })
    return {
      port: (server.address() as AddressInfo).port,
      [Symbol.asyncDispose]: () => close(server, sockets),
    }
  }

  async #carry(socket: Socket, port: number): Promise<void> {
    const stream = await askControl(this.#path, { op: 'vm/forward', port })
    const toGuest = async (): Promise<void> => {
      for await (const piece of socket.iterator({ destroyOnReturn: false }))
        await stream.sendBytes(frameKinds.stdin, piece as Buffer)
      await stream.send(frameKinds.stdin, Buffer.alloc(0))
    }
    // A disconnect is forwarded to the guest, even after the end of the client's data.
    let hasAll = false
    void toGuest().catch(() => stream.destroy('the client broke off'))
    socket.once('close', () => {
      if (!hasAll) stream.destroy('the client broke off')
    })
    try {
      for (;;) {
        const frame = await nextFrame(stream)
        if (frame.kind !== frameKinds.stdout) {
          requireOk(parseMessage(stream, frame, ControlReply))
          return
        }
        if (frame.payload.length === 0) {
          hasAll = true
          socket.end()
        } else if (!socket.destroyed && !socket.write(frame.payload)) await waitForDrain(socket)
      }
    } finally {
      stream.end()
    }
  }
}

export interface ForwardOptions {
  readonly guestPort: number
  readonly hostPort?: number
  /** Called with the reason when a connection is closed, such as that nothing listens in the guest. */
  readonly onFailure?: (message: string) => void
}

export interface Forwarding extends AsyncDisposable {
  /** The port on 127.0.0.1 of the host. */
  readonly port: number
}

async function close(server: Server, sockets: Set<Socket>): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()))
  for (const socket of sockets) socket.destroy()
  await closed
}
