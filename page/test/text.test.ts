// Untrusted text and numbers for the screen.
import { expect, it } from 'vitest'
import { bytes, duration, hostWords, tokens, visible, visibleLine } from '../parts/text.ts'

it('what moves, hides or reorders text becomes a visible escape; line ends and tabs stay [S1.09]', () => {
  expect(visible('a\tb\nc\r\u001b[2J\u202e\u200b\u0007\u{e0041}\ud800')).toBe(
    'a\tb\nc\\r\\e[2J\\u{202e}\\u{200b}\\x07\\u{e0041}\\u{d800}',
  )
  expect(visible('naïve 日本 👍️')).toBe('naïve 日本 👍️')
  expect(visibleLine('a\nb\tc')).toBe('a b c')
  expect(visibleLine('x'.repeat(400), 10)).toBe('xxxxxxxxxx…')
})

it('numbers have units [H.02]', () => {
  expect([bytes(512), bytes(1_536), bytes(256 * 1024 ** 2)]).toEqual(['512 B', '1.5 KiB', '256 MiB'])
  expect([tokens(999), tokens(28_400), tokens(2_000_000)]).toEqual(['999', '28k', '2.0M'])
  expect([duration(80), duration(7_700), duration(61_000), duration(7_260_000)]).toEqual([
    '80 ms',
    '7.7 s',
    '1 min 1 s',
    '2 h 1 min',
  ])
})

it('the details name the host of a run of a fleet, whose name is untrusted, or say that none has it', () => {
  const host = { name: 'host-1\u202e\n', since: 0 }
  expect(hostWords({ host, end: null })).toMatch(/^host-1\\u\{202e\} , since .*19[67]/)
  expect(hostWords({ host: null, end: null })).toBe('none: it waits for a host or for a person')
  expect(hostWords({ host: null, end: { outcome: 'completed' } })).toBe('none: the run has ended')
})
