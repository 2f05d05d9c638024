/**
 * Texts of the model as AG-UI messages. They stream from deltas, which may be lost; the event at the end of a turn has the
 * whole text and completes what was sent. What the front end has already is not sent again.
 */
import { type Event, EventType } from '@ag-ui/core'
import type { KnownMessages } from './known-messages.ts'

export type TextKind = 'text' | 'reasoning'

interface Stream {
  readonly kind: TextKind
  /** UTF-16 units of the deltas so far. */
  received: number
  /** What the front end has. */
  sent: string
  isOpen: boolean
  /** Whether a part was lost, or the model started again: the rest comes at the end of the turn. */
  isBroken: boolean
}

/** Turns under way; an agent may begin them without end. */
const streamsMax = 64

export class TextStreams {
  readonly #known: KnownMessages
  readonly #streams = new Map<string, Stream>()

  constructor(known: KnownMessages) {
    this.#known = known
  }

  /** A piece of a message. @param offset UTF-16 units before it */
  add(kind: TextKind, id: string, offset: number, text: string): Event[] {
    const stream = this.#streams.get(id) ?? this.#begin(kind, id)
    if (stream === undefined || stream.isBroken) return []
    if (offset !== stream.received) {
      stream.isBroken = true
      return []
    }
    stream.received += text.length
    const overlap = Math.max(0, stream.sent.length - offset)
    if (!text.startsWith(stream.sent.slice(offset, offset + text.length))) stream.isBroken = true
    return stream.isBroken ? [] : this.#send(id, stream, text.slice(overlap))
  }

  /** The model begins the message anew. */
  void(id: string): void {
    const stream = this.#streams.get(id)
    if (stream !== undefined) stream.isBroken = true
  }

  /** The whole message. */
  end(kind: TextKind, id: string, whole: string): Event[] {
    const stream = this.#streams.get(id) ?? this.#begin(kind, id)
    if (stream === undefined) return []
    this.#streams.delete(id)
    return [...this.#send(id, stream, restOf(stream, whole)), ...close(id, stream)]
  }

  /** Closes what is open, at the end of a request. */
  closeAll(): Event[] {
    const events = [...this.#streams].flatMap(([id, stream]) => close(id, stream))
    this.#streams.clear()
    return events
  }

  #begin(kind: TextKind, id: string): Stream | undefined {
    if (this.#streams.size >= streamsMax) return undefined
    const stream = { kind, received: 0, sent: this.#known.textOf(id), isOpen: false, isBroken: false }
    this.#streams.set(id, stream)
    return stream
  }

  #send(messageId: string, stream: Stream, delta: string): Event[] {
    if (delta === '') return []
    const events = stream.isOpen ? [] : open(messageId, stream.kind)
    stream.isOpen = true
    stream.sent += delta
    const type = stream.kind === 'text' ? EventType.TEXT_MESSAGE_CONTENT : EventType.REASONING_MESSAGE_CONTENT
    return [...events, { type, messageId, delta } as Event]
  }
}

/** What of the whole the front end lacks. */
function restOf({ sent }: Stream, whole: string): string {
  if (whole.trim() === '') return ''
  if (whole.startsWith(sent)) return whole.slice(sent.length)
  // A part was sent before the model started again.
  return sent.endsWith(whole) ? '' : `\n\n${whole}`
}

function open(messageId: string, kind: TextKind): Event[] {
  return kind === 'text'
    ? [{ type: EventType.TEXT_MESSAGE_START, messageId, role: 'assistant' }]
    : [
        { type: EventType.REASONING_START, messageId },
        { type: EventType.REASONING_MESSAGE_START, messageId, role: 'reasoning' },
      ]
}

function close(messageId: string, { kind, isOpen }: Stream): Event[] {
  if (!isOpen) return []
  return kind === 'text'
    ? [{ type: EventType.TEXT_MESSAGE_END, messageId }]
    : [
        { type: EventType.REASONING_MESSAGE_END, messageId },
        { type: EventType.REASONING_END, messageId },
      ]
}
