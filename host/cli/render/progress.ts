/** Follows a run on a stream: event lines, and on a terminal one status line at the bottom that says what happens. */
import type { Writable } from 'node:stream'
import type { ModelWait } from '#specs/protocol/model-request.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { formatCount, formatDuration } from '../../files/format.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import { type Colors, colorsFor } from './colors.ts'
import { describeEnd, eventLines } from './event-lines.ts'
import { writeLines } from './fit.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'

const frames = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']

export class ProgressView {
  readonly #out: Writable & { isTTY?: boolean; columns?: number }
  readonly #colors: Colors
  readonly #startedAt = Date.now()
  #state: RunState = initialRunState
  #hint = 'starting'
  #timer: NodeJS.Timeout | undefined
  #drawn = false
  #frame = 0
  #keys = ''

  readonly #isQuiet: boolean

  /** @param options `isQuiet`: of the run only questions and a bad end are shown */
  constructor(
    out: Writable & { isTTY?: boolean; columns?: number },
    { isQuiet = false }: { readonly isQuiet?: boolean } = {},
  ) {
    this.#out = out
    this.#isQuiet = isQuiet
    this.#colors = colorsFor(out)
    if (out.isTTY === true && !isQuiet) {
      // Keys that were pressed while the program was being loaded were shown by the terminal: they stand where we write first.
      this.#drawn = true
      this.#timer = setInterval(() => this.#draw(), 120)
      this.#timer.unref()
    }
  }

  /** @param isQuiet true for what somebody else shows */
  show(item: FeedItem, isQuiet = false): void {
    if (item.source === 'delta') {
      const { delta } = item
      if (delta.type === 'disk-full' && !isQuiet)
        this.lines([this.#colors.yellow(sanitizeLine(delta.text, 1_000))])
      if (delta.type === 'model-wait') this.#hint = describeWait(delta)
      else if ('text' in delta) this.#hint = hintOf(delta.type, delta.text)
      return
    }
    const before = this.#state
    this.#state = reduceRun(before, item)
    this.#hint = ''
    if (!isQuiet && this.#isShown(item)) this.lines(eventLines(item, this.#state, this.#colors, before))
  }

  #isShown(item: FeedItem): boolean {
    if (!this.#isQuiet || item.source !== 'host') return !this.#isQuiet
    const { event } = item
    if (event.type === 'run-end') return event.outcome !== 'completed'
    return event.type === 'approval-request' || event.type === 'approval-decision'
  }

  /** As far as it was shown. */
  get state(): RunState {
    return this.#state
  }

  /** Says at the end of the status line which keys there are. */
  offer(keys: string): void {
    this.#keys = keys
  }

  /** Prints lines of ours above the status line. */
  lines(lines: readonly string[]): void {
    if (lines.length === 0) return
    this.#erase()
    writeLines(this.#out, lines)
  }

  /** Says what happens before there are events, such as building the image. */
  hint(text: string): void {
    this.#hint = sanitizeLine(text)
    if (this.#timer === undefined && !this.#isQuiet) this.#out.write(`${this.#hint}\n`)
  }

  /** Stops drawing, so that a question can have the terminal; `resume` continues. */
  pause(): void {
    this.#erase()
    clearInterval(this.#timer)
  }

  resume(): void {
    if (this.#out.isTTY !== true || this.#isQuiet) return
    clearInterval(this.#timer)
    this.#timer = setInterval(() => this.#draw(), 120)
    this.#timer.unref()
  }

  /** @param state how the run ended, shown here if the feed did not bring it: a journal that cannot be written keeps it back */
  end(state?: RunState): void {
    this.pause()
    const { end } = state ?? {}
    if (this.#state.end !== null || end == null) return
    this.lines([
      this.#colors.red(`Run ${end.outcome}`),
      sanitizeBlock(describeEnd(end.reason, end.message)),
      'The journal does not record this end.',
    ])
  }

  [Symbol.dispose](): void {
    this.end()
  }

  #draw(): void {
    const frame = frames[this.#frame++ % frames.length]
    const line = `${frame} ${formatDuration(Date.now() - this.#startedAt)} · ${statusOf(this.#state, this.#hint, this.#keys)}`
    const shown = [...line].slice(0, Math.max(10, (this.#out.columns || 80) - 1)).join('')
    // Without automatic wrapping: wide characters could break the line in two, and only one would be erased.
    this.#out.write(`\r\u001b[K\u001b[?7l${this.#colors.dim(shown)}\u001b[?7h`)
    this.#drawn = true
  }

  #erase(): void {
    if (!this.#drawn) return
    this.#out.write('\r\u001b[K')
    this.#drawn = false
  }
}

function hintOf(type: string, text: string): string {
  if (type === 'reasoning-delta') return 'thinking'
  const line = text.trimEnd().split('\n').at(-1) ?? ''
  return sanitizeLine(line.slice(-60), 60)
}

/** What a model request waits for, for the status line. */
export function describeWait({ for: what, position, until }: ModelWait): string {
  const place = position === undefined || position === 1 ? '' : ` (number ${position})`
  const at = until === undefined ? '' : ` until ${formatTime(until)}`
  switch (what) {
    case 'hook':
      return 'waiting for a hook'
    case 'budget':
      return 'waiting for budget that other requests reserve'
    case 'turn':
      return `waiting for other model requests${place}`
    case 'rate':
      return `waiting for the request rate${at}${place}`
    case 'pause':
      return `waiting: the model server limits requests${at}${place}`
    case 'answer':
      return 'waiting for the model'
    case 'rest':
      return 'receiving the answer'
  }
}

function formatTime(at: number): string {
  return new Date(at).toTimeString().slice(0, 8)
}

/** One line: whether the agent holds, the running steps and agents, the open calls, the last output, the keys. */
function statusOf(state: RunState, hint: string, keys: string): string {
  const steps = state.plan?.steps ?? []
  const done = steps.filter(({ id }) => !['pending', 'running'].includes(state.steps[id]?.state ?? '')).length
  const agents = Object.values(state.agents).filter((agent) => agent.state === 'running').length
  const tools = Object.values(state.openCalls).map(({ tool }) => sanitizeLine(tool, 40))
  const phase = {
    preparing: 'preparing',
    planning: 'planning',
    working: `${done}/${steps.length} steps`,
    ended: 'finishing',
  }[state.phase]
  const parts = [
    state.paused ? 'agent paused' : '',
    phase,
    agents === 0 ? '' : formatCount(agents, 'agent'),
    ...tools,
    hint,
    state.phase === 'ended' ? '' : keys,
  ]
  return parts.filter((part) => part !== '').join(' · ')
}
