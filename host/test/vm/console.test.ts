import { PassThrough } from 'node:stream'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ByteRing } from '../../vm/qemu/byte-ring.ts'
import { VmConsole } from '../../vm/qemu/vm-console.ts'

describe('ByteRing', () => {
  it('keeps the last bytes of whatever comes and says how many are gone', () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: 'grapheme-ascii', maxLength: 40 }), { maxLength: 60 }),
        (parts) => {
          const ring = new ByteRing(50)
          for (const part of parts) ring.push(Buffer.from(part))
          const all = parts.join('')
          expect(ring.totalBytes).toBe(all.length)
          const lost = Math.max(0, all.length - 50)
          expect(ring.text()).toBe((lost > 0 ? `[… ${lost} earlier bytes not kept …]` : '') + all.slice(lost))
        },
      ),
      { seed: 3, numRuns: 300 },
    )
  })
})

describe('VmConsole', () => {
  it('finds whole lines however the bytes are cut', async () => {
    const stream = new PassThrough()
    const console = new VmConsole(stream)
    const lines: string[] = []
    console.onLine((line) => lines.push(line))
    for (const byte of Buffer.from('one\r\ntwo\n\nthe rest')) stream.write(Buffer.of(byte))
    await new Promise((resolve) => setImmediate(resolve))
    expect(lines).toEqual(['one', 'two', ''])
    expect(console.text()).toBe('one\r\ntwo\n\nthe rest')
  })

  it('stays small when a guest never ends its line [T.02]', async () => {
    const stream = new PassThrough()
    const console = new VmConsole(stream)
    const lines: string[] = []
    console.onLine((line) => lines.push(line))
    for (let count = 0; count < 300; count++) stream.write(Buffer.alloc(4096, 'x'))
    stream.write('\n')
    await new Promise((resolve) => setImmediate(resolve))
    expect(lines).toEqual(['x'.repeat(4096)])
    expect(console.totalBytes).toBe(300 * 4096 + 1)
    expect(console.text().length).toBeLessThan(66_000)
  })
})
