// Keys at a terminal where a status line is drawn.
import { once } from 'node:events'
import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { captureInput, editLine } from '../../../cli/prompts/terminal-input.ts'

/** A terminal in memory, and the modes that it was given. */
function terminal() {
  const modes: boolean[] = []
  const input = new PassThrough()
  Object.assign(input, { isTTY: true, setRawMode: (isRaw: boolean) => modes.push(isRaw) })
  return { input, modes }
}

describe('keys that are taken', () => {
  it('are not shown meanwhile: the terminal hands over each, and is given back as it was [H.01]', async () => {
    const { input, modes } = terminal()
    const keys: string[] = []
    const taken = captureInput(input, (typed) => keys.push(typed))
    expect(modes).toEqual([true])
    const euro = Buffer.from('€')
    input.write('ab')
    input.write(euro.subarray(0, 1))
    input.write(euro.subarray(1))
    await expect.poll(() => keys.join('')).toBe('ab€')
    taken[Symbol.dispose]()
    expect(modes).toEqual([true, false])
    expect([input.listenerCount('data'), input.isPaused()]).toEqual([0, true])
  })

  it('are handed over to whoever takes them next, in between shown by nobody and lost to nobody [H.01]', async () => {
    const { input, modes } = terminal()
    const keys: string[] = []
    {
      using first = captureInput(input, () => undefined)
      first.handOver()
      input.write('typed in between')
    }
    expect(modes).toEqual([true])
    using second = captureInput(input, (typed) => keys.push(typed))
    await expect.poll(() => keys).toEqual(['typed in between'])
    second[Symbol.dispose]()
    expect(modes).toEqual([true, true, false])
  })

  it('still interrupt the program with Ctrl-C, which is no key of a line [H.01 A.08]', async () => {
    const { input } = terminal()
    const keys: string[] = []
    using _ = captureInput(input, (typed) => keys.push(typed))
    const interrupted = once(process, 'SIGINT')
    input.write('a\u0003b')
    await interrupted
    expect(keys).toEqual(['ab'])
  })

  it('of something that is no terminal come as they are', async () => {
    const input = new PassThrough()
    const keys: string[] = []
    using _ = captureInput(input, (typed) => keys.push(typed))
    input.write('a\u0003')
    await expect.poll(() => keys).toEqual(['a\u0003'])
  })
})

it('a line that is typed key by key is what a terminal would have made of it [H.01]', () => {
  expect(editLine('ab\u007fc')).toBe('ac')
  expect(editLine('\u007f😀\bx')).toBe('x')
  expect(editLine('all of it\u0015new')).toBe('new')
  expect(editLine('two words\u0017more')).toBe('two more')
})
