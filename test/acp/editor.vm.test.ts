// `caisson acp` as an editor starts it, with real VMs: two turns in one VM, a question, and changes that are applied.
import { existsSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { Host } from '../../host/index.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { ask, choose, newSession, openEditor } from './support.ts'

it('an editor asks for work in a VM, answers its question, takes its changes, and continues there [H.03 S0.10]', async () => {
  const place = await cliPlace({ 'a.txt': 'a\n', 'b.txt': 'b\n' })
  const editor = await openEditor(place, { flags: ['--ram', '512M'], permit: choose('allow_once') })
  const session = await newSession(editor, place.workspace)
  expect(await ask(editor, session, 'Delete a.txt')).toBe('end_turn')
  expect(editor.permissions.map(({ toolCall }) => toolCall.kind)).toEqual(['delete', 'edit'])
  expect(['a.txt', 'b.txt'].map((name) => existsSync(path.join(place.workspace, name)))).toEqual([
    false,
    true,
  ])
  expect(await ask(editor, session, 'Delete b.txt')).toBe('end_turn')
  expect(existsSync(path.join(place.workspace, 'b.txt'))).toBe(false)
  expect(editor.faults).toEqual([])
  const [second, first] = await new Host({ env: place.env }).runs.list()
  expect(second).toMatchObject({ continues: first?.id, state: { end: { outcome: 'completed' } } })
  await editor.close()
  // The VM that the next turn would continue in.
  expect((await place.leftovers()).filter((name) => !name.includes('/kept/'))).toEqual([])
}, 240_000)
