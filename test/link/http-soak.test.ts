// Many requests of the guest at once over one port: big bodies, resets, cancels, and sessions that end in between.
import { createHash } from 'node:crypto'
import type { ServerHttp2Stream } from 'node:http2'
import { expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { HttpSessionLostError, HttpStreamResetError } from '../../agent/link/http.ts'
import { until } from '../../host/test/support/run-values.ts'
import { createDraw } from './draw.ts'
import { createWorld } from './support.ts'

it('answers each of many requests at once whole or with an error, over sessions that end [C.04]', async () => {
  const rounds = perTier(60, 4_000)
  const atOnce = 24
  const draw = createDraw(11)
  let open = 0
  const onStream = (stream: ServerHttp2Stream, headers: Record<string, unknown>): void => {
    open++
    stream.on('error', () => {}).on('close', () => open--)
    stream.respond({ ':status': 200 })
    if (headers[':path'] === '/echo') return void stream.pipe(stream)
    stream.write('begun')
    if (headers[':path'] === '/reset') setTimeout(() => stream.destroy(new Error('broken off')), draw(20))
  }
  await using world = createWorld({ onStream })
  const { http } = world.startGuest()
  await world.link.ready()

  const ends = { whole: 0, reset: 0, cancelled: 0, lost: 0 }
  const read = async (path: string, body: Buffer, signal = new AbortController().signal): Promise<string> => {
    const answer = await http.post(`http://gateway${path}`, { body, signal })
    const hash = createHash('sha256')
    for await (const chunk of answer.body) hash.update(chunk as Buffer)
    return hash.digest('hex')
  }
  const perform = async (): Promise<void> => {
    const kind = draw(10)
    if (kind < 6) {
      const body = Buffer.alloc(draw(2) === 0 ? draw(4_000) : draw(2 << 20), draw(250))
      expect(await read('/echo', body)).toBe(createHash('sha256').update(body).digest('hex'))
      ends.whole++
    } else if (kind < 8) {
      const failure = await read('/reset', Buffer.from('x')).catch((error: unknown) => error)
      if (failure instanceof HttpSessionLostError) throw failure
      expect(failure).toBeInstanceOf(HttpStreamResetError)
      ends.reset++
    } else {
      const controller = new AbortController()
      const timer = setTimeout(() => controller.abort(new Error('enough')), draw(15))
      const reading = read('/hang', Buffer.from('x'), controller.signal).finally(() => clearTimeout(timer))
      const failure = await reading.catch((error: unknown) => error)
      if (failure instanceof HttpSessionLostError) throw failure
      expect(failure).toMatchObject({ message: 'enough' })
      ends.cancelled++
    }
  }

  let begun = 0
  const work = async (): Promise<void> => {
    while (begun < rounds) {
      if (++begun % 100 === 50) world.link.restartSession('again')
      await perform().catch((error: unknown) => {
        expect(error).toBeInstanceOf(HttpSessionLostError)
        ends.lost++
      })
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))

  expect(ends.whole + ends.reset + ends.cancelled + ends.lost).toBe(begun)
  expect(Math.min(ends.whole, ends.reset, ends.cancelled)).toBeGreaterThan(0)
  // Each session that ended failed its open requests, and no others.
  expect(ends.lost).toBeLessThanOrEqual(Math.ceil(rounds / 100) * atOnce)
  await until(() => open === 0, 'the end of all streams on the host')
  expect(await read('/echo', Buffer.from('still here'))).toBe(
    createHash('sha256').update('still here').digest('hex'),
  )
})
