// The budget of a run, on a clock of its own where time matters.
import fc from 'fast-check'
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

  it('is the part’s own until its end: the whole takes nothing of it, and trips when all is spent [A.07 A.03]', () => {
    const budget = whole({ maxToolCalls: 3 })
    const part = budget.part({ maxToolCalls: 2 }, 1)
    const taken = [budget.takeCall(), budget.takeCall(), part?.takeCall(), part?.takeCall()]
    expect(taken).toEqual([true, false, true, true])
    expect([budget.tripped, part?.tripped]).toEqual([null, null])
    expect(part?.takeCall()).toBe(false)
    expect([budget.tripped, part?.tripped?.reason]).toEqual([null, 'limit_calls'])
    part?.stop()
    expect(budget.takeCall()).toBe(false)
    expect(budget.tripped?.reason).toBe('limit_calls')
    expect(budget.part({}, 1)).toBeNull()
  })

  it('has requests, cost and sub-agents of its own, where the run bounds them or it asks [A.03]', () => {
    const limits = RunLimits.parse({ maxRequests: 10, maxCostUsd: 1, maxAgents: 6 })
    const budget = new RunBudget(limits, () => 0, { input: 1_000, output: 100_000 })
    const part = budget.part({ maxRequests: 4, maxCostUsd: 0.9, maxAgents: 2 }, 1)
    expect(part?.limits).toMatchObject({ maxRequests: 4, maxCostUsd: 0.9, maxAgents: 2 })
    expect([part?.takeAgent(), part?.takeAgent(), part?.takeAgent()]).toEqual([true, true, false])
    // Of six agents two are the part's; one that asks for none reserved uses those that are left.
    const other = budget.part({}, 1)
    expect(Array.from({ length: 5 }, () => other?.takeAgent())).toEqual([true, true, true, true, false])
    expect(other?.limits).toMatchObject({ maxRequests: 3, maxCostUsd: expect.closeTo(0.05) })
    part?.addUsage(usage)
    // 3 tokens in and 4 out are 0.403 dollars.
    expect(part?.findShortage(usage)).toMatchObject({
      reason: 'limit_cost',
      message: expect.stringContaining('$0.4970 of $0.9000'),
    })
    part?.addUsage({ ...usage, outputTokens: 5 })
    expect(part?.tripped?.reason).toBe('limit_cost')
    expect(budget.spent).toMatchObject({ agents: 6, requests: 2 })
    expect(budget.spent.costUsd).toBeCloseTo(0.906)
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

describe('a tree of budgets', () => {
  type Node = {
    readonly budget: RunBudget
    readonly parent: Node | null
    isOpen: boolean
    readonly below: Node[]
  }
  const counted = [
    ['calls', 'maxToolCalls'],
    ['tokens', 'maxTokens'],
    ['requests', 'maxRequests'],
    ['costUsd', 'maxCostUsd'],
    ['agents', 'maxAgents'],
  ] as const
  const action = fc.record({
    what: fc.constantFrom('part', 'part', 'call', 'call', 'turn', 'turn', 'agent', 'stop'),
    at: fc.nat(40),
    wanted: fc.record(
      {
        maxToolCalls: fc.integer({ min: 1, max: 40 }),
        maxTokens: fc.integer({ min: 1, max: 900 }),
        maxRequests: fc.integer({ min: 1, max: 40 }),
        maxCostUsd: fc.integer({ min: 1, max: 40 }),
        maxAgents: fc.nat(8),
      },
      { requiredKeys: [] },
    ),
    atOnce: fc.integer({ min: 1, max: 4 }),
    tokens: fc.integer({ min: 1, max: 30 }),
  })
  /** Most that is spent in the subtree or still promised to it. */
  const claimOf = ({ budget, isOpen, below }: Node, index: number): number => {
    const [what, limit] = counted[index] ?? counted[0]
    const most = budget.limits[limit]
    if (!isOpen) return budget.spent[what]
    if (most !== undefined) return Math.max(most, budget.spent[what])
    const own = budget.spent[what] - below.reduce((sum, one) => sum + one.budget.spent[what], 0)
    return own + below.reduce((sum, one) => sum + claimOf(one, index), 0)
  }

  it('never promises or spends more than the whole, returns all that was not used, and has nothing below none [A.03]', () => {
    fc.assert(
      fc.property(fc.array(action, { maxLength: 120 }), (actions) => {
        const limits = RunLimits.parse({
          maxToolCalls: 60,
          maxTokens: 1_000,
          maxRequests: 50,
          maxCostUsd: 40,
          maxAgents: 12,
        })
        const root: Node = {
          budget: new RunBudget(limits, () => 0, { input: 40_000, output: 40_000 }),
          parent: null,
          isOpen: true,
          below: [],
        }
        const all = [root]
        const close = (node: Node): void => {
          for (const one of node.below) if (one.isOpen) close(one)
          node.budget.stop()
          node.isOpen = false
        }
        for (const { what, at, wanted, atOnce, tokens } of actions) {
          const open = all.filter(({ isOpen }) => isOpen)
          const node = open[at % open.length] ?? root
          if (what === 'call') node.budget.takeCall()
          if (what === 'agent') node.budget.takeAgent()
          if (what === 'stop' && node !== root) close(node)
          if (what === 'part') {
            const budget = node.budget.part(wanted, atOnce)
            if (budget === null) continue
            const part = { budget, parent: node, isOpen: true, below: [] }
            node.below.push(part)
            all.push(part)
          }
          // As an agent does: no turn that leaves nothing for a conclusion.
          const turn = { requests: 1, inputTokens: tokens, outputTokens: 0, reasoningTokens: 0 }
          if (what === 'turn' && node.budget.tripped === null && node.budget.findShortage(turn) === null)
            node.budget.addUsage(turn)
          for (const one of all)
            for (const [index, [name, limit]] of counted.entries()) {
              const most = one.budget.limits[limit]
              expect(one.budget.spent[name]).toBeGreaterThanOrEqual(0)
              if (most === undefined || !one.isOpen) continue
              expect(one.budget.spent[name]).toBeLessThanOrEqual(most + 1e-9)
              const below = one.below.reduce((sum, part) => sum + claimOf(part, index), 0)
              const own =
                one.budget.spent[name] - one.below.reduce((sum, part) => sum + part.budget.spent[name], 0)
              expect(own + below).toBeLessThanOrEqual(most + 1e-9)
            }
        }
        for (const part of root.below) if (part.isOpen) close(part)
        const { calls, tokens } = root.budget.spent
        expect(root.budget.left).toMatchObject({ calls: 60 - calls, tokens: 1_000 - tokens })
        root.budget.stop()
      }),
      { seed: 3, numRuns: 200 },
    )
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
    budget.hold(false, 'person')
    await pass(1_000)
    budget.hold(true, 'person')
    budget.hold(true, 'person')
    await pass(60_000)
    expect(budget.left.wallMs).toBe(9_000)
    budget.hold(false, 'person')
    budget.hold(false, 'person')
    await pass(2_000)
    expect(budget.left.wallMs).toBe(7_000)
    budget.hold(true, 'person')
    await pass(60_000)
    expect(budget.left.wallMs).toBe(7_000)
  })

  it('stands for as long as one reason is left, a person who is asked or a host that is silent [S0.07, R.02]', async () => {
    const budget = new RunBudget(limits)
    budget.hold(true, 'person')
    budget.hold(true, 'host')
    budget.hold(false, 'person')
    await pass(60_000)
    expect(budget.left.wallMs).toBe(10_000)
    budget.hold(false, 'host')
    await pass(1_000)
    expect(budget.left.wallMs).toBe(9_000)
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
  // Files of one process share its warnings, such as those of the garbage collection.
  expect(warnings.filter(({ name }) => name === 'TimeoutOverflowWarning')).toEqual([])
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

  it('gives the calls of steps side by side the same ids again, whichever is quicker [R.01 T.02]', () => {
    const claim = (order: readonly string[]): Record<string, string[]> => {
      const ids = new CallIds('run-1')
      for (const step of ['left', 'right']) ids.ofStep(step)
      const claimed: Record<string, string[]> = { left: [], right: [] }
      for (const step of order) claimed[step]?.push(ids.ofStep(step).claim('call-0'))
      return claimed
    }
    const claimed = claim(['left', 'right', 'right', 'left'])
    expect(claim(['right', 'right', 'left', 'left'])).toEqual(claimed)
    expect(claimed.left?.[0]).toBe('call-0')
    expect(new Set(Object.values(claimed).flat()).size).toBe(4)
  })

  it('gives every call an id of its own [T.02]', () => {
    const ids = new CallIds()
    const claimed = ['a', 'a', '', 'not ok', 'x'.repeat(80)].map((wanted) => ids.claim(wanted))
    expect(claimed[0]).toBe('a')
    expect(new Set(claimed).size).toBe(5)
    for (const id of claimed.slice(1)) expect(id).toMatch(/^[A-Za-z0-9]{9}$/)
  })
})
