// The bytes of whole runs, as a server gets them: what a provider's prompt cache can hold on to.
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { Completion } from '#specs/protocol/task.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ModelServer, type Script, startModelServer } from '#specs/testing/model-server.ts'
import { TaskInbox } from '../inbox.ts'
import { runAgentLoop } from '../loop.ts'
import { executePlan } from '../plan/executor.ts'
import { makePlan } from '../plan/planner.ts'
import { createRegistry } from '../tools/registry.ts'
import { makeTask, modelAt, noteTools, silentLogger } from './support/run.ts'
import { isPlanning, planReply, stepOf } from './support/scripted-model.ts'

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

let server: ModelServer
let script: Script
beforeAll(async () => {
  server = await startModelServer((asked, index) => script(asked, index))
})
afterAll(() => server[Symbol.asyncDispose]())

/** One whole run; what the server was asked, in order. */
async function runOnce(runId: string, chosen: Script, steer: readonly number[]): Promise<Asked[]> {
  const before = server.asked.length
  const inbox = new TaskInbox()
  const ending = new AbortController()
  const completed = Promise.withResolvers<Completion>()
  const events: AgentEvent[] = []
  script = (asked, index) => {
    const place = index - before
    if (steer.includes(place)) inbox.steer(runId, { messageId: `m${place}`, text: `message ${place}` })
    return chosen(asked, place)
  }
  const running = runAgentLoop(
    {
      inbox,
      host: {
        emitEvent: (_runId, _path, event) => Promise.resolve(void events.push(event)),
        emitDelta: () => undefined,
        requestApproval: () => Promise.resolve({ decision: 'allow' }),
        complete: (completion) => Promise.resolve(completed.resolve(Completion.parse(completion))),
      },
      planner: makePlan,
      executor: executePlan,
      registry: createRegistry(noteTools(), { logger: silentLogger }),
      modelFor: () => modelAt(server.baseUrl),
      listWorkspace: () => Promise.resolve('a.csv (12 bytes)'),
      readGuidance: () => Promise.resolve('Use tabs.'),
      logger: silentLogger,
    },
    ending.signal,
  )
  inbox.submit(makeTask({ runId, context: { host: 'facts' } }))
  await completed.promise
  ending.abort()
  await running
  expect(events.some(({ type }) => type === 'context-compact')).toBe(false)
  return server.asked.slice(before)
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
    expect(content !== '' && (content !== null || calls.length > 0)).toBe(true)
    open.push(...calls.map(({ id }) => id))
  })
  expect(open).toEqual([])
}

describe('the requests of a run', () => {
  it('begin with the same bytes in all steps, and each goes on from the one before [A.05] [S0.05] [A.04]', async () => {
    let number = 0
    await fc.assert(
      fc.asyncProperty(
        fc.array(turns, { maxLength: 12 }),
        fc.uniqueArray(fc.nat(12), { maxLength: 3 }),
        async (spoken, steer) => {
          const left = [...spoken]
          const runId = `run-${(number++).toString(16).padStart(20, '0')}`
          const asked = await runOnce(
            runId,
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

  it('for a plan go on from one another too [A.05]', async () => {
    const asked = await runOnce(
      'run-ffffffffffffffff0001',
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
    expect(new Set(planning.map(besides)).size).toBe(1)
  })
})
