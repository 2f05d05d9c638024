/**
 * What a run has done so far, in a file on the VM's disk, so that a checkpoint of the disk has it too. A new agent over
 * a checkpoint runs the task's code again: what the log has is not done again, and what it does not have is done.
 */
import { createHash } from 'node:crypto'
import { appendFileSync, mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import * as z from 'zod'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { addUsage, noUsage, Usage } from '#specs/protocol/task.ts'
import { Sha256 } from '#specs/protocol/text.ts'

/** A log of another version means nothing to this agent. */
const version = 1
/** Bytes after which nothing is logged and no checkpoint is made. */
const defaultMaxBytes = 256 * 1024 * 1024
/** Less work is lost within this time than the checkpoints would cost. */
const defaultIntervalMs = 1_000

const Header = z.strictObject({ version: z.literal(version) })
const Entry = z.union([
  /** The `n`th result under a name, counted from 1. */
  z.strictObject({ name: z.string(), n: z.int().min(1), value: z.unknown().optional() }),
  /** An event that the host has, as a digest. */
  z.strictObject({ event: z.string() }),
  /** The path of a sub-agent that began. */
  z.strictObject({ agent: z.string() }),
  /** An image that results name by its digest. */
  z.strictObject({ image: Sha256, url: z.string() }),
  /** What a sub-agent of the root used, with those below it. */
  z.strictObject({ used: Usage }),
])
type Entry = z.infer<typeof Entry>

export interface RunLogOptions {
  /** Made when it is missing. */
  readonly file: string
  /** Whether to continue with what the file has; else it starts empty. */
  readonly resume: boolean
  /** Asks the host for a checkpoint; false: it makes none in this run. */
  readonly makeCheckpoint: () => Promise<boolean>
  readonly maxBytes?: number
  /** Least time between two checkpoints, unless an effect left the VM. Default: 1 s. */
  readonly minIntervalMs?: number
  /** Milliseconds; a parameter for tests. */
  readonly now?: () => number
}

/** What an agent logs and repeats; sub-agents have one that does neither. */
export interface RunLog {
  /** Paths of sub-agents from before, and what they used. */
  readonly agents: readonly string[]
  readonly agentUsage: Usage
  /** The result that the log has next under this name; else that of `work`, which it has from then on. */
  once<T>(name: string, work: () => Promise<T>): Promise<T>
  /** Whether the log has another result under this name. */
  hasNext(name: string): boolean
  /** Logs an image once, however often it is given. */
  keepImage(sha256: string, url: string): void
  /** The data URL of an image that the log has from before. */
  image(sha256: string): string | undefined
  /** Work that changes something. A checkpoint is made when none of it is under way. */
  effect<T>(kind: 'inside' | 'outside', work: () => Promise<T>): Promise<T>
  /** Makes a checkpoint at once, unless an effect is under way or nothing has happened since the last. */
  mark(): void
  /**
   * Makes a checkpoint of this moment: effects and events wait until it is there. `busy`: an effect is under way. `off`:
   * the run makes none, or no more.
   */
  makeNow(): Promise<'made' | 'busy' | 'off'>
  /**
   * Asks a person, after a checkpoint where one is possible: the answer may take days.
   * @param isInEffect whether a call asks that {@link effect} counts, before it changes anything
   */
  ask<T>(isInEffect: boolean, ask: () => Promise<T>): Promise<T>
  /** Sends an event that the host does not have yet. */
  emit(agentPath: string, event: AgentEvent, send: () => Promise<void>): Promise<void>
}

/** Logs nothing, repeats nothing. */
export const noLog: RunLog = {
  agents: [],
  agentUsage: noUsage,
  once: (_, work) => work(),
  hasNext: () => false,
  keepImage: () => undefined,
  image: () => undefined,
  effect: (_, work) => work(),
  mark: () => undefined,
  makeNow: async () => 'off',
  ask: (_, ask) => ask(),
  emit: (_, __, send) => send(),
}

/** Opens the log of a run. @throws when it cannot be read, or is of another version */
export function openRunLog(options: RunLogOptions): RunLog {
  return new FileLog(options)
}

class FileLog implements RunLog {
  readonly agents: string[] = []
  agentUsage = noUsage
  readonly #options: RunLogOptions
  /** Results from before, by name and number. */
  readonly #known = new Map<string, unknown>()
  readonly #counts = new Map<string, number>()
  /** Images from before, by digest. */
  readonly #images = new Map<string, string>()
  /** Digests of all images in the log. */
  readonly #keptImages = new Set<string>()
  /** Events from before that were not repeated yet, with how often. */
  readonly #events = new Map<string, number>()
  #bytes = 0
  #underWay = 0
  /** Those of them that wait for a person before they change anything. */
  #asking = 0
  /** Whether anything was logged since the last checkpoint. */
  #hasNews = false
  /** What was changed since the last checkpoint. */
  #dirty: 'nothing' | 'inside' | 'outside' = 'nothing'
  #madeAt = Number.NEGATIVE_INFINITY
  #isOff = false
  #checkpoint: Promise<void> = Promise.resolve()

  constructor(options: RunLogOptions) {
    this.#options = options
    mkdirSync(path.dirname(options.file), { recursive: true })
    if (options.resume) this.#read()
    else {
      writeFileSync(options.file, '', { mode: 0o600 })
      this.#append({ version })
    }
  }

  async once<T>(name: string, work: () => Promise<T>): Promise<T> {
    const n = (this.#counts.get(name) ?? 0) + 1
    this.#counts.set(name, n)
    const key = keyOf(name, n)
    if (this.#known.has(key)) {
      const value = this.#known.get(key)
      this.#known.delete(key)
      return value as T
    }
    const value = await work()
    this.#append({ name, n, value })
    return value
  }

  hasNext(name: string): boolean {
    return this.#known.has(keyOf(name, (this.#counts.get(name) ?? 0) + 1))
  }

  keepImage(sha256: string, url: string): void {
    if (this.#keptImages.has(sha256)) return
    this.#keptImages.add(sha256)
    this.#append({ image: sha256, url })
  }

  image(sha256: string): string | undefined {
    return this.#images.get(sha256)
  }

  async effect<T>(kind: 'inside' | 'outside', work: () => Promise<T>): Promise<T> {
    while (this.#isDue()) await this.#make()
    await this.#untilMade()
    this.#underWay += 1
    try {
      return await work()
    } finally {
      this.#underWay -= 1
      if (this.#dirty !== 'outside') this.#dirty = kind
      if (this.#isDue()) void this.#make()
    }
  }

  mark(): void {
    if (!this.#isOff && this.#underWay === 0 && this.#hasNews) void this.#make()
  }

  async ask<T>(isInEffect: boolean, ask: () => Promise<T>): Promise<T> {
    const waits = isInEffect ? 1 : 0
    this.#asking += waits
    try {
      if (!this.#isOff && this.#underWay === this.#asking && this.#hasNews) await this.#make()
      return await ask()
    } finally {
      // The call works behind a checkpoint that was begun meanwhile.
      if (isInEffect) await this.#untilMade()
      this.#asking -= waits
    }
  }

  async makeNow(): Promise<'made' | 'busy' | 'off'> {
    if (this.#isOff) return 'off'
    if (this.#underWay > this.#asking) return 'busy'
    await this.#make()
    return this.#isOff ? 'off' : 'made'
  }

  async emit(agentPath: string, event: AgentEvent, send: () => Promise<void>): Promise<void> {
    const digest = digestOf(agentPath, event)
    const left = this.#events.get(digest) ?? 0
    if (left > 0) {
      this.#events.set(digest, left - 1)
      return
    }
    // The host has the events before a checkpoint, and the log has no others.
    await this.#untilMade()
    this.#append({ event: digest })
    if (event.type === 'agent-start') this.#append({ agent: agentPath })
    if (event.type === 'agent-end' && agentPath.split('/').length === 2) this.#append({ used: event.usage })
    await send()
  }

  #isDue(): boolean {
    if (this.#isOff || this.#underWay > 0 || this.#dirty === 'nothing') return false
    const { now = () => performance.now(), minIntervalMs = defaultIntervalMs } = this.#options
    return this.#dirty === 'outside' || now() - this.#madeAt >= minIntervalMs
  }

  /** Resolves when no checkpoint is being made, nor waits to be. */
  async #untilMade(): Promise<void> {
    for (let last: Promise<void> | undefined; last !== this.#checkpoint; ) {
      last = this.#checkpoint
      await last
    }
  }

  #make(): Promise<void> {
    this.#dirty = 'nothing'
    this.#hasNews = false
    this.#checkpoint = this.#checkpoint.then(async () => {
      const { makeCheckpoint, now = () => performance.now() } = this.#options
      const made = await makeCheckpoint().catch(() => false)
      if (!made) this.#isOff = true
      this.#madeAt = now()
    })
    return this.#checkpoint
  }

  #append(entry: Entry | z.infer<typeof Header>): void {
    if (this.#isOff) return
    const line = `${JSON.stringify(entry)}\n`
    this.#bytes += Buffer.byteLength(line)
    try {
      if (this.#bytes > (this.#options.maxBytes ?? defaultMaxBytes)) throw new Error('the log is full')
      appendFileSync(this.#options.file, line)
      this.#hasNews = true
    } catch {
      // Without a whole log no checkpoint is of use; another agent continues from the last one.
      this.#isOff = true
    }
  }

  #read(): void {
    const { file } = this.#options
    const text = readFileSync(file, 'utf8')
    const end = text.lastIndexOf('\n') + 1
    const [head, ...lines] = text.slice(0, end).split('\n').slice(0, -1)
    if (head === undefined || !Header.safeParse(JSON.parse(head)).success)
      throw new Error(`${file} is not a log of version ${version}`)
    for (const line of lines) this.#take(Entry.parse(JSON.parse(line)))
    if (end < text.length) truncateSync(file, Buffer.byteLength(text.slice(0, end)))
    this.#bytes = statSync(file).size
  }

  #take(entry: Entry): void {
    if ('name' in entry) this.#known.set(keyOf(entry.name, entry.n), entry.value)
    else if ('image' in entry) {
      this.#images.set(entry.image, entry.url)
      this.#keptImages.add(entry.image)
    } else if ('agent' in entry) this.agents.push(entry.agent)
    else if ('used' in entry) this.agentUsage = addUsage(this.agentUsage, entry.used)
    else this.#events.set(entry.event, (this.#events.get(entry.event) ?? 0) + 1)
  }
}

function keyOf(name: string, n: number): string {
  return `${n} ${name}`
}

/** Of what is the same when the run's code runs again. */
function digestOf(agentPath: string, event: AgentEvent): string {
  const { durationMs: _, ...rest } = { durationMs: 0, ...event }
  return createHash('sha256')
    .update(JSON.stringify([agentPath, rest]))
    .digest('base64')
}
