/**
 * One session of the control port: frames, vscode-jsonrpc and the typed peer over a channel. Attached from the start;
 * ends exactly once, with a reason. Afterwards nothing is pending and the channel searches for the next session.
 */
import {
  AbstractMessageReader,
  AbstractMessageWriter,
  createMessageConnection,
  type DataCallback,
  type Disposable,
  type Message,
  type MessageReader,
  type MessageWriter,
  NullLogger,
  ResponseError,
} from 'vscode-jsonrpc/node'
import { createRateLimit, findEnvelopeFault } from '#specs/protocol/envelope.ts'
import { createPeer, type Handlers, type Peer, type Side } from '#specs/protocol/peer.ts'
import type { Channel } from './channel.ts'
import { encodeFrame, FrameDecoder, type FrameFault } from './frames.ts'

export interface RpcSessionEnd {
  reason: FrameFault | 'bad_message' | 'violation' | 'flood' | string
  message: string
}

export interface RpcSessionOptions<S extends Side> {
  channel: Channel
  side: S
  handlers: Handlers<S>
  onEnd: (end: RpcSessionEnd) => void
  onBug?: (method: string, cause: unknown) => void
  /** Clock of the rate limit, in ms; absent: no limit. */
  rateClock?: () => number
}

export interface RpcSession {
  readonly peer: Peer
  /** Whether reading waits for this side's handlers. */
  readonly paused: boolean
  /** Ends the session; the first call counts. */
  end(end: RpcSessionEnd): void
}

/** Undispatched messages and bytes, and active notification handlers, at which reading pauses. */
const queueMaxMessages = 256
const queueMaxBytes = 4 * 1024 * 1024
const handledMaxNotifications = 64
/** Queued answers at which the other side counts as not reading. */
const writeMaxWaiting = 1_024

/** Attaches to `channel` at once. */
export function openRpcSession<S extends Side>(options: RpcSessionOptions<S>): RpcSession {
  const { channel } = options
  let over = false
  let paused = false
  let handling = 0
  const queued: number[] = []
  let queuedBytes = 0

  function weigh(): void {
    const full =
      queued.length > queueMaxMessages || queuedBytes > queueMaxBytes || handling > handledMaxNotifications
    if (over || full === paused) return
    paused = full
    channel.setPaused(full)
  }

  const reader = new FrameMessageReader(
    (end) => finish({ reason: end.fault, message: end.message }, end.unread),
    (bytes) => {
      queued.push(bytes)
      queuedBytes += bytes
      weigh()
    },
    options.rateClock,
  )
  const writer = new FrameMessageWriter(channel, () =>
    finish({ reason: 'violation', message: 'the other side does not read its answers' }),
  )
  const connection = createMessageConnection(reader, writer, NullLogger, {
    messageStrategy: {
      handleMessage(message, next) {
        queuedBytes -= queued.shift() ?? 0
        weigh()
        return next(message)
      },
    },
  })
  const detach = channel.attach((chunk) => reader.feed(chunk))
  const peer = createPeer<S>({
    connection,
    side: options.side,
    handlers: options.handlers,
    makeError: (code, message) => new ResponseError(code, message),
    onViolation: (message) => finish({ reason: 'violation', message: `the other side sent ${message}` }),
    ...(options.onBug === undefined ? {} : { onBug: options.onBug }),
    onLoad: (notifications) => {
      handling = notifications
      weigh()
    },
  })

  function finish(end: RpcSessionEnd, unread?: Buffer): void {
    if (over) return
    over = true
    reader.stop()
    peer.dispose(end.message)
    detach(unread)
    options.onEnd(end)
  }

  return {
    peer,
    end: (end) => finish(end),
    get paused() {
      return paused
    },
  }
}

/**
 * vscode-jsonrpc's reader over {@link FrameDecoder}; invalid messages end the session before the library sees them.
 */
export class FrameMessageReader extends AbstractMessageReader implements MessageReader {
  readonly #decoder: FrameDecoder
  #callback: DataCallback | null = null

  constructor(
    onEnd: (end: { fault: FrameFault | 'bad_message' | 'flood'; message: string; unread?: Buffer }) => void,
    onMessage: (bytes: number) => void,
    rateClock?: () => number,
  ) {
    super()
    const rate = rateClock === undefined ? null : createRateLimit(rateClock)
    const refuse = (fault: 'bad_message' | 'flood', message: string): void => {
      this.#decoder.stop()
      onEnd({ fault, message })
    }
    this.#decoder = new FrameDecoder((value, bytes) => {
      if (rate !== null && !rate.take()) {
        refuse('flood', 'more messages came than the rate allows')
        return
      }
      const fault = findEnvelopeFault(value)
      if (fault !== null) {
        refuse('bad_message', fault)
        return
      }
      onMessage(bytes)
      this.#callback?.(value as Message)
    }, onEnd)
  }

  feed(chunk: Buffer): void {
    this.#decoder.push(chunk)
  }

  stop(): void {
    this.#decoder.stop()
    this.#callback = null
  }

  override listen(callback: DataCallback): Disposable {
    this.#callback = callback
    return { dispose: () => this.stop() }
  }
}

/**
 * vscode-jsonrpc's writer: a message counts as written when the port has taken it; the session's end fails all queued
 * ones.
 */
export class FrameMessageWriter extends AbstractMessageWriter implements MessageWriter {
  readonly #channel: Channel
  readonly #onStuck: () => void
  readonly #waiting = new Set<(error: Error) => void>()
  #count = 0
  #disposed = false

  constructor(channel: Channel, onStuck: () => void) {
    super()
    this.#channel = channel
    this.#onStuck = onStuck
  }

  write(message: Message): Promise<void> {
    if (this.#disposed) return Promise.reject(new Error('the session has ended'))
    return new Promise((resolve, reject) => {
      const frame = encodeFrame(message, this.#count)
      this.#count++
      const settle = (error?: Error | null): void => {
        if (!this.#waiting.delete(fail)) return
        if (error) reject(error)
        else resolve()
      }
      const fail = (error: Error): void => settle(error)
      this.#waiting.add(fail)
      if (this.#waiting.size > writeMaxWaiting) this.#onStuck()
      // If the port has buffer space, the caller need not wait.
      if (this.#channel.write(frame, settle)) settle()
    })
  }

  end(): void {}

  override dispose(): void {
    this.#disposed = true
    for (const fail of [...this.#waiting]) fail(new Error('the session has ended'))
    super.dispose()
  }
}
