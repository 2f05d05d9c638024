// What is kept of tools' outputs, and how it is read again.
import { Buffer } from 'node:buffer'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { OutputStore } from '../../run/tool-outputs.ts'
import { createOutputTool } from '../../tools/read-output.ts'
import { call, quietContext } from '../support/tools.ts'

const pagesOf = (store: OutputStore, callId: string, size: number): string => {
  let text = ''
  for (;;) {
    const page = store.read(callId, text.length, size)
    if (!page.ok) throw new Error(page.error.message)
    if (page.value.text === '') return text
    text += page.value.text
  }
}

describe('outputs', () => {
  it('are read again whole, in pages [A.04]', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary', maxLength: 300 }),
        fc.integer({ min: 3, max: 50 }),
        (text, size) => {
          const store = new OutputStore()
          store.keep('c', text)
          // A page that ends within a pair shows each half as damage, and never more than that.
          const read = pagesOf(store, 'c', size)
          expect(read).toHaveLength(text.toWellFormed().length)
          expect(pagesOf(store, 'c', 1_000)).toBe(text.toWellFormed())
        },
      ),
      { seed: 3, numRuns: 200 },
    )
  })

  it('stay within their bytes, the oldest leaves first and says so [A.04]', () => {
    const store = new OutputStore({ maxBytes: 1_000, maxBytesEach: 600 })
    for (const id of ['a', 'b', 'c']) store.keep(id, id.repeat(400))
    expect(store.bytes).toBeLessThanOrEqual(1_000)
    expect(store.has('a')).toBe(false)
    expect(pagesOf(store, 'c', 100)).toBe('c'.repeat(400))
    const gone = store.read('a', 0, 10)
    expect(gone.ok ? '' : gone.error.message).toContain('no longer kept')
    const never = store.read('z', 0, 10)
    expect(never.ok ? '' : never.error.message).toContain('no output is kept')
  })

  it('beyond their bound keep head and tail, and name what is lost [A.04]', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('é', '漢', '😀', 'x', '\ud800'),
        fc.integer({ min: 100, max: 5_000 }),
        (unit, times) => {
          const text = `HEAD${unit.repeat(times)}TAIL`
          const store = new OutputStore({ maxBytesEach: 1_000 })
          store.keep('c', text)
          expect(store.bytes).toBeLessThanOrEqual(1_100)
          const page = store.read('c', 0, 100_000)
          if (!page.ok) throw new Error(page.error.message)
          expect(page.value.text.startsWith('HEAD')).toBe(true)
          expect(page.value.text.endsWith('TAIL')).toBe(true)
          expect(page.value.lostBytes > 0).toBe(Buffer.byteLength(text) > 1_000)
        },
      ),
      { seed: 4, numRuns: 100 },
    )
  })

  it('of 50 MB cost no more than their bound [A.04]', () => {
    const store = new OutputStore()
    store.keep('c', 'x'.repeat(50 * 1024 * 1024))
    expect(store.bytes).toBeLessThan(4.1 * 1024 * 1024)
    expect(store.read('c', 0, 10)).toMatchObject({ ok: true, value: { text: 'xxxxxxxxxx' } })
  })
})

describe('read_output', () => {
  it('gives a page in a block that its text cannot end, and says where it continues [A.04]', async () => {
    const outputs = new OutputStore()
    outputs.keep('call-1', `${'a'.repeat(50)}</output>${'b'.repeat(50)}`)
    const tool = createOutputTool()
    const context = { ...quietContext, outputs }
    const result = await call(tool, { callId: 'call-1', limit: 60 }, context)
    if (!result.ok) throw new Error(result.error.message)
    const shown = tool.render?.(result.value) ?? ''
    expect(shown.startsWith('[characters 0 to 60 of 109; read on with offset 60]\n<output>\n')).toBe(true)
    expect(shown.match(/<\/output>/g)).toHaveLength(1)
    expect(await call(tool, { callId: 'call-1' })).toMatchObject({ error: { code: 'unavailable' } })
    expect(await call(tool, { callId: 'call-2' }, context)).toMatchObject({ error: { code: 'not_found' } })
  })
})
