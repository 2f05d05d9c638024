// The page in a real browser, over the real service and runs without a VM.
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
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

const toolCall = { ...someCall, tool: 'delete_file', arguments: '{"path":"old.txt"}', preview: 'the file "old.txt"' }

describe('signing in', () => {
  it('takes the token from the fragment or a form, keeps it out of address and log [H.02]', async () => {
    const run = await runAtWork()
    const { service, token, logged } = await serveHost(new Host({ env: run.env }))
    const { page, complaints } = await open(`${service.url}/`)
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    expect(await axeFindings(page)).toEqual([])
    await page.getByLabel('Token').fill('wrong')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('alert').waitFor()
    await page.getByLabel('Token').fill(token)
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('heading', { name: 'Runs' }).waitFor()
    await page.reload()
    await page.getByRole('heading', { name: 'Runs' }).waitFor()
    await page.getByRole('button', { name: 'Sign out' }).click()
    await page.getByRole('heading', { name: 'Sign in' }).waitFor()
    await page.goto('about:blank')
    await page.goto(`${service.url}/#token=${token}`)
    await page.getByRole('heading', { name: 'Runs' }).waitFor()
    expect(page.url()).toBe(`${service.url}/#/`)
    expect(JSON.stringify(logged)).not.toContain(token)
    expect(complaints).toEqual([])
  })
})

describe('the page of a run at work', () => {
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
      { question: 'Which color?', kind: 'choice', options: [{ value: 'red' }, { value: 'blue', label: 'Blue' }] },
      'q1',
    )
    await page.getByLabel('Blue').check()
    await page.getByRole('button', { name: 'Answer', exact: true }).click()
    expect(await asked).toMatchObject({ decision: 'allow', answer: 'blue' })
    const plain = run.queue.ask({ ...someCall, approvalId: 'ap-3', tool: 'submit_plan', arguments: JSON.stringify(plan) })
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
    await run.queue.answer('ap-1', { decision: 'deny' }, { name: 'Ada', via: 'terminal' })
    await asked
    await sees(page, 'Ada denied')
    await expect.poll(() => countOf(page, '.question')).toBe(0)
    await expect.poll(() => countOf(other.page, '.question')).toBe(0)
  })

  it('is steered, paused and cancelled, a sub-agent by itself [H.02 A.08]', async () => {
    const { run, page } = await openRunAtWork()
    await emit(run, [{ type: 'agent-start', stepId: 'one', brief: 'Check it', tools: [], limits: {} }], 'root/check')
    await page.getByLabel('Message').fill('use tabs')
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
      { type: 'turn-end', ...{ stepId: 'one', turn: 1, text: 'First I look.', calls: [], usage, finishReason: 'stop' } },
      { type: 'tool-start', ...call, tool: 'run_bash', arguments: '{"command":"npm test"}' },
    ])
    run.record.delta('root', { type: 'tool-output-delta', ...call, stream: 'stdout', offset: 0, text: '12 tests\n' })
    await sees(page, '12 tests')
    await emit(run, [{ type: 'tool-end', ...call, tool: 'run_bash', output: '13 passed', exitCode: 1, durationMs: 9 }])
    const row = page.getByRole('button', { name: /npm test/ })
    await sees(page, /exit 1/)
    await row.click()
    await sees(page, '13 passed')
    const reached = { kind: 'tunnel', target: 'pypi.org:443', rule: 'allow pypi.org' } as const
    await run.record.host({ type: 'egress-end', ...reached, bytesOut: 1_200, bytesIn: 80_400, durationMs: 640 })
    await run.record.host({ type: 'egress-denied', target: 'GET https://example.com/', reason: 'no rule allows it' })
    await run.record.host({ type: 'model-end', status: 200, durationMs: 1, usage, estimated: false })
    run.record.delta('root', {
      type: 'vm-use',
      ...{ memoryBytes: 256 * 1024 ** 2, memoryMaxBytes: 1024 ** 3, cpuPercent: 84, diskBytes: 1_048_576 },
    })
    await page.getByRole('meter', { name: 'Memory of the VM' }).waitFor()
    expect(await page.getByRole('meter', { name: 'Tokens used' }).getAttribute('aria-valuenow')).toBe('1200')
    await page.getByRole('tab', { name: 'Network' }).click()
    expect(await page.locator('.network tbody tr').allInnerTexts()).toMatchObject([
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
    await sees(page, /^Tidy the shop$/)
    expect(await countOf(page, '[data-key]')).toBeLessThan(200)
    // New entries do not move what somebody reads.
    await emit(run, [note('one more')])
    await sees(page, '10,004 entries')
    expect(await page.getByText('one more').count()).toBe(0)
    await page.getByPlaceholder('Filter the log').fill('entry 77')
    await sees(page, '111 entries')
  })
})
