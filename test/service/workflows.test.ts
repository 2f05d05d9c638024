// Workflows over HTTP, with a hook in the place of a VM.
import path from 'node:path'
import { expect, it, onTestFinished, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import { heldRuns } from './queue-support.ts'
import { serveHost } from './support.ts'

const file = {
  'A@1#details': {
    steps: [{ id: 'a' }],
    input: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] },
  },
  'A@1@step-a#details': { chat: [{ role: 'user', content: 'say {{input.n}}' }], nextStep: '-' },
}

it('starts a run that carries out the workflow of a request, with its input [H.02 S3.04]', async () => {
  const held = await heldRuns()
  const home = await temporaryFolder('workflows')
  const host = new Host({
    env: { HOME: home, CAISSON_HOME: path.join(home, 'state'), PATH: process.env.PATH },
    config: { hooks: [{ point: 'before-run', command: [...held.command] }] },
    queue: { maxAtWork: 1 },
  })
  onTestFinished(async () => {
    await held.release()
    // All of them end, and write no more.
    await vi.waitUntil(async () => (await host.runs.live()).size === 0, { timeout: 30_000 })
    await host.close()
  })
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
