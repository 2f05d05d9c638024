// The outer form of messages, and their rate.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createRateLimit, findEnvelopeFault } from '#specs/protocol/envelope.ts'

const base = { jsonrpc: '2.0' }

describe('the envelope of a message', () => {
  it.each([
    { ...base, id: 1, method: 'agent/ping', params: {} },
    { ...base, method: 'log/write', params: {} },
    { ...base, id: 'a', result: null },
    { ...base, id: 1, error: { code: -32601, message: 'no' } },
    { ...base, method: '$/cancelRequest', params: { id: 3 } },
  ])('is accepted: %j [C.02]', (message) => {
    expect(findEnvelopeFault(message)).toBeNull()
  })

  it.each([
    [null],
    [[]],
    ['text'],
    [{ ...base }],
    [{ jsonrpc: '1.0', id: 1, result: 1 }],
    [{ ...base, id: null, result: 1 }],
    [{ ...base, id: 1.5, method: 'x' }],
    [{ ...base, id: {}, method: 'x' }],
    [{ ...base, id: 1, method: 7 }],
    [{ ...base, id: 1, method: 'x'.repeat(65) }],
    [{ ...base, id: 1, method: 'x', params: [1] }],
    [{ ...base, id: 1, method: 'x', result: 1 }],
    [{ ...base, id: 1, result: 1, error: { code: 1, message: '' } }],
    [{ ...base, id: 1, error: 'x' }],
    [{ ...base, id: 1, error: { code: 'x', message: '' } }],
    [{ ...base, result: 1 }],
    [{ ...base, id: 1, result: 1, extra: 1 }],
    [{ ...base, method: '$/cancelRequest' }],
    [{ ...base, method: '$/cancelRequest', params: { id: null } }],
    [{ ...base, id: 1, method: '$/cancelRequest', params: { id: 1 } }],
    [{ ...base, method: '$/progress', params: { token: 1 } }],
  ])('is refused: %j [C.02]', (message) => {
    expect(findEnvelopeFault(message)).toMatch(/^an? |^params/)
  })

  it('is judged without throwing, whatever the value is [C.02]', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        findEnvelopeFault(value)
        findEnvelopeFault({ jsonrpc: '2.0', id: value, method: value, params: value })
        findEnvelopeFault({ jsonrpc: '2.0', id: 1, error: value })
      }),
      { seed: 4, numRuns: 500 },
    )
  })
})

describe('the rate of messages', () => {
  it('is averaged over ten seconds [C.02]', () => {
    let time = 0
    const rate = createRateLimit(() => time, 10)
    const takeAll = (): number => {
      let taken = 0
      while (taken < 1_000 && rate.take()) taken++
      return taken
    }
    expect(takeAll()).toBe(100)
    time += 1_000
    expect(takeAll()).toBe(10)
    time += 1_000_000
    expect(takeAll()).toBe(100)
  })
})
