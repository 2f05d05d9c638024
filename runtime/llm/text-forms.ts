/**
 * The forms in which models write calls into text when their server has no parser: one table with a reader each.
 * Refuses a call without a name before its arguments.
 * `text-calls.ts` decides whether a call is intended.
 */
import {
  isOpening,
  type ReadCalls,
  type Reply,
  readArguments,
  readJsonCalls,
  skipSpace,
  skipWord,
  type WrittenCall,
} from './call-readers.ts'
import { readTaggedCalls, type Tags } from './tag-readers.ts'

/** One way of writing calls into text. */
export interface TextForm {
  /** Models that use the form, for people. */
  readonly name: string
  /** Start mark of every call of the form. */
  readonly find: string
  /** Reads the calls at `at`, where `find` was found; null when the form does not match. */
  readonly parse: (reply: Reply, at: number) => ReadCalls | null
}

/** Tokens around the calls of a reply. */
interface TokenForm {
  readonly begin: string
  readonly end: string
  readonly callBegin: string
  readonly callEnd: string
  /** Matches from `callBegin` to the arguments; its first group is the name. */
  readonly head: RegExp
}

/** `functions.NAME:0`, then the arguments. */
const kimiTokens: TokenForm = {
  begin: '<|tool_calls_section_begin|>',
  end: '<|tool_calls_section_end|>',
  callBegin: '<|tool_call_begin|>',
  callEnd: '<|tool_call_end|>',
  head: /^\s*([\w.:-]{1,120})\s*<\|tool_call_argument_begin\|>/,
}

/** `NAME` and a separator, then the arguments; older models add a type before it, and a code fence. */
const deepseekTokens: TokenForm = {
  begin: '<｜tool▁calls▁begin｜>',
  end: '<｜tool▁calls▁end｜>',
  callBegin: '<｜tool▁call▁begin｜>',
  callEnd: '<｜tool▁call▁end｜>',
  head: /^\s*(?:function\s*<｜tool▁sep｜>\s*)?([\w.:-]{1,120})\s*(?:<｜tool▁sep｜>)?\s*(?:```(?:json)?\s*)?/,
}

/** Reads the calls at `from`, with or without the token before the first. */
function readTokenCalls(form: TokenForm): (reply: Reply, from: number) => ReadCalls {
  return (reply, from) => {
    const { text } = reply
    const calls: WrittenCall[] = []
    let isWhole = true
    let at = form.begin === '' ? from : skipSpace(text, skipWord(text, from, form.begin))
    while (text.startsWith(form.callBegin, at) && !reply.isHopeless) {
      const start = at + form.callBegin.length
      const head = form.head.exec(text.slice(start, start + 400))
      if (head?.[1] === undefined) return { end: start, calls, isWhole: false }
      const tool = reply.findTool(head[1])
      const marks = { open: form.callBegin, close: form.callEnd }
      const read = readArguments(reply, start + head[0].length, marks)
      isWhole &&= read.isWhole
      if (tool !== undefined) calls.push({ name: tool.name, argumentsText: read.json })
      at = skipSpace(text, skipWord(text, read.end, form.callEnd))
    }
    return { end: form.end === '' ? at : skipWord(text, at, form.end), calls, isWhole }
  }
}

/** `NAME`, a marker for JSON, then the arguments; text for the person has no name there. */
const harmonyTokens: TokenForm = {
  begin: '',
  end: '',
  callBegin: '<|channel|>commentary to=',
  callEnd: '<|call|>',
  head: /^([\w.:-]{1,120})\s*(?:<\|constrain\|>)?\s*(?:json)?\s*<\|message\|>/,
}

const mistralMark = '[TOOL_CALLS]'
const mistralMarks = { open: mistralMark, close: mistralMark }
const mistralHead = /^([\w.-]{1,120})\s*(?:\[CALL_ID\]\s*[\w-]{1,64}\s*)?(?:\[ARGS\]\s*)?(?=\{)/

/** A list of calls as JSON; newer models write a name, then the arguments. */
function readMistralCalls(reply: Reply, from: number): ReadCalls | null {
  const at = skipSpace(reply.text, from + mistralMark.length)
  if (isOpening(reply.text, at)) return readJsonCalls(reply, at, { open: mistralMark, close: '' })
  const head = mistralHead.exec(reply.text.slice(at, at + 400))
  if (head?.[1] === undefined) return null
  const tool = reply.findTool(head[1])
  const read = readArguments(reply, at + head[0].length, mistralMarks)
  const calls = tool === undefined ? [] : [{ name: tool.name, argumentsText: read.json }]
  return { end: read.end, calls, isWhole: read.isWhole }
}

const functionTags: Tags = {
  call: '<function=',
  callEnd: '</function>',
  parameter: '<parameter=',
  parameterEnd: '</parameter>',
  isPadded: true,
}
const invokeTags: Tags = {
  call: '<invoke name=',
  callEnd: '</invoke>',
  parameter: '<parameter name=',
  parameterEnd: '</parameter>',
  isPadded: true,
}
/** The known forms by start mark; of several with the same mark the first match applies. */
export const forms: readonly TextForm[] = [
  // <TOOLCALL>[{"name":…,"arguments":{…}}]</TOOLCALL>
  json('nemotron', '<TOOLCALL>', '</TOOLCALL>'),
  // <tool_call>{"name":…,"arguments":{…}}</tool_call>
  json('hermes', '<tool_call>', '</tool_call>'),
  // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>, also without the outer tag
  tagged('qwen', '<tool_call>', '</tool_call>', functionTags),
  tagged('seed-oss', '<seed:tool_call>', '</seed:tool_call>', functionTags),
  tagged('qwen', '', '', functionTags),
  // <|python_tag|>{"name":…,"parameters":{…}}; {…}   (and the bare JSON alone: readBareJson)
  json('llama', '<|python_tag|>', '<|eom_id|>'),
  // <|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>…
  { name: 'kimi', find: kimiTokens.begin, parse: readTokenCalls(kimiTokens) },
  { name: 'kimi', find: kimiTokens.callBegin, parse: readTokenCalls(kimiTokens) },
  // <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>…
  { name: 'deepseek', find: deepseekTokens.begin, parse: readTokenCalls(deepseekTokens) },
  { name: 'deepseek', find: deepseekTokens.callBegin, parse: readTokenCalls(deepseekTokens) },
  // <｜DSML｜tool_calls><｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE</…></…></…>
  ...['｜', '｜｜', '|', '||', '‖'].flatMap((bar) => [dsml(`${bar}DSML${bar} `), dsml(`${bar}DSML${bar}`)]),
  // <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
  { name: 'gpt-oss', find: harmonyTokens.callBegin, parse: readTokenCalls(harmonyTokens) },
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
      return isOpening(reply.text, from) ? readJsonCalls(reply, from, { open, close }) : null
    },
  }
}

function tagged(name: string, open: string, close: string, tags: Tags): TextForm {
  return {
    name,
    find: open === '' ? tags.call : open,
    parse: (reply, at) => readWrapped(reply, at, [open, close], tags),
  }
}

/**
 * Tags of DeepSeek's own markup; `mark` is what stands within their brackets. Around the calls it writes `function_calls`
 * (V3.2), `tool_calls` (V4), other names by mistake, or nothing; some servers change the bars.
 */
function dsml(mark: string): TextForm {
  const tags: Tags = {
    call: `<${mark}invoke name=`,
    callEnd: `</${mark}invoke>`,
    parameter: `<${mark}parameter name=`,
    parameterEnd: `</${mark}parameter>`,
    isPadded: false,
  }
  return {
    name: 'deepseek',
    find: `<${mark}`,
    parse(reply, at) {
      const start = at + mark.length + 1
      const word = /^(?:function_calls|tool_calls|calls)(?=>)/.exec(reply.text.slice(start, start + 20))?.[0]
      const wrapper: [string, string] =
        word === undefined ? ['', ''] : [`<${mark}${word}>`, `</${mark}${word}>`]
      return readWrapped(reply, at, wrapper, tags)
    },
  }
}

/** Calls in tags, with or without outer tags. */
function readWrapped(
  reply: Reply,
  at: number,
  [open, close]: readonly [string, string],
  tags: Tags,
): ReadCalls | null {
  const from = skipSpace(reply.text, at + open.length)
  if (!reply.text.startsWith(tags.call, from)) return null
  const read = readTaggedCalls(reply, from, tags)
  return close === '' ? read : { ...read, end: skipWord(reply.text, read.end, close) }
}
