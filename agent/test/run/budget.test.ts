// The budget of a run, on a clock of its own where time matters.
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
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

describe('the clock of a budget', () => {
  beforeEach(() => {
    vi.useFakeTimers()
    onTestFinished(() => void vi.useRealTimers())
  })
  const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms)
  const limits = { maxToolCalls: 10, maxTokens: 100, maxWallMs: 10_000 }

  it('trips when the time is over and not before, and names the limit [S0.07]', async () => {
    const budget = new RunBudget(limits)
    await pass(9_999)
    expect([budget.tripped, budget.left.wallMs]).toEqual([null, 1])
    await pass(1)
    expect(budget.tripped).toEqual({ reason: 'limit_time', message: 'the run used its 10000 ms of time' })
    expect(budget.signal.aborted).toBe(true)
    // The first limit is the reason, and a budget that tripped spends no more time.
    budget.addUsage({ ...usage, inputTokens: 1_000 })
    expect(budget.tripped?.reason).toBe('limit_time')
    await pass(5_000)
    expect(budget.left).toEqual({ calls: 10, tokens: 0, wallMs: 0 })
  })

  it('counts a limit that is longer than any timer [S0.07]', async () => {
    const budget = new RunBudget({ ...limits, maxWallMs: 2 ** 31 + 5_000 })
    await pass(2 ** 31 + 4_999)
    expect(budget.tripped).toBeNull()
    await pass(1)
    expect(budget.tripped?.reason).toBe('limit_time')
  })

  it('stands from the first wait to the end of the last one, and then continues [S0.07]', async () => {
    const budget = new RunBudget(limits)
    const part = budget.part({ maxWallMs: 5_000 }, 1)
    await pass(4_000)
    const waits = [60_000, 90_000].map((ms) =>
      budget.whileWaiting(new Promise((resolve) => setTimeout(resolve, ms))),
    )
    const late = budget.part({ maxWallMs: 1_000 }, 1)
    await pass(80_000)
    expect([budget.left.wallMs, part?.left.wallMs, late?.left.wallMs]).toEqual([6_000, 1_000, 1_000])
    await pass(10_000)
    await Promise.all(waits)
    await pass(999)
    expect([budget.tripped, part?.tripped, late?.tripped]).toEqual([null, null, null])
    await pass(1)
    expect([part?.tripped?.reason, late?.tripped?.reason]).toEqual(['limit_time', 'limit_time'])
    await pass(4_999)
    expect(budget.tripped).toBeNull()
    await pass(1)
    expect(budget.tripped?.reason).toBe('limit_time')
  })

  it('stands while the host holds it, however often the host says so [S0.07]', async () => {
    const budget = new RunBudget(limits)
    budget.hold(false)
    await pass(1_000)
    budget.hold(true)
    budget.hold(true)
    await pass(60_000)
    expect(budget.left.wallMs).toBe(9_000)
    budget.hold(false)
    budget.hold(false)
    await pass(2_000)
    expect(budget.left.wallMs).toBe(7_000)
    budget.hold(true)
    await pass(60_000)
    expect(budget.left.wallMs).toBe(7_000)
  })

  it('is over when the budget stops or trips, also during a wait [S0.07]', async () => {
    const [stopped, tripped] = [new RunBudget(limits), new RunBudget({ ...limits, maxToolCalls: 0 })]
    const waits = [stopped, tripped].map((one) =>
      one.whileWaiting(new Promise((resolve) => setTimeout(resolve, 1_000))),
    )
    stopped.stop()
    tripped.takeCall()
    await pass(1_000)
    await Promise.all(waits)
    await pass(60_000)
    expect([stopped.left.wallMs, tripped.left.wallMs]).toEqual([10_000, 10_000])
    expect([stopped.tripped, tripped.tripped?.reason]).toEqual([null, 'limit_calls'])
    const [running, spent] = [new RunBudget(limits), new RunBudget({ ...limits, maxToolCalls: 0 })]
    await pass(1_000)
    running.stop()
    spent.takeCall()
    await pass(60_000)
    expect([running.left.wallMs, spent.left.wallMs]).toEqual([9_000, 9_000])
    expect([running.tripped, spent.tripped?.reason, vi.getTimerCount()]).toEqual([null, 'limit_calls', 0])
  })
})

it('a limit that is longer than any timer starts none that fires at once [S0.07]', async () => {
  const warnings: Error[] = []
  const keep = (warning: Error) => warnings.push(warning)
  process.on('warning', keep)
  onTestFinished(() => void process.off('warning', keep))
  new RunBudget({ maxToolCalls: 1, maxTokens: 1, maxWallMs: 2 ** 40 }).stop()
  await new Promise((resolve) => setImmediate(resolve))
  expect(warnings).toEqual([])
})

describe('what is left of a budget', () => {
  const limits = { maxToolCalls: 10, maxTokens: 100, maxWallMs: 10_000 }
  const tokens = (count: number) => ({ ...usage, inputTokens: count, outputTokens: 0 })
  const fixed = (over: Partial<typeof limits> = {}) => new RunBudget({ ...limits, ...over }, () => 0)

  it('is what is neither spent nor promised to a part, never less than none [A.07 A.03]', () => {
    const budget = fixed()
    const part = budget.part({ maxToolCalls: 4, maxTokens: 60 }, 1)
    expect(budget.left).toMatchObject({ calls: 6, tokens: 40 })
    for (let call = 0; call < 5; call++) part?.takeCall()
    part?.addUsage(tokens(70))
    // The part spent its four calls, and ten tokens more than its share.
    expect(budget.left).toMatchObject({ calls: 6, tokens: 30 })
    budget.addUsage(tokens(50))
    for (let call = 0; call < 7; call++) budget.takeCall()
    expect(budget.left).toMatchObject({ calls: 0, tokens: 0 })
  })

  it('trips with the first token above the limit, not with the last one within [S0.07]', () => {
    const budget = fixed()
    budget.addUsage(tokens(100))
    expect([budget.tripped, budget.left.tokens]).toEqual([null, 0])
    budget.addUsage(tokens(1))
    expect(budget.tripped?.message).toBe('the run used 101 of 100 tokens')
  })

  it('can be a part of one call, one token and one millisecond, and no smaller one [A.07]', () => {
    const one = { maxToolCalls: 1, maxTokens: 1, maxWallMs: 1 }
    expect(fixed().part(one, 1)?.limits).toEqual(one)
    for (const name of ['maxToolCalls', 'maxTokens', 'maxWallMs'] as const)
      expect(fixed().part({ ...one, [name]: 0 }, 1), name).toBeNull()
  })

  it('is no part once the budget stopped or tripped [A.07]', () => {
    const [stopped, tripped] = [fixed(), fixed()]
    stopped.stop()
    tripped.addUsage(tokens(101))
    for (const budget of [stopped, tripped])
      expect(budget.part({ maxToolCalls: 1, maxTokens: 1, maxWallMs: 1 }, 1)).toBeNull()
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
