// More hostile model servers through whole runs in real VMs: see hostile-model.vm.test.ts.
import { describe, expect, it } from 'vitest'
import { delta, done, reply, toolDelta } from '#specs/testing/model-replies.ts'
import type { Script, ServerReply } from '#specs/testing/model-server.ts'
import { call, counted, escapes, meet, noise } from '../support/hostile-model.ts'

const answer = reply({ text: 'I am done.' })
const manyCalls = Array.from({ length: 1_000 }, (_, index) =>
  toolDelta({ index, id: `c${index}`, function: { name: 'list_files', arguments: '{}' } }),
)
const failure = JSON.stringify({ error: { message: `${escapes} sk-secret-of-the-test`, type: escapes } })
const hugeUsage = { prompt_tokens: 1e308, completion_tokens: Number.MAX_SAFE_INTEGER, total_tokens: 'x' }
const negativeUsage = { prompt_tokens: -5_000, completion_tokens: -1, total_tokens: -6 }

const servers: readonly [string, Script | readonly ServerReply[], string][] = [
  [
    'arguments of 6 MB',
    [call('write_file', JSON.stringify({ path: 'a.txt', content: 'x'.repeat(6e6) })), answer],
    // The run continues after the refused call, until the tokens that it cost are counted.
    'limit_tokens',
  ],
  [
    'a thousand calls in one answer',
    [{ body: `${manyCalls.join('')}${delta({}, 'tool_calls')}${done}` }],
    'model_broken',
  ],
  [
    'arguments of 100,000 brackets',
    [call('write_file', `${'['.repeat(100_000)}${']'.repeat(100_000)}`), answer],
    'completed',
  ],
  ['a call with an index far away', [call('list_files', '{}', 4_294_967_295), answer], 'completed'],
  ['negative usage', [counted(negativeUsage)], 'completed'],
  ['usage beyond all numbers', [counted(hugeUsage)], 'completed'],
  [
    'a redirect to an inner address',
    [{ status: 302, body: '', headers: { location: 'http://169.254.169.254/' } }],
    'model_refused',
  ],
  ['an error full of escapes and with the key', [{ status: 400, body: failure }], 'model_refused'],
  [
    'bytes that are not the gzip they claim to be',
    [{ body: noise(60_000), headers: { 'content-encoding': 'gzip' } }],
    'model_broken',
  ],
]

describe('a run whose model server sends', () => {
  it.each(servers)(
    '%s ends with its reason [G.05]',
    async (_, script, reason) => {
      const { end, usage } = await meet(script)
      expect(end).toMatchObject({ reason })
      for (const count of Object.values(usage)) expect(count).toBeGreaterThanOrEqual(0)
    },
    240_000,
  )

  it('text without end ends at a bound [G.05]', async () => {
    const endless = delta({ content: `${escapes}${'more '.repeat(8_000)}` }).repeat(600)
    const { end } = await meet(() => ({ body: endless, after: 'hang' }))
    expect(end).toMatchObject({ outcome: 'failed', reason: 'model_broken' })
    expect(end?.message).toMatch(/passed the bound|no more were requested/)
  }, 240_000)

  it.each([
    ['one word and then nothing', { body: delta({ content: 'I ' }), after: 'hang' }],
    ['comments without end', { body: ': ping\n\n'.repeat(500_000), after: 'hang' }],
  ] as const)(
    '%s ends at its time limit [G.05]',
    async (_, body) => {
      const { end } = await meet(() => body, 8_000)
      expect(end).toMatchObject({ outcome: 'failed', reason: 'limit_time' })
    },
    240_000,
  )
})
