// Changes of an ended run before the person in an editor: what they see of them, and when nothing is applied.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { Buffers } from '../../acp/buffers.ts'
import { reviewChanges } from '../../acp/review.ts'
import { changedRunId as runId, runThatChanged } from '../support/changed-run.ts'
import { openNearEditor, words } from './support.ts'

it('each change has a diff or is named, also links, modes and binary files [H.03 V.05]', async () => {
  const { host, state } = await runThatChanged(
    { 'a.txt': 'one\n', 'kept.txt': 'kept\n', 'tool.sh': { kind: 'file', mode: 0o644, content: 'true\n' } },
    {
      ...{ 'a.txt': 'two\n', 'kept.txt': '-> /etc/passwd', 'data.bin': Buffer.from([0, 1, 2]) },
      'tool.sh': { kind: 'file', mode: 0o755, content: 'true\n' },
    },
  )
  const { editor, permissions } = openNearEditor()
  const parts = { host, editor, words, by: 'test', buffers: new Buffers(editor, '/ws') }
  await reviewChanges(parts, { runId, state, isAsked: true }, new AbortController().signal)
  const content = permissions[0]?.toolCall.content ?? []
  expect(content.filter(({ type }) => type === 'diff')).toMatchObject([
    { oldText: 'one\n', newText: 'two\n' },
  ])
  const shown = JSON.stringify(content)
  for (const name of ['modified: kept.txt (a link to /etc/passwd)', 'added: data.bin', 'mode: tool.sh'])
    expect(shown).toContain(name)
})

it('names the first of very many, and says where the others are [H.03 V.05]', async () => {
  const files = Object.fromEntries(Array.from({ length: 160 }, (_, at) => [`${at}.txt`, `${at}\n`]))
  const { host, state } = await runThatChanged({}, files)
  const { editor, permissions } = openNearEditor()
  const parts = { host, editor, words, by: 'test', buffers: new Buffers(editor, '/ws') }
  await reviewChanges(parts, { runId, state, isAsked: true }, new AbortController().signal)
  const content = permissions[0]?.toolCall.content ?? []
  expect(content.filter(({ type }) => type === 'diff')).toHaveLength(100)
  expect(JSON.stringify(content)).toContain(`10 more; \`caisson workspace diff ${runId}\` shows all`)
})

it('in the mode apply, nothing is applied once the turn was stopped or the editor has gone [H.03 V.05]', async () => {
  const { host, state, directory } = await runThatChanged({}, { 'new.txt': 'new\n' })
  const { editor, said } = openNearEditor()
  const parts = { host, editor, words, by: 'test', buffers: new Buffers(editor, directory) }
  await reviewChanges(parts, { runId, state, isAsked: false }, AbortSignal.abort())
  expect([existsSync(path.join(directory, 'new.txt')), said()]).toEqual([false, ''])
  await reviewChanges(parts, { runId, state, isAsked: false }, new AbortController().signal)
  expect(existsSync(path.join(directory, 'new.txt'))).toBe(true)
  await expect.poll(said).toContain('Applied 1 change')
})
