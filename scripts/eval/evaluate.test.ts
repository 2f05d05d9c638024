import { describe, expect, it } from 'vitest'
import type { AttemptEnd } from './attempt.ts'
import type { Attempt } from './attempts.ts'
import { type EvaluationParts, evaluate, type Work } from './evaluate.ts'
import { suite } from './suite.ts'

const tasks = suite.slice(0, 3)
const [first, second, third] = tasks.map(({ name }) => name)
const attemptOf = ({ task, attempt }: Work, more: Partial<Attempt> = {}): Attempt => ({
  ...{ task: task.name, attempt, runId: 'r1', model: 'm', passed: true, problems: [], end: 'completed' },
  ...{ turns: 1, inputTokens: 1, outputTokens: 1, costUsd: 1, durationMs: 1, ...more },
})
const right = (work: Work, more?: Partial<Attempt>): AttemptEnd => ({
  kind: 'attempt',
  attempt: attemptOf(work, more),
})

/** Evaluates with attempts that this function makes. */
async function evaluateWith(
  attemptOne: (work: Work, maxCostUsd: number | undefined) => Promise<AttemptEnd>,
  more: Partial<EvaluationParts> = {},
) {
  const made: string[] = []
  const lost: string[] = []
  const parts = {
    ...{ tasks, tries: 1, parallel: 1, done: [], signal: new AbortController().signal, attemptOne },
    onAttempt: async ({ task, attempt }: Attempt) => void made.push(`${task} ${attempt}`),
    onLost: ({ task }: Work, why: string) => void lost.push(`${task.name}: ${why}`),
  }
  return { ...(await evaluate({ ...parts, ...more })), made, lostRuns: lost }
}

describe('an evaluation', () => {
  it('makes the attempts that are missing, each task once before any twice [T.05]', async () => {
    const [task] = tasks
    if (task === undefined) throw new Error('no task')
    const done = [attemptOf({ task, attempt: 1 })]
    const { stop, made } = await evaluateWith(async (work) => right(work), { tries: 2, done })
    expect(stop).toBe('complete')
    expect(made).toEqual([`${second} 1`, `${third} 1`, `${first} 2`, `${second} 2`, `${third} 2`])
  })

  it('makes as many at once as it may, and no more', async () => {
    let [open, most] = [0, 0]
    await evaluateWith(
      async (work) => {
        open += 1
        most = Math.max(most, open)
        await new Promise((resolve) => setImmediate(resolve))
        open -= 1
        return right(work)
      },
      { parallel: 2, tries: 3 },
    )
    expect(most).toBe(2)
  })

  it('tells lost runs apart from attempts, and stops after three in a row [T.05]', async () => {
    const lose = async (): Promise<AttemptEnd> => ({ kind: 'lost', why: 'no image', costUsd: null })
    const all = await evaluateWith(lose, { tries: 4 })
    expect(all).toMatchObject({ stop: 'lost', lost: 3, made: [] })
    expect(all.lostRuns[0]).toBe(`${first}: no image`)
    let count = 0
    const some = await evaluateWith(async (work) => (count++ % 2 === 0 ? await lose() : right(work)), {
      tries: 4,
    })
    expect(some).toMatchObject({ stop: 'complete', lost: 6 })
  })

  it('begins nothing after an interruption, which is no loss [T.05]', async () => {
    const controller = new AbortController()
    const { stop, lost, made } = await evaluateWith(
      async (work) => {
        if (work.task.name === first) return right(work)
        controller.abort()
        return { kind: 'lost', why: 'cancelled', costUsd: 0 }
      },
      { signal: controller.signal },
    )
    expect({ stop, lost, made }).toEqual({ stop: 'interrupted', lost: 0, made: [`${first} 1`] })
  })

  it('keeps all attempts together below the bound on cost, which makes none fail [T.05]', async () => {
    let [spent, promised] = [0, 0]
    const shares: number[] = []
    const { stop, made } = await evaluateWith(
      async (work, share = 0) => {
        shares.push(share)
        promised += share
        expect(spent + promised).toBeLessThanOrEqual(10.000_001)
        await new Promise((resolve) => setImmediate(resolve))
        promised -= share
        const costUsd = Math.min(3, share)
        spent += costUsd
        return right(work, costUsd < 3 ? { costUsd, passed: false, end: 'failed: limit_cost' } : { costUsd })
      },
      { maxCostUsd: 10, parallel: 2, tries: 5 },
    )
    expect(stop).toBe('cost')
    expect(shares.slice(0, 2)).toEqual([5, 5])
    expect(made.length).toBeGreaterThanOrEqual(2)
    expect(made.length).toBeLessThanOrEqual(3)
    expect(spent).toBeLessThanOrEqual(10)
  })

  it('waits for the attempts at work before it throws an error, and begins no other', async () => {
    let begun = 0
    const failing = evaluateWith(
      async (work) => {
        begun += 1
        if (work.task.name === first) throw new Error('a fault')
        await new Promise((resolve) => setImmediate(resolve))
        return right(work)
      },
      { parallel: 2, tries: 3 },
    )
    await expect(failing).rejects.toThrow('a fault')
    expect(begun).toBe(2)
  })
})
