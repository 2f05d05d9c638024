/**
 * Reads calls between special tokens: the forms of kimi, deepseek, gpt-oss and mistral. Refuses a call without a name
 * before its arguments.
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
export const kimiTokens: TokenForm = {
  begin: '<|tool_calls_section_begin|>',
  end: '<|tool_calls_section_end|>',
  callBegin: '<|tool_call_begin|>',
  callEnd: '<|tool_call_end|>',
  head: /^\s*([\w.:-]{1,120})\s*<\|tool_call_argument_begin\|>/,
}

/** `NAME` and a separator, then the arguments; older models add a type before it, and a code fence. */
export const deepseekTokens: TokenForm = {
  begin: '<｜tool▁calls▁begin｜>',
  end: '<｜tool▁calls▁end｜>',
  callBegin: '<｜tool▁call▁begin｜>',
  callEnd: '<｜tool▁call▁end｜>',
  head: /^\s*(?:function\s*<｜tool▁sep｜>\s*)?([\w.:-]{1,120})\s*(?:<｜tool▁sep｜>)?\s*(?:```(?:json)?\s*)?/,
}

/** Reads the calls at `from`, with or without the token before the first. */
export function readTokenCalls(form: TokenForm): (reply: Reply, from: number) => ReadCalls {
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
export const harmonyTokens: TokenForm = {
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
export function readMistralCalls(reply: Reply, from: number): ReadCalls | null {
  const at = skipSpace(reply.text, from + mistralMark.length)
  if (isOpening(reply.text, at)) return readJsonCalls(reply, at, { open: mistralMark, close: '' })
  const head = mistralHead.exec(reply.text.slice(at, at + 400))
  if (head?.[1] === undefined) return null
  const tool = reply.findTool(head[1])
  const read = readArguments(reply, at + head[0].length, mistralMarks)
  const calls = tool === undefined ? [] : [{ name: tool.name, argumentsText: read.json }]
  return { end: read.end, calls, isWhole: read.isWhole }
}
