// What a tool gave and what the model says, as lines.
import { expect, it } from 'vitest'
import { colorsFor } from '../../../cli/render/colors.ts'
import { argumentLines, toolEndLines } from '../../../cli/render/turn-lines.ts'

const colors = colorsFor({ isTTY: false }, {})
const end = { type: 'tool-end', stepId: 'a', callId: 'c', durationMs: 1_200 } as const

it('a command shows exit code, time, head and tail of its output behind a margin; in all detail all of it [H.01]', () => {
  const output = Array.from({ length: 20 }, (_, at) => `line ${at}\u001b[2J`).join('\n')
  const call = { ...end, tool: 'run_bash', exitCode: 1, output }
  const lines = toolEndLines(call, colors, {}, true)
  expect(lines[0]).toBe('    ✘ exit 1 · 1.2 s')
  expect(lines).toHaveLength(10)
  expect(lines[4]).toBe('    │ … 12 more lines')
  expect(lines.at(-1)).toBe('    │ line 19\\e[2J')
  expect(toolEndLines(call, colors, { verbose: true }, true)).toHaveLength(21)
})

it('an image that the model looks at shows format and size [G.09]', () => {
  const image = { sha256: '0'.repeat(64), type: 'image/png', width: 640, height: 480, sizeBytes: 57 } as const
  expect(toolEndLines({ ...end, tool: 'read_file', output: '[a.png]', image }, colors, {}, true)).toEqual([
    '    ✔ shown to the model: PNG image, 640x480 pixels, 57 bytes · 1.2 s',
  ])
})

it('refused arguments are said once, and as the model gets them only in all detail [H.01]', () => {
  const error = {
    code: 'invalid_input',
    message: 'the arguments do not fit; path: is required',
    retryable: false,
  } as const
  const call = {
    ...end,
    tool: 'read_file',
    error,
    output: '{"ok":false,"message":"the arguments do not fit"}',
  }
  expect(toolEndLines(call, colors, {}, true)).toEqual([
    '    ✘ read_file · invalid_input: the arguments do not fit; path: is required · 1.2 s',
  ])
  expect(toolEndLines(call, colors, { verbose: true }, true)).toHaveLength(2)
})

it('arguments show line ends as such, and a backslash before an n as it is [H.01]', () => {
  const given = { code: 'one\ntext.split("\\n")' }
  expect(argumentLines(JSON.stringify(given), colors).map((line) => line.trim())).toEqual([
    '│ {',
    '│   "code": "one',
    '│ text.split(\\"\\\\n\\")"',
    '│ }',
  ])
})

it('an edit shows counts and its diff without file headers [H.01]', () => {
  const diff = '--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n'
  const call = {
    ...end,
    tool: 'edit_file',
    output: 'done',
    diffs: [{ path: 'x', added: 1, removed: 1, diff }],
  }
  const sql = '--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- drop the table\n+++i\n'
  const same = { ...call, diffs: [{ path: 'x', added: 1, removed: 1, diff: sql }] }
  expect(toolEndLines(same, colors, {}, true).slice(3)).toEqual(['    │ --- drop the table', '    │ +++i'])
  expect(toolEndLines(call, colors, {}, true)).toEqual([
    '    ✔ 1.2 s',
    '    x +1 -1',
    '    │ @@ -1 +1 @@',
    '    │ -old',
    '    │ +new',
  ])
})
