// A client of QEMU's monitor protocol (QMP) over a duplex stream: greeting, commands with ids, events. Refuses
// oversized lines and unexpected answers. When the stream ends, all pending commands are rejected. Format:
// https://www.qemu.org/docs/master/interop/qmp-spec.html

import type { Duplex } from 'node:stream'
import { z } from 'zod'
import { AwakeTimer } from '#specs/node/awake-timer.ts'
import { parseJson } from '../../files/json.ts'

/** Answers to the commands used here are far smaller; a longer line means that the stream is not QMP. */
const MAX_LINE_BYTES = 1024 * 1024
const DEFAULT_TIMEOUT_MS = 10_000

const greetingSchema = z.looseObject({
  QMP: z.looseObject({
    version: z.looseObject({
      qemu: z.looseObject({ major: z.number(), minor: z.number(), micro: z.number() }),
    }),
  }),
})
const eventSchema = z.looseObject({
  event: z.string().max(100),
  data: z.record(z.string(), z.unknown()).optional(),
})
const answerSchema = z.looseObject({
  id: z.number(),
  return: z.unknown().optional(),
  error: z.looseObject({ class: z.string(), desc: z.string() }).optional(),
})

export interface QmpEvent {
  /** QEMU's event name, such as SHUTDOWN or STOP. */
  readonly name: string
  readonly data: Readonly<Record<string, unknown>>
}

/** A refused command, a timeout, or a broken stream (see `kind`). */
export class QmpError extends Error {
  override readonly name = 'QmpError'
  readonly kind: 'refused' | 'timeout' | 'protocol' | 'closed'

  constructor(kind: QmpError['kind'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.kind = kind
  }
}

interface Pending {
  readonly command: string
  readonly resolve: (value: unknown) => void
  readonly reject: (error: QmpError) => void
  readonly timer: AwakeTimer
}

/** One monitor connection. Create it with {@link Qmp.connect}; closing it does not end QEMU. */
export class Qmp {
  /** QEMU's version from the greeting, such as `7.2.22`. */
  get version(): string {
    return this.#version
  }

  readonly #stream: Duplex
  readonly #pending = new Map<number, Pending>()
  readonly #listeners = new Set<(event: QmpEvent) => void>()
  #version = ''
  #nextId = 1
  #chunks: Buffer[] = []
  #lineBytes = 0
  #closed: QmpError | undefined
  readonly #greeted = Promise.withResolvers<string>()

  private constructor(stream: Duplex) {
    this.#stream = stream
    // If the stream breaks before anyone waits for the greeting, this must not be an unhandled rejection.
    this.#greeted.promise.catch(() => {})
    stream.on('data', (chunk: Buffer) => this.#receive(chunk))
    stream.on('error', (error: Error) =>
      this.#fail(new QmpError('closed', `QMP: stream failed: ${error.message}`, error)),
    )
    const ended = () => this.#fail(new QmpError('closed', 'QMP: QEMU closed the monitor'))
    stream.on('end', ended)
    stream.on('close', ended)
  }

  /**
   * Waits for the greeting and leaves negotiation mode.
   * @throws QmpError when the other side is not QMP, closes, or is silent for `timeoutMs` (default 10 s)
   */
  static async connect(stream: Duplex, timeoutMs = DEFAULT_TIMEOUT_MS): Promise<Qmp> {
    const qmp = new Qmp(stream)
    const late = () => qmp.#fail(new QmpError('timeout', `QMP: no greeting within ${timeoutMs} ms`))
    using _timer = new AwakeTimer(timeoutMs, late)
    // QEMU reads it after its greeting; waiting for that would cost one more round trip.
    const negotiated = qmp.execute('qmp_capabilities', undefined, timeoutMs)
    negotiated.catch(() => {})
    qmp.#version = await qmp.#greeted.promise
    await negotiated
    return qmp
  }

  /**
   * Runs one command and returns QEMU's result.
   * @throws QmpError: refused by QEMU, no answer within `timeoutMs` of running time, or the stream broke
   */
  execute(
    command: string,
    args?: Readonly<Record<string, unknown>>,
    timeoutMs = DEFAULT_TIMEOUT_MS,
  ): Promise<unknown> {
    if (this.#closed) return Promise.reject(this.#closed)
    const id = this.#nextId++
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const timer = new AwakeTimer(timeoutMs, () => {
      this.#pending.delete(id)
      reject(new QmpError('timeout', `QMP: ${command} got no answer within ${timeoutMs} ms`))
    })
    this.#pending.set(id, { command, resolve, reject, timer })
    this.#stream.write(`${JSON.stringify({ execute: command, ...(args ? { arguments: args } : {}), id })}\n`)
    return promise
  }

  /** Settles once QEMU answers, however long that takes; rejects when the stream breaks. */
  async probe(): Promise<void> {
    await this.execute('query-status', undefined, Number.POSITIVE_INFINITY)
  }

  /** Calls `listener` for every later event; the returned function removes it. */
  onEvent(listener: (event: QmpEvent) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Closes the connection and rejects pending commands. QEMU continues. */
  close(): void {
    this.#fail(new QmpError('closed', 'QMP: closed by the host'))
  }

  #receive(chunk: Buffer): void {
    let rest = chunk
    while (!this.#closed) {
      const end = rest.indexOf(0x0a)
      const part = end === -1 ? rest : rest.subarray(0, end)
      this.#lineBytes += part.length
      if (this.#lineBytes > MAX_LINE_BYTES) {
        this.#fail(new QmpError('protocol', `QMP: a line is longer than ${MAX_LINE_BYTES} bytes`))
        return
      }
      this.#chunks.push(part)
      if (end === -1) return
      const line = Buffer.concat(this.#chunks).toString('utf8').trim()
      this.#chunks = []
      this.#lineBytes = 0
      rest = rest.subarray(end + 1)
      if (line !== '') this.#handleLine(line)
    }
  }

  #handleLine(line: string): void {
    const message = parseJson(line)
    const greeting = greetingSchema.safeParse(message)
    if (greeting.success) {
      const { major, minor, micro } = greeting.data.QMP.version.qemu
      this.#greeted.resolve(`${major}.${minor}.${micro}`)
      return
    }
    const event = eventSchema.safeParse(message)
    if (event.success) {
      for (const listener of this.#listeners)
        listener({ name: event.data.event, data: event.data.data ?? {} })
      return
    }
    const answer = answerSchema.safeParse(message)
    if (!answer.success) {
      this.#fail(new QmpError('protocol', 'QMP: a line is neither greeting, event nor answer'))
      return
    }
    // An answer to a command that timed out has no entry and is dropped.
    const pending = this.#pending.get(answer.data.id)
    if (!pending) return
    this.#pending.delete(answer.data.id)
    pending.timer.cancel()
    const { error } = answer.data
    if (error)
      pending.reject(new QmpError('refused', `QMP: ${pending.command}: ${error.class}: ${error.desc}`))
    else pending.resolve(answer.data.return)
  }

  #fail(error: QmpError): void {
    if (this.#closed) return
    this.#closed = error
    this.#chunks = []
    this.#greeted.reject(error)
    for (const pending of this.#pending.values()) {
      pending.timer.cancel()
      pending.reject(error)
    }
    this.#pending.clear()
    this.#listeners.clear()
    this.#stream.destroy()
  }
}
