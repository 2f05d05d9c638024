// The budget of a run, on a clock of its own where time matters.
import { describe, expect, it } from 'vitest'
import { RunLimits } from '#specs/protocol/task.ts'
import { RunBudget } from '../../run/budget.ts'
import { CallIds, sliceText } from '../../run/run.ts'
import { truncate, truncateJson } from '../../text/truncate.ts'

const usage = { requests: 1, inputTokens: 3, outputTokens: 4, reasoningTokens: 2 }

describe('RunBudget', () => {
  it('gives as many calls as the limit says, and trips at the next [S0.07]', () => {
    const budget = new RunBudget(RunLimits.parse({ maxToolCalls: 2 }))
    expect([budget.takeCall(), budget.takeCall(), budget.takeCall()]).toEqual([true, true, false])
    expect(budget.signal.aborted).toBe(true)
    expect(budget.tripped?.reason).toBe('limit_calls')
  })

  it('adds tokens in and out, reasoning being part of the output [S0.07]', () => {
    const budget = new RunBudget(RunLimits.parse({ maxTokens: 20 }))
    budget.addUsage(usage)
    budget.addUsage(usage)
    expect(budget.tripped).toBeNull()
    budget.addUsage(usage)
    expect(budget.tripped?.reason).toBe('limit_tokens')
    expect(budget.usage).toEqual({ requests: 3, inputTokens: 9, outputTokens: 12, reasoningTokens: 6 })
  })

  it('lets its clock stand while anybody waits, and for good once it is stopped [S0.07]', async () => {
    let now = 0
    const budget = new RunBudget(RunLimits.parse({ maxWallMs: 1_000 }), () => now)
    const waits = [10, 40].map((ms) => budget.whileWaiting(new Promise((resolve) => setTimeout(resolve, ms))))
    now = 60_000
    await Promise.all(waits)
    expect(budget.tripped).toBeNull()
    const last = budget.whileWaiting(new Promise((resolve) => setTimeout(resolve, 5)))
    budget.stop()
    await last
    now = 120_000
    await new Promise((resolve) => setTimeout(resolve, 1_100))
    expect(budget.tripped).toBeNull()
  })
})

describe('a part of a budget', () => {
  const whole = (fields: Partial<RunLimits> = {}, now?: () => number) =>
    new RunBudget(RunLimits.parse({ maxToolCalls: 100, maxTokens: 1_000, maxWallMs: 60_000, ...fields }), now)

  it('trips alone, and gives back what it has not spent [A.03 A.07]', () => {
    const budget = whole()
    const part = budget.part({ maxToolCalls: 2, maxTokens: 400 }, 1)
    expect([part?.takeCall(), part?.takeCall(), part?.takeCall()]).toEqual([true, true, false])
    expect(part?.tripped).toMatchObject({
      reason: 'limit_calls',
      message: 'the sub-agent used its 2 tool calls',
    })
    expect(budget.tripped).toBeNull()
    part?.addUsage(usage)
    part?.stop()
    expect(budget.usage).toEqual(usage)
    // What the part spent is spent: 2 of 100 calls, 7 of 1,000 tokens.
    expect(budget.part({ maxToolCalls: 1_000, maxTokens: 10_000 }, 1)?.limits).toMatchObject({
      maxToolCalls: 98,
      maxTokens: 993,
    })
  })

  it('is never more than what is neither spent nor promised, and a fair share of it where nothing was asked [A.07 A.03]', () => {
    const budget = whole()
    // Four may run at once; the parent keeps a share of its own.
    const shares = [1, 2, 3, 4].map(() => budget.part({}, 4)?.limits.maxTokens)
    expect(shares).toEqual([200, 200, 200, 200])
    expect(budget.part({ maxTokens: 999 }, 1)?.limits.maxTokens).toBe(200)
    expect(budget.part({}, 1)).toBeNull()
  })

  it('trips with the whole when that is spent by anyone [A.07 A.03]', () => {
    const budget = whole({ maxToolCalls: 3 })
    const part = budget.part({ maxToolCalls: 2 }, 1)
    expect([budget.takeCall(), budget.takeCall(), part?.takeCall(), part?.takeCall()]).toEqual([
      true,
      true,
      true,
      false,
    ])
    expect(budget.tripped?.reason).toBe('limit_calls')
    expect(part?.tripped).toBeNull()
    expect(budget.part({}, 1)).toBeNull()
  })

  it('has a clock of its own, which stands with the whole’s while anybody waits [A.07]', async () => {
    let now = 0
    const budget = whole({}, () => now)
    const part = budget.part({ maxWallMs: 1_000 }, 1)
    const waits = [part, budget].map((each) => each?.whileWaiting(new Promise((end) => setTimeout(end, 20))))
    const late = budget.part({ maxWallMs: 1_000 }, 1)
    now = 50_000
    await Promise.all(waits)
    expect([part?.tripped, late?.tripped, budget.tripped]).toEqual([null, null, null])
    now = 51_500
    await expect.poll(() => part?.tripped?.reason).toBe('limit_time')
    await expect.poll(() => late?.tripped?.reason).toBe('limit_time')
    expect(budget.tripped).toBeNull()
    expect(budget.part({}, 1)?.limits.maxWallMs).toBe((60_000 - 1_500) * 0.75)
  })
})

describe('texts and ids of a run', () => {
  it('slices a text into pieces that fit, without splitting a character', () => {
    const text = `a${'🎉'.repeat(9_000)}`
    const pieces = [...sliceText(text)]
    expect(pieces.join('')).toBe(text)
    expect(pieces.length).toBeGreaterThan(1)
    for (const piece of pieces) expect(piece.isWellFormed()).toBe(true)
  })

  it('bounds a text in characters and in bytes as JSON', () => {
    expect(truncate('abcdef', 4)).toBe('abc…')
    const bound = truncateJson('\u0001'.repeat(200_000), 262_144, 300_000)
    expect(Buffer.byteLength(JSON.stringify(bound))).toBeLessThanOrEqual(300_000)
    expect(truncateJson('\ud800x', 10, 100).isWellFormed()).toBe(true)
  })

  it('gives every call an id of its own [T.02]', () => {
    const ids = new CallIds()
    const claimed = ['a', 'a', '', 'not ok', 'x'.repeat(80)].map((wanted) => ids.claim(wanted))
    expect(claimed[0]).toBe('a')
    expect(new Set(claimed).size).toBe(5)
    for (const id of claimed.slice(1)) expect(id).toMatch(/^[A-Za-z0-9]{9}$/)
  })
})
