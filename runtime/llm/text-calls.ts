/**
 * What a model's text says: its thoughts, the calls that it wrote there instead of into the field for them, and the rest.
 * Only exact names of offered tools count, and nothing that is a thought or quoted: in code, behind a quotation mark, or
 * word for word from what a tool or the user said. What is no call stays text.
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

/** As many as the client takes in their own field; more are left as text. */
const callsMaxCount = 128
/** Longer replies are not looked through: no tool takes that much. */
const replyMaxChars = 2 * 1024 * 1024

/** What of a message is looked at. */
export interface SaidMessage {
  readonly role: string
  readonly content: string
}

export interface ReadText {
  /** The reply without thoughts and calls; the reply itself when there are none. */
  readonly text: string
  /** What was thought in it, without the marks; empty when nothing was. */
  readonly thinking: string
  readonly calls: readonly (WrittenCall & { readonly form: string })[]
}

/** What of a turn the model's text bears on. */
interface SpokenTurn {
  readonly text: string
  readonly reasoning: string
  readonly toolCalls: readonly ToolCallRequest[]
}

/**
 * The turn with the thoughts of its text as reasoning and the calls of its text as calls, these where the model was offered
 * tools and none came in their field. Where both came the field holds, and what the text repeats is taken out of it.
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
 * The thoughts and the calls of offered tools that `text` holds, in time linear in its length. `history` is what it may
 * quote.
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
  // JSON is no text that could hold a thought: marks in it are content.
  if (marks.length > 0 && isJson(text)) return { text, thinking: '', calls: [] }
  const read = new TextScan(new Reply(text, offered), marks, sources).run()
  if (read.text === text || read.calls.length > 0) return read
  const said = readBareJson(read.text, offered, sources)
  return said === null ? read : { ...said, thinking: read.thinking }
}

/** Goes through a reply once, from one mark of a form or of a thought to the next. */
class TextScan {
  readonly #reply: Reply
  readonly #marks: readonly ThoughtMark[]
  readonly #sources: Sources
  readonly #scan: FormScan
  readonly #prose: Prose
  readonly #closes: readonly ThoughtMark[]
  #nextMark = 0
  #nextClose = 0
  /** Behind the last thought that ended. */
  #start = 0
  /** Where a thought began that never ends. */
  #thoughtFrom: number
  /** The same in the middle of a line: it may be a word of the answer, but no call behind it is carried out. */
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

  /** Where to go on behind a mark of a thought. */
  #passMark(mark: ThoughtMark): number {
    const isQuoted = this.#prose.isQuoted(mark.at)
    if (mark.kind === 'close') {
      // Words of a thought may look like a quotation that takes in its end; what it called must not be carried out.
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

  /** Where to go on behind calls of a form; null where what stands there is none. */
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

  /** The first end of a thought between two places; `from` may not lie before an earlier one. */
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

/** Where the forms' marks stand; each mark is looked for once from each place. */
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

/** What the model was given to read: a call that stands there word for word is quoted, not made. */
class Sources {
  readonly #history: readonly SaidMessage[]
  #texts: readonly string[] | undefined
  #asked = 0

  constructor(history: readonly SaidMessage[]) {
    this.#history = history
  }

  contain(markup: string): boolean {
    // So many quotations are not made by a model that means to call.
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
 * A reply that is nothing but calls as JSON, each with exactly a name and an object of arguments; null for any other. What
 * the history holds word for word is such a reply without calls.
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
