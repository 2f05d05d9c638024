// A hostile model server through whole runs in real VMs: each ends with its reason, in bounded time, and nothing that the
// server sends controls a terminal. More of them: hostile-model.slow.test.ts.
import { expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { call, escapes, meet, noise } from '../support/hostile-model.ts'

it('continues after calls of tools that do not exist, with names that would control a terminal [S1.07 G.05]', async () => {
  const names = [`rm${escapes}`, '../../x', '', '__proto__', 7, 'constructor']
  const script = [...names.map((name) => call(name, '{}')), reply({ text: `I am done.${escapes}` })]
  const { end, shown } = await meet(script)
  expect(end).toMatchObject({ outcome: 'completed', summary: expect.stringContaining('I am done.') })
  expect(shown).toContain('I am done.\\e[2J')
})

it('fails with the reason after bytes that are no text, in a stream and as an error [G.05]', async () => {
  const bytes = noise(60_000)
  const bodies = [{ status: 400, body: bytes }, { body: bytes }]
  for (const body of bodies) {
    const { end } = await meet([body])
    expect(end).toMatchObject({ outcome: 'failed', reason: expect.stringMatching(/^model_/) })
  }
})
