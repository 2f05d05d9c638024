// The whole agent against the whole host side, over ports in memory: link, gateway with the offline model, file tools on a
// folder, approvals, the change set. Only the VM is missing.
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import type { ServerHttp2Stream } from 'node:http2'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { decodeChanges } from '#specs/node/change-stream.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { taskCancel, taskSubmit, workspaceCollect } from '#specs/protocol/methods.ts'
import { type Completion, Task } from '#specs/protocol/task.ts'
import { LinkedPort } from '#specs/testing/linked-port.ts'
import { type Daemon, startDaemon } from '../../agent/daemon.ts'
import { toolFailure, toolSuccess } from '../../agent/tool-calls/tool.ts'
import { createFileTools } from '../../agent/tools/file-tools.ts'
import { describeWorkspace } from '../../agent/workspace/listing.ts'
import { createGateway, type Gateway, type GatewayOptions } from '../../host/gateway/gateway.ts'
import { type AgentLink, openAgentLink } from '../../host/guest/agent-link.ts'
import { offlineProvider } from '../../host/providers/providers.ts'

const runId = `run-${'0'.repeat(19)}1`

interface World extends AsyncDisposable {
  readonly folder: string
  readonly link: AgentLink
  readonly daemon: Daemon
  readonly gateway: Gateway
  readonly events: AgentEvent[]
  readonly approvals: string[]
  readonly logs: string[]
  readonly modelEvents: Parameters<GatewayOptions['onModelEvent']>[0][]
  /** What the gateway answered to the model's client in the place of an answer. */
  readonly refusals: string[]
  readonly changes: { path: string; kind: string }[]
  readonly completion: Promise<Completion>
}

const worlds: World[] = []
afterEach(async () => {
  for (const world of worlds.splice(0)) await world[Symbol.asyncDispose]()
})

function openWorld(
  files: Record<string, string>,
  decision: 'allow' | 'deny' = 'allow',
  limits: Partial<GatewayOptions['limits']> = {},
): World {
  const folder = mkdtempSync(join(tmpdir(), 'caisson-daemon-'))
  const [merged, base] = [join(folder, 'merged'), join(folder, 'base')]
  mkdirSync(base)
  for (const [name, text] of Object.entries(files)) writeFileSync(join(base, name), text)
  cpSync(base, merged, { recursive: true })

  const [rpc, http] = [new LinkedPort(), new LinkedPort()]
  const heard = {
    events: [] as AgentEvent[],
    modelEvents: [] as World['modelEvents'],
    approvals: [] as string[],
    logs: [] as string[],
    refusals: [] as string[],
    changes: [] as World['changes'],
  }
  const completed = Promise.withResolvers<Completion>()
  const gateway = createGateway({
    provider: offlineProvider(false),
    runId,
    limits: { maxTokens: 1_000_000, ...limits },
    onModelEvent: (event) => {
      heard.modelEvents.push(event)
      if (event.type === 'model-end' && event.error !== undefined) heard.refusals.push(event.error)
    },
    onDenied: () => undefined,
    logger: { info: () => undefined, warn: () => undefined },
  })
  const receive = async (stream: ServerHttp2Stream): Promise<void> => {
    for await (const { entry, content } of decodeChanges(stream as AsyncIterable<Uint8Array>)) {
      for await (const _piece of content) void _piece
      heard.changes.push({ path: 'path' in entry ? entry.path : '', kind: entry.kind })
    }
    stream.respond({ ':status': 204 }, { endStream: true })
  }
  const link = openAgentLink({
    rpc: rpc.host,
    http: http.host,
    onStream: (stream, headers) => {
      if (headers[':path'] === `/changes/${runId}`) receive(stream).catch(() => stream.close())
      else gateway.handleStream(stream, headers)
    },
    handlers: {
      onEvent: (_runId, { event }) => void heard.events.push(event),
      onDelta: () => undefined,
      requestApproval: (request) => {
        heard.approvals.push(`${request.tool} ${request.arguments}`)
        return Promise.resolve({ ok: true, value: { decision } })
      },
      completeTask: (completion) => {
        completed.resolve(completion)
        return Promise.resolve({ ok: true, value: {} })
      },
      onLog: ({ message, fields }) => void heard.logs.push(`${message} ${fields}`),
    },
  })
  const tools = createFileTools(() => Promise.resolve(toolFailure('unavailable', 'no sandbox here')), {
    root: merged,
  })
  const daemon = startDaemon({
    openRpc: () => Promise.resolve(rpc.openGuest()),
    openHttp: () => Promise.resolve(http.openGuest()),
    root: {
      mountWorkspace: () => Promise.resolve(toolFailure('internal', 'no disk')),
      resetWorkspace: () => Promise.resolve(toolSuccess({})),
      openShell: () => Promise.reject(new Error('no shell')),
    },
    tools,
    listWorkspace: (signal) => describeWorkspace(tools, signal),
    describeExits: () => ({ restarts: 0 }),
    collect: { merged, base, upper: join(folder, 'none') },
  })
  const world: World = {
    folder: merged,
    link,
    daemon,
    gateway,
    ...heard,
    completion: completed.promise,
    [Symbol.asyncDispose]: async () => {
      await daemon.close()
      await link[Symbol.asyncDispose]()
      await gateway.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
  worlds.push(world)
  return world
}

const makeTask = (prompt: string, fields: object = {}): Task =>
  Task.parse({ runId, prompt, model: 'caisson/offline', limits: {}, ...fields })

describe('the agent on its ports', () => {
  it.each([
    ['limit_requests', { maxRequests: 1 }],
    ['limit_tokens', { maxTokens: 1_500 }],
  ])('ends a run whose budget is used up with %s, asking no more [G.05] [S0.07]', async (reason, limits) => {
    const world = openWorld({ 'data.csv': 'a,b\n1,2\n' }, 'allow', limits)
    await world.link.submitTask(makeTask('Create a file `hello.txt` with the content "good day"'))
    expect(await world.completion).toMatchObject({ outcome: 'failed', reason })
    expect(world.refusals).toEqual([expect.stringContaining(reason)])
  })

  it.each([
    ['What can you do?', 1],
    ['List the files', 2],
    ["Create notes.txt with the content 'hello'", 2],
    ["Create a.txt with the content 'a' and create b.txt with the content 'b'", 5],
  ])('asks for no plan of a small task: %s takes %i requests [A.01]', async (prompt, requests) => {
    const world = openWorld({ 'data.csv': 'a,b\n1,2\n' })
    await world.link.submitTask(makeTask(prompt))
    expect(await world.completion).toMatchObject({ outcome: 'completed' })
    expect(world.modelEvents.filter(({ type }) => type === 'model-start')).toHaveLength(requests)
  })

  it('carries out a task from submit to change set, with its log and events on the host [S1.01] [S1.10] [S1.12]', async () => {
    const world = openWorld({ 'data.csv': 'a,b\n1,2\n' })
    expect(
      await world.link.submitTask(makeTask('Create a file `hello.txt` with the content "good day"')),
    ).toMatchObject({ ok: true })
    const completion = await world.completion
    expect(completion).toMatchObject({ outcome: 'completed', reason: 'completed' })
    expect(readFileSync(join(world.folder, 'hello.txt'), 'utf8')).toContain('good day')
    const types = world.events.map(({ type }) => type)
    expect(types.indexOf('plan-update')).toBeLessThan(types.indexOf('step-start'))
    expect(types).toContain('tool-end')
    expect(completion.usage).toEqual(world.gateway.usage())
    const sources = world.modelEvents.flatMap((event) =>
      event.type === 'model-start' ? [`${event.agentPath} ${event.stepId} ${event.turn}`] : [],
    )
    const turns = world.events.flatMap((event) =>
      event.type === 'turn-end' ? [`root ${event.stepId} ${event.turn}`] : [],
    )
    expect(sources).toEqual(turns)
    expect(sources.slice(0, 2)).toEqual(['root plan 1', 'root task 1'])
    await expect.poll(() => world.logs.join('\n')).toMatch(/tool call .*write_file/)

    const collected = await world.link.request(workspaceCollect, { runId }, { timeoutMs: 10_000 })
    expect(collected).toMatchObject({ ok: true, value: { entries: 1 } })
    expect(world.changes.filter(({ kind }) => kind !== 'end')).toEqual([{ path: 'hello.txt', kind: 'file' }])
  })

  it('puts a deletion before the host, and leaves the file when it is denied [S1.11]', async () => {
    const denied = openWorld({ 'old.txt': 'x' }, 'deny')
    await denied.link.submitTask(makeTask('Delete the file `old.txt`'))
    await denied.completion
    expect(denied.approvals).toHaveLength(1)
    expect(denied.approvals[0]).toMatch(/^delete_file \{"path":"old.txt",/)
    expect(readdirSync(denied.folder)).toEqual(['old.txt'])
    const allowed = openWorld({ 'old.txt': 'x' }, 'allow')
    await allowed.link.submitTask(makeTask('Delete the file `old.txt`'))
    expect(await allowed.completion).toMatchObject({ outcome: 'completed' })
    expect(readdirSync(allowed.folder)).toEqual([])
    for (const { daemon } of [denied, allowed]) await expect.poll(() => daemon.link.runId).toBeNull()
  })

  it('takes a run that is over for done, and is free for another one [S1.03]', async () => {
    const world = openWorld({})
    const task = makeTask('List the files')
    await world.link.submitTask(task)
    await world.completion
    await expect.poll(() => world.daemon.link.runId).toBeNull()
    expect(await world.link.request(taskSubmit, { task }, { timeoutMs: 5_000 })).toMatchObject({ ok: true })
    expect(world.daemon.link.runId).toBeNull()
  })

  it('refuses a second task and the cancel of an unknown run [S1.01]', async () => {
    const world = openWorld({})
    const other = `run-${'f'.repeat(20)}`
    const unknown = await world.link.request(taskCancel, { runId: other, reason: 'x' }, { timeoutMs: 5_000 })
    expect(unknown).toMatchObject({ ok: false })
    expect(await world.link.submitTask(makeTask('List the files'))).toMatchObject({ ok: true })
    const second = await world.link.request(
      taskSubmit,
      { task: makeTask('List the files', { runId: other }) },
      { timeoutMs: 5_000 },
    )
    expect(second).toMatchObject({ ok: false, error: { code: 'rejected' } })
    expect(await world.completion).toMatchObject({ outcome: 'completed' })
  })

  it('says which part failed when the root side cannot do its part', async () => {
    const { workspaceOpen } = await import('#specs/protocol/methods.ts')
    const world = openWorld({})
    const answer = await world.link.request(workspaceOpen, {}, { timeoutMs: 5_000 })
    expect(answer).toMatchObject({ ok: false, error: { message: expect.stringContaining('no disk') } })
  })
})
