import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { Pool, type PoolMember, type PoolOptions } from '../../vm/pool.ts'

/** Something that lives until it is stopped or dies. */
class Thing implements PoolMember {
  readonly name: number
  readonly #exit = Promise.withResolvers<void>()
  readonly exited = this.#exit.promise
  alive = true

  constructor(name: number) {
    this.name = name
  }

  die(): void {
    this.alive = false
    this.#exit.resolve()
  }

  async stop(): Promise<void> {
    this.die()
    await this.exited
  }
}

const pools: Pool<Thing>[] = []
afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.close()
})

/** A pool of things that start at once, each with the next number. */
function makePool(options: Partial<PoolOptions<Thing>> = {}) {
  const things: Thing[] = []
  const start = async () => {
    const thing = new Thing(things.length)
    things.push(thing)
    return thing
  }
  const backOff = { firstMs: 1, mostMs: 5, soundMs: 60_000 }
  const prepare = async () => undefined
  const pool = new Pool<Thing>({
    size: 0,
    maxMembers: 100,
    waitMs: 60_000,
    start,
    prepare,
    backOff,
    ...options,
  })
  pools.push(pool)
  return { pool, things, alive: () => things.filter(({ alive }) => alive).length, start }
}

/** What became of each by now. */
async function outcomes(promises: Promise<unknown>[]): Promise<string[]> {
  await sleep(10)
  return await Promise.all(
    promises.map((promise) =>
      Promise.race([
        promise.then(
          () => 'served',
          () => 'refused',
        ),
        Promise.resolve('waits').then((text) => text),
      ]),
    ),
  )
}

describe('a pool', () => {
  it('keeps its size ready, hands the oldest out and replaces it [V.01]', async () => {
    const { pool } = makePool({ size: 3 })
    await pool.whenFull()
    expect(pool.counts).toEqual({ ready: 3, starting: 0, handedOut: 0, waiting: 0 })
    expect((await pool.take()).name).toBe(0)
    await pool.whenFull()
    expect(pool.counts).toEqual({ ready: 3, starting: 0, handedOut: 1, waiting: 0 })
    expect((await pool.take()).name).toBe(1)
  })

  it('never has more than it may, and serves who waits in order as places become free [V.01]', async () => {
    const { pool, alive } = makePool({ size: 1, maxMembers: 2 })
    const [first, second] = [await pool.take(), await pool.take()]
    const served: number[] = []
    const waiting = [0, 1, 2].map((caller) =>
      pool.take().then((thing) => {
        served.push(caller)
        return thing
      }),
    )
    expect(await outcomes(waiting)).toEqual(['waits', 'waits', 'waits'])
    expect([alive(), pool.counts.waiting]).toEqual([2, 3])
    first.die()
    await waiting[0]
    expect(alive()).toBe(2)
    await second.stop()
    await waiting[1]
    expect(await outcomes(waiting)).toEqual(['served', 'served', 'waits'])
    await (await waiting[0])?.stop()
    await waiting[2]
    expect(served).toEqual([0, 1, 2])
    expect(alive()).toBe(2)
  })

  it('sends a caller away whose time is over, with what the pool was doing, and serves the next [V.01]', async () => {
    const { pool } = makePool({ maxMembers: 1, waitMs: 20 })
    const only = await pool.take()
    await expect(pool.take()).rejects.toMatchObject({
      kind: 'pool_full',
      seen: expect.stringContaining('1 of at most 1 in use'),
    })
    expect(pool.counts.waiting).toBe(0)
    only.die()
    expect((await pool.take()).name).toBe(1)
  })

  it('takes a caller that gives up out of the queue [V.01]', async () => {
    const { pool } = makePool({ maxMembers: 1 })
    const only = await pool.take()
    const stop = new AbortController()
    const waiting = [pool.take({ signal: stop.signal }), pool.take()]
    const refused = expect(waiting[0]).rejects.toMatchObject({ code: 'cancelled' })
    stop.abort()
    await refused
    expect(pool.counts.waiting).toBe(1)
    only.die()
    expect((await waiting[1])?.name).toBe(1)
    await expect(pool.take({ signal: AbortSignal.abort() })).rejects.toMatchObject({ code: 'cancelled' })
  })

  it('tells who waits their place, and again when it changes [V.01 S1.10]', async () => {
    const { pool } = makePool({ maxMembers: 1 })
    const only = await pool.take()
    const places: number[][] = [[], [], [], []]
    const stop = new AbortController()
    const callers = places.map((told, index) =>
      pool.take({ onPlace: (place) => told.push(place), ...(index === 1 ? { signal: stop.signal } : {}) }),
    )
    const refused = expect(callers[1]).rejects.toMatchObject({ code: 'cancelled' })
    expect(places).toEqual([[1], [2], [3], [4]])
    stop.abort()
    await refused
    expect(places).toEqual([[1], [2], [3, 2], [4, 3]])
    only.die()
    await (await callers[0])?.stop()
    await (await callers[2])?.stop()
    expect((await callers[3])?.alive).toBe(true)
    expect(places).toEqual([[1], [2], [3, 2, 1], [4, 3, 2, 1]])
  })

  it('replaces what dies while it waits [V.01]', async () => {
    const { pool, things } = makePool({ size: 2 })
    await pool.whenFull()
    things[0]?.die()
    await sleep(0)
    expect(pool.counts.ready).toBe(1)
    while (pool.counts.ready < 2) await sleep(1)
    expect([await pool.take(), await pool.take()].map(({ name }) => name)).toEqual([1, 2])
  })

  it('tells a caller why nothing could be started, and slows down while nobody waits [V.01]', async () => {
    let starts = 0
    const start = async () => {
      starts++
      throw new Error(`no memory (${starts})`)
    }
    const backOff = { firstMs: 2_000, mostMs: 10_000, soundMs: 1 }
    const { pool } = makePool({ size: 1, start, backOff })
    await sleep(20)
    expect(starts).toBe(1)
    await expect(pool.take()).rejects.toThrow('no memory (2)')
    await sleep(20)
    expect(starts).toBe(2)
    await expect.poll(() => starts).toBe(3)
  })

  it('slows down as well when what starts dies at once [V.01]', async () => {
    let starts = 0
    const start = async () => {
      const thing = new Thing(starts++)
      setTimeout(() => thing.die(), 0)
      return thing
    }
    makePool({ size: 1, start, backOff: { firstMs: 20, mostMs: 10_000, soundMs: 60_000 } })
    await sleep(200)
    // At 0, 20, 60 and 140 ms and no sooner.
    expect(starts).toBeGreaterThan(1)
    expect(starts).toBeLessThan(6)
  })

  it('is full at once again when starts work again [V.01]', async () => {
    let works = false
    const { pool, start } = makePool({
      size: 2,
      start: async () => (works ? await start() : Promise.reject(new Error('not now'))),
      backOff: { firstMs: 60_000, mostMs: 60_000, soundMs: 1 },
    })
    await expect(pool.whenFull()).rejects.toThrow('not now')
    works = true
    await pool.take()
    await pool.whenFull()
    expect(pool.counts.ready).toBe(2)
  })

  it('ends what is unfit when it is handed out, and gives the next [V.01]', async () => {
    const prepare = async ({ name }: Thing) => {
      if (name === 0) throw new Error('it does not answer')
    }
    const { pool, things } = makePool({ size: 2, prepare })
    await pool.whenFull()
    expect((await pool.take()).name).toBe(1)
    expect(things[0]?.alive).toBe(false)
    const hopeless = makePool({ size: 1, prepare: () => Promise.reject(new Error('never')) })
    await hopeless.pool.whenFull()
    await expect(hopeless.pool.take()).rejects.toThrow('never')
    expect(hopeless.pool.counts.handedOut).toBe(0)
  })

  it('ends everything when it is closed: ready, starting, handed out, and who waits [V.01]', async () => {
    const gate = Promise.withResolvers<void>()
    const { pool, things, start } = makePool({
      size: 1,
      maxMembers: 2,
      start: async () => {
        if (things.length >= 1) await gate.promise
        return await start()
      },
    })
    const handedOut = await pool.take()
    const waiting = [pool.take(), pool.take()]
    const refused = Promise.all(
      waiting.map((each) => expect(each).rejects.toMatchObject({ code: 'cancelled' })),
    )
    const closed = pool.close()
    gate.resolve()
    await Promise.all([refused, closed])
    expect(handedOut.alive).toBe(false)
    expect(things.map(({ alive }) => alive)).toEqual(things.map(() => false))
    expect(pool.counts).toEqual({ ready: 0, starting: 0, handedOut: 0, waiting: 0 })
    await expect(pool.take()).rejects.toMatchObject({ code: 'cancelled' })
    await pool.close()
  })

  it('refuses bounds that its size exceeds [V.01]', () => {
    expect(() => makePool({ size: 3, maxMembers: 2 })).toThrow(
      expect.objectContaining({ code: 'invalid_options' }),
    )
    expect(() => makePool({ size: -1 })).toThrow(expect.objectContaining({ code: 'invalid_options' }))
    expect(() => makePool({ size: 0, maxMembers: 0 })).toThrow(
      expect.objectContaining({ code: 'invalid_options' }),
    )
  })
})
