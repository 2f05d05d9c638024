// The bytes of whole runs, as a server gets them: what a provider's prompt cache can hold on to.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import type { Asked, Script } from '#specs/testing/model-server.ts'
import { someRunId } from '../support/run.ts'
import { isPlanning, planReply, stepOf } from '../support/scripted-model.ts'
import { runWhole } from '../support/whole-run.ts'

const plan = {
  goal: 'g',
  steps: [
    { id: 'look', title: 'Look', instructions: 'look around', writes: ['a'] },
    { id: 'other', title: 'Other', instructions: 'look elsewhere', writes: ['b'] },
    { id: 'act', title: 'Act', instructions: 'act', needs: ['look', 'other'] },
  ],
}

/** What a step's model does in one turn. */
const turns = fc.constantFrom(
  reply({ calls: [{ name: 'read_note', arguments: { path: 'a' } }] }),
  reply({ text: 'I look.', calls: [{ name: 'read_note', arguments: { path: 'missing' } }] }),
  reply({ calls: [{ name: 'write_note', arguments: { path: 'b', content: 'x' } }] }),
  reply({ calls: [{ name: 'write_note', arguments: '{"path":"b","content":"cut' }], finishReason: 'length' }),
  reply({
    calls: [
      { name: 'fly', arguments: {} },
      { name: 'read_note', arguments: { path: 'b' } },
    ],
  }),
  reply({ text: 'cut sho', finishReason: 'length' }),
  reply({ text: '' }),
)

/** One whole run, in which the person writes while the requests of these numbers are answered; what the server was asked. */
async function runOnce(chosen: Script, steer: readonly number[]): Promise<readonly Asked[]> {
  const { asked, events } = await runWhole(
    (tasks, one, index) => {
      if (steer.includes(index)) tasks.steer(someRunId, { messageId: `m${index}`, text: `message ${index}` })
      return chosen(one, index)
    },
    { task: { context: { host: 'facts' } }, parts: { readGuidance: () => Promise.resolve('Use tabs.') } },
  )
  expect(events.some(({ type }) => type === 'context-compact')).toBe(false)
  return asked
}

/** The request without its messages: model, tools and all else. */
const besides = ({ body }: Asked): string => JSON.stringify({ ...body, messages: [] })
const messagesOf = ({ body }: Asked): string => JSON.stringify(body.messages)

/** All but the marks that close the last message and the list, for words may be added to it. */
function expectContinued(requests: readonly Asked[]): void {
  requests.forEach((request, index) => {
    const next = requests[index + 1]
    if (next !== undefined)
      expect(messagesOf(next).startsWith(messagesOf(request).slice(0, -'"}]'.length))).toBe(true)
  })
}

/** Every call has its result right behind, in the order asked, and roles take turns. */
function expectValid({ messages }: Asked): void {
  const open: string[] = []
  messages.forEach(({ role, content, tool_calls: calls = [], tool_call_id: callId }, index) => {
    if (role === 'tool') expect(callId).toBe(open.shift())
    else {
      expect(open).toEqual([])
      expect(role).not.toBe(messages[index - 1]?.role)
    }
    expect(role === 'tool' || calls.length > 0 || (content ?? '') !== '').toBe(true)
    open.push(...calls.map(({ id }) => id))
  })
  expect(open).toEqual([])
}

describe('the requests of a run', () => {
  it('begin with the same bytes in all steps, and each continues from the one before [A.05 A.04]', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(turns, { maxLength: 12 }),
        fc.uniqueArray(fc.nat(12), { maxLength: 3 }),
        async (spoken, steer) => {
          const left = [...spoken]
          const asked = await runOnce(
            (one) =>
              isPlanning(one) ? planReply(plan) : (left.shift() ?? reply({ text: `did ${stepOf(one)}` })),
            steer,
          )
          for (const one of asked) {
            // What is compared is what was sent.
            expect(JSON.stringify(one.body)).toBe(one.text)
            expectValid(one)
          }
          const steps = asked.filter((one) => !isPlanning(one))
          expect(new Set(steps.map(besides)).size).toBe(1)
          const shared = steps.map(({ messages }) => {
            const user = messages[1]?.content ?? ''
            return JSON.stringify([messages[0], user.slice(0, user.indexOf('# Results of earlier steps'))])
          })
          expect(new Set(shared).size).toBe(1)
          expect(shared[0]).toContain('<guidance>')
          for (const id of ['look', 'other', 'act'])
            expectContinued(steps.filter((one) => stepOf(one) === id))
        },
      ),
      { seed: 31, numRuns: 40 },
    )
  }, 60_000)

  it('for a plan continue from one another too [A.05]', async () => {
    const asked = await runOnce(
      (one, index) =>
        isPlanning(one)
          ? index < 2
            ? planReply({ goal: 'g', steps: [] })
            : planReply(plan)
          : reply({ text: 'done' }),
      [],
    )
    const planning = asked.filter(isPlanning)
    expect(planning).toHaveLength(3)
    expectContinued(planning)
    // The first could have begun the work: it offers the tools of the steps, too.
    expect(new Set(planning.slice(1).map(besides)).size).toBe(1)
  })
})
