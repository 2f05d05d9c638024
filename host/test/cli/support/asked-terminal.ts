/**
 * The far side of `typing.test.ts`: a process in a pseudo-terminal that follows runs one after another, as `caisson run` does.
 * The test commands it over a socket: what is asked, when, and when a run ends. It reports what the person's keys did.
 */
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { createConnection } from 'node:net'
import { createInterface } from 'node:readline'
import { noUsage } from '#specs/protocol/task.ts'
import { follow } from '../../../cli/commands/follow.ts'
import type { Io } from '../../../cli/io.ts'
import { ProgressView } from '../../../cli/render/progress.ts'
import type { FeedItem } from '../../../journal/run-feed.ts'
import { type AskedKind, askedQuestions, type TypedOutcome } from './asked-questions.ts'

const [socketPath = '', quietMs = ''] = process.argv.slice(2)
const socket = createConnection(socketPath)
await once(socket, 'connect')
const io: Io = { stdin: process.stdin, stdout: process.stdout, stderr: process.stderr, env: {}, version: '0' }

/** Between keys that came after the question was asked, in ms; when the last one came; and the bytes of the round. */
let longestGap = 0
let lastAt = 0
let received = 0
function endGap(): void {
  longestGap = Math.max(longestGap, performance.now() - lastAt)
  lastAt = performance.now()
}
const push = process.stdin.push.bind(process.stdin)
process.stdin.push = (chunk, encoding) => {
  endGap()
  received += chunk?.length ?? 0
  return push(chunk, encoding)
}

class Round {
  readonly #items: FeedItem[] = []
  readonly #pending = new Map<string, () => void>()
  readonly #answers: unknown[] = []
  readonly #sent: string[] = []
  #unsent = ''
  #isShown = false
  #more = Promise.withResolvers<void>()
  readonly #over: Promise<void>

  constructor() {
    lastAt = performance.now()
    longestGap = 0
    received = 0
    const view = new ProgressView(process.stdout)
    const show = view.show.bind(view)
    view.show = (item, isQuiet) => {
      // What it asks is shown by the prompt.
      this.#isShown ||= isQuiet === true
      show(item, isQuiet)
    }
    const lines = view.lines.bind(view)
    view.lines = (rows) => {
      this.#unsent += /^Not sent, because the run ended: “(.*)”$/.exec(rows[0] ?? '')?.[1] ?? ''
      lines(rows)
    }
    const give = async () => ({ taken: true }) as const
    const run = {
      id: 'run-1',
      watch: () => this.#watch(),
      hasPendingApproval: (id: string) => this.#pending.has(id),
      pendingCount: 1,
      whenResolved: (id: string) =>
        new Promise<void>((resolve) => (this.#pending.has(id) ? this.#pending.set(id, resolve) : resolve())),
      answer: async (id: string, answer: unknown) => {
        this.#answers.push(answer)
        this.settle(id)
        return await give()
      },
      steer: async (text: string) => void this.#sent.push(text),
      pause: async () => undefined,
      resume: async () => undefined,
    }
    const interrupts = {
      signal: new AbortController().signal,
      interrupt: () => void this.#answers.push('interrupt'),
    }
    const options = { isInteractive: true, folder: '/nonexistent', quietMs: Number(quietMs) }
    this.#over = follow(io, view, run as unknown as Parameters<typeof follow>[2], interrupts, options).then(
      () => view[Symbol.dispose](),
    )
  }

  ask(kind: AskedKind): void {
    this.#pending.set('a1', () => undefined)
    // Keys that come more than the quiet time after the question may answer it, however fast they were typed.
    lastAt = performance.now()
    longestGap = 0
    const { access, ...request } = askedQuestions[kind]
    this.#give({
      type: 'approval-request',
      kind: 'cooperative',
      digest: '0'.repeat(64),
      request: { approvalId: 'a1', agentPath: 'root', stepId: 's', callId: 'c', preview: '', ...request },
      ...(access === undefined ? {} : { access }),
    })
  }

  settle(id = 'a1'): void {
    this.#pending.get(id)?.()
    this.#pending.delete(id)
  }

  async end(): Promise<void> {
    const ending = { outcome: 'completed', reason: 'completed', message: '', summary: '' }
    this.#give({ type: 'run-end', ...ending, usage: noUsage, durationMs: 1 })
    await this.#over
  }

  get outcome(): TypedOutcome {
    return {
      answers: this.#answers,
      sent: this.#sent,
      unsent: this.#unsent,
      isListening: this.#isShown && process.stdin.listenerCount('keypress') > 0,
      received,
      longestGapMs: longestGap,
    }
  }

  #give(event: object): void {
    const item = { source: 'host', runId: 'run-1', seq: this.#items.length + 1, at: Date.now(), event }
    this.#items.push(item as unknown as FeedItem)
    this.#more.resolve()
  }

  async *#watch(): AsyncGenerator<FeedItem> {
    for (let next = 0; ; next++) {
      while (next === this.#items.length) {
        this.#more = Promise.withResolvers()
        await this.#more.promise
      }
      const item = this.#items[next]
      if (item === undefined) return
      yield item
      if (item.source === 'host' && item.event.type === 'run-end') return
    }
  }
}

/** The process comes late to the keys, as on a loaded machine. The time until then is no gap between keys. */
function blockUntilFile(file: string): void {
  endGap()
  const cell = new Int32Array(new SharedArrayBuffer(4))
  while (!existsSync(file)) Atomics.wait(cell, 0, 0, 5)
  lastAt = performance.now()
}

let round: Round | undefined
for await (const line of createInterface({ input: socket })) {
  const [command, argument] = JSON.parse(line) as [string, string]
  if (command === 'begin') round = new Round()
  if (command === 'ask') round?.ask(argument as AskedKind)
  if (command === 'block') blockUntilFile(argument)
  if (command === 'settle') round?.settle()
  if (command === 'end') await round?.end()
  socket.write(`${JSON.stringify(round?.outcome)}\n`)
}
process.exit(0)
