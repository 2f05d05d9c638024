// What the events of a call say besides its text: paths, lines that an edit changed, what was cut.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { AgentEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { describeFacts } from '../../tool-calls/call-facts.ts'
import { createFileTools } from '../../tools/file-tools.ts'
import { fill } from '../support/patches.ts'
import { callAsModel, runInFolder } from '../support/tools.ts'
import { temporaryFolder } from '../support/trees.ts'

const toolEnd = (facts: object) =>
  AgentEvent.parse({
    ...{ type: 'tool-end', stepId: 's', callId: 'c', tool: 't', output: '', durationMs: 1 },
    ...facts,
  })

describe('the facts of a call', () => {
  it('name the paths and the changed lines of each file tool [S1.10]', async () => {
    using folder = temporaryFolder()
    const root = folder.path
    fill(root, { 'a.txt': 'one\ntwo\n', 'gone.txt': 'x\n', 'old.txt': 'o\n' })
    const tools = createFileTools(runInFolder(root), { root })
    const facts = async (name: string, input: object) => {
      const { error, facts: given } = await callAsModel(tools, name, input)
      expect(error).toBeUndefined()
      return await describeFacts(given)
    }
    expect(await facts('read_file', { path: 'a.txt' })).toEqual({ reads: ['a.txt'] })
    expect(await facts('edit_file', { path: 'a.txt', oldText: 'two', newText: 'zwei' })).toEqual({
      writes: ['a.txt'],
      diffs: [{ path: 'a.txt', added: 1, removed: 1, diff: '@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n' }],
    })
    expect(await facts('write_file', { path: 'new.txt', content: 'n\n' })).toEqual({
      writes: ['new.txt'],
      diffs: [{ path: 'new.txt', added: 1, removed: 0, diff: '@@ -0,0 +1,1 @@\n+n\n' }],
    })
    expect(await facts('move_file', { from: 'old.txt', to: 'd/new.txt' })).toEqual({
      writes: ['old.txt', 'd/new.txt'],
    })
    expect(await facts('delete_file', { path: 'gone.txt' })).toMatchObject({
      writes: ['gone.txt'],
      diffs: [{ path: 'gone.txt', added: 0, removed: 1 }],
    })
    const patch = '*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+eins\n*** End Patch'
    expect(await facts('apply_patch', { patch })).toMatchObject({
      writes: ['a.txt'],
      diffs: [{ path: 'a.txt', added: 1, removed: 1 }],
    })
  })

  it('say that the output is a part, and how much there was [S1.10]', async () => {
    using folder = temporaryFolder()
    const root = folder.path
    fill(root, { 'long.txt': `${'x'.repeat(99)}\n`.repeat(400) })
    const tools = createFileTools(runInFolder(root), { root })
    const whole = await callAsModel(tools, 'read_file', { path: 'long.txt' })
    expect(whole).toMatchObject({ isCut: false, outputBytes: Buffer.byteLength(whole.output) })
    const cut = await callAsModel(
      tools,
      'read_file',
      { path: 'long.txt' },
      { cutOutput: (_, text) => text.slice(0, 10) },
    )
    expect(cut).toMatchObject({ isCut: true, output: expect.stringMatching(/^.{10}$/) })
    expect(cut.outputBytes).toBe(Buffer.byteLength(whole.output))
  })

  it('fit their event whatever a program or an edit did [S1.10]', async () => {
    const text = fc.oneof(
      fc.string(),
      fc.string({ unit: 'binary', maxLength: 200 }),
      fc.constant('a\n'.repeat(60_000)),
    )
    const path = fc.oneof(fc.string(), fc.constantFrom('a', '../x', '/x', ''))
    const anything = fc.record({
      exitCode: fc.oneof(fc.constant(null), fc.integer()),
      signal: fc.oneof(fc.constant(null), fc.string({ maxLength: 2_000 })),
      reads: fc.array(path, { maxLength: 200 }),
      writes: fc.array(path, { maxLength: 200 }),
      edits: fc.array(fc.record({ path, before: text, after: text }), { maxLength: 30 }),
    })
    await fc.assert(
      fc.asyncProperty(anything, async (facts) => {
        const { diffs = [] } = await describeFacts(facts)
        toolEnd(await describeFacts(facts))
        expect(diffs.reduce((sum, { diff = '' }) => sum + diff.length, 0)).toBeLessThanOrEqual(
          limits.textMaxChars,
        )
      }),
      { numRuns: 30 },
    )
  })
})
