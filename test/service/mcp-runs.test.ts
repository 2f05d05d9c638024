// Runs that MCP clients start and read: over stdio by the real command line, and over HTTP as tasks. No VM: a hook has each run.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { describe, expect, it } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { Host } from '../../host/index.ts'
import { beginChanging, placeOfRuns } from '../../host/test/support/changed-run.ts'
import type { Place } from '../../host/test/support/cli.ts'
import { cliProgram } from '../../host/test/support/cli-program.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { runId } from '../../host/test/support/run-values.ts'
import { treeOf } from '../../host/test/workspace/support.ts'
import { holderOf, startOf } from './keys-support.ts'
import { connectMcp, httpTransport, revisions, sendCall, startMcp } from './mcp-support.ts'
import { heldRuns, placeOf } from './queue-support.ts'
import { serveHost } from './support.ts'

const tasks = { 'io.modelcontextprotocol/tasks': {} }

/** The real command as an MCP client starts it. */
function stdioTransport(place: Place, ...argv: string[]): StdioClientTransport {
  const args = ['--conditions=caisson-source', '--', cliProgram, 'mcp', 'serve', ...argv]
  return new StdioClientTransport({
    command: process.execPath,
    args,
    env: place.env,
    cwd: place.workspace,
    stderr: 'pipe',
  })
}

async function servedPlace() {
  const held = await heldRuns()
  const place = await placeOf(held)
  const service = place.start('serve', '--port', '0')
  await expect
    .poll(() => /listens on (http:\S+)/.exec(service.errors())?.[1], { timeout: 30_000 })
    .toBeTruthy()
  const url = /listens on (http:\S+)/.exec(service.errors())?.[1] ?? ''
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  return { held, place, service, url, client: new ServiceClient({ baseUrl: url, token }) }
}

describe.each(revisions)('an MCP client of %s over stdio', (revision) => {
  it('starts a run with progress, which outlives it and is found again, and sees no run of others [H.03 A.09]', async () => {
    const { held, place, client: service } = await servedPlace()
    const otherRun = await service.call('createRun', {
      body: { prompt: 'Not of MCP', workspace: place.workspace },
    })
    const first = await connectMcp(stdioTransport(place, '-w', place.workspace), { revision })
    const progress: number[] = []
    const started = await first.callTool(
      { name: 'run_task', arguments: { prompt: 'Count the words', requestKey: 'one', waitSeconds: 3 } },
      { onprogress: ({ progress: at }) => void progress.push(at) },
    )
    const { runId: id } = started.structuredContent as { runId: string }
    expect(started.structuredContent).toMatchObject({
      hasEnded: false,
      next: expect.stringContaining('get_run'),
    })
    expect(progress.length).toBeGreaterThan(0)
    expect(progress).toEqual(progress.toSorted((a, b) => a - b))
    const again = await first.callTool({
      name: 'run_task',
      arguments: { prompt: 'Count the words', requestKey: 'one', waitSeconds: 0 },
    })
    expect(again.structuredContent).toMatchObject({ runId: id })
    await first.close()

    const second = await connectMcp(stdioTransport(place), { revision })
    expect((await second.callTool({ name: 'list_runs', arguments: {} })).structuredContent).toMatchObject({
      runs: [{ runId: id, prompt: 'Count the words', workspace: place.workspace }],
    })
    expect(await second.callTool({ name: 'get_run', arguments: { runId: otherRun.id } })).toMatchObject({
      isError: true,
    })
    await expect(second.readResource({ uri: `caisson://runs/${otherRun.id}/journal` })).rejects.toThrow(
      'not found',
    )
    const waiting = second.callTool({ name: 'get_run', arguments: { runId: id, waitSeconds: 60 } })
    await expect.poll(held.begun).toContain(id)
    await held.release()
    expect(await waiting).toMatchObject({
      isError: true,
      structuredContent: { hasEnded: true, status: 'failed' },
    })
    const { contents } = await second.readResource({ uri: `caisson://runs/${id}/journal` })
    expect(contents[0]).toMatchObject({ text: expect.stringContaining('"type":"run-end"') })
    const { resources } = await second.listResources()
    expect(resources.map(({ uri }) => uri)).toEqual(
      ['journal', 'plan', 'changes'].map((part) => `caisson://runs/${id}/${part}`),
    )
  })
})

it('over stdio without a service, or with a setting of HTTP, the command says what to do [H.03]', async () => {
  const { place } = await (async () => ({ place: await placeOf(await heldRuns()) }))()
  const none = await place.run('mcp', 'serve')
  expect([none.code, none.stdout, none.stderr]).toEqual([1, '', expect.stringContaining('caisson serve')])
  for (const [argv, said] of [
    [['--allow-host-name', 'x'], 'add --port'],
    [['--port', '0', '--all-runs'], 'its own runs'],
    [['--service', 'http://example.com'], 'https'],
    [['--service', 'https://example.com/x'], 'https'],
    [['--service', 'https://example.com'], 'CAISSON_SERVICE_TOKEN'],
  ] as const) {
    const refused = await place.run('mcp', 'serve', ...argv)
    expect([argv, refused.code, refused.stderr]).toEqual([argv, 2, expect.stringContaining(said)])
  }
})

it('a client with tasks gets the run as one: its question is asked, answered once, and its result is in it [H.03 V.08]', async () => {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const served = await serveHost(host)
  const mine = await holderOf(host, served, 'mine')
  await run.record.host(startOf(mine.metadata))
  const server = await startMcp(served.service.url)
  const send = (method: string, params: object, extensions: object = tasks) =>
    sendCall(server.url, mine.secret, { taskId: runId, ...params }, { method, extensions })
  expect((await send('tasks/get', {}, {})).json.error).toMatchObject({ code: -32_021 })
  expect((await send('tasks/get', {})).json.result).toMatchObject({
    resultType: 'complete',
    taskId: runId,
    status: 'working',
    ttlMs: null,
  })
  const asked = run.ask(
    {
      question: 'Which color?',
      kind: 'choice',
      options: [{ value: 'red' }, { value: 'blue', label: 'Blue' }],
    },
    'q1',
  )
  await expect.poll(async () => (await send('tasks/get', {})).json.result?.status).toBe('input_required')
  const { inputRequests = {} } = (await send('tasks/get', {})).json.result as {
    inputRequests?: Record<string, { params: object }>
  }
  const [key = '', request] = Object.entries(inputRequests)[0] ?? []
  expect(request?.params).toMatchObject({
    mode: 'form',
    message: expect.stringContaining('Which color?'),
    requestedSchema: { properties: { answer: { enum: ['red', 'blue'] } } },
  })
  const update = (name: string, content: object) =>
    send('tasks/update', { inputResponses: { [name]: { action: 'accept', content } } })
  expect((await update(key, { answer: 'green' })).json.error).toMatchObject({ code: -32_602 })
  expect((await update(`q1/${'0'.repeat(64)}`, { answer: 'red' })).json.result).toMatchObject({
    resultType: 'complete',
  })
  expect(run.queue.pending).toEqual(['q1'])
  expect((await update(key, { answer: 'blue' })).json.result).toMatchObject({ resultType: 'complete' })
  expect(await asked).toMatchObject({ decision: 'allow', answer: 'blue' })
  expect((await update(key, { answer: 'red' })).json.result).toMatchObject({ resultType: 'complete' })
  await run.end({
    type: 'run-end',
    outcome: 'completed',
    reason: 'completed',
    message: '',
    summary: 'Blue.',
    usage: run.record.state.usage,
    durationMs: 1,
  })
  expect((await send('tasks/get', {})).json.result).toMatchObject({
    status: 'completed',
    result: { structuredContent: { answer: 'Blue.' } },
  })
  expect((await send('tasks/cancel', {})).json.result).toMatchObject({ resultType: 'complete' })
  expect(
    (
      await sendCall(
        server.url,
        mine.secret,
        { taskId: 'nothing' },
        { method: 'tasks/get', extensions: tasks },
      )
    ).json.error,
  ).toMatchObject({ code: -32_602 })
})

it('run_task answers a client that has tasks with one, and the run is cancelled as a task [H.03]', async () => {
  const { held, place, url } = await servedPlace()
  const { stdout } = await place.run(
    'serve',
    'keys',
    'create',
    'tasks',
    '--scope',
    'run,read,approve',
    '--json',
  )
  const { secret } = JSON.parse(stdout) as { secret: string }
  const server = await startMcp(url)
  const { json } = await sendCall(
    server.url,
    secret,
    { name: 'run_task', arguments: { prompt: 'x' } },
    { extensions: tasks },
  )
  expect(json.result).toMatchObject({ resultType: 'task', status: 'working', ttlMs: null })
  const taskId = String(json.result?.taskId)
  await expect.poll(held.begun).toContain(taskId)
  const send = async (method: string) =>
    (await sendCall(server.url, secret, { taskId }, { method, extensions: tasks })).json.result
  expect(await send('tasks/cancel')).toMatchObject({ resultType: 'complete' })
  await held.release()
  await expect.poll(async () => (await send('tasks/get'))?.status, { timeout: 10_000 }).toBe('cancelled')
})

it.each(revisions)(
  'a key of %s that may start a run and not read it learns its ID, and can cancel it [H.03 H.02]',
  async (revision) => {
    const { held, place, url } = await servedPlace()
    const { stdout } = await place.run('serve', 'keys', 'create', 'starts', '--scope', 'run', '--json')
    const server = await startMcp(url)
    const client = await connectMcp(httpTransport(server.url, JSON.parse(stdout).secret), { revision })
    const started = await client.callTool({ name: 'run_task', arguments: { prompt: 'x' } })
    const text = JSON.stringify(started.content)
    expect(started.isError).toBe(true)
    expect(text).toContain('lacks the scope read')
    const [id = ''] = /run-[0-9a-f]{20}/.exec(text) ?? []
    await expect.poll(held.begun).toEqual([id])
    const cancelled = await client.callTool({ name: 'cancel_run', arguments: { runId: id } })
    expect(cancelled.isError).toBeUndefined()
    await held.release()
  },
)

it('the changes and the plan of a run are resources, and nothing is applied [H.03 V.05]', async () => {
  const { host, directory } = await placeOfRuns({ 'a.txt': 'one\n' })
  const served = await serveHost(host, { workspaces: [directory] })
  const mine = await holderOf(host, served, 'mine')
  const changed = 'run-0123456789abcdef4567'
  const end = await beginChanging(host, directory, changed, mine.metadata)
  await end(treeOf({ 'a.txt': 'one\n' }), treeOf({ 'a.txt': 'two\n' }))
  const server = await startMcp(served.service.url)
  const client = await connectMcp(httpTransport(server.url, mine.secret), { revision: '2026-07-28' })
  const read = async (part: string) =>
    (await client.readResource({ uri: `caisson://runs/${changed}/${part}` })).contents[0]
  expect(await read('changes')).toMatchObject({
    mimeType: 'text/x-diff',
    text: expect.stringContaining('+two'),
  })
  expect(JSON.parse(((await read('plan')) as { text: string }).text)).toMatchObject({
    runId: changed,
    status: 'completed',
    plan: null,
  })
  expect(
    (await client.callTool({ name: 'get_run', arguments: { runId: changed } })).structuredContent,
  ).toMatchObject({ changes: { entries: 1 }, next: expect.stringContaining('caisson workspace apply') })
  expect(await readFile(path.join(directory, 'a.txt'), 'utf8')).toBe('one\n')
})
