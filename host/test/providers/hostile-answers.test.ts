// Answers of other protocols from a server that floods, cuts, reorders, nests or quotes the key: the guest gets an error
// or an answer, and the host does work in proportion to the bytes.
import { describe, expect, it } from 'vitest'
import { startModelServer } from '#specs/testing/model-server.ts'
import { customProvider, startGateway, testKey } from '../support/gateway.ts'

type Kind = 'anthropic' | 'google'

const sse = (events: readonly unknown[]): string =>
  events.map((event) => `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`).join('')

async function answerOf(kind: Kind, body: string, stream = true) {
  await using server = await startModelServer([{ body }])
  const provider = { ...customProvider(server.baseUrl.replace(/\/v1$/, '')), name: kind, kind }
  await using test = await startGateway(provider)
  const messages = [{ role: 'user', content: 'hi' }]
  const answer = await test.request({ body: { messages, stream } })
  return { ...answer, exchanges: test.exchanges, logged: test.logged.join() }
}

const callStart = (index: number, input: unknown = {}) => ({
  ...{ type: 'content_block_start', index },
  content_block: { type: 'tool_use', id: `t${index}`, name: 'x', input },
})
const googleParts = (...parts: readonly object[]) => ({ candidates: [{ content: { parts } }] })
const googleCall = (args: unknown = {}) => ({ functionCall: { name: 'x', args } })
const end: Readonly<Record<Kind, object>> = {
  anthropic: { type: 'message_delta', delta: { stop_reason: 'tool_use' } },
  google: { candidates: [{ finishReason: 'STOP' }] },
}

/** `{"a":{"a":…}}` */
const nested = (depth: number): string => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`

describe.each(['anthropic', 'google'] as const)('a hostile server of %s', (kind) => {
  const calls = Array.from({ length: 20_000 }, (_, at) =>
    kind === 'anthropic' ? callStart(at * 2 ** 30) : googleParts(googleCall()),
  )

  it.each([true, false])(
    'gets an error to the guest for a flood of calls, streamed: %s [G.05]',
    async (stream) => {
      const { text, status } = await answerOf(kind, sse([...calls, end[kind]]), stream)
      expect(status).toBe(200)
      expect(text).toContain('more than 1000 calls of tools')
      expect(text.match(/"name":"x"/g)?.length ?? 0).toBeLessThanOrEqual(1_000)
    },
  )

  it('ends an answer once, however often it repeats its end', async () => {
    const call = kind === 'anthropic' ? callStart(0) : googleParts({ ...googleCall(), thoughtSignature: 's' })
    const { text } = await answerOf(kind, sse([call, ...Array(5_000).fill(end[kind])]))
    expect(text.match(/data: \[DONE\]/g)).toHaveLength(1)
  })

  it.each([1_000, 100_000, 400_000])('cannot break the host by arguments nested %s deep', async (depth) => {
    const args = JSON.parse(nested(1))
    const event = JSON.stringify(
      kind === 'anthropic' ? callStart(0, args) : googleParts(googleCall(args)),
    ).replace(nested(1), nested(depth))
    const answer = await answerOf(kind, sse([event, end[kind]]))
    expect(answer.status).toBe(200)
    expect(answer.exchanges).toHaveLength(1)
    expect(answer.text).toMatch(/\[DONE\]|"error"/)
  })

  it.each([
    ['cut in an event', (text: string) => text.slice(0, -20)],
    ['that ends before its end', (text: string) => text.slice(0, text.lastIndexOf('data:'))],
    ['of no event', () => ': only a comment\n\n'],
    ['of nothing', () => ''],
    ['that is backwards', (text: string) => text.trim().split('\n\n').toReversed().join('\n\n')],
    ['of no JSON', () => 'data: {\n\ndata: ]\n\n'],
  ])('with an answer %s leaves the guest an answer without its end, or an error', async (_, change) => {
    const call = kind === 'anthropic' ? callStart(1) : googleParts(googleCall())
    const answer = await answerOf(kind, change(sse([call, end[kind]])))
    expect(answer.status).toBe(200)
    expect(answer.exchanges).toHaveLength(1)
    for (const [, data = ''] of answer.text.matchAll(/^data: (.*)$/gm))
      if (data !== '[DONE]') JSON.parse(data)
  })

  it.each([
    { error: { message: `bad key ${testKey}`, type: testKey, code: testKey } },
    { type: 'error', error: { message: `bad key ${testKey}`, details: [{ [testKey]: testKey }] } },
    { base_resp: { status_code: 1, status_msg: testKey } },
  ])('cannot show the guest the key in an error of its answer [G.01]', async (error) => {
    for (const stream of [true, false]) {
      const answer = await answerOf(kind, sse([error]), stream)
      expect(JSON.stringify(answer)).not.toContain(testKey)
      expect(answer.text).toContain('"error"')
    }
  })
})
