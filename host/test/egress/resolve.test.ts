import { describe, expect, it } from 'vitest'
import { notPublic } from '#specs/node/web/addresses.ts'
import { createResolver, resolveName } from '../../egress/resolve.ts'

const never = new AbortController().signal
const failing = (code: string) => () => Promise.reject(Object.assign(new Error(code), { code }))

describe('a look-up', () => {
  it('asks the system of the host, and gives all addresses [G.02]', async () => {
    const found = await resolveName('localhost', never)
    expect(found.ok && found.value.every((address) => notPublic(address) !== null)).toBe(true)
  })

  it('gives each address once, in the resolver’s order [G.08]', async () => {
    const addresses = ['2.2.2.2', '::1', '2.2.2.2', '1.1.1.1'].map((address) => ({ address }))
    const resolve = createResolver({ lookup: () => Promise.resolve(addresses) })
    expect(await resolve('example.com', never)).toEqual({ ok: true, value: ['2.2.2.2', '::1', '1.1.1.1'] })
  })

  it.each([
    ['a name that is not known', failing('ENOTFOUND'), 'not-found', 'ENOTFOUND'],
    ['a resolver that fails', failing('EAI_AGAIN'), 'failed', 'EAI_AGAIN'],
    ['a name without addresses', () => Promise.resolve([]), 'not-found', 'no addresses'],
  ])('says what is wrong with %s [G.03]', async (_, lookup, kind, word) => {
    const found = await createResolver({ lookup })('example.com', never)
    expect(found).toMatchObject({ ok: false, error: { kind, message: expect.stringContaining(word) } })
  })

  it('ends by its time limit and by its caller, whatever the resolver does [G.03]', async () => {
    const lookup = () => new Promise<[]>(() => undefined)
    expect(await createResolver({ lookup, timeoutMs: 10 })('example.com', never)).toMatchObject({
      error: { kind: 'timeout' },
    })
    const gone = new AbortController()
    const asked = createResolver({ lookup })('example.com', gone.signal)
    gone.abort()
    expect(await asked).toMatchObject({ error: { kind: 'cancelled' } })
    expect(await createResolver({ lookup })('example.com', gone.signal)).toMatchObject({
      error: { kind: 'cancelled' },
    })
  })

  it('takes two threads of the process at most; who waits for one and gives up asks nobody [G.08]', async () => {
    const open: PromiseWithResolvers<{ address: string }[]>[] = []
    const names: string[] = []
    const resolve = createResolver({
      lookup: (name) => {
        names.push(name)
        const answer = Promise.withResolvers<{ address: string }[]>()
        open.push(answer)
        return answer.promise
      },
    })
    const gone = new AbortController()
    const first = [resolve('a', never), resolve('b', gone.signal)]
    const waiting = [resolve('c', gone.signal), resolve('d', never)]
    await Promise.resolve()
    expect(names).toEqual(['a', 'b'])
    gone.abort()
    await first[1]
    // The look-up that nobody waits for still has its thread.
    expect(names).toEqual(['a', 'b'])
    for (const answer of open) answer.resolve([{ address: '1.1.1.1' }])
    expect(await waiting[0]).toMatchObject({ ok: false })
    await first[0]
    await new Promise((done) => setImmediate(done))
    expect(names).toEqual(['a', 'b', 'd'])
    open[2]?.resolve([{ address: '1.1.1.1' }])
    expect(await waiting[1]).toMatchObject({ ok: true })
  })
})
