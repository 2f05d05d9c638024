/** A shell or command in a VM as three streams. All output is untrusted guest data. */
import { Readable, Writable } from 'node:stream'
import * as z from 'zod'
import { type FramedStream, FramedStreamError } from '#specs/node/framed-stream.ts'
import { encodeWindowSize, frameKinds } from '#specs/node/typed-frames.ts'
import { checkArguments } from '../files/check-arguments.ts'
import { ShellReply } from './messages.ts'

/** What is out of range is brought into it. */
const Size = z.strictObject({ columns: z.number(), rows: z.number() })

/** How it ended; `lost` if unknown: VM, agent or host process is gone, or it did not start. */
export type ShellEnd =
  | { readonly kind: 'exited'; readonly exitCode: number; readonly outOfMemory: boolean }
  | { readonly kind: 'killed'; readonly signal: string; readonly outOfMemory: boolean }
  | {
      readonly kind: 'lost'
      readonly message: string
      /** Of a refusal: `busy` where too many are open. */
      readonly code?: string
    }

export class Shell {
  /** Input of the program; ending it ends a command's input, and is Ctrl-D on a terminal. */
  readonly stdin: Writable
  readonly stdout: Readable
  /** Empty if the program has a terminal. */
  readonly stderr: Readable
  /** Resolves when it has ended and all its output was delivered; never rejects. Unread output blocks it. */
  readonly ended: Promise<ShellEnd>
  readonly #frames: FramedStream

  /** @param frames connection of a requested shell; owned by this object from now on */
  constructor(frames: FramedStream) {
    this.#frames = frames
    this.stdin = new Writable({
      write: (chunk: Buffer, _encoding, done) =>
        void frames.sendBytes(frameKinds.stdin, chunk).then(() => done()),
      final: (done) => void frames.send(frameKinds.stdin, Buffer.alloc(0)).then(() => done()),
    })
    this.stdin.on('error', () => undefined)
    this.stdout = new Outlet()
    this.stderr = new Outlet()
    this.ended = this.#follow()
  }

  /** Sends the program its terminal size. @throws {CaissonError} `invalid_options` */
  resize(columns: number, rows: number): void {
    checkArguments('the size of the terminal cannot be used', Size, { columns, rows })
    void this.#frames.send(frameKinds.windowSize, encodeWindowSize(columns, rows))
  }

  /** Ends the program and all its child processes. */
  kill(): void {
    this.#frames.destroy('ended by its user')
  }

  async #follow(): Promise<ShellEnd> {
    const end = await this.#receive().catch((error: unknown): ShellEnd => {
      const message = error instanceof FramedStreamError ? error.message : String(error)
      return { kind: 'lost', message }
    })
    this.#frames.end()
    this.stdin.destroy()
    this.stdout.push(null)
    this.stderr.push(null)
    return end
  }

  async #receive(): Promise<ShellEnd> {
    for (let frame = await this.#frames.next(); frame !== null; frame = await this.#frames.next()) {
      if (frame.kind === frameKinds.stdout) await (this.stdout as Outlet).put(frame.payload)
      else if (frame.kind === frameKinds.stderr) await (this.stderr as Outlet).put(frame.payload)
      else return endOf(this.#frames.parseJson(frame))
    }
    return { kind: 'lost', message: 'the connection ended: the VM or its host process is gone' }
  }
}

function endOf(message: unknown): ShellEnd {
  const reply = ShellReply.safeParse(message)
  if (!reply.success) return { kind: 'lost', message: 'its end was reported in an unknown form' }
  if (!reply.data.ok) {
    const { code, message } = reply.data.error
    return { kind: 'lost', message, code }
  }
  const { exitCode, signal, oomKilled } = reply.data
  return exitCode === null
    ? { kind: 'killed', signal: signal ?? 'unknown', outOfMemory: oomKilled }
    : { kind: 'exited', exitCode, outOfMemory: oomKilled }
}

/** A readable with backpressure that can be awaited. */
class Outlet extends Readable {
  #wake: (() => void) | undefined

  /** Resolves when there is buffer space, or no reader. */
  async put(bytes: Buffer): Promise<void> {
    if (this.destroyed || this.push(bytes)) return
    await new Promise<void>((resolve) => {
      this.#wake = resolve
    })
  }

  override _read(): void {
    this.#wake?.()
    this.#wake = undefined
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#wake?.()
    callback(error)
  }
}
