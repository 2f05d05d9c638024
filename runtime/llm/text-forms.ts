/**
 * The forms in which models write calls into text when their server has no parser: one table with a reader each.
 * `text-calls.ts` decides whether a call is intended.
 */
import { isOpening, type ReadCalls, type Reply, readJsonCalls, skipSpace, skipWord } from './call-readers.ts'
import { readTaggedCalls, type Tags } from './tag-readers.ts'
import {
  deepseekTokens,
  harmonyTokens,
  kimiTokens,
  readMistralCalls,
  readTokenCalls,
} from './token-readers.ts'

/** One way of writing calls into text. */
export interface TextForm {
  /** Models that use the form, for people. */
  readonly name: string
  /** Start mark of every call of the form. */
  readonly find: string
  /** Reads the calls at `at`, where `find` was found; null when the form does not match. */
  readonly parse: (reply: Reply, at: number) => ReadCalls | null
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
