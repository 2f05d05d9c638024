// A person types in a real pseudo-terminal, at typing speed and for something else, while questions appear.
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { type AskedKind, askedQuestions, type TypedOutcome } from '../support/asked-questions.ts'

const program = path.join(import.meta.dirname, '../support/asked-terminal.ts')
const kinds = Object.keys(askedQuestions) as AskedKind[]
const words =
  'please skip the tests no wait yes any only why not try many answers now yet deny always run it all'
const phrases = [...words.split(' '), 'y', 'n', '1', '2', '3', '7', '4 of 7', 'yes, in this run', 'no, wait']
const pasted = [
  'first line\nsecond line\r',
  '1\r2\r',
  'y\ryes all of it\r',
  '1\r\n2\r\n',
  'several lines:\r1\ry\r',
]
const escapes = ['\u001b', '\u001b[A', '\u001b[B', '\u001bOA', '\u001b[200~y\r\u001b[201~']

/** A number from 0 to 1; the same ones for a seed (mulberry32). */
type Draw = () => number
function drawsOf(seed: number): Draw {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
const pick = <T>(draw: Draw, from: readonly T[]): T => from[Math.floor(draw() * from.length)] as T

/** What is typed in one round, a few keys at a time. */
function keysOf(draw: Draw, hasEscapes: boolean): string[] {
  const parts: string[] = []
  for (let count = 2 + Math.floor(draw() * 5); count > 0; count--) {
    const kind = draw()
    if (hasEscapes && kind < 0.3) parts.push(pick(draw, escapes))
    else if (kind < 0.1) parts.push(pick(draw, pasted))
    else {
      const text = `${pick(draw, phrases)}${draw() < 0.35 ? '\r' : ' '}`
      for (let at = 0; at < text.length; ) {
        const length = 1 + Math.floor(draw() * 4)
        parts.push(text.slice(at, at + length))
        at += length
      }
    }
  }
  return parts
}

class Terminal {
  readonly #child: ChildProcess
  readonly #socket: Socket
  readonly #replies: AsyncIterator<string>
  readonly #quietMs: number
  readonly #folder: string
  output = ''

  private constructor(child: ChildProcess, socket: Socket, quietMs: number, folder: string) {
    this.#child = child
    this.#folder = folder
    this.#socket = socket
    this.#quietMs = quietMs
    this.#replies = createInterface({ input: socket })[Symbol.asyncIterator]()
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.output = (this.output + text).slice(-8_000)
    })
  }

  static async open(quietMs: number): Promise<Terminal> {
    const folder = await temporaryFolder('typing')
    const socketPath = path.join(folder, 's')
    const server = createServer().listen(socketPath)
    const words = [process.execPath, '--conditions=caisson-source', program, socketPath, String(quietMs)]
    const child = spawn(
      'script',
      ['-qfec', `stty cols 100 rows 40; exec '${words.join("' '")}'`, '/dev/null'],
      {
        env: { ...process.env, SHELL: '/bin/sh', TERM: 'xterm', LANG: 'C.UTF-8' },
      },
    )
    child.stdin?.on('error', () => undefined)
    onTestFinished(() => {
      child.kill('SIGKILL')
      server.close()
    })
    const ended = once(child, 'exit').then(() => Promise.reject(new Error('the terminal ended at once')))
    ended.catch(() => undefined)
    const [socket] = (await Promise.race([once(server, 'connection'), ended])) as [Socket]
    socket.on('error', () => undefined)
    return new Terminal(child, socket, quietMs, folder)
  }

  /** @returns what came of the keys so far */
  async tell(
    command: 'begin' | 'ask' | 'block' | 'settle' | 'end' | 'look',
    argument = '',
  ): Promise<TypedOutcome> {
    this.#socket.write(`${JSON.stringify([command, argument])}\n`)
    const reply = await this.#replies.next()
    if (reply.done === true)
      throw new Error(`the terminal ended:\n${JSON.stringify(this.output.slice(-1500))}`)
    return JSON.parse(reply.value) as TypedOutcome
  }

  /** Types with short random gaps, and does `act` before the part of that number. @returns the longest gap after it, in ms */
  async type(parts: readonly string[], draw: Draw, at: number, act: () => unknown): Promise<number> {
    let longest = 0
    let last: number | undefined
    for (const [index, part] of parts.entries()) {
      if (index === at) {
        act()
        last = performance.now()
      }
      await sleep(draw() * 0.4 * this.#quietMs)
      this.#child.stdin?.write(part)
      const now = performance.now()
      if (last !== undefined) longest = Math.max(longest, now - last)
      if (last !== undefined) last = now
    }
    return longest
  }

  /** The process reads these keys only after the quiet time, when they have waited in its terminal for long. */
  async typeWhileBlocked(keys: string): Promise<void> {
    const file = path.join(this.#folder, 'released')
    const blocked = this.tell('block', file)
    this.#child.stdin?.write(keys)
    while (!(await isIdle(this.#child.pid))) await sleep(5)
    await sleep(this.#quietMs * 1.2)
    await writeFile(file, '')
    await blocked
    await rm(file)
  }

  async until(isReached: (outcome: TypedOutcome) => boolean): Promise<TypedOutcome> {
    for (;;) {
      const outcome = await this.tell('look')
      if (isReached(outcome)) return outcome
      await sleep(10)
    }
  }

  press(keys: string): void {
    this.#child.stdin?.write(keys)
  }

  /** @returns whether the keys came fast enough for one who is typing, on a machine that may be busy */
  async round(seed: number): Promise<boolean> {
    const draw = drawsOf(seed)
    const kind = pick(draw, kinds)
    const hasEscapes = draw() < 0.2
    const isBlocked = draw() < 0.15
    const parts = keysOf(draw, hasEscapes)
    await this.tell('begin')
    const asks: Promise<unknown>[] = []
    const typedAtOnce = isBlocked ? parts.slice(0, -1) : parts
    const at = Math.floor(draw() * typedAtOnce.length)
    const longestGap = await this.type(typedAtOnce, draw, at, () => {
      asks.push(this.tell('ask', kind))
    })
    await Promise.all(asks)
    if (isBlocked) await this.typeWhileBlocked(parts.at(-1) ?? '')
    const typed = Buffer.byteLength(parts.join(''))
    const before = await this.until(
      ({ isListening, answers, received }) => (isListening || answers.length > 0) && received >= typed,
    )
    const context = JSON.stringify({ seed, kind, parts, at, longestGap, before })
    const isJudged = longestGap < 0.9 * this.#quietMs && before.longestGapMs < this.#quietMs
    if (isJudged)
      expect(before.answers, `${context}\n${JSON.stringify(this.output.slice(-1500))}`).toEqual([])
    if (isJudged && kind !== 'a text of the agent') {
      this.press('\r')
      const after = await this.until(({ received }) => received > typed)
      expect(after.answers, `Enter alone: ${context}`).toEqual([])
    }
    await this.tell('settle')
    const end = await this.tell('end')
    if (isJudged && !hasEscapes) {
      const kept = `${end.sent.join(' ')} ${end.unsent}`
      expect(
        lettersOf(kept),
        `kept: ${context} ${JSON.stringify(end)}\n${JSON.stringify(this.output.slice(-1500))}`,
      ).toBe(lettersOf(parts.join('')))
    }
    return isJudged
  }
}

/** Whether a program has passed on all that it was sent: Linux makes an idle one runnable at the moment of the write. */
async function isIdle(pid: number | undefined): Promise<boolean> {
  return /^\d+ \(.*\) S /.test(await readFile(`/proc/${pid}/stat`, 'utf8'))
}

const lettersOf = (text: string): string => text.replace(/[^a-z]/gi, '')

/** @param terminals at once; most of the time goes by with waiting */
async function typeRounds(rounds: number, quietMs: number, terminals: number): Promise<void> {
  const seed = Number(process.env.CAISSON_TYPING_SEED ?? Math.floor(Math.random() * 2 ** 31))
  console.log(`typing at questions: ${rounds} rounds, CAISSON_TYPING_SEED=${seed}`)
  let next = 0
  let judged = 0
  const work = async (): Promise<void> => {
    const terminal = await Terminal.open(quietMs)
    while (judged < rounds && next < rounds * 4) if (await terminal.round(seed + next++)) judged++
  }
  await Promise.all(Array.from({ length: terminals }, work))
  expect(judged).toBeGreaterThanOrEqual(rounds)
}

it('no key typed for something else answers a question; it continues as the message that it was [S1.11 A.08 H.01]', async () => {
  await typeRounds(perTier(24, 1_000), 150, perTier(4, 8))
})

it('nor does one with the quiet time of a second [S1.11 A.08 H.01]', async () => {
  await typeRounds(perTier(2, 16), 1_000, perTier(2, 8))
})
