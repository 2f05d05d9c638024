/** Follows a run on a stream: event lines, and on a terminal a live area at the bottom that says what happens. */
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { formatCount, formatDuration } from '../../files/format.ts'
import type { FeedItem } from '../../journal/run-feed.ts'
import { type Colors, colorsFor } from './colors.ts'
import { describeEnd, eventLines } from './event-lines.ts'
import { writeLines } from './fit.ts'
import { HeldTexts } from './held-texts.ts'
import { canDraw, LiveArea, type LiveOutput } from './live-area.ts'
import { LiveRows } from './live-rows.ts'
import { sanitizeBlock, sanitizeLine } from './sanitize.ts'
import type { Detail } from './turn-lines.ts'

const frames = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']

export class ProgressView {
  readonly #out: LiveOutput
  readonly #area: LiveArea
  readonly #live = new LiveRows()
  readonly #colors: Colors
  readonly #texts: HeldTexts
  /** Of the run, once its first event is shown: who attaches sees how long it has been at work. */
  #startedAt = Date.now()
  #state: RunState = initialRunState
  #hint = 'starting'
  #timer: NodeJS.Timeout | undefined
  #frame = 0
  #keys = ''
  /** Whether the process of the run said that it left the run. */
  #isInterrupted = false

  readonly #isQuiet: boolean
  readonly #detail: Detail

  /** @param options `isQuiet`: of the run only questions, failed steps and a bad end are shown */
  constructor(out: LiveOutput, { isQuiet = false, ...detail }: { readonly isQuiet?: boolean } & Detail = {}) {
    this.#out = out
    this.#area = new LiveArea(out)
    this.#isQuiet = isQuiet
    this.#detail = detail
    this.#colors = colorsFor(out)
    this.#texts = new HeldTexts(this.#colors)
    this.resume()
  }

  /** @param isQuiet true for what somebody else shows */
  show(item: FeedItem, isQuiet = false): void {
    this.#live.take(item)
    if (item.source === 'delta') {
      const { delta } = item
      // It says more than what was said before there were events.
      if (delta.type === 'prepare') this.#hint = ''
      if (delta.type === 'disk-full' && !isQuiet)
        this.lines([this.#colors.yellow(sanitizeLine(delta.text, 1_000))])
      return
    }
    if (item.source === 'host' && item.event.type === 'run-start') this.#startedAt = item.at
    if (item.source === 'host' && item.event.type === 'run-interrupt') this.#isInterrupted = true
    const before = this.#state
    this.#state = reduceRun(before, item)
    this.#hint = ''
    const said = this.#texts.before(item)
    if (!isQuiet && this.#isShown(item))
      this.lines([...said, ...eventLines(item, this.#state, this.#colors, before, this.#detail)])
  }

  #isShown(item: FeedItem): boolean {
    if (!this.#isQuiet) return true
    if (item.source === 'agent') return item.event.type === 'step-end' && item.event.state === 'failed'
    if (item.source !== 'host') return false
    const { event } = item
    if (event.type === 'run-end') return event.outcome !== 'completed'
    if (event.type === 'run-interrupt') return true
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
    if (!canDraw(this.#out) || this.#isQuiet) return
    clearInterval(this.#timer)
    this.#timer = setInterval(() => this.#draw(), 120)
    this.#timer.unref()
  }

  /** @param state how the run ended, shown here if the feed did not bring it: a journal that cannot be written keeps it back */
  end(state?: RunState): void {
    this.pause()
    const { end } = state ?? {}
    if (this.#state.end !== null || this.#isInterrupted || end == null) return
    this.lines([this.#colors.yellow('Run interrupted'), sanitizeBlock(describeEnd(end.reason, end.message))])
  }

  [Symbol.dispose](): void {
    this.end()
  }

  #draw(): void {
    const frame = frames[this.#frame++ % frames.length]
    const { dim } = this.#colors
    const hint = this.#hint || this.#live.hint()
    const line = `${frame} ${formatDuration(Math.max(0, Date.now() - this.#startedAt))} · ${statusOf(this.#state, hint, this.#keys)}`
    const figures = this.#live.figures(this.#state, this.#detail.verbose === true).join(' · ')
    this.#area.draw([
      ...this.#live.above(this.#state, this.#colors),
      dim(line),
      ...(figures === '' ? [] : [dim(`  ${figures}`)]),
    ])
  }

  #erase(): void {
    if (this.#out.isTTY === true) this.#area.erase()
  }
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
