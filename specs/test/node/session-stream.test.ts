import { duplexPair } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { Channel } from '../../node/channel.ts'
import { SessionStream } from '../../node/session-stream.ts'

const MiB = 1024 * 1024
const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('the stream of a session', () => {
  it('that nobody reads takes no more than its bound from the port, and the rest once somebody does [C.04]', async () => {
    const [near, far] = duplexPair()
    const stream = new SessionStream(
      new Channel(
        near,
        () => {},
        () => {},
      ),
    )
    const sentBytes = 32 * MiB
    for (let sent = 0; sent < sentBytes; sent += MiB) far.write(Buffer.alloc(MiB))
    for (let turns = 0; turns < 200; turns++) await turn()
    expect(stream.readableLength).toBeGreaterThanOrEqual(8 * MiB)
    expect(stream.readableLength).toBeLessThan(10 * MiB)

    let read = 0
    for await (const chunk of stream) {
      read += (chunk as Buffer).length
      if (read === sentBytes) break
    }
    expect(read).toBe(sentBytes)
  })
})
