// The page in a real browser, over the real service and runs without a VM.
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { AgentEvent } from '#specs/protocol/event.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import { Host } from '../../host/index.ts'
import { changedRunId, runThatChanged } from '../../host/test/support/changed-run.ts'
import { type RunAtWork, runAtWork, someCall } from '../../host/test/support/run-at-work.ts'
import { note, runId, runStart } from '../../host/test/support/run-values.ts'
import { serveHost } from '../service/support.ts'
import { axeFindings, countOf, sees, useBrowser } from './support.ts'

const open = useBrowser()

const step = (id: string, needs: string[] = []): Plan['steps'][number] => ({
  ...{ id, title: `Do ${id}`, instructions: `Do ${id}`, needs, writes: [] },
  onFailure: 'abort',
})
const plan: Plan = { goal: 'All of it', steps: [step('one'), step('two', ['one']), step('three', ['one'])] }
const usage = { requests: 1, inputTokens: 1_000, outputTokens: 200, reasoningTokens: 0 }

/** A run at work that has a plan, and its page. */
async function openRunAtWork(prompt = 'Tidy the shop') {
  const run = await runAtWork()
  await run.record.host({ ...runStart, prompt })
  await emit(run, [
    { type: 'plan-update', revision: 1, plan },
    { type: 'step-start', stepId: 'one' },
  ])
  const served = await serveHost(new Host({ env: run.env }))
  const opened = await open(`${served.service.url}/#token=${served.token}`)
  await opened.page.getByRole('link', { name: prompt }).waitFor()
  await opened.page.goto(`${served.service.url}/#/runs/${runId}`)
  await opened.page.getByRole('heading', { name: prompt, level: 1 }).waitFor()
  return { run, served, ...opened }
}

const counts = new WeakMap<RunAtWork, number>()
async function emit(run: RunAtWork, events: readonly AgentEvent[], agentPath = 'root'): Promise<void> {
  for (const event of events) {
    const n = (counts.get(run) ?? 0) + 1
    counts.set(run, n)
    await run.record.agent(agentPath, n, event)
  }
}

const toolCall = {
  ...someCall,
  tool: 'delete_file',
  arguments: '{"path":"old.txt"}',
  preview: 'the file "old.txt"',
}

const limits = { timeout: 120_000 }

describe('signing in', limits, () => {
  it('takes the token from the fragment or a form, keeps it out of address and log [H.02]', async () => {
    const run = await runAtWork()
    const { service, token, logged } = await serveHost(new Host({ env: run.env }))
    const { page, complaints } = await open(`${service.url}/`)
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    expect(await axeFindings(page)).toEqual([])
    await page.getByLabel('Token').fill('wrong')
    await page.getByRole('button', { name: 'Sign in' }).click()
    const alert = page.getByRole('alert')
    await expect
      .poll(() => alert.innerText())
      .toContain('The service does not accept this token: the request')
    expect(await alert.innerText()).not.toContain('Authorization')
    expect(await page.getByRole('button', { name: 'Sign out' }).count()).toBe(0)
    await page.getByLabel('Token').fill(token)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { name: 'Runs' }).waitFor()
    await page.reload()
    await page.getByRole('heading', { name: 'Runs' }).waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    // The same tab gets another fragment: no page is loaded.
    await page.goto(`${service.url}/#token=${token}`)
    await page.getByRole('heading', { name: 'Runs' }).waitFor()
    expect(page.url()).toBe(`${service.url}/#/`)
    expect(JSON.stringify(logged)).not.toContain(token)
    expect(complaints).toEqual([])
  })
})

describe('the page of a run at work', limits, () => {
  it('has its questions allowed, denied with a hint and answered [H.02 S1.11]', async () => {
    const { run, page, complaints } = await openRunAtWork()
    const allowed = run.queue.ask({ ...toolCall, approvalId: 'ap-1' })
    await page.getByRole('heading', { name: 'Allow delete_file' }).waitFor()
    expect(await axeFindings(page)).toEqual([])
    await page.getByRole('button', { name: 'Yes, this once' }).click()
    expect(await allowed).toMatchObject({ decision: 'allow' })
    await sees(page, /the owner of the service allowed/)
    const denied = run.queue.ask({ ...toolCall, approvalId: 'ap-2' })
    await page.getByRole('button', { name: 'More answers' }).click()
    await page.getByLabel('With a no').fill('move it instead')
    await page.getByRole('button', { name: 'No', exact: true }).click()
    expect(await denied).toMatchObject({ decision: 'deny', hint: 'move it instead' })
    const asked = run.ask(
      {
        question: 'Which color?',
        kind: 'choice',
        options: [{ value: 'red' }, { value: 'blue', label: 'Blue' }],
      },
      'q1',
    )
    await page.getByLabel('Blue').check()
    await page.getByRole('button', { name: 'Answer', exact: true }).click()
    expect(await asked).toMatchObject({ decision: 'allow', answer: 'blue' })
    const plain = run.queue.ask({
      ...someCall,
      approvalId: 'ap-3',
      tool: 'submit_plan',
      arguments: JSON.stringify(plan),
    })
    await page.getByRole('heading', { name: 'Approve this plan?' }).waitFor()
    await page.getByRole('button', { name: 'Change the plan' }).click()
    const changed = { ...plan, goal: 'Less of it' }
    await page.getByLabel('The plan as JSON').fill('{')
    await page.getByRole('button', { name: 'Yes, this once' }).click()
    await sees(page, 'The plan is not JSON')
    await page.getByLabel('The plan as JSON').fill(JSON.stringify(changed))
    await page.getByRole('button', { name: 'Yes, this once' }).click()
    expect(await plain).toMatchObject({ decision: 'allow', plan: changed })
    expect(complaints).toEqual([])
  })

  it('shows who else answered meanwhile [H.02 S1.11]', async () => {
    const { run, page, served } = await openRunAtWork()
    const asked = run.queue.ask({ ...toolCall, approvalId: 'ap-1' })
    await page.getByRole('heading', { name: 'Allow delete_file' }).waitFor()
    const other = await open(`${served.service.url}/#token=${served.token}`)
    await other.page.getByRole('heading', { name: 'Allow delete_file' }).waitFor()
    await run.queue.answer('ap-1', { decision: 'deny', scope: 'once' }, { name: 'Ada', via: 'terminal' })
    await asked
    await sees(page, 'Ada denied')
    await expect.poll(() => countOf(page, '.question')).toBe(0)
    await expect.poll(() => countOf(other.page, '.question')).toBe(0)
  })

  it('is steered, paused and cancelled, a sub-agent by itself [H.02 A.08]', async () => {
    const { run, page } = await openRunAtWork()
    await emit(
      run,
      [{ type: 'agent-start', stepId: 'one', brief: 'Check it', tools: [], limits: {} }],
      'root/check',
    )
    await page.getByRole('textbox', { name: 'Message' }).fill('use tabs')
    await page.keyboard.press('Enter')
    await sees(page, 'use tabs')
    await page.getByRole('button', { name: 'Cancel the sub-agent' }).click()
    await sees(page, /cancels root\/check/)
    await page.getByRole('button', { name: 'Pause' }).click()
    await sees(page, /pauses the agent/)
    await page.getByRole('button', { name: 'Cancel run' }).click()
    await page.getByRole('button', { name: 'Really cancel' }).click()
    await page.getByRole('button', { name: 'Cancel run' }).waitFor()
    expect(run.record.state.agents['root/check']?.state).toBe('running')
  })

  it('shows what arrives: text, output of calls, connections, use of the VM and of the budget [H.02 V.06]', async () => {
    const { run, page, complaints } = await openRunAtWork()
    run.record.delta('root', { type: 'text-delta', stepId: 'one', turn: 1, offset: 0, text: 'First I ' })
    await sees(page, 'First I')
    run.record.delta('root', { type: 'text-delta', stepId: 'one', turn: 1, offset: 8, text: 'look.' })
    await sees(page, 'First I look.')
    const call = { stepId: 'one', callId: 'c1' }
    await emit(run, [
      {
        type: 'turn-end',
        ...{ stepId: 'one', turn: 1, text: 'First I look.', calls: [], usage, finishReason: 'stop' },
      },
      { type: 'tool-start', ...call, tool: 'run_bash', arguments: '{"command":"npm test"}' },
    ])
    run.record.delta('root', {
      type: 'tool-output-delta',
      ...call,
      stream: 'stdout',
      offset: 0,
      text: '12 tests\n',
    })
    await sees(page, '12 tests')
    await emit(run, [
      { type: 'tool-end', ...call, tool: 'run_bash', output: '13 passed', exitCode: 1, durationMs: 9 },
    ])
    const row = page.getByRole('button', { name: /npm test/ })
    await sees(page, /exit 1/)
    await row.click()
    await sees(page, '13 passed')
    const reached = { kind: 'tunnel', target: 'pypi.org:443', rule: 'allow pypi.org' } as const
    await run.record.host({
      type: 'egress-end',
      ...reached,
      bytesOut: 1_200,
      bytesIn: 80_400,
      durationMs: 640,
    })
    await run.record.host({
      type: 'egress-denied',
      target: 'GET https://example.com/',
      reason: 'no rule allows it',
    })
    await run.record.host({ type: 'model-end', status: 200, durationMs: 1, usage, estimated: false })
    run.record.delta('root', {
      type: 'vm-use',
      ...{ memoryBytes: 256 * 1024 ** 2, memoryMaxBytes: 1024 ** 3, cpuPercent: 84, diskBytes: 1_048_576 },
    })
    await page.getByRole('meter', { name: 'Memory of the VM' }).waitFor()
    expect(await page.getByRole('meter', { name: 'Tokens used' }).getAttribute('aria-valuenow')).toBe('1200')
    await page.getByRole('tab', { name: 'Network' }).click()
    const connections = page.locator('.network tbody tr')
    await connections.nth(1).waitFor()
    expect(await connections.allInnerTexts()).toMatchObject([
      expect.stringContaining('pypi.org:443'),
      expect.stringContaining('no rule allows it'),
    ])
    expect(await axeFindings(page)).toEqual([])
    expect(complaints).toEqual([])
  })

  it('says that it reconnects while the service restarts, and then has each event once [H.02]', async () => {
    const { run, page, served } = await openRunAtWork()
    await emit(run, [note('before the restart')])
    await sees(page, 'before the restart')
    await served.service.close()
    await sees(page, /Reconnecting/)
    await emit(run, [note('while it was away')])
    const { port } = new URL(served.service.url)
    await serveHost(new Host({ env: run.env }), { port: Number(port) })
    await sees(page, 'while it was away')
    await emit(run, [note('after it')])
    await sees(page, 'after it')
    await expect.poll(() => page.getByText(/Reconnecting/).count()).toBe(0)
    for (const text of ['before the restart', 'while it was away', 'after it'])
      expect(await page.getByText(text, { exact: true }).count()).toBe(1)
  })

  it('has ten thousand entries with few of them in the document [H.02]', async () => {
    const { run, page } = await openRunAtWork()
    const events = Array.from({ length: 10_000 }, (_, index) => note(`entry ${index}`))
    const longest = page.evaluate(`new Promise((resolve) => {
      let most = 0
      const look = () => { most = Math.max(most, document.querySelectorAll('[data-key]').length) }
      const timer = setInterval(look, 20)
      window.endOfLook = () => { clearInterval(timer); look(); resolve(most) }
    })`) as Promise<number>
    await emit(run, events)
    await sees(page, 'entry 9999')
    await page.evaluate('window.endOfLook()')
    expect(await longest).toBeLessThan(200)
    await page.getByRole('region', { name: 'Log of the run' }).focus()
    await page.keyboard.press('Home')
    const top = () => page.evaluate('document.querySelector(".virtual").scrollTop')
    await expect.poll(top, { timeout: 20_000 }).toBe(0)
    await sees(page, 'entry 0')
    expect(await countOf(page, '[data-key]')).toBeLessThan(200)
    // New entries do not move what somebody reads.
    await emit(run, [note('one more')])
    await sees(page, '10,004 entries')
    expect(await page.getByText('one more').count()).toBe(0)
    await page.keyboard.press('End')
    await sees(page, 'one more')
    await page.getByPlaceholder('Filter the log').fill('entry 77')
    await sees(page, '111 entries')
  })
})

describe('the page of a run that is over', limits, () => {
  const lines = (...changed: number[]) =>
    Array.from({ length: 30 }, (_, at) => (changed.includes(at) ? `new ${at}\n` : `${at}\n`)).join('')

  async function openChanged(before: Record<string, string>, after: Record<string, string>) {
    const { host, directory } = await runThatChanged(before, after)
    const served = await serveHost(host)
    const opened = await open(`${served.service.url}/#token=${served.token}`)
    await opened.page.getByRole('heading', { name: 'Runs' }).waitFor()
    await opened.page.goto(`${served.service.url}/#/runs/${changedRunId}/changes`)
    await sees(opened.page, /changed paths?/)
    const read = (name: string) => readFile(path.join(directory, name), 'utf8')
    return { ...opened, directory, read, served }
  }

  it('has its changes applied by file and by hunk, and undone; a flagged path is not chosen [H.02 W.01 W.03]', async () => {
    const before = { 'a.txt': lines(), 'b.txt': 'b\n', 'package.json': '{}\n' }
    const scripts = { 'package.json': '{"scripts":{"postinstall":"./x"}}\n' }
    const { page, read, complaints } = await openChanged(before, {
      ...{ 'a.txt': lines(3, 25), 'b.txt': 'c\n', ...scripts },
    })
    expect(await page.getByLabel('Choose package.json').isChecked()).toBe(false)
    await sees(page, /1 path can run code on your machine/)
    await page.getByLabel('Choose hunk 1').uncheck()
    await page.getByLabel('Choose b.txt').uncheck()
    await page.getByRole('button', { name: 'Apply parts of 1 file' }).click()
    await sees(page, 'Applied 1 path.')
    // A button at work takes no click.
    const settled = () => expect.poll(() => countOf(page, '.changes-bar [aria-busy="true"]')).toBe(0)
    await settled()
    expect(await read('a.txt')).toBe(lines(25))
    expect([await read('b.txt'), await read('package.json')]).toEqual(['b\n', '{}\n'])
    await page.getByLabel('Choose b.txt').check()
    await page.getByRole('button', { name: 'Apply 1 change' }).click()
    await expect.poll(() => read('b.txt')).toBe('c\n')
    await settled()
    await page.getByLabel('Choose package.json').check()
    await page.getByRole('button', { name: 'Apply 1 change' }).click()
    await expect.poll(() => read('package.json')).toBe(scripts['package.json'])
    await settled()
    await page.getByRole('button', { name: 'Choose what to apply' }).waitFor()
    expect(await axeFindings(page)).toEqual([])
    await page.getByRole('button', { name: 'Undo all' }).click()
    await sees(page, 'Restored 3 paths.')
    expect([await read('a.txt'), await read('b.txt')]).toEqual([lines(), 'b\n'])
    expect(complaints).toEqual([])
  })

  it('has its changes as a patch and as an archive for download [H.02 W.01]', async () => {
    const { page, complaints } = await openChanged({ 'b.txt': 'b\n' }, { 'b.txt': 'c\n' })
    const contentOf = async (button: string) => {
      const [download] = await Promise.all([
        page.waitForEvent('download'),
        page.getByRole('button', { name: button }).click(),
      ])
      return { name: download.suggestedFilename(), text: await readFile(await download.path(), 'latin1') }
    }
    const patch = await contentOf('Download patch')
    expect(patch.name).toBe(`${changedRunId}.patch`)
    expect(patch.text).toContain('-b\n+c\n')
    const archive = await contentOf('Download files')
    expect(archive.name).toBe(`${changedRunId}.tar`)
    expect(archive.text).toContain('files/b.txt')
    expect(complaints).toEqual([])
  })

  it('shows a conflict with a file that changed on the host, and applies the others [H.02 W.01]', async () => {
    const { page, directory, read } = await openChanged(
      { 'a.txt': 'a\n', 'b.txt': 'b\n' },
      { 'a.txt': 'A\n', 'b.txt': 'B\n' },
    )
    await writeFile(path.join(directory, 'a.txt'), 'mine\n')
    await page.reload()
    await page.getByText('conflict', { exact: true }).waitFor()
    expect(await page.getByLabel('Choose a.txt').isDisabled()).toBe(true)
    await page.getByRole('button', { name: 'Apply 1 change' }).click()
    await expect.poll(() => read('b.txt')).toBe('B\n')
    expect(await read('a.txt')).toBe('mine\n')
  })

  it('keeps hostile text as text: HTML, control characters, bidi [H.02 S1.09]', async () => {
    const image = '<img src=x onerror="alert(1)">'
    const bidi = 'safe\u202egpj.exe\u0007'
    const { page, complaints, served } = await openChanged(
      { 'a.txt': 'a\n' },
      { [`${bidi}.txt`]: `${image}\u001b[2J\n` },
    )
    await sees(page, 'safe\\u{202e}gpj.exe\\x07.txt')
    await sees(page, `${image}\\e[2J`)
    const run = await runAtWork()
    const second = await serveHost(new Host({ env: run.env }))
    await run.record.host({ ...runStart, prompt: `${image}${bidi}` })
    await emit(run, [
      {
        type: 'plan-update',
        revision: 1,
        plan: { goal: image, steps: [{ ...step('one'), title: `${image} title` }] },
      },
      {
        type: 'tool-start',
        stepId: 'one',
        callId: 'c1',
        tool: image,
        arguments: JSON.stringify({ command: image }),
      },
      { type: 'tool-end', stepId: 'one', callId: 'c1', tool: image, output: `${image}\u202e`, durationMs: 1 },
      note(`${image} noted`),
    ])
    const asked = {
      ...someCall,
      approvalId: 'ap-1',
      tool: image,
      arguments: '{}',
      preview: `${image}\u202e preview`,
    }
    void run.queue.ask(asked)
    const other = await open(`${second.service.url}/#token=${second.token}`)
    await sees(other.page, `${image}\\u{202e} preview`)
    await other.page.goto(`${second.service.url}/#/runs/${runId}`)
    for (const text of [`${image} title`, `${image} noted`]) await sees(other.page, text)
    for (const opened of [page, other.page]) {
      // The mark of the top bar is the only picture.
      expect(await countOf(opened, 'img')).toBe(1)
      expect(await countOf(opened, '[onerror], iframe, object, script:not([src])')).toBe(0)
    }
    expect([...complaints, ...other.complaints]).toEqual([])
    expect(served.logged.filter(({ level }) => level === 'error')).toEqual([])
  })

  it('is replayed by a slider over log, plan and figures [H.02 R.09]', async () => {
    const { run, page, served } = await openRunAtWork()
    await emit(run, [
      { type: 'step-end', stepId: 'one', state: 'completed', text: 'One is done.' },
      { type: 'step-start', stepId: 'two' },
      { type: 'step-end', stepId: 'two', state: 'failed', text: 'It broke.' },
    ])
    await run.record.host({
      type: 'run-end',
      outcome: 'failed',
      reason: 'step_failed',
      message: 'no',
      summary: '',
      usage,
      durationMs: 5_000,
    })
    const slider = page.getByRole('slider', { name: 'Moment of the run' })
    await slider.waitFor()
    const steps = () => page.locator('.graph .step-meta').allInnerTexts()
    expect((await steps()).map((text) => /^\w+/.exec(text)?.[0])).toEqual(['completed', 'failed', 'pending'])
    await slider.fill('4')
    await expect.poll(async () => (await steps())[1]).toContain('pending')
    await sees(page, 'One is done.')
    expect(await page.getByText('It broke.').count()).toBe(0)
    await page.getByRole('button', { name: 'To the end' }).click()
    await sees(page, 'It broke.')
    await served.service.close()
  })

  it('works by the keyboard alone, on a phone, light and dark, and axe finds nothing [H.02]', async () => {
    const { page, served } = await openChanged({ 'a.txt': 'a\n' }, { 'a.txt': 'b\n' })
    await page.getByRole('tab', { name: 'Changes' }).focus()
    await page.keyboard.press('ArrowRight')
    await page.getByRole('tab', { name: 'Network', selected: true }).waitFor()
    await page.keyboard.press('ArrowRight')
    await sees(page, changedRunId)
    expect(await axeFindings(page)).toEqual([])
    const fork = page.getByRole('button', { name: 'Fork or rewind' })
    await fork.focus()
    await page.keyboard.press('Enter')
    await page.getByRole('dialog', { name: 'Continue from an earlier moment' }).waitFor()
    expect(await axeFindings(page)).toEqual([])
    await page.keyboard.press('Escape')
    await expect.poll(() => countOf(page, 'dialog')).toBe(0)
    expect(await page.evaluate('document.activeElement.textContent')).toContain('Fork or rewind')
    await page.goto(`${served.service.url}/#/new`)
    await page.getByLabel('Task', { exact: true }).waitFor()
    expect(await axeFindings(page)).toEqual([])
    for (const colorScheme of ['light', 'dark'] as const) {
      const phone = await open(`${served.service.url}/#token=${served.token}`, {
        ...{ viewport: { width: 360, height: 740 }, colorScheme },
      })
      await phone.page.getByRole('link', { name: /Completed/ }).click()
      await phone.page.getByRole('tab', { name: 'Changes' }).click()
      await sees(phone.page, '1 changed path')
      expect(await axeFindings(phone.page)).toEqual([])
      // Nothing is wider than the screen.
      expect(await phone.page.evaluate('document.documentElement.scrollWidth')).toBe(360)
      const tabs = 'document.querySelector("[role=tablist]")'
      expect(await phone.page.evaluate(`${tabs}.scrollWidth - ${tabs}.clientWidth`)).toBe(0)
      expect(await phone.page.evaluate('document.querySelector(".topbar nav").offsetHeight')).toBeLessThan(30)
    }
  })
})
