/**
 * A catalog of observed server quirks. `dresses` are answers with the same content, `quirkTurn`, in different
 * malformed ways; `faults` are answers of status 200 that must never count as complete.
 */
import { delta, done, event, reply, toolDelta } from './model-replies.ts'
import type { ServerReply } from './model-server.ts'

/** The content of every answer in `dresses`; ids differ. */
export const quirkTurn = {
  text: 'Grüße 🎉\nund mehr',
  reasoning: 'hm, 日本',
  calls: [
    { name: 'read_file', arguments: { path: 'ä "1".txt' } },
    { name: 'list_files', arguments: { path: 'b{' } },
  ],
} as const

const [first, second] = quirkTurn.calls
const firstText = JSON.stringify(first.arguments)
const secondText = JSON.stringify(second.arguments)
const plain = reply({
  ...quirkTurn,
  calls: quirkTurn.calls.map((call, at) => ({ ...call, id: `call-${at}` })),
})
const plainText = plain.body as string
const wholeText = plain.whole ?? ''
const spoken = [
  delta({ role: 'assistant', content: '' }),
  delta({ reasoning_content: quirkTurn.reasoning }),
  delta({ content: quirkTurn.text }),
].join('')
const json = { 'content-type': 'application/json' }

/** A valid answer whose calls come in these chunks. */
function calling(...chunks: readonly string[]): ServerReply {
  return { body: `${spoken}${chunks.join('')}${delta({}, 'tool_calls')}${done}` }
}

/** A valid answer with its reasoning at the beginning of its text. */
function thinkingAloud(thought: string): ServerReply {
  const text = delta({ content: `${thought}${quirkTurn.text}` })
  const body = plainText.replace(delta({ reasoning_content: quirkTurn.reasoning }), '')
  return { body: body.replace(delta({ content: quirkTurn.text }), text) }
}

/** Both calls whole, the first one's entry and the second one's. */
function entries(one: object, two: object): [object, object] {
  return [
    { ...one, function: { name: first.name, arguments: firstText } },
    { ...two, function: { name: second.name, arguments: secondText } },
  ]
}

/** The calls in fragments of three characters, each with what `fields` gives for it. */
function fragments(fields: (call: number, piece: number, name: string) => object): string {
  const chunks = quirkTurn.calls.flatMap(({ name, arguments: args }, call) => {
    const text = JSON.stringify(args)
    return Array.from({ length: Math.ceil(text.length / 3) }, (_, piece) => {
      const { function: body = {}, ...rest } = fields(call, piece, name) as { function?: object }
      return toolDelta({ ...rest, function: { ...body, arguments: text.slice(3 * piece, 3 * piece + 3) } })
    })
  })
  return chunks.join('')
}

const named = (piece: number, name: string): object => (piece === 0 ? { function: { name } } : {})

export const dresses: Readonly<Record<string, ServerReply>> = {
  plain,
  'byte by byte': { body: plainText, pieceBytes: 1 },
  'CRLF line ends': { body: plainText.replaceAll('\n', '\r\n'), pieceBytes: [7, 1, 2] },
  'CR line ends': { body: plainText.replaceAll('\n', '\r'), pieceBytes: [5, 1] },
  'a byte order mark': { body: `\uFEFF${plainText}`, pieceBytes: [1, 1, 50] },
  'keep-alive comments': { body: `: hold\n\n${plainText.replaceAll('data:', ': ping\n\ndata:')}` },
  'no space after the colon': { body: plainText.replaceAll('data: ', 'data:') },
  'fields beside data': {
    body: plainText.replaceAll('data: ', 'event: message\nid: 7\nretry: 10\nodd\ndata: '),
  },
  'data over several lines': { body: plainText.replaceAll('"choices":', '\ndata: "choices":\ndata: ') },
  'no [DONE]': { body: plainText.replace(done, '') },
  'no finish': { body: `${spoken}${toolDelta(...entries({ index: 0 }, { index: 1 }))}${done}` },
  'no blank line at the end': { body: plainText.replace(done, '').trimEnd() },
  'another type for the stream': { body: plainText, headers: json },
  'a finish of stop beside calls': { body: plainText.replace('"tool_calls"}', '"stop"}') },
  'usage with choices null': { body: plainText.replace('"choices":[]', '"choices":null') },
  'usage without choices': { body: plainText.replace('"choices":[],', '') },
  'an empty error beside choices': { body: plainText.replaceAll('"choices":', '"error":null,"choices":') },
  'deltas of null': { body: `${delta(null)}${plainText}` },
  'reasoning by its other name': { body: plainText.replaceAll('reasoning_content', 'reasoning') },
  'reasoning by both names': {
    body: plainText.replace(
      delta({ reasoning_content: quirkTurn.reasoning }),
      delta({ reasoning_content: quirkTurn.reasoning, reasoning: quirkTurn.reasoning }),
    ),
  },
  'thinking within the text': thinkingAloud(`<think>${quirkTurn.reasoning}</think>\n`),
  'thinking whose beginning the server took out': thinkingAloud(`${quirkTurn.reasoning}</think>\n\n`),
  'thinking of seed-oss within the text': thinkingAloud(`<seed:think>${quirkTurn.reasoning}</seed:think>`),
  'thinking of mistral within the text': thinkingAloud(`[THINK]${quirkTurn.reasoning}[/THINK]`),
  'thinking of kimi within the text': thinkingAloud(`◁think▷${quirkTurn.reasoning}◁/think▷`),
  'the channels of gpt-oss within the text': thinkingAloud(
    `<|channel|>analysis<|message|>${quirkTurn.reasoning}<|start|>assistant<|channel|>final<|message|>`,
  ),
  'text as a list of parts': {
    body: plainText.replace(
      delta({ content: quirkTurn.text }),
      delta({ content: [{ type: 'text', text: quirkTurn.text }] }),
    ),
  },
  'whole JSON in place of a stream': { body: wholeText, headers: json, pieceBytes: 11 },
  'whole JSON under the type of a stream': { body: ` \r\n${wholeText}`, pieceBytes: 1 },

  'both calls in one chunk': calling(toolDelta(...entries({ index: 0, id: 'a' }, { index: 1, id: 'b' }))),
  'fragments of two calls interleaved': calling(
    toolDelta(
      { index: 0, id: 'a', function: { name: first.name } },
      { index: 1, id: 'b', function: { name: second.name } },
    ),
    toolDelta({ index: 1, function: { arguments: secondText.slice(0, 4) } }),
    toolDelta({ index: 0, function: { arguments: firstText } }),
    toolDelta({ index: 1, function: { arguments: secondText.slice(4) } }),
  ),
  'arguments as objects': calling(
    toolDelta({ index: 0, id: 'a', function: first }),
    toolDelta({ index: 1, id: 'b', function: second }),
  ),
  'a null before the arguments': calling(
    toolDelta({ index: 0, id: 'a', function: { name: first.name, arguments: null } }),
    toolDelta({ index: 0, function: { arguments: firstText } }),
    toolDelta({ index: 1, id: 'b', function: second }),
  ),
  'no ids': calling(fragments((index, piece, name) => ({ index, ...named(piece, name) }))),
  'blank ids': calling(fragments((index, piece, name) => ({ index, id: ' ', ...named(piece, name) }))),
  'ids on every fragment': calling(
    fragments((index, piece, name) => ({ index, id: `c${index}`, ...named(piece, name) })),
  ),
  'names on every fragment': calling(
    fragments((index, _piece, name) => ({ index, id: `c${index}`, function: { name } })),
  ),
  'no indices, ids at the start': calling(
    fragments((call, piece, name) => (piece === 0 ? { id: `c${call}`, function: { name } } : {})),
  ),
  'no indices, ids on every fragment': calling(
    fragments((call, piece, name) => ({ id: `c${call}`, ...named(piece, name) })),
  ),
  'neither indices nor ids': calling(fragments((_call, piece, name) => named(piece, name))),
  'index 0 for all, with ids': calling(
    fragments((call, piece, name) => ({ index: 0, id: `c${call}`, ...named(piece, name) })),
  ),
  'index 0 for all, no ids': calling(
    fragments((_call, piece, name) => ({ index: 0, ...named(piece, name) })),
  ),
  'index 0 for all, ids at the start': calling(
    fragments((call, piece, name) =>
      piece === 0 ? { index: 0, id: `c${call}`, function: { name } } : { index: 0 },
    ),
  ),
  'indices from 1': calling(toolDelta(...entries({ index: 1, id: 'a' }, { index: 2, id: 'b' }))),
  'an entry of neither a name nor arguments': calling(
    toolDelta(...entries({ index: 0, id: 'a' }, { index: 1, id: 'b' }), {
      index: 2,
      function: { name: ' ' },
    }),
  ),
  'an entry of a tool that the server runs': calling(
    toolDelta({ index: 7, id: 's', type: 'web_search', web_search: { query: 'x' } }),
    toolDelta(...entries({ index: 0, id: 'a' }, { index: 1, id: 'b' })),
  ),
  'a tail without content': calling(
    toolDelta(...entries({ index: 0, id: 'a' }, { index: 1, id: 'b' })),
    toolDelta({ index: 1, id: '', function: { name: '', arguments: '' } }),
  ),
}

export type Fault = keyof typeof faults

export const faults = {
  'no bytes': { body: '' },
  'comments alone': { body: ': ping\n\n: ping\n\n' },
  'empty choices alone': { body: `${event({ choices: [] })}${done}` },
  'only [DONE]': { body: done },
  'an end without finish': { body: spoken },
  'an end within an event': { body: plainText.slice(0, plainText.length >> 1) },
  'a connection closed in the middle': { body: spoken, after: 'cut' },
  'a connection reset in the middle': { body: spoken, after: 'reset' },
  'a connection reset before the head': { body: '', before: 'reset' },
  'a body shorter than its length': { body: spoken, headers: { 'content-length': '99999' }, after: 'cut' },
  'silence before the head': { body: '', before: 'hang' },
  'silence after the head': { body: '', after: 'hang' },
  'silence behind comments': {
    body: `${spoken}${': ping\n\n'.repeat(200)}`,
    pieceBytes: 8,
    pauseMs: 5,
    after: 'hang',
  },
  'silence within whole JSON': { body: wholeText.slice(0, 40), headers: json, after: 'hang' },
  'an event that is not JSON': { body: `${spoken}data: {oops\n\n${done}` },
  'text that is no stream': { body: 'upstream connect error\n' },
  'whole JSON cut off': { body: wholeText.slice(0, -30), headers: json },
  'JSON without a completion': { body: '{"ok":true}', headers: json },
  'an HTML page': {
    body: '<html><head><title>Sign in</title></head></html>',
    headers: { 'content-type': 'text/html' },
  },
  'an HTML page under the type of a stream': { body: '\n<!DOCTYPE html><title>Sign in</title>' },
  'an error object': {
    body: `${spoken}${event({ error: { message: 'Worker local total request limit reached (33/32)', type: 'ResourceExhausted', code: 500 } })}${done}`,
  },
  'a flat error object': {
    body: `${spoken}${event({ object: 'error', message: 'gone wrong', type: 'BadRequestError', code: 400 })}`,
  },
  'an error beside choices': {
    body: `${spoken}${event({ error: { code: 502, message: 'provider failed' }, choices: [{ index: 0, delta: { content: '' }, finish_reason: 'error' }] })}${done}`,
  },
  'an error as text': { body: `${spoken}${event({ error: 'overloaded' })}` },
  'an event of the name error': {
    body: `${spoken}event: error\ndata: {"message":"went away","code":503}\n\n`,
  },
  'an error in place of a stream': {
    body: '{"error":{"message":"no such model","code":404}}',
    headers: json,
  },
  'a finish of error': { body: `${spoken}${delta({}, 'error')}${done}` },
  'a call without a name': {
    body: `${spoken}${toolDelta({ index: 0, id: 'a', function: { arguments: firstText } })}${delta({}, 'tool_calls')}${done}`,
  },
  'a call with a blank name and no arguments': {
    body: `${spoken}${toolDelta({ index: 0, id: 'a', function: { name: ' ' } })}${delta({}, 'tool_calls')}${done}`,
  },
  'arguments without a name beside a call': {
    body: `${spoken}${toolDelta({ index: 0, id: 'a', function: { name: first.name } })}${toolDelta({ index: 1, function: { arguments: firstText } })}${delta({}, 'tool_calls')}${done}`,
  },
  'a call without a name in an answer that ends as text': {
    body: `${spoken}${toolDelta({ index: 0, function: { name: null, arguments: firstText } })}${delta({}, 'stop')}${done}`,
  },
  'arguments cut off': {
    body: `${spoken}${toolDelta({ index: 0, id: 'a', function: { name: first.name, arguments: firstText.slice(0, -3) } })}${delta({}, 'tool_calls')}${done}`,
  },
} as const satisfies Readonly<Record<string, ServerReply>>
