// Whole tasks: real planner, executor, registry and client, a scripted model, and a host that writes down.
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { Completion, type Task } from '#specs/protocol/task.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type ModelServer, type Script, startModelServer } from '#specs/testing/model-server.ts'
import { TaskServer, type TaskServerParts } from '../tasks.ts'
import { createRegistry } from '../tool-calls/registry.ts'
import { makeTask, modelAt, noteTools, plainHost, silentLogger, someRunId } from './support/run.ts'
import { isPlanning, planReply, stepOf } from './support/scripted-model.ts'

const twoSteps = {
  goal: 'g',
  steps: [
    { id: 'look', title: 'Look', instructions: 'look', writes: [] },
    { id: 'act', title: 'Act', instructions: 'act', needs: ['look'] },
  ],
}

/** Plans two steps. Each makes one call and then answers. */
const diligent: Script = (asked) => {
  if (isPlanning(asked)) return planReply(twoSteps)
  if (asked.messages.at(-1)?.role === 'tool') return reply({ text: `did ${stepOf(asked)}` })
  return reply({ calls: [{ name: 'write_note', arguments: { path: 'a', content: 'b' } }] })
}

interface Heard {
  readonly log: string[]
  readonly events: AgentEvent[]
  readonly completions: Completion[]
}

interface Life extends Heard {
  readonly tasks: TaskServer
  readonly model: ModelServer
  end(): Promise<void>
  /** Submits, and waits for the completion. */
  serve(task: Task): Promise<Completion>
}

const done = { ok: true, value: {} }
const notFound = { ok: false, error: { code: 'notFound' } }

const lives: Life[] = []
afterEach(async () => {
  for (const life of lives.splice(0)) await life.end()
})

async function live(
  script: Script,
  parts: Partial<TaskServerParts> = {},
  decision: ApprovalDecision = { decision: 'allow' },
) {
  const model = await startModelServer(script)
  const heard: Heard = { log: [], events: [], completions: [] }
  let onCompletion: () => void = () => undefined
  const tasks = new TaskServer({
    host: {
      emitEvent: (_runId, _path, event) => {
        heard.log.push(event.type)
        heard.events.push(event)
        return Promise.resolve()
      },
      emitDelta: () => undefined,
      requestApproval: () => Promise.resolve({ ok: true, value: decision }),
      ...plainHost,
      complete: (completion) => {
        heard.log.push('complete')
        heard.completions.push(Completion.parse(completion))
        onCompletion()
        return Promise.resolve({ ok: true, value: undefined })
      },
    },
    registry: createRegistry(noteTools(), { logger: silentLogger, cancelGraceMs: 20 }),
    modelFor: () => modelAt(model.baseUrl),
    listWorkspace: () => Promise.resolve('a.csv (12 bytes)'),
    logger: silentLogger,
    cancelGraceMs: 50,
    ...parts,
  })
  const life: Life = {
    ...heard,
    tasks,
    model,
    end: async () => {
      await tasks.close()
      await model[Symbol.asyncDispose]()
    },
    serve: async (task) => {
      const before = heard.completions.length
      const completed = new Promise<void>((resolve) => {
        onCompletion = resolve
      })
      expect(tasks.submit(task)).toEqual(done)
      await completed
      await new Promise(setImmediate)
      expect(heard.completions).toHaveLength(before + 1)
      const last = heard.completions.at(-1)
      if (last === undefined) throw new Error('no completion')
      return last
    },
  }
  lives.push(life)
  return life
}

const runIdOf = (number: number): string => `run-${number.toString(16).padStart(20, '0')}`

describe('tasks', () => {
  it('plans, reports the plan before the first step, executes and completes once [S1.01] [S1.02] [S1.03]', async () => {
    const life = await live(diligent)
    const completion = await life.serve(makeTask())
    expect(completion).toMatchObject({ outcome: 'completed', reason: 'completed', summary: 'did act' })
    expect(completion.usage).toEqual({ requests: 5, inputTokens: 50, outputTokens: 25, reasoningTokens: 0 })
    expect(life.log.indexOf('plan-update')).toBeGreaterThan(-1)
    expect(life.log.indexOf('plan-update')).toBeLessThan(life.log.indexOf('step-start'))
    expect(life.log.at(-1)).toBe('complete')
  })

  it('lets its clock stand while the host says that a person is asked about what it waits for [S0.07, S1.11]', async () => {
    for (const isHeld of [true, false]) {
      const life = await live(diligent, {
        executor: async (_plan, run) => {
          expect(life.tasks.hold(run.task.runId, isHeld)).toEqual(done)
          expect(life.tasks.hold(run.task.runId, isHeld)).toEqual(done)
          await new Promise((resolve) => setTimeout(resolve, 1_300))
          expect(life.tasks.hold(run.task.runId, false)).toEqual(done)
          return {
            outcome: 'completed',
            reason: 'completed',
            message: '',
            summary: String(run.budget.tripped?.reason),
          }
        },
        cancelGraceMs: 5_000,
      })
      const { summary } = await life.serve(makeTask({ limits: { maxWallMs: 1_000 } }))
      expect(summary).toBe(isHeld ? 'undefined' : 'limit_time')
      expect(life.tasks.hold('run-ffffffffffffffffffff', true)).toMatchObject(notFound)
    }
  })

  it('serves one task after the other, also after one that failed [S1.01]', async () => {
    let broken = true
    const life = await live((asked, index) => (broken ? { status: 401, body: '' } : diligent(asked, index)))
    expect(await life.serve(makeTask({ runId: runIdOf(1) }))).toMatchObject({
      outcome: 'failed',
      reason: 'model_refused',
    })
    broken = false
    for (const number of [2, 3]) {
      expect(await life.serve(makeTask({ runId: runIdOf(number) }))).toMatchObject({ outcome: 'completed' })
    }
  })

  it('takes a run once, however often it is submitted, and no second one beside it [S1.03 A.03 S1.01]', async () => {
    const life = await live(diligent)
    const task = makeTask()
    const served = life.serve(task)
    expect(life.tasks.submit(task)).toEqual(done)
    expect(life.tasks.submit(makeTask({ runId: runIdOf(9) }))).toMatchObject({ error: { code: 'busy' } })
    await served
    expect(life.tasks.submit(task)).toEqual(done)
    await new Promise((resolve) => setTimeout(resolve, 20))
    expect(life.completions).toHaveLength(1)
  })

  it('keeps system prompt, tools and the head of each step the same bytes over a run [A.05]', async () => {
    const life = await live(diligent)
    await life.serve(makeTask())
    const steps = life.model.asked.filter((asked) => !isPlanning(asked))
    const heads = steps.map(({ body, messages }) => {
      const user = messages[1]?.content ?? ''
      return JSON.stringify([
        messages[0],
        body.tools,
        user.slice(0, user.indexOf('# Results of earlier steps')),
      ])
    })
    expect(steps).toHaveLength(4)
    expect(new Set(heads).size).toBe(1)
  })

  it('refuses a task for tools that there are not [S0.04]', async () => {
    const life = await live(diligent)
    for (const [number, names] of [{ tools: ['read_note', 'fly'] }, { askTools: ['fly'] }].entries()) {
      const completion = await life.serve(makeTask({ runId: runIdOf(number), ...names }))
      expect(completion).toMatchObject({ outcome: 'failed', reason: 'environment' })
      expect(completion.message).toContain('fly')
    }
  })

  it('offers the model only the tools that the task names [S0.04 S4.01]', async () => {
    const life = await live(diligent)
    await life.serve(makeTask({ tools: ['write_note'] }))
    expect(life.model.asked.at(-1)?.tools.map((tool) => tool.function.name)).toEqual(['write_note'])
  })
})

describe('cancel', () => {
  const waiting: Script = (asked) =>
    isPlanning(asked) ? planReply(twoSteps) : reply({ calls: [{ name: 'wait_long', arguments: {} }] })

  it('ends a task while a tool runs, as cancelled and once [S1.03]', async () => {
    const life = await live(waiting)
    const served = life.serve(makeTask())
    await expect.poll(() => life.log.includes('tool-start')).toBe(true)
    expect(life.tasks.cancel(someRunId, 'enough')).toEqual(done)
    expect(life.tasks.cancel(someRunId, 'again')).toEqual(done)
    const completion = await served
    expect(completion).toMatchObject({ outcome: 'cancelled', reason: 'cancelled' })
    expect(completion.message).toContain('enough')
  })

  it('ends a task that is cancelled at once without asking the model [S1.03]', async () => {
    const life = await live(diligent)
    const served = life.serve(makeTask())
    life.tasks.cancel(someRunId, 'no')
    expect(await served).toMatchObject({ outcome: 'cancelled' })
    expect(life.model.asked).toHaveLength(0)
    expect(life.tasks.cancel(runIdOf(77), 'who')).toMatchObject(notFound)
  })

  it('completes once whenever it is cancelled [S1.03] [A.03]', async () => {
    const life = await live(diligent)
    let number = 1_000
    await fc.assert(
      fc.asyncProperty(fc.nat(30), async (delayMs) => {
        const runId = runIdOf(number++)
        const served = life.serve(makeTask({ runId }))
        setTimeout(() => life.tasks.cancel(runId, 'now'), delayMs)
        expect(['completed', 'cancelled']).toContain((await served).outcome)
        expect(life.completions.filter((completion) => completion.runId === runId)).toHaveLength(1)
      }),
      { seed: 4, numRuns: 25 },
    )
  })
})

describe('faults', () => {
  it.each<[string, Partial<TaskServerParts>]>([
    ['a planner that throws', { planner: () => Promise.reject(new Error('fault')) }],
    [
      'a planner that throws at once',
      {
        planner: () => {
          throw new Error('fault')
        },
      },
    ],
    ['an executor that throws', { executor: () => Promise.reject(new Error('fault')) }],
    ['a listing that fails', { listWorkspace: () => Promise.reject(new Error('fault')) }],
  ])('completes once as failed for %s, and continues [S1.03 A.03]', async (_name, parts) => {
    const life = await live(diligent, parts)
    for (const number of [1, 2]) {
      const completion = await life.serve(makeTask({ runId: runIdOf(number) }))
      expect(completion).toMatchObject({ outcome: 'failed', reason: 'internal' })
      expect(completion.message).not.toContain('fault')
    }
  })

  it('leaves behind an executor that does not end after a cancel, and lets it say nothing more [S1.03]', async () => {
    let speak: () => Promise<void> = () => Promise.resolve()
    const life = await live(diligent, {
      executor: (_plan, run) => {
        speak = () => run.report.event({ type: 'note', level: 'info', text: 'still here' })
        return new Promise(() => undefined)
      },
    })
    const served = life.serve(makeTask())
    await expect.poll(() => life.log.includes('plan-update')).toBe(true)
    life.tasks.cancel(someRunId, 'stop')
    expect(await served).toMatchObject({ outcome: 'cancelled' })
    await speak()
    expect(life.log.at(-1)).toBe('complete')
  })

  it('ends by its wall time in whatever it is doing [S0.07 V.06]', async () => {
    const life = await live(diligent, { planner: () => new Promise(() => undefined) })
    const completion = await life.serve(makeTask({ limits: { maxWallMs: 1_000 } }))
    expect(completion).toMatchObject({ outcome: 'failed', reason: 'limit_time' })
  })

  it('ends with a reason for any nonsense of the model, with bounded work [T.02]', async () => {
    const nonsense = fc.oneof(
      fc.string().map((text) => reply({ text })),
      fc.json().map((text) => reply({ calls: [{ name: 'read_note', arguments: text }] })),
      fc.string().map((name) => reply({ calls: [{ id: name, name, arguments: {} }] })),
      fc.constant(
        reply({
          calls: [{ name: 'write_note', arguments: '{"path":"a","content":"' }],
          finishReason: 'length',
        }),
      ),
      fc.string().map((body) => ({ body })),
      fc.constantFrom(400, 404, 500).map((status) => ({ status, body: '<html>' })),
    )
    let replies: readonly { body: string | Uint8Array }[] = []
    const life = await live((asked, index) =>
      isPlanning(asked) ? planReply(twoSteps) : (replies[index % replies.length] ?? reply({})),
    )
    let number = 100
    await fc.assert(
      fc.asyncProperty(fc.array(nonsense, { minLength: 1, maxLength: 4 }), async (list) => {
        replies = list
        const task = makeTask({ runId: runIdOf(number++), limits: { maxTurnsPerStep: 6, maxWallMs: 20_000 } })
        const before = life.model.asked.length
        expect(['completed', 'failed']).toContain((await life.serve(task)).outcome)
        expect(life.model.asked.length - before).toBeLessThan(70)
      }),
      { seed: 8, numRuns: 40 },
    )
  })
})
