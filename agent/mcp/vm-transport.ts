/**
 * Transport to a server that runs as a program in the sandbox: messages as lines on its standard input and output,
 * over a connection of the root helper. The program ends with the connection. Buffers are bounded.
 */
import { once } from 'node:events'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { JSONRPCMessage, Transport } from '@modelcontextprotocol/client'
import { MessageLines, stderrMaxChars, unreadMaxBytes } from '#runtime/mcp/lines.ts'
import { encodeTypedFrame, frameKinds, type TypedFrame, TypedFrameReader } from '#specs/node/typed-frames.ts'

/** How long a server may take to end after its input is closed, before it is killed with its descendants. */
const graceMs = 1_000
const chunkBytes = 64 * 1024

export class VmTransport implements Transport {
  readonly #open: () => Promise<Duplex>
  readonly #onClosed: () => void
  readonly #lines: MessageLines
  readonly #frames = new TypedFrameReader()
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  #socket: Duplex | null = null
  #stderr = ''
  /** How it ended, as reported by the root helper. */
  #end = ''
  #closed = false
  #closing: Promise<void> | null = null
  /** Both are the mark of a program for the library. */
  readonly stderr = null
  readonly pid = null
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: JSONRPCMessage) => void

  /**
   * @param open starts the program
   * @param onClosed called once, when the program has ended or none was started
   */
  constructor(open: () => Promise<Duplex>, onClosed: () => void) {
    this.#open = open
    this.#onClosed = onClosed
    this.#lines = new MessageLines({
      onMessage: (message) => this.onmessage?.(message),
      onError: (error) => this.onerror?.(error),
      onTooLong: () => void this.close().catch(() => undefined),
    })
  }

  /** The end of the server's own log, and how it ended. */
  get lastWords(): string {
    return [this.#stderr.trim(), this.#end].filter((text) => text !== '').join('; ')
  }

  async start(): Promise<void> {
    let socket: Duplex
    try {
      socket = await this.#open()
    } catch (error) {
      this.#noteClosed()
      throw error
    }
    this.#socket = socket
    socket.on('error', (error) => this.onerror?.(error))
    socket.on('data', (piece: Buffer) => this.#take(piece))
    socket.once('close', () => this.#noteClosed())
    // The program has ended and its last frame was read.
    socket.once('end', () => socket.destroy())
    if (this.#closing !== null) socket.destroy()
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const socket = this.#socket
    if (this.#closed || this.#closing !== null || socket === null || !socket.writable)
      throw new Error('the MCP server has ended')
    if (socket.writableLength > unreadMaxBytes) {
      this.close().catch(() => undefined)
      throw new Error(`the MCP server left more than ${unreadMaxBytes} bytes unread`)
    }
    const bytes = Buffer.from(`${JSON.stringify(message)}\n`)
    for (let start = 0; start < bytes.length; start += chunkBytes)
      socket.write(encodeTypedFrame(frameKinds.stdin, bytes.subarray(start, start + chunkBytes)))
  }

  close(): Promise<void> {
    this.#closing ??= this.#leave()
    return this.#closing
  }

  /** Resolves when the program or its connection has ended. */
  async #leave(): Promise<void> {
    this.#lines.close()
    const socket = this.#socket
    if (socket !== null && !socket.destroyed) {
      const closed = once(socket, 'close').catch(() => undefined)
      if (socket.writable) socket.write(encodeTypedFrame(frameKinds.stdin, new Uint8Array()))
      await Promise.race([closed, sleep(graceMs, undefined, { ref: false })])
      socket.destroy()
    }
    this.#noteClosed()
  }

  #take(piece: Buffer): void {
    const frames = this.#frames.feed(piece)
    if (typeof frames === 'string') this.#break(`the helper broke its protocol: ${frames}`)
    else for (const frame of frames) this.#takeFrame(frame)
  }

  #takeFrame({ kind, payload }: TypedFrame): void {
    if (kind === frameKinds.stdout) this.#lines.take(this.#decoders.stdout.decode(payload, { stream: true }))
    else if (kind === frameKinds.stderr)
      this.#stderr = (this.#stderr + this.#decoders.stderr.decode(payload, { stream: true })).slice(
        -stderrMaxChars,
      )
    else if (kind === frameKinds.json) this.#end = describeEnd(payload)
    else this.#break('the helper broke its protocol: it sent a program input')
  }

  #break(words: string): void {
    this.onerror?.(new Error(words))
    this.#socket?.destroy()
  }

  #noteClosed(): void {
    if (this.#closed) return
    this.#closed = true
    this.#onClosed()
    this.onclose?.()
  }
}

/** The root helper's last message about a program, for people. */
function describeEnd(payload: Buffer): string {
  let told: { exitCode?: unknown; signal?: unknown; oomKilled?: unknown; error?: { message?: unknown } }
  try {
    told = JSON.parse(payload.toString('utf8'))
  } catch {
    return ''
  }
  if (typeof told.error?.message === 'string') return told.error.message.slice(0, 300)
  if (told.oomKilled === true) return 'its memory ran out'
  if (typeof told.exitCode === 'number') return `exit code ${told.exitCode}`
  return typeof told.signal === 'string' ? `ended by ${told.signal.slice(0, 20)}` : ''
}
