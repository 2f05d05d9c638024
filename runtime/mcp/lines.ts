/**
 * What a server says on its standard output: messages of JSON-RPC, one a line. Refuses a line beyond a bound, and passes over
 * what is no message.
 */
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js'

export const lineMaxChars = 16 * 1024 * 1024
/** What may wait for a server that does not read. */
export const unreadMaxBytes = 16 * 1024 * 1024
/** Kept of what a server writes about itself. */
export const stderrMaxChars = 2_000

export interface LineListener {
  onMessage(message: JSONRPCMessage): void
  onError(error: Error): void
  /** A line is beyond the bound: nothing more is to be heard. */
  onTooLong(): void
}

export class MessageLines {
  readonly #listener: LineListener
  /** Pieces of a line that has not ended yet. */
  #open: string[] = []
  #openChars = 0
  #closed = false

  constructor(listener: LineListener) {
    this.#listener = listener
  }

  /** Nothing more is heard. */
  close(): void {
    this.#closed = true
    this.#open = []
  }

  /** Each character is looked at once, however long a line is. */
  take(text: string): void {
    let from = 0
    for (let end = text.indexOf('\n'); end >= 0 && !this.#closed; end = text.indexOf('\n', from)) {
      this.#open.push(text.slice(from, end))
      const line = this.#open.join('')
      this.#open = []
      this.#openChars = 0
      from = end + 1
      if (line.trim() !== '') this.#takeLine(line)
    }
    if (this.#closed) return
    this.#open.push(text.slice(from))
    this.#openChars += text.length - from
    if (this.#openChars <= lineMaxChars) return
    this.close()
    this.#listener.onError(new Error(`the MCP server wrote a line of more than ${lineMaxChars} characters`))
    this.#listener.onTooLong()
  }

  #takeLine(line: string): void {
    const message = parseMessage(line)
    if (message !== null) this.#listener.onMessage(message)
    else this.#listener.onError(new Error(`the MCP server wrote what is no message: ${line.slice(0, 100)}`))
  }
}

/** An object with the mark of JSON-RPC; what is in it, the protocol above checks. */
function parseMessage(line: string): JSONRPCMessage | null {
  try {
    const value: unknown = JSON.parse(line)
    if (typeof value !== 'object' || value === null || !('jsonrpc' in value) || value.jsonrpc !== '2.0')
      return null
    return value as JSONRPCMessage
  } catch {
    return null
  }
}
