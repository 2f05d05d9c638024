// Workflows on the page, in a real browser: started from the form, and as their runs show them.
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { waitTool } from '#specs/protocol/tool-names.ts'
import { outlineOf } from '#specs/protocol/workflow.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host, WorkspaceManager } from '../../host/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId, runStart } from '../../host/test/support/run-values.ts'
import { compileWorkflow } from '../../host/workflows/compile.ts'
import { hostOfHeldRuns } from '../service/queue-support.ts'
import { serveHost } from '../service/support.ts'
import { axeFindings, sees, useBrowser } from './support.ts'

const open = useBrowser()
const exampleFile = path.join(import.meta.dirname, '../../examples/workflows/review.workflow.json')
const limits = { timeout: 120_000 }
const usage = { requests: 1, inputTokens: 1_000, outputTokens: 200, reasoningTokens: 0 }

it(
  'starts from a file: its problems lead to their lines, its steps are drawn, its input has fields [S3.04 H.02]',
  limits,
  async () => {
    const { host } = await hostOfHeldRuns('page-workflow')
    const { service, token, client } = await serveHost(host)
    const { page, complaints } = await open(`${service.url}/#token=${token}`)
    await page.getByRole('link', { name: 'New run' }).first().click()
    await page.getByLabel('What to run').selectOption('workflow')
    await page.getByLabel('Files to work on').selectOption('none')
    const example = await readFile(exampleFile, 'utf8')
    const text = page.getByLabel('Its text')
    await text.fill(example.replace('"id": "write"', '"id": "wrote"'))
    await page
      .getByRole('button', { name: /^Line \d+, column \d+$/ })
      .first()
      .waitFor()
    await sees(page, /this workflow cannot run/)
    expect(await axeFindings(page)).toEqual([])
    await page.getByRole('button', { name: /^Line 9, column/ }).click()
    const selected = await page.evaluate('getSelection().toString()')
    expect(selected).toContain('"wrote"')

    const file = path.join(await temporaryFolder('workflow-file'), 'review.workflow.json')
    await writeFile(file, example)
    await page.getByLabel('Workflow file', { exact: true }).setInputFiles(file)
    const drawing = page.getByRole('region', { name: 'Steps of the workflow' })
    await drawing.getByText('Review@1').waitFor()
    await drawing.getByText('Small enough?').waitFor()
    await drawing.getByText('each of steps.read.output.tasks').waitFor()
    expect(await axeFindings(page)).toEqual([])
    await page.getByLabel('file', { exact: true }).fill('TODO.md')
    await page.getByRole('button', { name: 'Start run' }).click()
    await page.getByRole('heading', { name: /^Review@1/, level: 1 }).waitFor()
    const [run] = (await client.call('listRuns', {})).runs
    const [first] = await host.runs.read(run?.id ?? '')
    expect(first?.event).toMatchObject({
      workflow: { name: 'Review', outline: { estimate: { work: 'chat' } } },
    })

    await page.goto(`${service.url}/#/new`)
    await page.getByLabel('What to run').selectOption('workflow')
    // Dropped on the field.
    const waits = { 'A@1#details': { steps: [{ id: 'a' }] }, 'A@1@step-a#details': { wait: { for: '2h' } } }
    const data = await page.evaluateHandle(`(() => {
    const transfer = new DataTransfer()
    transfer.items.add(new File([${JSON.stringify(JSON.stringify(waits))}], 'a.workflow.json'))
    return transfer
  })()`)
    await page.getByLabel('Its text').dispatchEvent('drop', { dataTransfer: data })
    await page.getByLabel('Input as JSON').waitFor()
    await page.getByLabel('Input as JSON').fill('{')
    await page.getByLabel('Files to work on').selectOption('none')
    await page.getByRole('button', { name: 'Start run' }).click()
    await sees(page, /The input is not JSON/)
    expect(complaints).toEqual([])
  },
)

it(
  'a run shows the steps of its workflow by their names, where cases led, entries, skipped steps and waits [S3.04 H.02]',
  limits,
  async () => {
    const workflow = await new WorkspaceManager().load(exampleFile)
    const compiled = await compileWorkflow(workflow, { file: 'TODO.md' }, { provided: new Set() })
    const outline = outlineOf(compiled.workflow)
    const { name, version, sha256 } = compiled.workflow
    const run = await runAtWork()
    await run.record.host({
      ...runStart,
      prompt: compiled.plan.goal,
      workflow: { name, version, sha256, ...(outline === undefined ? {} : { outline }) },
      notes: ['The offline model answers, so option effort has no effect.'],
    })
    let n = 0
    const emit = async (...events: AgentEvent[]) => {
      for (const event of events) await run.record.agent('root', ++n, event)
    }
    const turn = (stepId: string, text: string) => ({
      ...{ type: 'turn-end' as const, stepId, turn: 1, text, calls: [] },
      usage,
      finishReason: 'stop',
    })
    const end = (stepId: string, state: 'completed' | 'skipped', text: string) =>
      ({ type: 'step-end', stepId, state, text }) as const
    await emit(
      { type: 'plan-update', revision: 1, plan: compiled.plan },
      { type: 'step-start', stepId: 'read' },
      turn('read', '{"tasks":["fix login","write docs"]}'),
      end('read', 'completed', '{"tasks":["fix login","write docs"]}'),
      { type: 'step-start', stepId: 'estimate' },
      turn('estimate--0', '{"hours":3}'),
      turn('estimate--1', '{"hours":4}'),
      end('estimate', 'completed', '[{"hours":3},{"hours":4}]'),
      { type: 'step-start', stepId: 'small' },
      end('small', 'completed', '{"hours":7}'),
      end('approve', 'skipped', 'no step led here'),
      end('refuse', 'skipped', 'no step led here'),
      { type: 'step-start', stepId: 'write' },
    )
    const until = Date.now() + 2 * 3_600_000
    await run.record.host({
      type: 'approval-request',
      kind: 'cooperative',
      digest: '0'.repeat(64),
      request: {
        ...{ agentPath: 'root', stepId: 'write', callId: 'c', approvalId: 'wait-1' },
        ...{ tool: waitTool, arguments: JSON.stringify({ until }), preview: 'Waits' },
      },
    })
    const served = await serveHost(new Host({ env: run.env }))
    const { page, complaints } = await open(`${served.service.url}/#token=${served.token}`)
    await page.getByRole('link', { name: /Review@1/ }).waitFor()
    // The clock answers a wait.
    expect(await page.getByText('Waiting for you').count()).toBe(0)
    await page.goto(`${served.service.url}/#/runs/${runId}`)
    const steps = page.getByRole('region', { name: 'Steps' })
    await steps
      .getByText('4 of 6 done, 2 not taken')
      .or(steps.getByText('3 of 6 done, 2 not taken'))
      .waitFor()
    await steps.getByRole('button', { name: /Small enough\?.*completed · call · → write/ }).waitFor()
    await steps.getByRole('button', { name: /approve.*not taken · question/ }).waitFor()
    await sees(page, 'estimate · entry 2')
    await sees(page, /Step skipped: approve \(no step led here\)/)
    await sees(page, /so option effort has no effect/)
    await page.getByRole('heading', { name: /^Waits until/ }).waitFor()
    await page.getByRole('button', { name: 'Continue now' }).waitFor()
    await page.getByRole('button', { name: 'End the step' }).waitFor()
    expect(await axeFindings(page)).toEqual([])
    await steps.getByRole('button', { name: /^estimate/ }).click()
    await sees(page, 'estimate · entry 1')
    await expect.poll(() => page.getByText('"tasks":').count()).toBe(0)
    await page.getByRole('tab', { name: 'Details' }).click()
    await sees(page, 'Review@1')
    expect(complaints).toEqual([])
  },
)
