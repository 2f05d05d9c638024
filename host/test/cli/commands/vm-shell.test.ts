import { PassThrough } from 'node:stream'
import { describe, expect, it } from 'vitest'
import { EscapeKeys, PlainOutput } from '../../../cli/commands/vm-shell.ts'
import { RawTerminal } from '../../../cli/prompts/terminal-input.ts'

const typed = (...pieces: string[]) => {
  const keys = new EscapeKeys()
  const passed = pieces.map((piece) => keys.feed(Buffer.from(piece)).toString()).join('')
  return { passed, hasLeft: keys.hasLeft }
}

describe('the keys of a shell', () => {
  it('leave it by ~. at the beginning of a line, in pieces as well [V.08]', () => {
    expect(typed('~.')).toEqual({ passed: '', hasLeft: true })
    expect(typed('ls\r~', '.rest')).toEqual({ passed: 'ls\r', hasLeft: true })
  })

  it('are all passed on otherwise [V.08]', () => {
    expect(typed('cd ~', '.\r')).toEqual({ passed: 'cd ~.\r', hasLeft: false })
    expect(typed('~~.\r')).toEqual({ passed: '~.\r', hasLeft: false })
    expect(typed('~/bin\r')).toEqual({ passed: '~/bin\r', hasLeft: false })
    expect(typed('\u0003\u001b[A\u0004')).toEqual({ passed: '\u0003\u001b[A\u0004', hasLeft: false })
  })
})

describe('a lent terminal', () => {
  it('is given back once, in order, whatever the program left on [V.08]', () => {
    const modes: boolean[] = []
    const input = Object.assign(new PassThrough(), {
      isTTY: true,
      setRawMode: (isRaw: boolean) => modes.push(isRaw),
    })
    const output = Object.assign(new PassThrough(), { isTTY: true, columns: 0, rows: 0 })
    const before = process.listenerCount('exit')
    {
      using terminal = new RawTerminal(input, output, true)
      expect(terminal.size).toEqual({ columns: 80, rows: 24 })
      expect(process.listenerCount('exit')).toBe(before + 1)
      terminal[Symbol.dispose]()
    }
    expect(modes).toEqual([true, false])
    const given = output.read().toString()
    expect(given).toContain('\u001b[?25h')
    // Else a title or a string that the program left open would swallow the rest, and the words after it.
    expect(given.startsWith('\u0018\u001b\\')).toBe(true)
    for (const mode of ['\u001b[r', '\u001b(B', '\u001b[4l', '\u001b[?7h']) expect(given).toContain(mode)
    expect(process.listenerCount('exit')).toBe(before)
  })
})

describe('plain output', () => {
  it('shows what a terminal would obey, keeps lines, and waits for the rest of a character [V.08]', () => {
    const plain = new PlainOutput()
    expect(plain.feed(Buffer.from('a\u001b]0;title\u0007b\r\n\tc\b'))).toBe('a\\e]0;title\\x07b\r\n\tc\b')
    const [first, second] = [Buffer.from('é').subarray(0, 1), Buffer.from('é').subarray(1)]
    expect(plain.feed(first) + plain.feed(second) + plain.end()).toBe('é')
  })
})
