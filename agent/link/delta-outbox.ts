/**
 * Batches text deltas for the host: at most one message per `flushMs` or `flushBytes`. Deltas are worthless later, so
 * those that no session can take are dropped.
 */
import type { Delta } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { deltaEmit } from '#specs/protocol/methods.ts'
import type { Peer } from '#specs/protocol/peer.ts'

interface Piece {
  runId: string
  agentPath: string
  delta: Delta
}

const flushMs = 20
const flushChars = 8 * 1024
/** Maximum that can accumulate while the host does not read. */
const pendingMaxChars = 256 * 1024
const messageMaxDeltas = 64
const messageMaxChars = 128 * 1024

export class DeltaOutbox {
  #pieces: Piece[] = []
  #chars = 0
  #peer: Peer | null = null
  #timer: NodeJS.Timeout | null = null
  #sending = false
  #dropped = 0

  /** Number of characters dropped so far. */
  get droppedChars(): number {
    return this.#dropped
  }

  connect(peer: Peer): void {
    this.#peer = peer
  }

  disconnect(): void {
    this.#peer = null
    this.#forget()
  }

  /** @param delta of at most `textMaxChars` characters */
  add(runId: string, agentPath: string, delta: Delta): void {
    const { length } = textOf(delta)
    if (this.#peer === null || this.#chars + length > pendingMaxChars) {
      this.#dropped += length
      return
    }
    this.#append({ runId, agentPath, delta })
    if (this.#chars >= flushChars) this.flush()
    else this.#timer ??= setTimeout(() => this.flush(), flushMs)
  }

  /** Sends pending deltas to the session, before anything sent after this call. */
  flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
    if (this.#sending || this.#peer === null) return
    void this.#send(this.#peer)
  }

  #append(piece: Piece): void {
    const last = this.#pieces.at(-1)
    this.#chars += textOf(piece.delta).length
    if (last !== undefined && 'text' in last.delta && isSameStream(last, piece)) {
      const text = last.delta.text + textOf(piece.delta)
      if (text.length <= limits.textMaxChars) {
        last.delta = { ...last.delta, text }
        return
      }
    }
    this.#pieces.push(piece)
  }

  async #send(peer: Peer): Promise<void> {
    this.#sending = true
    while (this.#peer === peer && this.#pieces.length > 0) {
      const { runId, agentPath, deltas } = this.#takeMessage()
      await peer.notify(deltaEmit, { runId, agentPath, deltas })
    }
    this.#sending = false
    if (this.#pieces.length > 0 && this.#timer === null) this.#timer = setTimeout(() => this.flush(), flushMs)
  }

  /** As many deltas of one agent as fit a message. */
  #takeMessage(): { runId: string; agentPath: string; deltas: Delta[] } {
    const { runId = '', agentPath = '' } = this.#pieces[0] ?? {}
    let count = 0
    let chars = 0
    for (const piece of this.#pieces) {
      chars += textOf(piece.delta).length
      const full = count >= messageMaxDeltas || (count > 0 && chars > messageMaxChars)
      if (full || piece.runId !== runId || piece.agentPath !== agentPath) break
      count++
    }
    const deltas = this.#pieces.splice(0, count).map((piece) => piece.delta)
    this.#chars -= deltas.reduce((sum, delta) => sum + textOf(delta).length, 0)
    return { runId, agentPath, deltas }
  }

  #forget(): void {
    this.#dropped += this.#chars
    this.#pieces = []
    this.#chars = 0
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
  }
}

function textOf(delta: Delta): string {
  return 'text' in delta ? delta.text : ''
}

function isSameStream(a: Piece, b: Piece): boolean {
  if (a.runId !== b.runId || a.agentPath !== b.agentPath) return false
  if (!('text' in a.delta && 'text' in b.delta)) return false
  // A piece between them was dropped: the gap stays visible.
  if (a.delta.offset + a.delta.text.length !== b.delta.offset) return false
  return streamOf(a.delta) === streamOf(b.delta)
}

function streamOf({ text: _, offset: __, ...stream }: Extract<Delta, { text: string }>): string {
  return JSON.stringify(stream)
}
