import { chmod, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { findEditor } from '../../../cli/prompts/plan-editor.ts'

/** An editor of the person's own. */
async function editor(script: string): Promise<string> {
  const file = path.join(await temporaryFolder('editor'), 'my-editor')
  await writeFile(file, `#!/bin/sh\n${script}\n`)
  await chmod(file, 0o700)
  return file
}

describe('the editor for a plan', () => {
  it('is VISUAL before EDITOR, with its arguments, in the file’s own folder, and leaves nothing there [A.11]', async () => {
    const folder = await temporaryFolder('run')
    const visual = await editor('pwd > "$1"; stat -c %a "$2" >> "$1"; sed -i s/old/new/ "$2"')
    const seen = path.join(await temporaryFolder('seen'), 'seen')
    const env = { VISUAL: `${visual} ${seen}`, EDITOR: await editor('exit 7') }
    const edit = await findEditor({ env }, folder)
    expect(await edit?.('old text')).toEqual({ ok: true, value: 'new text' })
    expect(await readdir(folder)).toEqual([])
    expect(await readFile(seen, 'utf8')).toBe(`${folder}\n600\n`)
  })

  it('that fails changes nothing and says so', async () => {
    const folder = await temporaryFolder('run')
    const edit = await findEditor({ env: { EDITOR: await editor('exit 7') } }, folder)
    expect(await edit?.('text')).toEqual({ ok: false, error: 'the editor ended with 7' })
    expect(await readdir(folder)).toEqual([])
  })

  it('is never one that others could exchange: the next that is set is taken [V.10]', async () => {
    const folder = await temporaryFolder('run')
    const open = await editor('echo evil > "$1"')
    await chmod(open, 0o777)
    const edit = await findEditor({ env: { VISUAL: open, EDITOR: await editor('echo good > "$1"') } }, folder)
    expect(await edit?.('text')).toEqual({ ok: true, value: 'good\n' })
  })
})
