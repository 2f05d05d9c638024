import { type Duplex, duplexPair } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { PrivilegedPort, ReseedError } from '../../vm/reseed.ts'
import { until } from '../support/run-values.ts'

const HOUR_MS = 60 * 60 * 1000

/** A port whose guest answers each message with what `answer` makes of it. */
function portWith(answer: (message: Buffer, index: number) => Buffer | undefined): {
  port: PrivilegedPort
  messages: Buffer[]
  guest: Duplex
} {
  const [host, guest] = duplexPair()
  const messages: Buffer[] = []
  guest.on('data', (message: Buffer) => {
    const said = answer(message, messages.push(message) - 1)
    if (said !== undefined) guest.write(said)
  })
  return { port: new PrivilegedPort(host), messages, guest }
}

function answerWith(epochMs: number): Buffer {
  const answer = Buffer.from('CAISSONF\0\0\0\0\0\0\0\0', 'latin1')
  answer.writeBigUInt64BE(BigInt(Math.round(epochMs * 1000)), 8)
  return answer
}

function answerToFlush(message: Buffer, failed = false): Buffer {
  const answer = Buffer.from(message.subarray(0, 16))
  if (failed) answer.writeUInt8(0x80, 8)
  return answer
}

describe('a flush of the guest’s disk', () => {
  it('is done when the guest says so, and failed when it says that [W.04]', async () => {
    const { port, messages } = portWith((message, index) => answerToFlush(message, index === 1))
    await port.flush(5_000)
    await expect(port.flush(5_000)).rejects.toThrow('could not flush its disk')
    await port.flush(5_000)
    expect(messages.map((message) => message.toString('latin1', 0, 8))).toEqual(Array(3).fill('CAISSONC'))
    expect(messages.map((message) => Number(message.readBigUInt64BE(8)))).toEqual([1, 2, 3])
  })

  it('that was given up is not taken for the next one, nor for the time [W.04]', async () => {
    const [host, guest] = duplexPair()
    const port = new PrivilegedPort(host)
    const waiting: Buffer[] = []
    guest.on('data', (message: Buffer) => waiting.push(message))
    await expect(port.flush(20)).rejects.toThrow('did not flush its disk in time')
    const next = port.flush(5_000)
    await until(() => waiting.length === 2, 'both requests')
    guest.write(answerToFlush(waiting[0] ?? Buffer.alloc(0)))
    expect(await Promise.race([next, new Promise((resolve) => setTimeout(resolve, 20, 'waits'))])).toBe(
      'waits',
    )
    guest.write(answerToFlush(waiting[1] ?? Buffer.alloc(0)))
    await next
    const clock = port.refresh({ deadlineMs: 5_000 })
    await until(() => waiting.length === 3, 'the time')
    guest.write(
      Buffer.concat([answerToFlush(waiting[1] ?? Buffer.alloc(0)), answerWith(Date.now() + HOUR_MS)]),
    )
    expect(await clock).toBeGreaterThan(HOUR_MS / 2)
  })
})

describe('the port of the guest’s root side', () => {
  it('is sent other random bytes each time, and the time; says how far the guest’s clock is off [V.03]', async () => {
    const { port, messages } = portWith((_, index) => answerWith(Date.now() + index * HOUR_MS))
    const before = Date.now()
    expect(Math.abs(await port.refresh({ deadlineMs: 5_000 }))).toBeLessThan(HOUR_MS / 2)
    expect(Math.round((await port.refresh({ deadlineMs: 5_000 })) / HOUR_MS)).toBe(1)
    await port.refresh({ entropy: false, epochMs: 1_000, deadlineMs: 5_000 })
    expect(messages.map(({ length }) => length)).toEqual([80, 80, 80])
    const [one, other, clock] = messages.map((message) => message.subarray(16).toString('hex'))
    expect(one).not.toBe(other)
    expect(clock).toBe('0'.repeat(128))
    const times = messages.map((message) => Number(message.readBigUInt64BE(8)) / 1000)
    expect(times[0]).toBeGreaterThanOrEqual(before)
    expect(times[2]).toBe(1_000)
  })

  it('sets the clock again while it is off, and not forever [V.03]', async () => {
    const corrected = portWith((_, index) => answerWith(Date.now() + (index === 0 ? HOUR_MS : 0)))
    await corrected.port.settle(5_000)
    expect(corrected.messages.length).toBeGreaterThanOrEqual(2)
    const lying = portWith(() => answerWith(Date.now() + 2 * HOUR_MS))
    await lying.port.settle(5_000)
    expect(lying.messages).toHaveLength(3)
  })

  it('lets a guest continue when its clock is near the host’s, and does not wait for one that never gets there [V.03]', async () => {
    const late = portWith((_, index) => answerWith(Date.now() + (index < 2 ? HOUR_MS : 0)))
    await late.port.reseed({ deadlineMs: 5_000 })
    expect(late.messages.length).toBeGreaterThanOrEqual(3)
    const hasSeed = late.messages.map((message) => !message.subarray(16).equals(Buffer.alloc(64)))
    expect(hasSeed.slice(0, 3)).toEqual([true, false, false])
    const lying = portWith(() => answerWith(Date.now() + 2 * HOUR_MS))
    await lying.port.reseed({ entropy: false, deadlineMs: 5_000 })
    expect(lying.messages.length).toBeGreaterThanOrEqual(3)
    expect(lying.messages.length).toBeLessThanOrEqual(9)
  })

  it('does not take the answer to a question that it gave up for the answer to the next one [V.03]', async () => {
    const [host, guest] = duplexPair()
    const port = new PrivilegedPort(host)
    const waiting: Buffer[] = []
    guest.on('data', (message: Buffer) => waiting.push(message))
    // As when the VM was made to stand still just after it was asked.
    await expect(
      port.refresh({ entropy: false, epochMs: Date.now() - HOUR_MS, deadlineMs: 20 }),
    ).rejects.toThrow('took neither')
    const asked = port.refresh({ deadlineMs: 5_000 })
    await until(() => waiting.length === 2, 'both questions')
    const [stale, present] = waiting.map((message) => Number(message.readBigUInt64BE(8)) / 1000)
    guest.write(answerWith((stale ?? 0) + 0.1))
    const first = await Promise.race([asked, new Promise((resolve) => setTimeout(resolve, 20, 'waits'))])
    expect(first).toBe('waits')
    // In two pieces, the first of them with the rest of what came before.
    const answer = Buffer.concat([answerWith((stale ?? 0) + 0.2), answerWith((present ?? 0) + 0.1)])
    guest.write(answer.subarray(0, 20))
    guest.write(answer.subarray(20))
    expect(Math.abs(await asked)).toBeLessThan(HOUR_MS / 2)
  })

  it('says that a guest gives no answer, another one, or that it is gone [V.03]', async () => {
    const silent = portWith(() => undefined)
    await expect(silent.port.refresh({ deadlineMs: 20 })).rejects.toThrow('took neither')
    const strange = portWith(() => Buffer.alloc(16, 7))
    await expect(strange.port.refresh({ deadlineMs: 5_000 })).rejects.toThrow('another form')
    const [host] = duplexPair()
    const port = new PrivilegedPort(host)
    const asked = port.refresh({ deadlineMs: 5_000 })
    host.destroy()
    await expect(asked).rejects.toThrow('the port closed')
  })

  it('takes any bytes in any pieces as an answer or an error, and keeps none of them [V.03]', async () => {
    const pieces = fc.array(fc.uint8Array({ maxLength: 40 }), { minLength: 1, maxLength: 8 })
    const property = fc.asyncProperty(pieces, async (sent) => {
      const { port, guest } = portWith(() => undefined)
      const asked = port.refresh({ deadlineMs: 5 })
      for (const piece of sent) guest.write(piece)
      await asked.then(
        (offset) => expect(Number.isFinite(offset)).toBe(true),
        (error: unknown) => expect(error).toBeInstanceOf(ReseedError),
      )
    })
    await fc.assert(property, { numRuns: 60, seed: 20_261_121 })
  })
})
