// Workflows over HTTP, with a hook in the place of a VM.
import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host, WorkspaceManager } from '../../host/index.ts'
import { holderOf } from './keys-support.ts'
import { hostOfHeldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

const file = {
  'A@1#details': {
    steps: [{ id: 'a' }],
    input: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  },
  'A@1@step-a#details': { chat: [{ role: 'user', content: 'say {{input.n}}' }], nextStep: '-' },
}

const makeHost = () => hostOfHeldRuns('workflows')

it('starts a run that carries out the workflow of a request, with its input [H.02 S3.04]', async () => {
  const { host } = await makeHost()
  const { client, send } = await serveHost(host)
  for (const [workflow, expected] of [
    [{ ...file, 'A@1@step-a#details': {} }, /"A@1@step-a#details": must have one of chat/],
    ['{', /cannot be read as JSON/],
    ['/etc/passwd', /must be an object|no key/],
  ] as const)
    await expect(client.call('createWorkflowRun', { body: { workflow } })).rejects.toMatchObject({
      status: 400,
      code: 'invalid_workflow',
      message: expect.stringMatching(expected),
      problem: { errors: [{ field: 'workflow', message: expect.stringMatching(/^line 1, column \d+: /) }] },
    })
  await expect(
    client.call('createWorkflowRun', { body: { workflow: file, input: { n: 'x' } } }),
  ).rejects.toMatchObject({ status: 400, message: expect.stringMatching(/the input .*n: /) })
  const taken = await send('POST', '/v1/workflows/runs', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ workflow: file, prompt: 'x' }),
  })
  expect(taken.status).toBe(400)
  expect((await client.call('listRuns', {})).runs).toEqual([])

  const body = { workflow: JSON.stringify(file), input: { n: 1 } }
  const started = await client.call('createWorkflowRun', { body, idempotencyKey: 'k1' })
  expect(started).toMatchObject({ prompt: 'A@1' })
  expect((await client.call('createWorkflowRun', { body, idempotencyKey: 'k1' })).id).toBe(started.id)
  const [first] = await host.runs.read(started.id)
  expect(first?.event).toMatchObject({ type: 'run-start', workflow: { name: 'A', version: '1' } })
  await client.call('cancelRun', { params: { run: started.id }, body: {} })
})

/** A service whose store has two workflows, one taking a step of the other. */
async function servePublished() {
  const { home, host } = await makeHost()
  const manager = new WorkspaceManager({ store: host.workflows })
  const using = {
    'B@2#details': { steps: [{ id: 'b' }] },
    'B@2@step-b#details': { from: 'A@1@step-a' },
  }
  for (const [name, content] of Object.entries({ a: file, b: using })) {
    await writeFile(path.join(home, name), JSON.stringify(content))
    await manager.publish(path.join(home, name))
  }
  return { home, host, ...(await serveHost(host)) }
}

it('lists what is published to keys that read, and refuses other names without reading a file [H.02 S3.07]', async () => {
  const { home, host, client, ...served } = await servePublished()
  const { workflows } = await client.call('listWorkflows', {})
  expect(workflows).toEqual([
    { name: 'A', version: '1', sha256: createHash('sha256').update(JSON.stringify(file)).digest('hex') },
    { name: 'B', version: '2', sha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
  ])
  const reader = await holderOf(host, served, 'reader', { scopes: ['read'] })
  expect((await reader.send('GET', '/v1/workflows')).json).toEqual({ workflows })
  const approver = await holderOf(host, served, 'approver', { scopes: ['approve'] })
  expect((await approver.send('GET', '/v1/workflows')).status).toBe(403)
  // A file of this name is in the directory of the service.
  const before = process.cwd()
  await writeFile(path.join(home, 'C@1'), JSON.stringify(file))
  process.chdir(home)
  onTestFinished(() => process.chdir(before))
  for (const workflow of ['C@1', 'A@2', '../A@1', 'file:///etc/passwd', 'a'])
    await expect(client.call('createWorkflowRun', { body: { workflow } })).rejects.toMatchObject({
      status: 400,
      code: 'invalid_workflow',
    })
  expect((await client.call('listRuns', {})).runs).toEqual([])
})

it('starts a published workflow by name and version, with all that it takes [H.02 S3.07]', async () => {
  const { host, client } = await servePublished()
  await expect(
    client.call('createWorkflowRun', { body: { workflow: 'A@1', input: { n: 'x' } } }),
  ).rejects.toMatchObject({ status: 400, message: expect.stringMatching(/the input .*n: /) })
  const { id } = await client.call('createWorkflowRun', { body: { workflow: 'B@2', input: 1 } })
  const [first] = await host.runs.read(id)
  const { workflows } = await client.call('listWorkflows', {})
  expect(first?.event).toMatchObject({
    type: 'run-start',
    workflow: { name: 'B', version: '2', uses: [{ from: 'A@1', sha256: workflows[0]?.sha256 }] },
  })
  await client.call('cancelRun', { params: { run: id }, body: {} })
})

it('answers 503 while its store fails [H.02 S3.07]', async () => {
  const home = await temporaryFolder('published')
  const fail = () => Promise.reject(new Error('no network'))
  const host = new Host({
    env: { HOME: home, CAISSON_HOME: path.join(home, 'state'), PATH: process.env.PATH },
    workflows: { get: fail, list: fail, put: fail },
  })
  const { client } = await serveHost(host)
  const refusal = { status: 503, message: expect.stringContaining('no network') }
  await expect(client.call('listWorkflows', {})).rejects.toMatchObject(refusal)
  await expect(client.call('createWorkflowRun', { body: { workflow: 'A@1' } })).rejects.toMatchObject(refusal)
})

it('shows what a workflow is before it starts, or each of its problems with line and column [H.02 S3.04]', async () => {
  const home = await temporaryFolder('workflow-check')
  await using host = new Host({ env: { HOME: home, CAISSON_HOME: path.join(home, 'state') } })
  const { client, send } = await serveHost(host)
  const check = (workflow: string | object) =>
    client.call('checkWorkflow', { body: { workflow: workflow as string } })
  const example = await readFile(
    path.join(import.meta.dirname, '../../examples/workflows/review.workflow.json'),
    'utf8',
  )
  const { workflow, problems } = await check(example)
  expect(problems).toEqual([])
  expect(workflow).toMatchObject({ name: 'Review', version: '1', input: { required: ['file'] } })
  expect(workflow?.steps.map(({ id, name, work }) => [id, name, work])).toEqual([
    ['read', 'read', 'chat'],
    ['estimate', 'estimate', 'chat'],
    ['small', 'Small enough?', 'call'],
    ['approve', 'approve', 'ask'],
    ['write', 'write', 'chat'],
    ['refuse', 'refuse', 'chat'],
  ])
  expect(workflow?.steps[1]).toMatchObject({ each: 'steps.read.output.tasks' })
  expect(workflow?.steps[2]?.next).toEqual([
    { to: 'write', on: 'completed', isCase: true, when: 'steps.small.output.hours <= 8' },
    { to: 'approve', on: 'completed', isCase: true },
  ])
  expect(await check(JSON.parse(example))).toEqual({ workflow, problems: [] })

  const broken =
    '{\n  "A@1#details": {"steps": [{"id": "a"}, {"id": "b"}]},\n  "A@1@step-a#details": {"chat": 7}\n}'
  expect(await check(broken)).toEqual({
    workflow: null,
    problems: [
      {
        key: 'A@1#details',
        path: 'steps.1',
        message: expect.stringContaining('has no details'),
        line: 2,
        column: 42,
      },
      {
        key: 'A@1@step-a#details',
        path: 'chat',
        message: expect.stringContaining('list'),
        line: 3,
        column: 34,
      },
    ],
  })
  expect((await check('{')).problems).toMatchObject([{ line: 1, message: expect.stringContaining('JSON') }])
  // It names no file of the machine.
  expect((await check('/etc/passwd')).workflow).toBeNull()
  for (const body of [{}, { workflow: 7 }, { workflow: '' }, { workflow: 'x', more: 1 }])
    expect(
      (
        await send('POST', '/v1/workflows/check', {
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(body),
        })
      ).status,
    ).toBe(400)
  expect((await client.call('listRuns', {})).runs).toEqual([])
})
