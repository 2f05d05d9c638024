/**
 * The journal of one run: hash-chained JSON lines, appended by the host alone. Written in order, made durable at
 * barriers, read back strictly. The chain shows accidents; it is no proof against someone who may rewrite the file.
 */
import { createHash } from 'node:crypto'
import { type FileHandle, open, readFile } from 'node:fs/promises'
import { type AgentEvent, type HostEvent, JournalEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'

const firstPrev = '0'.repeat(64)

/** A journal that cannot be written or read on; `line` is 1-based. */
export class JournalError extends Error {
  override readonly name = 'JournalError'
}

type Entry =
  | { source: 'host'; event: HostEvent }
  | { source: 'agent'; agentPath: string; n: number; event: AgentEvent }

/** Events after which the file is flushed to the disk before anything else happens. */
const barriers: ReadonlySet<string> = new Set([
  'run-start',
  'approval-request',
  'approval-decision',
  // The effect of a host's tool is outside of the VM: its intent has to be known after any crash.
  'host-tool-start',
  'notes-decide',
  'vm-kept',
  'changes-ready',
  'apply-start',
  'apply-end',
  'undo-end',
  'run-end',
])

export interface JournalOptions {
  readonly runId: string
  readonly path: string
  /** The clock, ms since 1970. */
  readonly now?: () => number
}

export class Journal {
  readonly #options: JournalOptions
  readonly #file: FileHandle
  #seq: number
  #prev: string
  #bytes: number
  #tail: Promise<void> = Promise.resolve()
  #failure: unknown

  private constructor(options: JournalOptions, file: FileHandle, seq: number, prev: string, bytes: number) {
    this.#options = options
    this.#file = file
    this.#seq = seq
    this.#prev = prev
    this.#bytes = bytes
  }

  /** Opens or makes the journal; an existing one is verified first and a last line cut short by a crash is dropped. */
  static async open(options: JournalOptions): Promise<Journal> {
    const file = await open(options.path, 'a+', 0o600)
    try {
      const text = await file.readFile('utf8')
      const whole = text.slice(0, text.lastIndexOf('\n') + 1)
      const events = parseJournal(whole, options.runId)
      const bytes = Buffer.byteLength(whole)
      if (whole.length !== text.length) await file.truncate(bytes)
      return new Journal(options, file, events.length, events.at(-1)?.hash ?? firstPrev, bytes)
    } catch (error) {
      await file.close()
      throw error
    }
  }

  /** `hash` of the last line; 64 zeros before the first. */
  get head(): string {
    return this.#prev
  }

  /**
   * Stamps, chains and writes one event; resolves once it is handed to the system, and at a barrier once it is on the disk.
   * Calls are written in the order they were made.
   * @throws {JournalError} when the run's bounds are reached or the disk refuses.
   */
  async append(entry: Entry): Promise<JournalEvent> {
    if (this.#seq >= limits.runMaxEvents || this.#bytes >= limits.runMaxJournalBytes) {
      throw new JournalError(
        `the run's journal reached its bound of ${limits.runMaxEvents} events or ${limits.runMaxJournalBytes} bytes`,
      )
    }
    const event = this.#chain(entry)
    const line = `${JSON.stringify(event)}\n`
    this.#bytes += Buffer.byteLength(line)
    const written = this.#tail.then(() => this.#write(line, barriers.has(event.event.type)))
    this.#tail = written.catch((error: unknown) => {
      this.#failure ??= error
    })
    await written
    return event
  }

  #chain(entry: Entry): JournalEvent {
    const { runId, now = Date.now } = this.#options
    const head = { seq: this.#seq + 1, at: now(), runId }
    const body =
      entry.source === 'host'
        ? { ...head, source: entry.source, event: entry.event, prev: this.#prev }
        : {
            ...head,
            source: entry.source,
            agentPath: entry.agentPath,
            n: entry.n,
            event: entry.event,
            prev: this.#prev,
          }
    const hash = hashOf(body)
    this.#seq = head.seq
    this.#prev = hash
    return { ...body, hash }
  }

  async #write(line: string, barrier: boolean): Promise<void> {
    // After one lost line every later one would break the chain.
    if (this.#failure !== undefined)
      throw new JournalError('the journal could not be written', { cause: this.#failure })
    await this.#file.appendFile(line)
    if (barrier) await this.#file.datasync()
  }

  async close(): Promise<void> {
    await this.#tail
    await this.#file.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/**
 * All events of the journal at `path`, in order; a last line without its newline (a crash while writing) is left out.
 * @throws {JournalError} naming the line where schema, order or chain breaks.
 */
export async function readJournal(path: string, runId: string): Promise<JournalEvent[]> {
  const text = await readFile(path, 'utf8')
  return parseJournal(text.slice(0, text.lastIndexOf('\n') + 1), runId)
}

function parseJournal(text: string, runId: string): JournalEvent[] {
  const events: JournalEvent[] = []
  let prev = firstPrev
  for (const [index, line] of text.split('\n').entries()) {
    if (line === '') continue
    const { event, hash, digest } = parseLine(line, index + 1)
    const fault =
      event.seq !== events.length + 1
        ? `seq ${event.seq} instead of ${events.length + 1}`
        : event.runId !== runId
          ? `the run is ${event.runId} instead of ${runId}`
          : event.prev !== prev
            ? 'the hash of the line before does not agree'
            : digest !== hash
              ? 'the hash of the line does not agree'
              : undefined
    if (fault !== undefined)
      throw new JournalError(`journal line ${index + 1}: ${fault}; it was changed or damaged`)
    events.push(event)
    prev = hash
  }
  return events
}

function parseLine(line: string, number: number): { event: JournalEvent; hash: string; digest: string } {
  try {
    const value: unknown = JSON.parse(line)
    const event = JournalEvent.parse(value)
    // Of the line as it was written: the schema has an order of keys of its own.
    const { hash: _, ...body } = value as JournalEvent
    return { event, hash: event.hash, digest: hashOf(body) }
  } catch (cause) {
    throw new JournalError(`journal line ${number}: not an event; it was changed or damaged`, { cause })
  }
}

/** Over the keys in the order in which they were written. */
function hashOf(body: Omit<JournalEvent, 'hash'>): string {
  return createHash('sha256').update(JSON.stringify(body)).digest('hex')
}
