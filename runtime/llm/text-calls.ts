/**
 * Calls that a model wrote into its text instead of the field for them, as models do whose server has no parser for their
 * form. One table of the known forms; only exact names of offered tools count, and nothing that is quoted: in code, behind
 * a quotation mark, or word for word from what a tool or the user said. What is no call stays text.
 */
import {
  callOf,
  isOpening,
  type ReadCalls,
  Reply,
  readJsonCalls,
  readTaggedCall,
  skipSpace,
  skipWord,
  type Tags,
  type WrittenCall,
} from './call-readers.ts'
import type { Turn } from './client.ts'
import type { ToolSpec } from './messages.ts'
import { Prose } from './prose.ts'
import { parseModelJson } from './repair.ts'
import { deepseekTokens, kimiTokens, readMistralCalls, readTokenCalls } from './token-readers.ts'

/** One way of writing calls into text. */
interface TextForm {
  /** Who writes so, for people. */
  readonly name: string
  /** What every call of the form begins with. */
  readonly find: string
  /** The calls that begin at `at`, where `find` stands; null when what follows is not of this form. */
  readonly parse: (reply: Reply, at: number) => ReadCalls | null
}

const functionTags: Tags = {
  call: '<function=',
  callEnd: '</function>',
  parameter: '<parameter=',
  parameterEnd: '</parameter>',
}
const invokeTags: Tags = {
  call: '<invoke name=',
  callEnd: '</invoke>',
  parameter: '<parameter name=',
  parameterEnd: '</parameter>',
}
const dsmlTags: Tags = {
  call: '<｜DSML｜invoke name=',
  callEnd: '</｜DSML｜invoke>',
  parameter: '<｜DSML｜parameter name=',
  parameterEnd: '</｜DSML｜parameter>',
}

/** The known forms, by what they begin with; of several that begin alike the first that fits is taken. */
const forms: readonly TextForm[] = [
  // <TOOLCALL>[{"name":…,"arguments":{…}}]</TOOLCALL>
  json('nemotron', '<TOOLCALL>', '</TOOLCALL>'),
  // <tool_call>{"name":…,"arguments":{…}}</tool_call>
  json('hermes', '<tool_call>', '</tool_call>'),
  // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>, also without the outer tag
  tagged('qwen', '<tool_call>', '</tool_call>', functionTags),
  tagged('qwen', '', '', functionTags),
  // <|python_tag|>{"name":…,"parameters":{…}}; {…}   (and the bare JSON alone: readBareJson)
  json('llama', '<|python_tag|>', '<|eom_id|>'),
  // <|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>…
  { name: 'kimi', find: kimiTokens.begin, parse: readTokenCalls(kimiTokens) },
  { name: 'kimi', find: kimiTokens.callBegin, parse: readTokenCalls(kimiTokens) },
  // <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…
  { name: 'deepseek', find: deepseekTokens.begin, parse: readTokenCalls(deepseekTokens) },
  { name: 'deepseek', find: deepseekTokens.callBegin, parse: readTokenCalls(deepseekTokens) },
  // <｜DSML｜function_calls><｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE</…></…></…>
  tagged('deepseek', '<｜DSML｜function_calls>', '</｜DSML｜function_calls>', dsmlTags),
  // <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke></minimax:tool_call>
  tagged('minimax', '<minimax:tool_call>', '</minimax:tool_call>', invokeTags),
  // <tool_calls>, then one {"name":…,"arguments":{…}} a line
  json('minimax', '<tool_calls>', '</tool_calls>'),
  // [TOOL_CALLS][{"name":…,"arguments":{…}}] or [TOOL_CALLS]NAME[ARGS]{…}
  { name: 'mistral', find: '[TOOL_CALLS]', parse: readMistralCalls },
]

function json(name: string, open: string, close: string): TextForm {
  return {
    name,
    find: open,
    parse(reply, at) {
      const from = skipSpace(reply.text, at + open.length)
      return isOpening(reply.text, from) ? readJsonCalls(reply, from, close) : null
    },
  }
}

function tagged(name: string, open: string, close: string, tags: Tags): TextForm {
  return {
    name,
    find: open === '' ? tags.call : open,
    parse(reply, at) {
      const { text } = reply
      const calls: WrittenCall[] = []
      let from = skipSpace(text, at + open.length)
      if (!text.startsWith(tags.call, from)) return null
      let end = from
      while (text.startsWith(tags.call, from) && !reply.isHopeless) {
        const read = readTaggedCall(reply, from, tags)
        calls.push(...read.calls)
        end = read.end
        from = skipSpace(text, end)
      }
      return { end: close === '' ? end : skipWord(text, end, close), calls }
    },
  }
}

/** Marks of the end that servers leave behind calls. */
const endMarks = ['<|eom_id|>', '<|eot_id|>', '<|im_end|>', '</s>', '<｜end▁of▁sentence｜>']
/** As many as the client takes in their own field; more are left as text. */
const callsMaxCount = 128
/** Longer replies are not looked through: no tool takes that much. */
const replyMaxChars = 2 * 1024 * 1024

/** What of a message is looked at. */
export interface SaidMessage {
  readonly role: string
  readonly content: string
}

export interface FoundCalls {
  /** The reply without the calls; the reply itself when there are none. */
  readonly text: string
  readonly calls: readonly (WrittenCall & { readonly form: string })[]
}

/**
 * The turn with the calls of its text as calls, where the model was offered tools and none came in their field. Where
 * both came the field holds, and what the text repeats is taken out of it.
 */
export function takeTextCalls(
  turn: Turn,
  request: { readonly messages: readonly SaidMessage[]; readonly tools: readonly ToolSpec[] },
): Turn {
  const { text, calls } = findTextCalls(turn.text, request.tools, request.messages)
  if (calls.length === 0) return turn
  if (turn.toolCalls.length > 0) return { ...turn, text }
  const toolCalls = calls.map(({ name, argumentsText, form }) => ({
    id: '',
    name,
    argumentsText,
    writtenAs: form,
  }))
  return { ...turn, text, toolCalls }
}

/** The calls of offered tools that `text` holds, in time linear in its length. `history` is what it may quote. */
export function findTextCalls(
  text: string,
  tools: readonly ToolSpec[],
  history: readonly SaidMessage[] = [],
): FoundCalls {
  if (tools.length === 0 || text.length > replyMaxChars) return { text, calls: [] }
  const reply = new Reply(text, tools)
  const sources = new Sources(history)
  const bare = readBareJson(reply)
  if (bare.length > 0) {
    if (sources.contain(text)) return { text, calls: [] }
    return { text: '', calls: bare.map((call) => ({ ...call, form: 'llama' })) }
  }
  const scan = new FormScan(text)
  const prose = new Prose(text)
  const kept: string[] = []
  const calls: FoundCalls['calls'][number][] = []
  let keptFrom = 0
  let found = scan.next(0, -1)
  while (found !== null && !reply.isHopeless) {
    const { at, index } = found
    const form = forms[index]
    const read = form === undefined || prose.isQuoted(at) ? null : form.parse(reply, at)
    if (form === undefined || read === null) {
      found = scan.next(at, index)
      continue
    }
    if (calls.length + read.calls.length > callsMaxCount) break
    if (read.calls.length > 0 && !sources.contain(text.slice(at, read.end))) {
      kept.push(text.slice(keptFrom, at))
      keptFrom = skipEndMarks(text, read.end)
      calls.push(...read.calls.map((call) => ({ ...call, form: form.name })))
    }
    prose.skipTo(read.end)
    found = scan.next(Math.max(read.end, at + 1), -1)
  }
  if (calls.length === 0) return { text, calls: [] }
  return { text: [...kept, text.slice(keptFrom)].join('').trim(), calls }
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

/** A reply that is nothing but calls as JSON, each with exactly a name and an object of arguments; else none. */
function readBareJson(reply: Reply): WrittenCall[] {
  const { text } = reply
  const calls: WrittenCall[] = []
  let at = skipSpace(text, 0)
  while (isOpening(text, at)) {
    const end = reply.endOfGroup(at)
    const parsed = end < 0 ? null : parseModelJson(text.slice(at, end), { dropProse: false })
    if (parsed?.ok !== true) return []
    for (const value of [parsed.value.value].flat()) {
      const call = callOf(value, reply)
      if (call?.isExact !== true || calls.length >= callsMaxCount) return []
      calls.push(call)
    }
    at = skipSpace(text, skipWord(text, skipEndMarks(text, end), ';'))
  }
  return at >= text.length ? calls : []
}

function skipEndMarks(text: string, from: number): number {
  for (let at = from; ; ) {
    const next = skipSpace(text, at)
    const mark = endMarks.find((one) => text.startsWith(one, next))
    if (mark === undefined) return at
    at = next + mark.length
  }
}
