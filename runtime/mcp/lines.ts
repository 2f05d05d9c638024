/**
 * Reads JSON-RPC messages from a server's standard output, one per line. Refuses lines over a limit and skips lines
 * that are no message.
 */
import type { JSONRPCMessage } from '@modelcontextprotocol/client'

const lineMaxChars = 16 * 1024 * 1024
/** Maximum bytes queued for a server that does not read. */
export const unreadMaxBytes = 16 * 1024 * 1024
/** Maximum bytes kept of a server's log. */
export const stderrMaxChars = 2_000

interface LineListener {
  onMessage(message: JSONRPCMessage): void
  onError(error: Error): void
  /** A line exceeded the limit; no further message is read. */
  onTooLong(): void
}

export class MessageLines {
  readonly #listener: LineListener
  /** Pieces of the incomplete line. */
  #open: string[] = []
  #openChars = 0
  #closed = false

  constructor(listener: LineListener) {
    this.#listener = listener
  }

  /** Stops reading. */
  close(): void {
    this.#closed = true
    this.#open = []
  }

  /** Reads each character once, however long a line is. */
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

/** An object with the JSON-RPC marker; the protocol layer validates its content. */
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
