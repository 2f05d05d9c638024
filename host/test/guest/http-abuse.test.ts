// A guest that speaks HTTP/2 by hand, frame by frame (RFC 9113, section 4.1), against the host's end of caisson.http.
import { duplexPair } from 'node:stream'
import { setTimeout as wait } from 'node:timers/promises'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { perTier } from '#specs/testing/tier.ts'
import { http2Limits, serveHttp2 } from '../../guest/http-server.ts'

const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const DATA = 0
const HEADERS = 1
const RESET = 3
const SETTINGS = 4
const PING = 6
const WINDOW_UPDATE = 8
const CONTINUATION = 9
const ACK = 1
const END_STREAM = 1
const END_HEADERS = 4

function frame(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9)
  head.writeUIntBE(payload.length, 0, 3)
  head.writeUInt8(type, 3)
  head.writeUInt8(flags, 4)
  head.writeUInt32BE(stream, 5)
  return Buffer.concat([head, payload])
}

/** HPACK without tables or Huffman coding (RFC 7541, section 6.2.2). */
function field(name: string, value: string): Buffer {
  const text = (part: string): Buffer => Buffer.concat([length(part.length), Buffer.from(part, 'latin1')])
  return Buffer.concat([Buffer.from([0]), text(name), text(value)])
}

/** An integer with a prefix of seven bits (RFC 7541, section 5.1). */
function length(count: number): Buffer {
  if (count < 127) return Buffer.from([count])
  const bytes = [127]
  let left = count - 127
  for (; left >= 128; left >>= 7) bytes.push((left & 127) | 128)
  return Buffer.from([...bytes, left])
}

const request = Buffer.concat(
  [
    [':method', 'POST'],
    [':scheme', 'http'],
    [':authority', 'gateway'],
    [':path', '/v1/models'],
  ].map(([name = '', value = '']) => field(name, value)),
)
const open = (stream: number, flags = END_HEADERS) => frame(HEADERS, flags, stream, request)
const u32 = (value: number) => {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}
const odd = (index: number) => index * 2 + 1

/** A session with a guest that has said hello; every stream is answered at once with `answerBytes`. */
function meet(answerBytes = 2) {
  const [guest, host] = duplexPair()
  const ends: string[] = []
  const received: Buffer[] = []
  let pings = 0
  let streams = 0
  let open = 0
  let mostOpen = 0
  const session = serveHttp2(
    host,
    (stream) => {
      streams += 1
      mostOpen = Math.max(mostOpen, ++open)
      stream.on('close', () => {
        open -= 1
      })
      stream.resume()
      stream.respond({ ':status': 200 })
      stream.end(Buffer.alloc(answerBytes))
    },
    (message) => ends.push(message),
  )
  guest.on('data', (chunk: Buffer) => received.push(chunk))
  guest.on('error', () => undefined)
  guest.write(Buffer.concat([PREFACE, frame(SETTINGS, 0, 0)]))
  return {
    guest,
    session,
    ends,
    answered: () => Buffer.concat(received),
    /** Until the session has ended, or has answered a ping, which it takes behind all that was sent before. */
    async settled() {
      const mark = Buffer.from(`settle${++pings}`.padEnd(8))
      guest.write(frame(PING, 0, 0, mark))
      const answer = frame(PING, ACK, 0, mark)
      for (let count = 0; count < 500 && ends.length === 0; count += 1) {
        if (Buffer.concat(received).includes(answer)) return
        await wait(2)
      }
    },
    streams: () => streams,
    mostOpen: () => mostOpen,
    async [Symbol.asyncDispose]() {
      session.destroy()
      guest.destroy()
      await wait(0)
    },
  }
}

async function flood(world: ReturnType<typeof meet>, pieces: Iterable<Buffer>): Promise<void> {
  for (const piece of pieces) {
    if (world.ends.length > 0) break
    if (!world.guest.write(piece)) await wait(0)
  }
  await world.settled()
}

const repeat = function* (count: number, make: (index: number) => Buffer): Generator<Buffer> {
  for (let index = 0; index < count; index += 1) yield make(index)
}

describe('a guest that abuses HTTP/2', () => {
  it('is served as long as it keeps the rules, however it speaks [C.04]', async () => {
    await using world = meet()
    await flood(
      world,
      repeat(40, (index) => open(odd(index), END_HEADERS | END_STREAM)),
    )
    expect(world.ends).toEqual([])
    expect(world.streams()).toBe(40)
  })

  const cases: readonly (readonly [string, () => Iterable<Buffer>])[] = [
    [
      'opens and resets streams without end',
      () => repeat(20_000, (index) => Buffer.concat([open(odd(index)), frame(RESET, 0, odd(index), u32(8))])),
    ],
    [
      'continues with a head that never ends',
      () =>
        (function* () {
          yield open(1, 0)
          yield* repeat(20_000, () => frame(CONTINUATION, 0, 1, field('x', 'y'.repeat(1_000))))
        })(),
    ],
    [
      'sends more than its window',
      () =>
        (function* () {
          yield open(1)
          yield* repeat(2_000, () => frame(DATA, 0, 3, Buffer.alloc(16_384)))
        })(),
    ],
    ['names a stream of the host', () => [open(2)]],
    [
      'makes a window larger than there is',
      () => repeat(3, () => frame(WINDOW_UPDATE, 0, 0, u32(0x7fffffff))),
    ],
    ['sends a frame longer than agreed', () => [frame(DATA, 0, 1, Buffer.alloc(70_000))]],
    [
      'sends heads that cannot be decoded',
      () => repeat(200, (index) => frame(HEADERS, END_HEADERS, odd(index), Buffer.alloc(64, 0xff))),
    ],
  ]
  it.each(cases)('and %s loses its session, and nothing else [C.04]', async (_, attack) => {
    await using world = meet()
    await flood(world, attack())
    expect(world.ends).toHaveLength(1)
    expect(world.mostOpen()).toBeLessThanOrEqual(http2Limits.maxConcurrentStreams)
    await using next = meet()
    await flood(next, [open(1, END_HEADERS | END_STREAM)])
    expect([next.ends, next.streams()]).toEqual([[], 1])
  })

  it('gets a head of more than 16 KiB, or of more than 64 fields, refused before anybody sees it [C.04]', async () => {
    await using world = meet()
    const large = Buffer.concat([request, field('x-large', 'y'.repeat(http2Limits.maxHeaderListBytes))])
    const many = Buffer.concat([
      request,
      ...Array.from({ length: 100 }, (_, index) => field(`x-${index}`, 'y')),
    ])
    // A head longer than a frame continues in the next.
    await flood(world, [
      frame(HEADERS, END_STREAM, 1, large.subarray(0, 16_000)),
      frame(CONTINUATION, END_HEADERS, 1, large.subarray(16_000)),
      frame(HEADERS, END_HEADERS | END_STREAM, 3, many),
    ])
    expect(world.streams()).toBe(0)
  })

  it('has no more than 64 streams open, and the rest refused [C.04]', async () => {
    // Answers that nobody reads: its window is shut.
    await using world = meet(1_000_000)
    world.guest.write(frame(SETTINGS, 0, 0, Buffer.concat([Buffer.from([0, 4]), u32(0)])))
    await flood(
      world,
      repeat(90, (index) => open(odd(index), END_HEADERS | END_STREAM)),
    )
    expect(world.mostOpen()).toBe(http2Limits.maxConcurrentStreams)
  })

  it('makes the host keep little of answers that it does not read [C.04]', async () => {
    const before = process.memoryUsage().arrayBuffers
    await using world = meet(100_000)
    world.guest.write(frame(SETTINGS, 0, 0, Buffer.concat([Buffer.from([0, 4]), u32(0)])))
    await flood(
      world,
      repeat(1_000, (index) => frame(PING, 0, 0, Buffer.alloc(8, index))),
    )
    await flood(
      world,
      repeat(60, (index) => open(odd(index), END_HEADERS | END_STREAM)),
    )
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 1024 * 1024)
    expect(world.answered().length).toBeLessThan(1024 * 1024)
  })

  it('cannot crash the host by any frames [C.04]', { timeout: 60_000 }, async () => {
    const anyFrame = fc
      .tuple(
        fc.nat(12),
        fc.nat(255),
        fc.constantFrom(0, 1, 2, 3, 5, 0x7fffffff),
        fc.uint8Array({ maxLength: 64 }),
      )
      .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload))
    await fc.assert(
      fc.asyncProperty(fc.array(anyFrame, { maxLength: 40 }), async (frames) => {
        await using world = meet()
        world.guest.write(Buffer.concat([open(1), ...frames]))
        await wait(1)
        expect(world.ends.length).toBeLessThanOrEqual(1)
      }),
      { seed: 20_261_121, numRuns: perTier(100, 300) },
    )
  })
})
