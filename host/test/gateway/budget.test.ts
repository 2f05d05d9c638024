import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Budget, type BudgetRequest, type Reservation } from '../../gateway/budget.ts'

const never = new AbortController().signal
const ask = (inputTokens: number, outputTokens: number): BudgetRequest => ({
  inputTokens,
  outputTokens,
  signal: never,
})
const used = (inputTokens: number, outputTokens: number) => ({
  requests: 1,
  inputTokens,
  outputTokens,
  reasoningTokens: 0,
})
const nothing = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }

async function reserve(budget: Budget, request: BudgetRequest): Promise<Reservation> {
  const reserved = await budget.reserve(request)
  if (!reserved.ok) throw new Error(reserved.error.message)
  return reserved.value
}

describe('the budget of a run', () => {
  it('gives a request what is left for its answer, and refuses when nothing is [G.05]', async () => {
    const budget = new Budget({ maxTokens: 1_000 }, null, 'm')
    const first = await reserve(budget, ask(100, 16_384))
    expect(first.maxOutputTokens).toBe(900)
    expect(first.settle(used(120, 300))).toBeNull()
    const second = await reserve(budget, ask(500, 16_384))
    expect(second.maxOutputTokens).toBe(80)
    second.settle(used(500, 80))
    expect(await budget.reserve(ask(1, 1))).toMatchObject({ ok: false, error: { code: 'limit_tokens' } })
    expect(budget.usage).toMatchObject({ inputTokens: 620, outputTokens: 380 })
  })

  it('counts what a provider read from its cache, wrote to it, and long requests at their prices [G.05]', async () => {
    const price = {
      ...{ input: 2, output: 10, cachedInput: 0.1, cacheWrite: 2.5 },
      above: { tokens: 200_000, input: 4, output: 20 },
    }
    const budget = new Budget({ maxTokens: 10_000_000, maxCostUsd: 5 }, price, 'm')
    const settle = async (usage: ReturnType<typeof used>, cachedTokens: number) =>
      (await reserve(budget, ask(usage.inputTokens, 1_000))).settle({ ...usage, cachedTokens })
    expect(await settle(used(100_000, 1_000), 80_000)).toBeCloseTo(0.008 + 0.05 + 0.01)
    expect(await settle(used(300_000, 1_000), 100_000)).toBeCloseTo(1.2 + 0.02)
    // Nobody knows before what the provider will read: a reservation is by the highest.
    const spent = 0.068 + 1.22
    const left = await reserve(budget, ask(100_000, 1_000_000))
    expect(left.maxOutputTokens).toBe(Math.floor((5 - spent - 0.25) * 100_000))
  })

  it('that is a part of another spends what both have, and never more than either [A.07 G.05]', async () => {
    const whole = new Budget({ maxTokens: 1_000 }, { input: 1, output: 1 }, 'm')
    const part = new Budget({ maxTokens: 600 }, { input: 1, output: 1 }, 'm', whole)
    const first = await reserve(part, ask(100, 16_384))
    expect(first.maxOutputTokens).toBe(500)
    expect(first.settle(used(100, 50))).toBeCloseTo(0.00015)
    expect([whole.usage.inputTokens, part.usage.inputTokens]).toEqual([100, 100])
    const other = await reserve(whole, ask(100, 600))
    other.settle(used(100, 600))
    const third = await reserve(part, ask(50, 400))
    expect(third.maxOutputTokens).toBe(100)
    third.settle(nothing)
    expect(await part.reserve(ask(500, 1))).toMatchObject({ ok: false, error: { code: 'limit_tokens' } })
    const requests = new Budget({ maxTokens: 1_000, maxRequests: 1 }, null, 'm')
    const below = new Budget({ maxTokens: 1_000 }, null, 'm', requests)
    ;(await reserve(below, ask(1, 1))).settle(used(1, 1))
    expect(await below.reserve(ask(1, 1))).toMatchObject({ ok: false, error: { code: 'limit_requests' } })
    // What was refused above is not held below.
    expect(below.usage).toMatchObject({ inputTokens: 1, outputTokens: 1 })
  })

  it('lets requests side by side wait for each other rather than go beyond together [G.05]', async () => {
    const budget = new Budget({ maxTokens: 1_000 }, null, 'm')
    const first = await reserve(budget, ask(100, 700))
    let isIn = false
    const waiting = reserve(budget, ask(100, 700)).then((reservation) => {
      isIn = true
      return reservation
    })
    await Promise.resolve()
    expect(isIn).toBe(false)
    first.settle(used(100, 50))
    expect((await waiting).maxOutputTokens).toBe(700)
  })

  it('stays within its tokens whatever requests come and however they end [G.05]', async () => {
    const request = fc.record({
      input: fc.integer({ min: 0, max: 300 }),
      output: fc.integer({ min: 1, max: 500 }),
      share: fc.double({ min: 0, max: 1, noNaN: true }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(request, { maxLength: 12 }), async (requests) => {
        const maxTokens = 1_000
        const budget = new Budget({ maxTokens, maxCostUsd: 0.002 }, { input: 1, output: 3 }, 'm')
        await Promise.all(
          requests.map(async ({ input, output, share }) => {
            const reserved = await budget.reserve(ask(input, output))
            if (!reserved.ok) return
            await Promise.resolve()
            reserved.value.settle(used(input, Math.floor(reserved.value.maxOutputTokens * share)))
          }),
        )
        const { inputTokens, outputTokens } = budget.usage
        expect(inputTokens + outputTokens).toBeLessThanOrEqual(maxTokens)
        expect(budget.costUsd).toBeLessThanOrEqual(0.002 + 1e-9)
      }),
      { numRuns: 500, seed: 11 },
    )
  })

  it('counts every request, also one that failed, and refuses one more than its number [G.05]', async () => {
    const budget = new Budget({ maxTokens: 1_000_000, maxRequests: 2 }, null, 'm')
    for (let index = 0; index < 2; index += 1) (await reserve(budget, ask(1, 1))).settle(nothing)
    const third = await budget.reserve(ask(1, 1))
    expect(third).toMatchObject({ ok: false, error: { code: 'limit_requests', status: 429 } })
  })

  it('counts what requests cost by the price, and pins the answer to what is left of it [G.05]', async () => {
    const budget = new Budget({ maxTokens: 10_000_000, maxCostUsd: 0.01 }, { input: 1, output: 10 }, 'm')
    const first = await reserve(budget, ask(1_000, 16_384))
    expect(first.maxOutputTokens).toBe(900)
    expect(first.settle(used(1_000, 800))).toBeCloseTo(0.009)
    expect(budget.costUsd).toBeCloseTo(0.009)
    expect(await budget.reserve(ask(1_000, 10))).toMatchObject({ ok: false, error: { code: 'limit_cost' } })
  })

  it('refuses a limit of cost for a model without a price, and says where to set it [G.05]', async () => {
    const budget = new Budget({ maxTokens: 1_000, maxCostUsd: 1 }, null, 'some/model')
    expect(await budget.reserve(ask(1, 1))).toMatchObject({
      ok: false,
      error: { code: 'limit_cost', message: expect.stringContaining('prices."some/model"') },
    })
  })

  it('takes a free model for free, and settles once [G.05]', async () => {
    const budget = new Budget({ maxTokens: 1_000, maxCostUsd: 1 }, { input: 0, output: 0 }, 'm')
    const reservation = await reserve(budget, ask(10, 100))
    expect(reservation.settle(used(10, 50))).toBe(0)
    reservation.settle(used(10, 50))
    expect(budget.usage.outputTokens).toBe(50)
  })

  it('stops waiting when the run is over [G.05]', async () => {
    const budget = new Budget({ maxTokens: 100 }, null, 'm')
    await reserve(budget, ask(10, 90))
    const controller = new AbortController()
    const waiting = budget.reserve({ ...ask(10, 90), signal: controller.signal })
    controller.abort()
    expect(await waiting).toMatchObject({ ok: false, error: { code: 'closed' } })
  })
})
