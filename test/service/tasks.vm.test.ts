// The compatible routes of `caisson serve` with real VMs and the offline model: the requests of docs/http.md as they
// stand there, and a client that goes away.
import { readFile } from 'node:fs/promises'
import { request } from 'node:http'
import path from 'node:path'
import { expect, it } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { type CliProcess, cliPlace, type Place } from '../../host/test/support/cli.ts'

async function serveOpen(place: Place): Promise<{ process: CliProcess; baseUrl: string }> {
  const process = place.start('serve', '--port', '0', '--no-token')
  const baseUrl = () => /listens on (http:\S+)/.exec(process.errors())?.[1]
  await expect.poll(baseUrl, { timeout: 60_000 }).toBeTruthy()
  return { process, baseUrl: baseUrl() ?? '' }
}

interface Example {
  readonly method: string
  readonly path: string
  readonly body: string | undefined
}

/** The `curl` commands of the section, in their order. */
async function examples(): Promise<Example[]> {
  const page = await readFile(path.join(import.meta.dirname, '../../docs/http.md'), 'utf8')
  const [, section = ''] = page.split('## Answer in one request')
  const [text = ''] = section.split('\n## ')
  const commands = text.matchAll(
    /^curl (?:-X (\w+) )?http:\/\/127\.0\.0\.1:3789(\S+)(?: \\\n {2}-H "Content-Type: application\/json" \\\n {2}-d '([^']+)')?$/gm,
  )
  return [...commands].map(([, method = 'GET', at = '', body]) => ({ method, path: at, body }))
}

it('answers the documented requests as documented, by the offline model [S0.08 S4.02 S4.03]', async () => {
  const place = await cliPlace({})
  const { process, baseUrl } = await serveOpen(place)
  const warning = 'Warning: no token is needed. Every program and user of this machine can start runs'
  await expect.poll(() => process.errors()).toContain(warning)
  const send = async ({ method, path: at, body }: Example) => {
    const headers = body === undefined ? {} : { 'content-type': 'application/json' }
    const answer = await fetch(`${baseUrl}${at}`, {
      method,
      headers,
      ...(body === undefined ? {} : { body }),
    })
    return { status: answer.status, headers: answer.headers, json: (await answer.json()) as unknown }
  }
  const all = await examples()
  expect(all.map((one) => one.path)).toEqual([
    '/run',
    '/api/v1/run-task',
    '/api/v1/run-task',
    '/api/v1/run-task',
    '/api/v1/governance-notes/PROP-2025-001',
    '/api/v1/health',
  ])
  const answers = []
  for (const one of all) answers.push(await send(one))
  expect(answers.map(({ status }) => status)).toEqual(all.map(() => 200))
  const [chat, math, search, note, notes, health] = answers
  expect(chat?.json).toMatchObject({ outcome: 'completed', summary: expect.stringContaining('391') })
  const entry = { step: 1, error: null, timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/) }
  expect(math?.json).toEqual({
    status: 'success',
    output: expect.stringContaining('Calculation result: 300 (from (100 + 50) * 2)'),
    trace: [
      {
        ...entry,
        tool: 'math',
        input: { expression: '(100 + 50) * 2' },
        output: { result: 300, expression: '(100 + 50) * 2' },
      },
    ],
  })
  expect(search?.json).toEqual({
    status: 'success',
    output: expect.stringMatching(/Python FastAPI best practices[\s\S]*no search was made/),
    trace: [
      expect.objectContaining({
        ...entry,
        tool: 'web_search',
        input: expect.objectContaining({ query: 'Python FastAPI best practices' }),
      }),
    ],
  })
  expect(note?.json).toMatchObject({
    status: 'success',
    output: expect.stringMatching(/Proposed as (\S+) for PROP-2025-001[\s\S]*\nKept: \1\.$/),
    trace: [{ tool: 'governance_note' }],
  })
  expect(notes?.json).toEqual({ proposal_id: 'PROP-2025-001', notes: ['Legal review completed'] })
  expect(health?.json).toEqual({ status: 'healthy', service: 'caisson', version: expect.any(String) })

  // The run is an ordinary one, with a workspace of its own that is removed with it.
  const client = new ServiceClient({ baseUrl })
  const run = math?.headers.get('location')?.split('/').at(-1) ?? ''
  const { workspace } = await client.call('getRun', { params: { run } })
  expect(path.dirname(workspace)).toBe(path.join(place.home, 'service/workspaces'))
  expect((await place.run('runs', 'rm', run)).code).toBe(0)
  await expect(readFile(workspace)).rejects.toMatchObject({ code: 'ENOENT' })

  process.child.kill('SIGTERM')
  expect((await process.ended).code).toBe(0)
}, 400_000)

it('a run whose client is gone continues, and the same key waits for its answer [S4.02 H.02]', async () => {
  const place = await cliPlace({})
  const { process, baseUrl } = await serveOpen(place)
  const client = new ServiceClient({ baseUrl })
  const body = { goal: 'Calculate 6 * 7', tools: ['math'] }
  const { hostname, port } = new URL(baseUrl)
  const headers = { 'content-type': 'application/json', 'idempotency-key': 'task-1' }
  const asked = request({ hostname, port, method: 'POST', path: '/api/v1/run-task', headers })
  asked.on('error', () => undefined)
  asked.end(JSON.stringify(body))
  const runs = async () => (await client.call('listRuns', {})).runs.map(({ id }) => id)
  await expect.poll(runs, { timeout: 60_000 }).toHaveLength(1)
  asked.destroy()
  const again = await client.call('runTask', { body, idempotencyKey: 'task-1' })
  expect(again).toMatchObject({ status: 'success', output: expect.stringContaining('42') })
  expect(await runs()).toHaveLength(1)
  process.child.kill('SIGTERM')
  expect((await process.ended).code).toBe(0)
}, 200_000)
