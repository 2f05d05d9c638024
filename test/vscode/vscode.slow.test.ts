// The extension in a real VS Code (code-server), over the real service and runs without a VM.
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { runThatChanged } from '../../host/test/support/changed-run.ts'
import { runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { note, runId, runStart } from '../../host/test/support/run-values.ts'
import { hostOfHeldRuns } from '../service/queue-support.ts'
import { plan, serve, servedRun } from './run-support.ts'
import { useVsCode } from './support.ts'
import { filesWith, programThatSays, serverThatNotes } from './witnesses.ts'

const open = useVsCode()
const limits = { timeout: 180_000 }

const toolCall = {
  ...someCall,
  tool: 'delete_file',
  arguments: '{"path":"old.txt"}',
  preview: 'the file "old.txt"',
}

describe('the extension in VS Code', limits, () => {
  it('lists runs by state, follows one, and answers a question by a button; a notification that is closed answers nothing [H.03 S1.11]', async () => {
    const { run, emit, home } = await servedRun()
    const window = await open({ home })
    await window.showViews()
    await window.row('At work').waitFor()
    await window.row('Tidy the shop').click()
    await expect.poll(() => window.editorText()).toContain('▸ Do one')
    await window.row('Do two').waitFor()
    await emit([note('it works')])
    await expect.poll(() => window.editorText()).toContain('it works')
    run.record.delta('root', { type: 'text-delta', stepId: 'one', turn: 1, offset: 0, text: 'First I look' })
    await expect.poll(() => window.editorText()).toContain('First I look')
    const first = run.queue.ask({ ...toolCall, approvalId: 'ap-1' })
    await window.notice('Allow delete_file? the file "old.txt"').waitFor()
    await window.row('Waits for an answer').waitFor()
    await window.closeNotice('Allow delete_file')
    await window.row('Allow delete_file').waitFor()
    expect(run.queue.pending).toEqual(['ap-1'])
    // Neither does the list that the row opens, nor the field for the reason.
    await window.row('Allow delete_file').click()
    await expect.poll(() => window.editorText()).toContain('in the words of the agent')
    await window.quickInput.waitFor()
    await window.page.keyboard.press('Escape')
    await window.row('Allow delete_file').click()
    await window.pick(/^No$/)
    await window.page.locator('.quick-input-widget').filter({ hasText: 'should do instead' }).waitFor()
    await window.page.keyboard.press('Escape')
    expect(run.queue.pending).toEqual(['ap-1'])
    await window.row('Allow delete_file').click()
    await window.pick(/^No$/)
    await window.type('should do instead', 'move it')
    expect(await first).toMatchObject({ decision: 'deny', hint: 'move it' })
    const second = run.queue.ask({ ...toolCall, approvalId: 'ap-2', preview: 'the file "new.txt"' })
    await window.notice('new.txt').getByRole('button', { name: 'Yes, this once' }).click()
    expect(await second).toMatchObject({ decision: 'allow' })
    await expect.poll(() => window.row('Allow delete_file').count()).toBe(0)
  })

  it('takes answers for the run, typed answers and plans; what a notification cannot show whole has no yes there [H.03 S1.11]', async () => {
    const { run, home } = await servedRun()
    const window = await open({ home })
    await window.showViews()
    const long = run.queue.ask({ ...toolCall, approvalId: 'ap-1', preview: `one\n${'x'.repeat(400)}\nend` })
    await window.notice('Allow delete_file').waitFor()
    expect(await window.notice('Allow delete_file').getByRole('button', { name: 'Yes' }).count()).toBe(0)
    await window.notice('Allow delete_file').getByRole('button', { name: 'Review…' }).click()
    await expect.poll(() => window.editorText()).toContain('end')
    await window.pick(/for this run|rest of the run/i)
    expect(await long).toMatchObject({ decision: 'allow' })
    const options = [{ value: 'red' }, { value: 'blue', label: 'Blue' }]
    const color = run.ask({ question: 'Which color?', kind: 'choice', options }, 'q1')
    await window.notice('Which color?').getByRole('button', { name: 'Review…' }).click()
    await window.pick('Answer')
    await window.pick('Blue')
    expect(await color).toMatchObject({ decision: 'allow', answer: 'blue' })
    const number = run.ask({ question: 'How many?', kind: 'number' }, 'q2')
    await window.row('How many?').click()
    await window.pick('Answer')
    await window.type('How many?', 'lots')
    await window.page.getByText('no answer in the required form').waitFor()
    expect(run.queue.pending).toEqual(['q2'])
    await window.type('How many?', '12')
    expect(await number).toMatchObject({ answer: 12 })
    const asked = { ...someCall, tool: 'submit_plan', arguments: JSON.stringify(plan) }
    const approved = run.queue.ask({ ...asked, approvalId: 'ap-3' })
    await window.row('Approve this plan?').click()
    await expect.poll(() => window.editorText()).toContain('two: Do two (after one)')
    await window.pick('Yes, this once')
    expect(await approved).toMatchObject({ decision: 'allow' })
  })

  it('makes no link, picture or command of what a run says [H.03 S4.12]', async () => {
    const hostile = '[Yes](command:workbench.action.terminal.new) $(trash) <img src=x onerror=alert(1)> **b**'
    const { run, home, emit } = await servedRun(hostile)
    const window = await open({ home })
    await window.showViews()
    await emit([note(`${hostile}\u202e`)])
    void run.queue.ask({ ...toolCall, approvalId: 'ap-1', preview: hostile }).catch(() => undefined)
    await window.notice('Allow delete_file').waitFor()
    expect(await window.notice('Allow delete_file').innerText()).toContain('[Yes] (command:workbench')
    expect(
      await window.notice('Allow delete_file').locator('.notification-list-item-message a').count(),
    ).toBe(0)
    await window.row(/waiting · /).click()
    await expect.poll(() => window.editorText()).toContain('\\u{202e}')
    await window.row(/waiting · /).hover()
    await window.page.locator('.monaco-hover').getByText('/work').first().waitFor()
    expect(await window.page.locator('.monaco-hover a').count()).toBe(0)
    const pictures =
      '.sidebar .codicon-trash, .monaco-hover .codicon-trash, .notification-toast .codicon-trash'
    expect(await window.page.locator(`${pictures}, img[src="x"], .sidebar strong`).count()).toBe(0)
    expect(window.complaints).toEqual([])
  })

  it('shows a change in the diff editor, and applies a hunk, a file that is flagged only after a yes, and undoes all [H.03 W.01 W.03]', async () => {
    const lines = (...changed: number[]) =>
      Array.from({ length: 40 }, (_, at) => (changed.includes(at) ? `new ${at}\n` : `${at}\n`)).join('')
    const { host, directory, env } = await runThatChanged(
      { 'a.txt': lines(), 'b.txt': 'b\n', 'package.json': '{}\n' },
      { 'a.txt': lines(3, 20, 35), 'b.txt': 'c\n', 'package.json': '{"scripts":{"postinstall":"./x"}}\n' },
    )
    await serve(host)
    const read = (name: string) => readFile(path.join(directory, name), 'utf8')
    const window = await open({ home: env.CAISSON_HOME, folder: directory })
    await window.showViews()
    await window.row(/completed/).click()
    await window.row('a.txt').click()
    await window.page.locator('.diff-editor, .monaco-diff-editor').waitFor()
    await expect.poll(() => window.editorText()).toContain('new 3')
    await window.row('a.txt').locator('.monaco-tl-twistie').click()
    await window.press('Hunk 2', 'Apply This Hunk')
    await window.notice('Applied 1 path (1 file in part)').waitFor()
    expect(await read('a.txt')).toBe(lines(20))
    expect(await read('b.txt')).toBe('b\n')
    await expect.poll(() => window.row('Hunk 3').count()).toBe(0)
    await window.row('Hunk 2').click()
    await window.page.getByText('Ln 33, Col 1').waitFor()
    await window.command('Caisson: Apply the Hunk at the Cursor')
    await expect.poll(() => read('a.txt')).toBe(lines(20, 35))
    await expect.poll(() => window.row('Hunk 1').count()).toBe(0)
    const flagged = async () => {
      await window.press('package.json', 'Apply This File')
      await window.dialog.getByText('can run code on your machine').waitFor()
    }
    await flagged()
    await window.page.keyboard.press('Escape')
    await window.dialog.waitFor({ state: 'detached' })
    expect(await read('package.json')).toBe('{}\n')
    await flagged()
    await window.dialog.getByRole('button', { name: 'Apply It' }).click()
    await expect.poll(() => read('package.json')).toContain('postinstall')
    await window.command('Caisson: Apply All Changes…')
    await window.dialog.getByRole('button', { name: 'Apply', exact: true }).click()
    await expect.poll(() => read('b.txt')).toBe('c\n')
    expect(await read('a.txt')).toBe(lines(3, 20, 35))
    await window.command('Caisson: Undo All That Was Applied…')
    await window.dialog.getByRole('button', { name: 'Undo' }).click()
    await expect.poll(() => read('a.txt')).toBe(lines())
    expect(await read('package.json')).toBe('{}\n')
    await window.notice('Restored 3 paths').waitFor()
  })

  it('starts runs in the folder and with a selection, sends messages, and cancels after a yes [H.03 V.06]', async () => {
    const { held, home, host } = await hostOfHeldRuns('vscode-start')
    const folder = path.join(home, 'project')
    await mkdir(folder)
    await writeFile(path.join(folder, 'a.txt'), 'first\nsecond\nthird\n')
    const { client } = await serve(host, { workspaces: [home] })
    const window = await open({ home: path.join(home, 'state'), folder })
    await window.showViews()
    await window.page.getByText('There are no runs yet').waitFor()
    await window.page.getByRole('button', { name: 'Start a run', exact: true }).click()
    await window.page.locator('.quick-input-widget').filter({ hasText: folder }).waitFor()
    await window.quickInput.press('Escape')
    await window.quickInput.waitFor({ state: 'hidden' })
    expect((await client.call('listRuns', {})).runs).toEqual([])
    await window.page.getByRole('button', { name: 'Start a run', exact: true }).click()
    await window.type(folder, 'Tidy the folder')
    await expect.poll(() => window.editorText()).toContain('Tidy the folder')
    const [started] = (await client.call('listRuns', {})).runs
    expect(started).toMatchObject({ prompt: 'Tidy the folder', workspace: folder })
    await window.openFile('a.txt')
    await window.selectLine(2)
    await window.command('Caisson: Start a Run with the Selection…')
    await window.type(folder, 'Explain the line')
    await window.row('place 1 of 1').waitFor()
    const [second] = (await client.call('listRuns', {})).runs
    expect(second).toMatchObject({ prompt: 'Explain the line', workspace: folder })
    await held.release(started?.id)
    await expect.poll(() => held.begun()).toHaveLength(2)
    await window.openRun('Explain the line')
    await expect.poll(() => window.editorText()).toContain('Explain the line')
    await window.command('Caisson: Cancel the Run…')
    await window.dialog.getByText('Cancel this run?').waitFor()
    await window.dialog.getByText('Explain the line').waitFor()
    await window.page.keyboard.press('Escape')
    await window.dialog.waitFor({ state: 'detached' })
    expect((await client.call('getRun', { params: { run: second?.id ?? '' } })).end).toBeNull()
    await window.command('Caisson: Cancel the Run…')
    await window.dialog.getByText('Explain the line').waitFor()
    await window.dialog.getByRole('button', { name: 'End Its VM at Once' }).click()
    await window.dialog.waitFor({ state: 'detached' })
    await expect
      .poll(async () => (await client.call('getRun', { params: { run: second?.id ?? '' } })).end?.outcome)
      .toBe('cancelled')
  })

  it('steers the agent, and opens the shell of its VM with the program that the machine names [H.03 A.08]', async () => {
    const { run, home } = await servedRun()
    const folder = await temporaryFolder('vscode-folder')
    const trap = await programThatSays('the trap')
    const program = await programThatSays('caisson')
    await mkdir(path.join(folder, '.vscode'))
    await writeFile(path.join(folder, '.vscode/settings.json'), JSON.stringify({ 'caisson.program': trap }))
    const window = await open({ home, folder, machineSettings: { 'caisson.program': program } })
    await window.showViews()
    await window.row('Tidy the shop').click()
    await window.press('Tidy the shop', 'Message the Agent…')
    await window.type('Message the agent', 'use tabs')
    await expect.poll(() => window.editorText()).toContain('You: use tabs')
    expect(run.record.state.end).toBeNull()
    await window.command('Caisson: Open a Terminal in the VM')
    const said = async () => await readFile(`${program}.said`, 'utf8').catch(() => '')
    await expect.poll(said).toBe(`vm shell ${runId}\n`)
    expect(await readFile(`${trap}.said`, 'utf8').catch(() => 'not called')).toBe('not called')
  })
})

describe('the service of the extension', limits, () => {
  it('may need a token: a wrong one is refused, the right one is in no file, and a workspace cannot name the service [H.03 H.02]', async () => {
    const run = await runAtWork()
    await run.record.host({ ...runStart, prompt: 'Tidy the shop' })
    const { service, token, logged } = await serve(new Host({ env: run.env }))
    const thief = await serverThatNotes()
    const folder = await temporaryFolder('vscode-folder')
    await mkdir(path.join(folder, '.vscode'))
    const settings = { 'caisson.service': thief.url, 'caisson.notify': 'none' }
    await writeFile(path.join(folder, '.vscode/settings.json'), JSON.stringify(settings))
    const home = await temporaryFolder('vscode-home')
    const window = await open({ home, folder, machineSettings: { 'caisson.service': service.url } })
    await window.showViews()
    await window.page.getByText('needs a token or an API key').waitFor()
    await window.page.getByRole('button', { name: 'Sign in', exact: true }).click()
    await window.type(service.url, 'wrong-token')
    await window.notice(/token/i).waitFor()
    expect(await window.row('Tidy the shop').count()).toBe(0)
    await window.page.getByRole('button', { name: 'Sign in', exact: true }).click()
    expect(await window.quickInput.getAttribute('type')).toBe('password')
    await window.type(service.url, token)
    await window.row('Tidy the shop').waitFor()
    await window.page.reload()
    await window.row('Tidy the shop').waitFor()
    expect(thief.requests).toEqual([])
    expect(JSON.stringify(logged)).not.toContain(token)
    expect(await filesWith(window.folder, token)).toEqual([])
    await window.command('Caisson: Sign Out of the Service')
    await window.page.getByText('needs a token or an API key').waitFor()
    expect(await window.row('Tidy the shop').count()).toBe(0)
  })

  it('may go away and come back: nothing is asked twice, and the log has each event once [H.03]', async () => {
    const { run, served, emit, home } = await servedRun()
    const window = await open({ home })
    await window.showViews()
    void run.queue.ask({ ...toolCall, approvalId: 'ap-1' }).catch(() => undefined)
    await window.notice('Allow delete_file').waitFor()
    await window.closeNotice('Allow delete_file')
    await window.row('Tidy the shop').click()
    await emit([note('before the restart')])
    await expect.poll(() => window.editorText()).toContain('before the restart')
    await served.service.close()
    await expect.poll(() => window.editorText()).toContain('! Connecting')
    await window.page
      .getByRole('button', { name: /Caisson: no (?:answer|service)|Caisson.*no service/ })
      .count()
    await emit([note('while it was away')])
    await serve(new Host({ env: run.env }))
    await expect.poll(() => window.editorText(), { timeout: 20_000 }).toContain('while it was away')
    await emit([note('after it')])
    await expect.poll(() => window.editorText()).toContain('after it')
    const text = await window.editorText()
    for (const said of ['before the restart', 'while it was away', 'after it'])
      expect(text.split(said)).toHaveLength(2)
    expect(text).not.toContain('! Connecting')
    await window.row('Allow delete_file').waitFor()
    expect(await window.notice('Allow delete_file').count()).toBe(0)
    expect(run.queue.pending).toEqual(['ap-1'])
  })
})
