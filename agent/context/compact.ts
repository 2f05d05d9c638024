/**
 * Makes a conversation shorter when it outgrows the model's window. What is pinned (rules, task, plan, step, the person's
 * messages) is said anew; long outputs become their head and tail with a reference; what is still too much is summarised,
 * and the last turns stay. The journal keeps everything: this is a view of it. Never fails, and the result is valid.
 */
import type { ChatMessage } from '#runtime/llm/messages.ts'
import type { SteerMessage } from '../run/steering.ts'
import { block } from '../text/prompt-block.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { describeMessages } from './sections.ts'
import type { TokenMeter } from './tokens.ts'

export interface CompactionParts {
  /** Valid, and without open calls. */
  readonly messages: readonly ChatMessage[]
  /** The system's message and the user's, as they are said now. */
  readonly opening: readonly ChatMessage[]
  readonly meter: TokenMeter
  /** What the conversation may have at most. */
  readonly maxTokens: number
  /** What it should have afterwards. */
  readonly targetTokens: number
  /** What the person wrote while the step was under way. */
  readonly said: readonly SteerMessage[]
  /** What stands for earlier turns already; empty when there was no compaction yet. */
  readonly earlier: string
  /** What the run may still spend, in lines. */
  readonly left: string
  /** Shortens an output, with a note of where all of it can be read. */
  cutOutput(callId: string, output: string, maxChars: number): string
  /** A model's summary of a record of at most `maxChars`; undefined when there is none. */
  summarise(record: string): Promise<string | undefined>
  /** Characters that such a record may have. */
  readonly recordMaxChars: number
}

export interface Compacted {
  readonly messages: readonly ChatMessage[]
  /** What stands for the part that was left out; empty when outputs were cut and nothing else. */
  readonly summary: string
}

/** What is left of a long output that the model has seen. */
const outputChars = 1_200
/** What a summary may have: in characters, and of the target. */
const summaryMaxChars = 12_000
const summaryShare = 0.3
/** Of the target: what the last turns may have that stay as they are. */
const tailShare = 0.4
/** Of the target: what the person's messages may have. */
const saidShare = 0.3
/** Output of the last turns when nothing else helps, tried in this order. */
const hardCuts = [8_000, 2_000, 400, 160] as const

/** A message of the model and all up to the next one. */
type Turn = readonly ChatMessage[]

/** Null when there is nothing that could be made shorter. */
export async function compact(parts: CompactionParts): Promise<Compacted | null> {
  const head = parts.messages.slice(0, 2)
  const turns = splitTurns(parts.messages.slice(2))
  if (turns.length === 0) return null
  const seen = turns.map((turn, index) =>
    index === turns.length - 1 ? turn : cutTurn(turn, outputChars, parts),
  )
  const short = [...head, ...seen.flat()]
  if (fits(short, parts.targetTokens, parts)) return { messages: short, summary: '' }

  const kept = countKept(seen, parts)
  // Made of what there was before it was cut: a summary sees more than the model will.
  const summary = await sumUp(turns.slice(0, turns.length - kept), parts)
  const tail = seen.slice(seen.length - kept)
  const opening = sayAnew(summary, parts)
  let messages = [...opening, ...tail.flat()]
  for (const maxChars of hardCuts) {
    if (fits(messages, parts.maxTokens * 0.9, parts)) break
    messages = [...opening, ...tail.flatMap((turn) => cutTurn(turn, maxChars, parts))]
  }
  return { messages, summary }
}

/** What stands for `turns` and all before them. */
async function sumUp(turns: readonly Turn[], parts: CompactionParts): Promise<string> {
  if (turns.length === 0) return parts.earlier
  const { meter, targetTokens } = parts
  const summary = (await parts.summarise(describeRecord(turns, parts)))?.trim() || digest(turns, parts)
  return truncateMiddle(summary, Math.min(summaryMaxChars, meter.charsFor(targetTokens * summaryShare)))
}

function fits(messages: readonly ChatMessage[], tokens: number, { meter }: CompactionParts): boolean {
  return meter.estimate(messages) + meter.beside <= tokens
}

function splitTurns(messages: readonly ChatMessage[]): Turn[] {
  const turns: ChatMessage[][] = []
  for (const message of messages) {
    if (message.role === 'assistant' || turns.length === 0) turns.push([message])
    else turns.at(-1)?.push(message)
  }
  return turns
}

function cutTurn(turn: Turn, maxChars: number, { cutOutput }: CompactionParts): Turn {
  return turn.map((message) =>
    message.role === 'tool' && message.content.length > maxChars
      ? { ...message, content: cutOutput(message.callId, message.content, maxChars) }
      : message,
  )
}

/** How many of the last turns stay: as many as fit their share, at least one. */
function countKept(turns: readonly Turn[], { meter, targetTokens }: CompactionParts): number {
  let kept = 0
  let tokens = 0
  for (const turn of turns.toReversed()) {
    tokens += meter.estimate(turn)
    if (kept > 0 && tokens > targetTokens * tailShare) break
    kept++
  }
  return kept
}

function sayAnew(
  summary: string,
  { opening, said, left, meter, targetTokens }: CompactionParts,
): ChatMessage[] {
  const [system, user, ...rest] = opening
  if (system === undefined || user === undefined) throw new TypeError('an opening is two messages')
  // An opening that is said anew may know them by now.
  const untold = said.filter(({ text }) => !user.content.includes(block('message', text)))
  const sections = [
    user.content,
    ...(untold.length > 0 ? [describeMessages(untold, meter.charsFor(targetTokens * saidShare))] : []),
    ...(summary === '' ? [] : [`# Earlier in this step\n${block('summary', summary)}`]),
    `# What is left\n${left}`,
  ]
  return [system, { role: 'user', content: sections.join('\n\n') }, ...rest]
}

/** The turns as text for whoever sums them up. */
function describeRecord(turns: readonly Turn[], { earlier, recordMaxChars }: CompactionParts): string {
  const lines = turns.flat().map((message) => {
    if (message.role === 'tool') return `result: ${truncateMiddle(message.content, 1_500)}`
    if (message.role !== 'assistant') return `${message.role}: ${truncateMiddle(message.content, 2_000)}`
    const calls = message.toolCalls.map(
      ({ name, argumentsText }) => `\ncall: ${name} ${truncateMiddle(argumentsText, 800)}`,
    )
    return `agent: ${truncateMiddle(message.content, 2_000)}${calls.join('')}`
  })
  const before = earlier === '' ? [] : [`summary of what was before:\n${earlier}`]
  return truncateMiddle([...before, ...lines].join('\n'), recordMaxChars)
}

/** What stands for turns when no model sums them up: which calls were made, and how their results begin. */
function digest(turns: readonly Turn[], { earlier }: CompactionParts): string {
  const outputs = new Map<string, string>()
  for (const message of turns.flat())
    if (message.role === 'tool') outputs.set(message.callId, message.content)
  const lines = turns.flat().flatMap((message) => {
    if (message.role !== 'assistant') return []
    const text = message.content.trim() === '' ? [] : [`- said: ${oneLine(message.content, 300)}`]
    const calls = message.toolCalls.map(
      ({ id, name, argumentsText }) =>
        `- called ${name} ${oneLine(argumentsText, 200)}: ${oneLine(outputs.get(id) ?? '', 200)}`,
    )
    return [...text, ...calls]
  })
  const all = `Calls that were made, and how their results begin (no summary could be had):\n${lines.join('\n')}`
  return truncateMiddle(earlier === '' ? all : `${earlier}\n\n${all}`, summaryMaxChars)
}

function oneLine(text: string, maxChars: number): string {
  const flat = text.replaceAll(/\s+/g, ' ').trim()
  return flat.length <= maxChars ? flat : `${flat.slice(0, maxChars - 1).toWellFormed()}…`
}
