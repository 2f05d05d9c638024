// The budget of a run, on a clock of its own where time matters.
import { describe, expect, it } from 'vitest'
import { RunLimits } from '#specs/protocol/task.ts'
import { RunBudget } from '../budget.ts'
import { boundJsonText, boundText, CallIds, sliceText } from '../run.ts'

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

describe('texts and ids of a run', () => {
  it('slices a text into pieces that fit, without splitting a character [S1.10]', () => {
    const text = `a${'🎉'.repeat(9_000)}`
    const pieces = [...sliceText(text)]
    expect(pieces.join('')).toBe(text)
    expect(pieces.length).toBeGreaterThan(1)
    for (const piece of pieces) expect(piece.isWellFormed()).toBe(true)
  })

  it('bounds a text in characters and in bytes as JSON [S1.03]', () => {
    expect(boundText('abcdef', 4)).toBe('abc…')
    const bound = boundJsonText('\u0001'.repeat(200_000), 262_144, 300_000)
    expect(Buffer.byteLength(JSON.stringify(bound))).toBeLessThanOrEqual(300_000)
    expect(boundJsonText('\ud800x', 10, 100).isWellFormed()).toBe(true)
  })

  it('gives every call an id of its own [S1.07]', () => {
    const ids = new CallIds()
    const claimed = ['a', 'a', '', 'not ok', 'x'.repeat(80)].map((wanted) => ids.claim(wanted))
    expect(claimed[0]).toBe('a')
    expect(new Set(claimed).size).toBe(5)
    for (const id of claimed.slice(1)) expect(id).toMatch(/^[A-Za-z0-9]{9}$/)
  })
})
