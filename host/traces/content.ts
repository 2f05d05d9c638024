/**
 * Content of spans: prompts, answers, arguments and outputs, in the form of the GenAI conventions. Only where the user
 * asked for it, without known keys, and cut.
 */
import type { Attributes } from './span.ts'

/** Makes text fit for a span: takes keys out, then cuts. */
export type ContentFilter = (text: string) => string

/** Characters of one text; also of each part of a message. */
const contentMaxChars = 8_192
const partsMaxCount = 64

/** @param redact takes known keys out */
export function createContentFilter(redact: (text: string) => string): ContentFilter {
  return (text) => {
    // First the keys: the half of a key that a cut leaves would not be found.
    const clean = redact(text).toWellFormed()
    if (clean.length <= contentMaxChars) return clean
    const kept = clean.slice(0, contentMaxChars).toWellFormed()
    return `${kept}… [${clean.length - contentMaxChars} characters cut]`
  }
}

/** What an agent was asked. */
export function inputOf(prompt: string, filter: ContentFilter | undefined): Attributes {
  if (filter === undefined) return {}
  return messages('gen_ai.input.messages', [
    { role: 'user', parts: [{ type: 'text', content: filter(prompt) }] },
  ])
}

/** What an agent answered. */
export function outputOf(text: string, filter: ContentFilter | undefined): Attributes {
  if (filter === undefined || text === '') return {}
  const parts = [{ type: 'text', content: filter(text) }]
  return messages('gen_ai.output.messages', [{ role: 'assistant', parts, finish_reason: 'stop' }])
}

/** What a model answered in one turn. The arguments of its calls are in the spans of the tools. */
export function answerOf(
  turn: {
    readonly text: string
    readonly reasoning?: string | undefined
    readonly calls: readonly { readonly callId: string; readonly tool: string }[]
    readonly finishReason: string
  },
  filter: ContentFilter | undefined,
): Attributes {
  if (filter === undefined) return {}
  const { text, reasoning = '', calls, finishReason } = turn
  const parts = [
    ...(reasoning === '' ? [] : [{ type: 'reasoning', content: filter(reasoning) }]),
    ...(text === '' ? [] : [{ type: 'text', content: filter(text) }]),
    ...calls
      .slice(0, partsMaxCount)
      .map(({ callId, tool }) => ({ type: 'tool_call', id: callId, name: filter(tool) })),
  ]
  return messages('gen_ai.output.messages', [{ role: 'assistant', parts, finish_reason: finishReason }])
}

/** What a tool was given. */
export function argumentsOf(text: string, filter: ContentFilter | undefined): Attributes {
  return filter === undefined ? {} : { 'gen_ai.tool.call.arguments': filter(text) }
}

/** What a tool gave. */
export function resultOf(text: string, filter: ContentFilter | undefined): Attributes {
  return filter === undefined ? {} : { 'gen_ai.tool.call.result': filter(text) }
}

/** The conventions allow a span to hold messages as JSON. */
function messages(name: string, list: readonly object[]): Attributes {
  return { [name]: JSON.stringify(list) }
}
