// Gemini's protocol: golden bytes in, the request's shape out, against a server on loopback.
import { describe, expect, it } from 'vitest'
import type { LLMChatMessage } from '../../contract/contract.ts'
import { askKind, readGolden, testKey, weather } from './support.ts'

const golden = readGolden('google-tools.sse')
const ending = (finishReason: string, parts: unknown[] = [{ text: 'hi' }]) =>
  `data: ${JSON.stringify({ candidates: [{ content: { parts }, finishReason }] })}\n\n`

const question: LLMChatMessage[] = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'Paris?' },
]

interface Sent {
  contents: { role: string; parts: Record<string, unknown>[] }[]
  generationConfig: Record<string, unknown>
  [field: string]: unknown
}

async function askGolden(extra: object = {}) {
  const result = await askKind('google', [{ body: golden }], {
    model: 'gemini-3-pro',
    messages: question,
    tools: weather,
    ...extra,
  })
  return { answer: result.answer, asked: result.asked, sent: result.asked[0]?.body as unknown as Sent }
}

describe('answers of Gemini', () => {
  it('become text, thoughts, calls with ids of ours, and tokens, whatever the bytes are cut into [S2.06] [S2.08]', async () => {
    for (const pieceBytes of [1, 7, 4_096]) {
      const { answer } = await askKind('google', [{ body: golden, pieceBytes }], { tools: weather })
      if (!answer.ok) throw answer.error
      expect(answer.value).toMatchObject({
        type: 'tool_calls',
        content: 'I look — naïve 日本語.',
        stopKind: 'tool',
        usage: { inputTokens: 115, outputTokens: 45, reasoningTokens: 15 },
        tool_calls: [
          { function: { name: 'get_weather', arguments: '{"city":"Paris"}' } },
          { function: { name: 'now', arguments: '{}' } },
        ],
        assistantMessage: { reasoning_content: 'Two cities, two calls.' },
      })
      const ids = answer.value.tool_calls?.map(({ id }) => id) ?? []
      expect(new Set(ids).size).toBe(2)
      for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9]{9}$/)
    }
  })

  it('say why they stopped in the words of all providers [S2.08]', async () => {
    const kinds: Record<string, string> = {}
    for (const reason of ['STOP', 'MAX_TOKENS', 'SAFETY', 'RECITATION', 'PROHIBITED_CONTENT', 'OTHER']) {
      const { answer } = await askKind('google', [{ body: ending(reason) }])
      kinds[reason] = answer.ok ? answer.value.stopKind : 'failed'
    }
    expect(kinds).toEqual({
      STOP: 'natural',
      MAX_TOKENS: 'length',
      SAFETY: 'content_filter',
      RECITATION: 'content_filter',
      PROHIBITED_CONTENT: 'content_filter',
      OTHER: 'unknown',
    })
    const blocked =
      'data: {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}\n\n'
    const { answer } = await askKind('google', [{ body: blocked }])
    expect(answer).toMatchObject({
      ok: true,
      value: { type: 'text', content: '', stopKind: 'content_filter' },
    })
  })

  it('that break off or report an error are failures with a code [S2.06]', async () => {
    const open = 'data: {"candidates":[{"content":{"parts":[{"text":"hi"}]}}]}\n\n'
    const error = (code: number, status: string) => JSON.stringify({ error: { code, message: 'no', status } })
    const codes = []
    for (const reply of [
      { body: open },
      { body: `${open}data: ${error(503, 'UNAVAILABLE')}\n\n` },
      { body: ending('MALFORMED_FUNCTION_CALL', []) },
      { status: 429, body: `[${error(429, 'RESOURCE_EXHAUSTED')}]` },
      { status: 400, body: error(400, 'INVALID_ARGUMENT') },
      { status: 404, body: error(404, 'NOT_FOUND') },
    ]) {
      const { answer } = await askKind('google', [reply])
      codes.push(answer.ok ? 'no error' : (answer.error as { kind: string }).kind)
    }
    expect(codes).toEqual([
      'truncated',
      'overloaded',
      'broken',
      'rate_limited',
      'invalid_request',
      'not_found',
    ])
  })
})

/** Chunks with one part each, the last with the finish. */
function chunksOf(parts: readonly unknown[], finishReason = 'STOP'): string {
  return parts
    .map((part, at) => {
      const finish = at === parts.length - 1 ? { finishReason } : {}
      return `data: ${JSON.stringify({ candidates: [{ content: { parts: [part] }, ...finish }] })}\n\n`
    })
    .join('')
}

const piece = (jsonPath: string, value: object, willContinue = false) => ({
  functionCall: {
    partialArgs: [{ jsonPath, ...value, ...(willContinue ? { willContinue } : {}) }],
    willContinue: true,
  },
})

describe('arguments of Gemini in pieces', () => {
  const begun = { functionCall: { name: 'get_weather', willContinue: true }, thoughtSignature: 'c2ln' }
  const end = { functionCall: {} }

  it('become one call with its name, whatever their places [S2.06] [S2.08]', async () => {
    const body = chunksOf([
      begun,
      piece('$.city', { stringValue: 'Pa' }, true),
      piece('$.city', { stringValue: 'ris' }, true),
      piece('$.city', {}),
      piece('$.days[0].from', { numberValue: 1 }),
      piece("$['days'][0]['is \\'so\\'']", { boolValue: false }),
      piece('$.days[1]', { nullValue: 'NULL_VALUE' }),
      end,
      { functionCall: { name: 'now', args: {} } },
      { text: '' },
    ])
    const { answer } = await askKind('google', [{ body }], { tools: weather })
    if (!answer.ok) throw answer.error
    const [first, second] = answer.value.tool_calls ?? []
    expect(first?.function.name).toBe('get_weather')
    expect(JSON.parse(first?.function.arguments ?? '')).toEqual({
      city: 'Paris',
      days: [{ from: 1, "is 'so'": false }, null],
    })
    expect(second?.function).toEqual({ name: 'now', arguments: '{}' })
    expect(answer.value.assistantMessage.provider_state).toMatchObject({ calls: ['c2ln', null] })
  })

  it.each([
    ['a piece without a call', [piece('$.city', { stringValue: 'x' }), { text: 'hi' }], 'nameless_call'],
    ['a call without a name', [{ functionCall: { args: { city: 'x' } } }], 'nameless_call'],
    ['a text that does not end', [begun, piece('$.city', { stringValue: 'Pa' }, true)], 'broken'],
    ['a call within another', [begun, { functionCall: { name: 'now', args: {} } }], 'broken'],
    ['a path that is none', [begun, piece('city', { stringValue: 'x' }), end], 'broken'],
    ['a path that skips places', [begun, piece('$.a[5]', { stringValue: 'x' }), end], 'broken'],
    ['a path to a prototype', [begun, piece('$.__proto__.x', { stringValue: 'x' }), end], 'broken'],
  ])('with %s are no call [S2.06] [S2.08]', async (_name, parts, kind) => {
    const { answer } = await askKind('google', [{ body: chunksOf(parts) }], { tools: weather })
    expect(answer).toMatchObject({ ok: false, error: { kind } })
  })

  it('leave out the call that the bound of tokens cut off, and what the server ran itself [S2.06] [S2.08]', async () => {
    const parts = [
      { executableCode: { language: 'PYTHON', code: '1+1' } },
      { codeExecutionResult: { outcome: 'OUTCOME_OK', output: '2' } },
      { toolCall: { toolType: 'GOOGLE_SEARCH_WEB', id: 's', args: {} } },
      { text: 'Two.' },
      begun,
      piece('$.city', { stringValue: 'Pa' }, true),
    ]
    const { answer } = await askKind('google', [{ body: chunksOf(parts, 'MAX_TOKENS') }], { tools: weather })
    expect(answer).toMatchObject({ ok: true, value: { type: 'text', content: 'Two.', stopKind: 'length' } })
  })
})

describe('requests to Gemini', () => {
  it('carry the key in a header, the model in the path and system text apart [S2.06]', async () => {
    const { asked, sent } = await askGolden()
    expect(asked[0]).toMatchObject({
      path: '/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse',
      headers: { 'x-goog-api-key': testKey },
    })
    expect(sent).toEqual({
      systemInstruction: { parts: [{ text: 'Be brief.' }] },
      contents: [{ role: 'user', parts: [{ text: 'Paris?' }] }],
      tools: [
        {
          functionDeclarations: [
            { name: 'get_weather', description: 'The weather', parameters: weather.get_weather.parameters },
            { name: 'now', description: 'The time' },
          ],
        },
      ],
      generationConfig: { maxOutputTokens: 16_384 },
    })
  })

  it('bring calls with the signatures they came with, and results by the name of their call [S2.06] [S2.08]', async () => {
    const { answer } = await askGolden()
    if (!answer.ok) throw answer.error
    const [first, second] = answer.value.tool_calls ?? []
    const { sent } = await askGolden({
      messages: [
        ...question,
        JSON.parse(JSON.stringify(answer.value.assistantMessage)) as LLMChatMessage,
        { role: 'tool', tool_call_id: first?.id, content: 'sun' },
        { role: 'tool', tool_call_id: second?.id, content: 'noon' },
        { role: 'system', content: 'Hurry.' },
      ],
    })
    expect(sent.contents.slice(1)).toEqual([
      {
        role: 'model',
        parts: [
          { text: 'I look — naïve 日本語.', thoughtSignature: 'dGV4dA==' },
          { functionCall: { name: 'get_weather', args: { city: 'Paris' } }, thoughtSignature: 'Y2FsbA==' },
          { functionCall: { name: 'now', args: {} } },
        ],
      },
      {
        role: 'user',
        parts: [
          { functionResponse: { name: 'get_weather', response: { result: 'sun' } } },
          { functionResponse: { name: 'now', response: { result: 'noon' } } },
          { text: '[system] Hurry.' },
        ],
      },
    ])
  })

  it('mark calls of other models for those that want a signature, and for no others [S2.06]', async () => {
    const call = { id: 'c', type: 'function', function: { name: 'now', arguments: '{}' } } as const
    const messages = [
      ...question,
      { role: 'assistant', content: '', tool_calls: [call, { ...call, id: 'd' }] },
      { role: 'tool', tool_call_id: 'c', content: 'noon' },
      { role: 'tool', tool_call_id: 'd', content: 'noon' },
    ]
    const functionCall = { name: 'now', args: {} }
    const third = await askGolden({ messages })
    expect(third.sent.contents[1]?.parts).toEqual([
      { functionCall, thoughtSignature: 'skip_thought_signature_validator' },
      { functionCall },
    ])
    const second = await askGolden({ messages, model: 'gemini-2.5-pro' })
    expect(second.sent.contents[1]?.parts).toEqual([{ functionCall }, { functionCall }])
  })

  it('say how long to think, which tool to call and what form to answer in [S2.04] [S2.06]', async () => {
    const level = await askGolden({ reasoningEffort: 'low', toolChoice: { name: 'now' }, temperature: 0 })
    expect(level.sent).toMatchObject({
      toolConfig: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: ['now'] } },
      generationConfig: { temperature: 0, thinkingConfig: { thinkingLevel: 'low', includeThoughts: true } },
    })
    const budget = await askGolden({ model: 'gemini-2.5-flash', reasoningEffort: 'none' })
    expect(budget.sent.generationConfig.thinkingConfig).toEqual({ thinkingBudget: 0, includeThoughts: false })
    const schema = { type: 'object', properties: { a: { type: ['string', 'null'] } } }
    const formed = await askGolden({ responseFormat: { name: 'x', schema } })
    expect(formed.sent.generationConfig).toMatchObject({
      responseMimeType: 'application/json',
      responseSchema: { type: 'object', properties: { a: { type: 'string', nullable: true } } },
    })
  })

  it('cannot be led to another path by the name of a model [S2.06]', async () => {
    const { asked } = await askGolden({ model: '../../evil?x=/' })
    expect(asked[0]?.path).toBe('/v1beta/models/..%2F..%2Fevil%3Fx%3D%2F:streamGenerateContent?alt=sse')
  })
})
