import { expect, it } from 'vitest'
import { plainLine, plainText, sentence } from '../session/text.ts'

it('makes no link and no picture of the text of others [H.03]', () => {
  const hostile =
    '[Yes](command:workbench.action.terminal.new) $(check) <b>ok</b>\n[x](https://evil.example "t")'
  for (const text of [plainLine(hostile), plainText(hostile), sentence(hostile)]) {
    // The form of links in notifications of VS Code (src/vs/base/common/linkedText.ts).
    expect(text).not.toMatch(/\[[^\]]+\]\((?:https?:\/\/|command:|file:)/)
    expect(text).not.toContain('$(')
  }
})

it('shows characters that draw nothing or reorder, and cuts a line', () => {
  expect(plainLine('a\u202eb\u200bc\u001b[31m')).toBe('a\\u{202e}b\\u{200b}c\\e[31m')
  expect(plainLine('one\ntwo', 5)).toBe('one t…')
})
