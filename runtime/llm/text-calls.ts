/**
 * Separates a model's text into reasoning, calls written as text, and the rest. Only exact names of offered tools
 * count. Reasoning and quotations never count: code, quotation marks, or text copied from a tool or the user.
 * Everything else stays text.
 */
import {
  callOf,
  isOpening,
  Reply,
  skipEndMarks,
  skipSpace,
  skipWord,
  type WrittenCall,
} from './call-readers.ts'
import type { ToolCallRequest, ToolSpec } from './messages.ts'
import { Prose } from './prose.ts'
import { parseModelJson } from './repair.ts'
import { forms } from './text-forms.ts'
import { findThoughtMarks, type ThoughtMark, withoutMarks } from './thoughts.ts'

/** The client's limit on regular calls; more stay text. */
const callsMaxCount = 128
/** Longer replies are not searched: no tool takes that much. */
const replyMaxChars = 2 * 1024 * 1024

/** What of a message is looked at. */
export interface SaidMessage {
  readonly role: string
  readonly content: string
}

export interface ReadText {
  /** The reply without reasoning and calls; unchanged when there are none. */
  readonly text: string
  /** The reasoning without marks; empty when there was none. */
  readonly thinking: string
  readonly calls: readonly (WrittenCall & { readonly form: string })[]
}

/** The parts of a turn that the text affects. */
interface SpokenTurn {
  readonly text: string
  readonly reasoning: string
  readonly toolCalls: readonly ToolCallRequest[]
}

/**
 * Moves the text's reasoning and calls into their fields. Calls are moved when tools were offered and the call field
 * is empty. If both are present, the field wins and its repetition in the text is removed.
 */
export function readTurnText<T extends SpokenTurn>(
  turn: T,
  request: { readonly messages: readonly SaidMessage[]; readonly tools: readonly ToolSpec[] },
): T {
  const { text, thinking, calls } = readText(turn.text, request.tools, request.messages)
  const read = { ...turn, text, reasoning: turn.reasoning + thinking }
  if (calls.length === 0 || turn.toolCalls.length > 0) return read
  const toolCalls = calls.map(({ name, argumentsText, form }) => ({
    id: '',
    name,
    argumentsText,
    writtenAs: form,
  }))
  return { ...read, toolCalls }
}

/**
 * Finds the reasoning and the calls of offered tools in `text`, in linear time. `history` is text that may be quoted.
 */
export function readText(
  text: string,
  tools: readonly ToolSpec[],
  history: readonly SaidMessage[] = [],
): ReadText {
  const sources = new Sources(history)
  const offered = text.length > replyMaxChars ? [] : tools
  const bare = readBareJson(text, offered, sources)
  if (bare !== null) return bare
  const marks = findThoughtMarks(text)
  // JSON cannot contain reasoning: marks in it are content.
  if (marks.length > 0 && isJson(text)) return { text, thinking: '', calls: [] }
  const read = new TextScan(new Reply(text, offered), marks, sources).run()
  if (read.text === text || read.calls.length > 0) return read
  const said = readBareJson(read.text, offered, sources)
  return said === null ? read : { ...said, thinking: read.thinking }
}

/** Scans a reply once, from mark to mark. */
class TextScan {
  readonly #reply: Reply
  readonly #marks: readonly ThoughtMark[]
  readonly #sources: Sources
  readonly #scan: FormScan
  readonly #prose: Prose
  readonly #closes: readonly ThoughtMark[]
  #nextMark = 0
  #nextClose = 0
  /** End of the last reasoning block. */
  #start = 0
  /** Start of a reasoning block that never ends. */
  #thoughtFrom: number
  /** The same in the middle of a line: it may be part of the answer, but no call after it runs. */
  #doubtFrom = -1
  #kept: string[] = []
  #keptFrom = 0
  #calls: ReadText['calls'][number][] = []
  #takesCalls: boolean

  constructor(reply: Reply, marks: readonly ThoughtMark[], sources: Sources) {
    this.#reply = reply
    this.#marks = marks
    this.#closes = marks.filter(({ kind }) => kind === 'close')
    this.#sources = sources
    this.#scan = new FormScan(reply.text)
    this.#prose = new Prose(reply.text)
    this.#thoughtFrom = reply.text.length
    this.#takesCalls = reply.hasTools
  }

  run(): ReadText {
    let from = 0
    let afterIndex = -1
    while (from < this.#thoughtFrom) {
      const mark = this.#markFrom(from)
      const takesCalls = this.#takesCalls && !this.#reply.isHopeless
      const form = takesCalls ? this.#scan.next(from, afterIndex) : null
      if (mark !== undefined && (form === null || mark.at < form.at)) {
        from = this.#passMark(mark)
        afterIndex = -1
      } else if (form !== null) {
        const end = this.#passForm(form)
        from = end ?? form.at
        afterIndex = end === null ? form.index : -1
      } else break
    }
    return this.#result()
  }

  #markFrom(from: number): ThoughtMark | undefined {
    while ((this.#marks[this.#nextMark]?.at ?? from) < from) this.#nextMark++
    return this.#marks[this.#nextMark]
  }

  /** Where to continue after a reasoning mark. */
  #passMark(mark: ThoughtMark): number {
    const isQuoted = this.#prose.isQuoted(mark.at)
    if (mark.kind === 'close') {
      // Reasoning may look like a quotation that includes its end; calls in it must not run.
      if (!isQuoted || this.#calls.length > 0) this.#endThought(mark)
      return mark.end
    }
    if (isQuoted) return mark.end
    const close = this.#closeWithin(mark.end, this.#reply.text.length)
    if (close !== undefined) {
      this.#endThought(close)
      return close.end
    }
    if (this.#beginsLine(mark.at)) this.#thoughtFrom = mark.at
    else if (this.#doubtFrom < 0) this.#doubtFrom = mark.at
    return mark.end
  }

  /** Where to continue after calls of a form; null when there are none. */
  #passForm({ at, index }: { at: number; index: number }): number | null {
    const form = forms[index]
    const read = form === undefined || this.#prose.isQuoted(at) ? null : form.parse(this.#reply, at)
    if (form === undefined || read === null) return null
    const close = read.isWhole ? undefined : this.#closeWithin(at, read.end)
    if (close !== undefined) {
      this.#endThought(close)
      return close.end
    }
    if (read.calls.length > 0 && this.#doubtFrom >= 0) {
      this.#thoughtFrom = this.#doubtFrom
      return at
    }
    if (this.#calls.length + read.calls.length > callsMaxCount) {
      this.#takesCalls = false
      return at
    }
    const { text } = this.#reply
    if (read.calls.length > 0 && !this.#sources.contain(text.slice(at, read.end))) {
      this.#kept.push(text.slice(this.#keptFrom, at))
      this.#keptFrom = skipEndMarks(text, read.end)
      this.#calls.push(...read.calls.map((call) => ({ ...call, form: form.name })))
    }
    this.#prose.skipTo(read.end)
    return Math.max(read.end, at + 1)
  }

  /** The first end of reasoning between two offsets; `from` must not decrease. */
  #closeWithin(from: number, end: number): ThoughtMark | undefined {
    while ((this.#closes[this.#nextClose]?.at ?? from) < from) this.#nextClose++
    const close = this.#closes[this.#nextClose]
    return close !== undefined && close.at < end ? close : undefined
  }

  #endThought({ end }: ThoughtMark): void {
    this.#start = end
    this.#doubtFrom = -1
    this.#kept = []
    this.#keptFrom = end
    this.#calls = []
    this.#prose.restart(end)
  }

  #beginsLine(at: number): boolean {
    const before = this.#reply.text.slice(Math.max(this.#start, at - 200), at)
    return /(?:^|\n)[ \t]*$/.test(before)
  }

  #result(): ReadText {
    const { text } = this.#reply
    const thought = text.slice(0, this.#start) + text.slice(this.#thoughtFrom)
    const rest = text.slice(this.#keptFrom, this.#thoughtFrom)
    const said = this.#calls.length > 0 ? [...this.#kept, rest].join('').trim() : rest
    const start = this.#start > 0 ? said.trimStart() : said
    return {
      text: this.#thoughtFrom < text.length ? start.trimEnd() : start,
      thinking: withoutMarks(thought),
      calls: this.#calls,
    }
  }
}

/** Positions of the forms' marks; each mark is searched once per offset. */
class FormScan {
  readonly #text: string
  readonly #next: number[] = forms.map(() => -1)

  constructor(text: string) {
    this.#text = text
  }

  /** The first mark at or behind `from`; at `from` itself only those of forms behind `afterIndex` in the table. */
  next(from: number, afterIndex: number): { at: number; index: number } | null {
    let best: { at: number; index: number } | null = null
    for (const [index, { find }] of forms.entries()) {
      const least = index > afterIndex ? from : from + 1
      let at = this.#next[index] ?? -1
      if (at < least) {
        const found = this.#text.indexOf(find, least)
        at = found < 0 ? Number.POSITIVE_INFINITY : found
        this.#next[index] = at
      }
      if (Number.isFinite(at) && (best === null || at < best.at)) best = { at, index }
    }
    return best
  }
}

/** Text that the model received: a call copied from it is quoted, not made. */
class Sources {
  readonly #history: readonly SaidMessage[]
  #texts: readonly string[] | undefined
  #asked = 0

  constructor(history: readonly SaidMessage[]) {
    this.#history = history
  }

  contain(markup: string): boolean {
    // A model that intends to call does not quote this much.
    if (++this.#asked > 2 * callsMaxCount) return true
    this.#texts ??= this.#history
      .filter(({ role }) => role === 'tool' || role === 'user')
      .map(({ content }) => withoutSpace(content))
    const wanted = withoutSpace(markup)
    return this.#texts.some((text) => text.includes(wanted))
  }
}

function withoutSpace(text: string): string {
  return text.replaceAll(/\s+/g, '')
}

/**
 * Calls of a reply that consists only of JSON calls, each with exactly a name and an arguments object; null for any
 * other. Calls copied from the history do not count.
 */
function readBareJson(text: string, tools: readonly ToolSpec[], sources: Sources): ReadText | null {
  const reply = new Reply(text, tools)
  const calls: ReadText['calls'][number][] = []
  let at = skipSpace(text, 0)
  while (isOpening(text, at)) {
    const end = reply.endOfGroup(at)
    const parsed = end < 0 ? null : parseModelJson(text.slice(at, end), { lossless: true })
    if (parsed?.ok !== true) return null
    for (const value of [parsed.value.value].flat()) {
      const call = callOf(value, reply)
      if (call?.isExact !== true || calls.length >= callsMaxCount) return null
      calls.push({ name: call.name, argumentsText: call.argumentsText, form: 'llama' })
    }
    at = skipSpace(text, skipWord(text, skipEndMarks(text, end), ';'))
  }
  if (at < text.length || calls.length === 0) return null
  return sources.contain(text) ? { text, thinking: '', calls: [] } : { text: '', thinking: '', calls }
}

function isJson(text: string): boolean {
  if (!/^\s*[[{"]/.test(text)) return false
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}
