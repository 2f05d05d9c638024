/**
 * Shortens a conversation that outgrows the model's window. Pinned text (rules, task, plan, step, the person's
 * messages) is repeated. Images of earlier turns become a note. Long outputs keep their head and tail with a reference;
 * if that is not enough, old turns are summarized. The last turns stay. The journal keeps everything. Never fails; the
 * result is a valid conversation.
 */
import type { ChatMessage } from '#runtime/llm/messages.ts'
import { block } from '#specs/node/prompt-block.ts'
import type { SteerMessage } from '../run/steering.ts'
import { truncateMiddle } from '../text/truncate.ts'
import { withoutPictures } from './pictures.ts'
import { describeMessages } from './sections.ts'
import type { TokenMeter } from './tokens.ts'

interface CompactionParts {
  /** A valid conversation without open calls. */
  readonly messages: readonly ChatMessage[]
  /** The system and user messages in their current form. */
  readonly opening: readonly ChatMessage[]
  readonly meter: TokenMeter
  /** Maximum size of the conversation, in tokens. */
  readonly maxTokens: number
  /** Target size after compaction, in tokens. */
  readonly targetTokens: number
  /** Messages from the person during this step. */
  readonly said: readonly SteerMessage[]
  /** Summary of turns removed earlier; empty before the first compaction. */
  readonly earlier: string
  /** What remains of the run's budget, one line per limit. */
  readonly left: string
  /** Shortens an output and notes where the whole of it can be read. */
  cutOutput(callId: string, output: string, maxChars: number): string
  /** Asks a model to summarize a record of at most `maxChars`; undefined when it gives none. */
  summarize(record: string): Promise<string | undefined>
  /** Maximum length of such a record, in characters. */
  readonly recordMaxChars: number
}

interface Compacted {
  readonly messages: readonly ChatMessage[]
  /** Summary of the removed part; empty when only outputs were cut. */
  readonly summary: string
}

/** What remains of a long output that the model has already seen. */
const outputChars = 1_200
/** Maximum size of a summary: in characters, and as a share of the target. */
const summaryMaxChars = 12_000
const summaryShare = 0.3
/** Share of the target for the last turns, which stay unchanged. */
const tailShare = 0.4
/** Share of the target for the person's messages. */
const saidShare = 0.3
/** Sizes for outputs of the last turns when nothing else suffices, tried in this order. */
const hardCuts = [8_000, 2_000, 400, 160] as const

/** A message of the model and everything up to its next one. */
type Turn = readonly ChatMessage[]

/** Null when nothing can be shortened. */
export async function compact(parts: CompactionParts): Promise<Compacted | null> {
  const head = parts.messages.slice(0, 2)
  const turns = splitTurns(parts.messages.slice(2))
  if (turns.length === 0) return null
  const last = turns.length - 1
  const looked = turns.map((turn, index) => (index === last ? turn : turn.map(withoutPictures)))
  const unseen = [...head, ...looked.flat()]
  const isNews = turns.some((turn, index) => turn.some((message, at) => message !== looked[index]?.[at]))
  if (isNews && fits(unseen, parts.targetTokens, parts)) return { messages: unseen, summary: '' }

  const seen = looked.map((turn, index) => (index === last ? turn : cutTurn(turn, outputChars, parts)))
  const short = [...head, ...seen.flat()]
  if (fits(short, parts.targetTokens, parts)) return { messages: short, summary: '' }

  const kept = countKept(seen, parts)
  // The summary is made from the uncut turns, so it covers more than the model will see.
  const summary = await sumUp(turns.slice(0, turns.length - kept), parts)
  const tail = seen.slice(seen.length - kept)
  const opening = sayAnew(summary, parts)
  let messages = [...opening, ...tail.flat()]
  for (const maxChars of hardCuts) {
    if (fits(messages, parts.maxTokens * 0.9, parts)) break
    messages = [...opening, ...tail.flatMap((turn) => cutTurn(turn.map(withoutPictures), maxChars, parts))]
  }
  if (!fits(messages, parts.maxTokens * 0.9, parts)) messages = messages.map(withoutPictures)
  return { messages, summary }
}

/** Summary of `turns` and of everything before them. */
async function sumUp(turns: readonly Turn[], parts: CompactionParts): Promise<string> {
  if (turns.length === 0) return parts.earlier
  const { meter, targetTokens } = parts
  const summary = (await parts.summarize(describeRecord(turns, parts)))?.trim() || digest(turns, parts)
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
  // A repeated opening may already contain them.
  const untold = said.filter(({ text }) => !user.content.includes(block('message', text)))
  const sections = [
    user.content,
    ...(untold.length > 0 ? [describeMessages(untold, meter.charsFor(targetTokens * saidShare))] : []),
    ...(summary === '' ? [] : [`# Earlier in this step\n${block('summary', summary)}`]),
    `# What is left\n${left}`,
  ]
  return [system, { ...user, content: sections.join('\n\n') }, ...rest]
}

/** The turns as text, for the model that summarizes them. */
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

/** Summary without a model: the calls that were made and the beginning of each result. */
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
