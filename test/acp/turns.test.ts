// Turns of an editor's session: a real `caisson acp`, real host and real agent, with a program in the place of QEMU.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { ask, call, choose, editorPlace, hasResult, newSession, openEditor, useMachine } from './support.ts'

const machine = useMachine()

describe('a turn', { timeout: 60_000 }, () => {
  it('shows what the agent says and does, and applies its changes only when the person says so [H.03]', async () => {
    const place = await editorPlace(machine(), { 'a.txt': 'one\ntwo\n' }, (asked) =>
      hasResult(asked)
        ? reply({ text: ['I changed ', 'the file.'] })
        : call('edit_file', { path: 'a.txt', oldText: 'two', newText: 'three' }),
    )
    const editor = await openEditor(place, { permit: choose('Apply') })
    const session = await newSession(editor, place.workspace)
    setTimeout(() => console.log(JSON.stringify(editor.updates), editor.program.errors()), 30_000)
    expect(await ask(editor, session, 'Change it.')).toBe('end_turn')
    console.log(JSON.stringify(editor.updates, null, 1), JSON.stringify(editor.permissions, null, 1), editor.program.errors())
    expect(editor.said()).toContain('I changed the file.')
    expect(await readFile(path.join(place.workspace, 'a.txt'), 'utf8')).toBe('one\nthree\n')
    expect(editor.faults).toEqual([])
    await editor.close()
  })
})
