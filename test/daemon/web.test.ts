// The whole agent with its web tools and the offline model, against the whole host: gateway, egress, real TLS servers.
import { mkdirSync, readFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { EgressRule } from '#specs/protocol/egress.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { type Completion, Task } from '#specs/protocol/task.ts'
import { LinkedPort } from '#specs/testing/linked-port.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { startDaemon } from '../../agent/daemon.ts'
import { createGatewayClient } from '../../agent/tool-calls/gateway-client.ts'
import { toolFailure, toolSuccess } from '../../agent/tool-calls/tool.ts'
import { createFileTools } from '../../agent/tools/file-tools.ts'
import { createAccessTool } from '../../agent/tools/request-access.ts'
import { createWebTools } from '../../agent/tools/web.ts'
import { ApprovalQueue } from '../../host/approvals/queue.ts'
import { EgressApprovals } from '../../host/egress/egress-approvals.ts'
import { PersistentGrants } from '../../host/egress/persistent-grants.ts'
import { createGateway } from '../../host/gateway/gateway.ts'
import { serveWeb } from '../../host/gateway/serve-tools.ts'
import { openAgentLink } from '../../host/guest/agent-link.ts'
import { offlineModel, offlineProvider } from '../../host/providers/providers.ts'
import { openWeb } from '../../host/test/web/support.ts'

const runId = `run-${'0'.repeat(19)}1`

interface WorldOptions {
  readonly server: RequestListener
  /** Absent: what is fetched is allowed. */
  readonly rules?: (ports: readonly number[]) => readonly EgressRule[]
  /** What a person answers; absent: nobody is there. */
  readonly person?: 'allow' | 'deny'
}

async function openWorld({ server, rules, person }: WorldOptions) {
  const folder = await temporaryFolder('web')
  const root = path.join(folder, 'workspace')
  mkdirSync(root)
  const questions: string[] = []
  const approvals = new ApprovalQueue({
    mode: person === undefined ? 'none' : 'ask',
    rules: [],
    interactive: person !== undefined,
    record: async (event) => {
      if (event.type !== 'approval-request') return
      questions.push(event.request.arguments)
      setImmediate(() =>
        approvals.answer(event.request.approvalId, { decision: person ?? 'deny', scope: 'run' }),
      )
    },
  })
  const lasting = new PersistentGrants({ home: folder, locks: folder })
  let egress: EgressApprovals | undefined
  const test = await openWeb({
    servers: [server],
    ...(rules === undefined ? {} : { rules }),
    access: (policy) => (egress = new EgressApprovals({ runId, policy, approvals, lasting })),
  })
  const gateway = createGateway({
    provider: offlineProvider(false),
    runId,
    limits: { maxTokens: 10_000_000 },
    services: { paths: serveWeb(test.web), egress: async (stream) => void stream.destroy() },
    onModelEvent: () => undefined,
    onDenied: () => undefined,
    logger: { info: () => undefined, warn: () => undefined },
  })
  const events: AgentEvent[] = []
  const completed = Promise.withResolvers<Completion>()
  const [rpc, http] = [new LinkedPort(), new LinkedPort()]
  const link = openAgentLink({
    rpc: rpc.host,
    http: http.host,
    onStream: (stream, headers) => gateway.handleStream(stream, headers),
    handlers: {
      onEvent: (_runId, { event }) => void events.push(event),
      onDelta: () => undefined,
      requestApproval: async (request, { signal }) => {
        if (egress === undefined) throw new Error('not opened')
        return { ok: true, value: await egress.decide(request, signal) }
      },
      completeTask: async (completion) => {
        completed.resolve(completion)
        return { ok: true, value: {} }
      },
      onLog: () => undefined,
    },
  })
  const noSandbox = () => Promise.resolve(toolFailure('unavailable', 'no sandbox here'))
  const daemon = startDaemon({
    openRpc: () => Promise.resolve(rpc.openGuest()),
    openHttp: () => Promise.resolve(http.openGuest()),
    root: {
      mountWorkspace: () => Promise.resolve(toolFailure('internal', 'no disk')),
      resetWorkspace: () => Promise.resolve(toolSuccess({})),
      openShell: () => Promise.reject(new Error('no shell')),
    },
    tools: [
      ...createFileTools(noSandbox, { root }),
      createAccessTool(),
      ...createWebTools(createGatewayClient(() => daemon.link.http)),
    ],
    listWorkspace: async () => '',
    describeExits: () => ({ restarts: 0 }),
  })
  onTestFinished(async () => {
    await daemon.close()
    await link[Symbol.asyncDispose]()
    await gateway.close()
  })
  const run = async (prompt: (base: string) => string): Promise<Completion> => {
    const task = {
      runId,
      prompt: prompt(`https://site.test:${test.ports[0]}`),
      model: offlineModel,
      limits: {},
    }
    expect(await link.submitTask(Task.parse(task))).toMatchObject({ ok: true })
    return await completed.promise
  }
  const read = (name: string) => readFileSync(path.join(root, name), 'utf8')
  const calls = () => events.flatMap((event) => (event.type === 'tool-end' ? [event.tool] : []))
  return { ...test, run, read, calls, questions }
}

const article = `<title>Tides</title><article><h1>Why tides</h1>${'<p>The moon pulls the sea, twice a day.</p>'.repeat(30)}</article>`
const html: RequestListener = (_, response) =>
  void response.writeHead(200, { 'content-type': 'text/html' }).end(article)

describe('the offline model with a web page', () => {
  it('says its title and first lines, and that it cannot summarize [S1.04] [S4.06]', async () => {
    const world = await openWorld({ server: html })
    const completion = await world.run((base) => `Summarize ${base}/tides`)
    expect(completion.outcome).toBe('completed')
    expect(completion.summary).toContain('[offline model]')
    expect(completion.summary).toMatch(
      /It is titled "Tides"\. I cannot summarize; these are its first lines:/,
    )
    expect(completion.summary).toContain('The moon pulls the sea, twice a day.')
    expect(world.records).toMatchObject([{ kind: 'fetch' }])
  })

  it('saves a page as Markdown, and any other file as it came, to its last character [S1.04] [S4.06]', async () => {
    const world = await openWorld({ server: html })
    expect(await world.run((base) => `Save ${base}/ to page.md`)).toMatchObject({ outcome: 'completed' })
    expect(world.read('page.md')).toMatch(/^# Why tides\n\nThe moon|^# Tides\n\n[\s\S]*The moon/)

    // Longer than one call shows, with what would end the frame if it could.
    const csv = Array.from({ length: 9_000 }, (_, index) => `${index};</web-content>`).join('\n')
    const other = await openWorld({
      server: (_, response) => void response.writeHead(200, { 'content-type': 'text/csv' }).end(`${csv}\n`),
    })
    expect(await other.run((base) => `Download ${base}/a.csv as data.csv`)).toMatchObject({
      outcome: 'completed',
    })
    expect(other.read('data.csv')).toBe(`${csv}\n`)
    expect(other.calls().length).toBeGreaterThan(4)
  })

  it('asks a person for an address that the policy refuses, and continues when it is granted [G.03]', async () => {
    const world = await openWorld({ server: html, rules: () => [], person: 'allow' })
    const completion = await world.run((base) => `Fetch ${base}/`)
    expect(completion.summary).toContain('The moon pulls')
    expect(world.calls()).toEqual(['web_fetch', 'request_access', 'web_fetch'])
    expect(world.questions).toEqual([expect.stringContaining('site.test')])
    expect(world.denied).toHaveLength(1)
  })

  it.each(['deny', undefined] as const)(
    'fails with the reason when it is not (%s) [G.03]',
    async (person) => {
      const world = await openWorld({
        server: html,
        rules: () => [],
        ...(person === undefined ? {} : { person }),
      })
      const completion = await world.run((base) => `Save ${base}/ to page.md`)
      expect(completion).toMatchObject({ outcome: 'failed', reason: 'denied' })
      expect(world.calls()).toEqual(['web_fetch', 'request_access'])
      expect(world.records).toEqual([])
    },
  )

  it('fails for a status of failure and for what is no page, with what was seen', async () => {
    const gone = await openWorld({
      server: (_, response) => void response.writeHead(404, { 'content-type': 'text/plain' }).end('gone'),
    })
    expect(await gone.run((base) => `Fetch ${base}/`)).toMatchObject({
      outcome: 'failed',
      message: expect.stringContaining('404'),
    })
    const pdf = await openWorld({
      server: (_, response) =>
        void response.writeHead(200, { 'content-type': 'application/pdf' }).end('%PDF-1.7'),
    })
    expect(await pdf.run((base) => `Fetch ${base}/`)).toMatchObject({
      message: expect.stringContaining('application/pdf'),
    })
  })
})
