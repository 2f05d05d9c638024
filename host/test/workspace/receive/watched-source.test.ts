import { readdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { encodeChanges } from '#specs/node/change-encoder.ts'
import { type ReceiveOptions, receiveChanges } from '../../../workspace/receive/receive.ts'
import { Bench, treeOf } from '../support.ts'

/** The beginning of a change stream, after which `then` happens. */
async function* beginningOf(then: () => Promise<void>): AsyncGenerator<Uint8Array> {
  for await (const chunk of encodeChanges([{ entry: { kind: 'directory', path: 'd', mode: 0o755 } }])) {
    yield chunk.subarray(0, 5)
    break
  }
  await then()
}

const never = () => new Promise<void>(() => {})

async function receive(bench: Bench, options: Pick<ReceiveOptions, 'source' | 'signal'>) {
  const { manifest } = await bench.takeIn()
  const received = await receiveChanges({ manifest, runDirectory: bench.run, spareBytes: 0, ...options })
  expect(readdirSync(bench.run)).toEqual([])
  return received.ok ? 'received' : received.error.code
}

describe('receiving from a guest that says nothing', () => {
  it('ends when the host gives up, without waiting for the next chunk', async () => {
    using bench = new Bench(treeOf({ a: 'a' }))
    const stop = new AbortController()
    const source = beginningOf(() => {
      setImmediate(() => stop.abort())
      return never()
    })
    expect(await receive(bench, { source, signal: stop.signal })).toBe('cancelled')
  })

  it('ends at once when the host gave up before', async () => {
    using bench = new Bench(treeOf({ a: 'a' }))
    expect(await receive(bench, { source: beginningOf(never), signal: AbortSignal.abort() })).toBe(
      'cancelled',
    )
  })

  it('is cancelled, not cut short, when the same signal also ends the stream', async () => {
    using bench = new Bench(treeOf({ a: 'a' }))
    for (const failure of [new Error('stream was destroyed'), undefined]) {
      const stop = new AbortController()
      const source = beginningOf(async () => {
        stop.abort()
        if (failure !== undefined) throw failure
      })
      expect(await receive(bench, { source, signal: stop.signal })).toBe('cancelled')
    }
    const source = beginningOf(async () => {
      throw new Error('stream was destroyed')
    })
    expect(await receive(bench, { source, signal: new AbortController().signal })).toBe('cut_short')
  })
})
