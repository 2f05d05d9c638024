/**
 * Queues log lines for the host: bounded, drops lines while full, and reports the number of dropped lines once there
 * is space.
 */
import type { z } from 'zod'
import { limits } from '#specs/protocol/limits.ts'
import { logWrite } from '#specs/protocol/methods.ts'
import type { Peer } from '#specs/protocol/peer.ts'

export type LogEntry = z.input<typeof logWrite.params>

const queueMaxEntries = 1_024

export class LogOutbox {
  #entries: LogEntry[] = []
  #dropped = 0
  #peer: Peer | null = null
  #sending = false

  /**
   * Cuts texts that are too long; replaces fields that are too large with a note, since half a JSON value is invalid.
   */
  add(entry: LogEntry): void {
    if (this.#entries.length >= queueMaxEntries) {
      this.#dropped++
      return
    }
    const { level, message, fields } = entry
    const tooLong = fields.length > limits.textMaxChars
    this.#entries.push({
      level,
      message: message.slice(0, limits.textMaxChars),
      fields: tooLong ? JSON.stringify({ leftOutChars: fields.length }) : fields,
    })
    this.#send()
  }

  connect(peer: Peer): void {
    this.#peer = peer
    this.#send()
  }

  disconnect(): void {
    this.#peer = null
  }

  #send(): void {
    if (this.#sending || this.#peer === null) return
    this.#sending = true
    void this.#sendAll(this.#peer).finally(() => {
      this.#sending = false
      if (this.#entries.length > 0) this.#send()
    })
  }

  async #sendAll(peer: Peer): Promise<void> {
    while (this.#peer === peer && this.#entries.length > 0) {
      const entry = this.#entries[0]
      if (entry === undefined) return
      const sent = await peer.notify(logWrite, entry)
      if (!sent.ok && sent.error.code === 'session_ended') {
        if (this.#peer === peer) this.#peer = null
        return
      }
      this.#entries.shift()
      this.#noteDropped()
    }
  }

  #noteDropped(): void {
    if (this.#dropped === 0) return
    const fields = JSON.stringify({ dropped: this.#dropped })
    this.#dropped = 0
    this.#entries.push({ level: 'warn', message: 'log lines were dropped', fields })
  }
}
