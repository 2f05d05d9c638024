import { setTimeout } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { RepeatableRequests } from '../../guest/guest-requests.ts'

interface Question {
  readonly id: string
  readonly text: string
}

function open(neverTwice = false) {
  const counts = { handled: 0 }
  const handle = async () => {
    counts.handled += 1
    return { ok: true, value: counts.handled } as const
  }
  const requests = new RepeatableRequests<Question, number>(({ id }) => id, handle, neverTwice)
  const ask = (id: string, text = '') => requests.ask({ id, text }, new AbortController().signal)
  return { ask, counts }
}

describe('a request of the guest', () => {
  it('is handled once however often it comes, and another one under its id is refused [S1.11 S2.16]', async () => {
    const { ask, counts } = open()
    const answers = await Promise.all([ask('a', 'delete'), ask('a', 'delete')])
    expect([...answers, await ask('a', 'delete')]).toEqual(Array(3).fill({ ok: true, value: 1 }))
    expect(await ask('a', 'keep')).toMatchObject({ ok: false, error: { code: 'invalidParams' } })
    expect(counts.handled).toBe(1)
  })

  it('leaves only its digest and its answer in memory, of the last 1,024', async () => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const counts = { handled: 0 }
    const requests = new RepeatableRequests<Question, null>(
      ({ id }) => id,
      async () => {
        counts.handled += 1
        return { ok: true, value: null }
      },
    )
    const signal = new AbortController().signal
    const large = await (async () => {
      const first = { id: 'a1', text: 'x'.repeat(100_000) }
      await requests.ask(first, signal)
      return new WeakRef(first)
    })()
    await setTimeout(1)
    collect()
    expect(large.deref()).toBeUndefined()
    for (let at = 2; at <= 1_025; at++) await requests.ask({ id: `a${at}`, text: '' }, signal)
    expect(counts.handled).toBe(1_025)
    await requests.ask({ id: 'a2', text: '' }, signal)
    expect(counts.handled).toBe(1_025)
    await requests.ask({ id: 'a1', text: '' }, signal)
    expect(counts.handled).toBe(1_026)
  })

  it('is refused once its answer is forgotten, when its effect cannot be repeated', async () => {
    const { ask, counts } = open(true)
    for (let at = 1; at <= 65; at++) await ask(`a${at}`)
    expect(await ask('a1')).toMatchObject({ ok: false, error: { code: 'invalidParams' } })
    expect(counts.handled).toBe(65)
  })
})
