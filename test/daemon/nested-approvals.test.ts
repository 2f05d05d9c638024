// Questions of sixteen sub-agents, three deep, over the real protocol, while agent after agent is lost: each question is put
// to the person until it is answered, and no answer is asked for twice.
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { initialRunState, reduceRun } from '#specs/protocol/run-state.ts'
import { type Completion, Task } from '#specs/protocol/task.ts'
import { LinkedPort } from '#specs/testing/linked-port.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { startDaemon } from '../../agent/daemon.ts'
import { folderViews } from '../../agent/test/support/agents.ts'
import { toolFailure, toolSuccess } from '../../agent/tool-calls/tool.ts'
import { createFileTools } from '../../agent/tools/file-tools.ts'
import { createAgentTools } from '../../agent/tools/run-agents.ts'
import { ApprovalQueue } from '../../host/approvals/queue.ts'
import { createGateway } from '../../host/gateway/gateway.ts'
import { openAgentLink } from '../../host/guest/agent-link.ts'
import { RunHooks } from '../../host/hooks/run-hooks.ts'
import { BoundedLog } from '../../host/journal/bounded-log.ts'
import type { RunRecord } from '../../host/journal/run-record.ts'
import { AgentEventValidator } from '../../host/runs/guest/agent-event-validator.ts'
import { agentHandlers, RunRequests } from '../../host/runs/guest/run-requests.ts'
import { Past } from '../../host/runs/past.ts'
import type { ResolvedRun } from '../../host/runs/resolved-run.ts'
import { customProvider } from '../../host/test/support/gateway.ts'

const runId = `run-${'0'.repeat(19)}3`
const plan = {
  goal: 'g',
  steps: [{ id: 'lead', title: 'Lead', instructions: 'LEAD', needs: [], writes: ['*'] }],
}
const task = Task.parse({
  runId,
  prompt: 'fan out',
  model: 'm',
  plan,
  limits: { maxAgents: 32, maxParallelAgents: 16, maxDepth: 3 },
})
const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
const leaves = ['00', '01', '10', '11'].flatMap((two) => ['a', 'b', 'c', 'd'].map((last) => `${two}${last}`))

/** Each agent by the number in its brief: two of two of four. All models use the same id for a call. */
function script({ messages }: Asked): ServerReply {
  const user = messages.find(({ role }) => role === 'user')?.content ?? ''
  const number = /<instructions>\nPART ?(\w*)/.exec(user)?.[1] ?? ''
  if (messages.some(({ role }) => role === 'assistant')) return reply({ text: `part ${number} is done` })
  if (number.length === 3)
    return reply({ calls: [{ id: 'call_1', name: 'delete_file', arguments: { path: number } }] })
  const parts = number.length < 2 ? ['0', '1'] : ['a', 'b', 'c', 'd']
  const calls = parts.map((part) => ({
    name: 'spawn_agent',
    arguments: { brief: `PART ${number}${part}`, name: `p${part}` },
  }))
  return reply({ calls })
}

it('of sixteen sub-agents wait together, are answered once, and outlive their agents [A.07 R.01 S1.11]', async () => {
  const place = await temporaryFolder('nested')
  await using model = await startModelServer(script)
  const journal: { event: AgentEvent | HostEvent; agentPath?: string }[] = []
  const broken: string[] = []
  const note = async (event: HostEvent): Promise<void> => void journal.push({ event })
  const approvals = new ApprovalQueue({ mode: 'ask', rules: [], interactive: true, record: note })
  const hooks = new RunHooks({ runId, hooks: [], note, ask: (request) => approvals.ask(request) })
  const claims = new AgentEventValidator({ mode: 'work', approvePlan: false, ...task.limits })
  const record = {
    host: note,
    agent: async (agentPath: string, _n: number, event: AgentEvent) =>
      void journal.push({ agentPath, event }),
    delta: () => undefined,
  } as unknown as RunRecord
  const log = await BoundedLog.open(path.join(place, 'log'), 1_000_000)
  const settings = { limits: task.limits, mode: 'work', approvals: { rules: [] }, hostTools: new Map() }
  const recorder = { web: () => undefined, flush: () => Promise.resolve() }
  const requests = new RunRequests(settings as unknown as ResolvedRun, {
    hooks,
    approvals,
    record,
    log,
    hostCallResults: new Map(),
    recorder,
  })

  /** An agent with a disk of its own, as it was before the run. */
  const start = async (life: number) => {
    const root = path.join(place, `disk-${life}`, 'workspace')
    mkdirSync(root, { recursive: true })
    for (const name of [...leaves, 'kept']) writeFileSync(path.join(root, name), name)
    const gateway = createGateway({
      provider: customProvider(model.baseUrl),
      runId,
      limits: { maxTokens: 1_000_000 },
      onModelEvent: () => undefined,
      onDenied: () => undefined,
      logger: { info: () => undefined, warn: () => undefined },
    })
    const completed = Promise.withResolvers<Completion>()
    const [rpc, http] = [new LinkedPort(), new LinkedPort()]
    const link = openAgentLink({
      rpc: rpc.host,
      http: http.host,
      onStream: (stream, headers) => gateway.handleStream(stream, headers),
      onBrokenClaim: ({ message }) => broken.push(message),
      handlers: agentHandlers({
        record,
        log,
        claims,
        requests,
        onToolEnd: () => undefined,
        makeCheckpoint: () => Promise.resolve(false),
        onJournalFull: () => undefined,
        onUnrecorded: () => undefined,
        onCompletion: completed.resolve,
      }),
    })
    const toolsOver = (folder: string) =>
      createFileTools(() => Promise.resolve(toolFailure('unavailable', 'no sandbox here')), {
        root: folder,
        knownAs: root,
        owner,
      })
    const daemon = startDaemon({
      openRpc: () => Promise.resolve(rpc.openGuest()),
      openHttp: () => Promise.resolve(http.openGuest()),
      root: {
        mountWorkspace: () => Promise.resolve(toolSuccess({})),
        resetWorkspace: () => Promise.resolve(toolSuccess({})),
        openShell: () => Promise.reject(new Error('no shell')),
      },
      tools: [...toolsOver(root), ...createAgentTools()],
      agents: {
        views: folderViews(root, path.dirname(root)),
        toolsFor: ({ path: view }) => toolsOver(view),
        root,
        owner,
      },
      listWorkspace: async () => '',
      describeExits: () => ({ restarts: 0 }),
    })
    expect(await link.submitTask(task)).toMatchObject({ ok: true })
    const lose = async (): Promise<void> => {
      await link[Symbol.asyncDispose]()
      await daemon.close()
      await gateway.close()
    }
    return { root, completion: completed.promise, lose }
  }
  /** What the host does before another agent begins the run again. */
  const recover = (epoch: number): void => {
    const past = new Past(null)
    for (const line of journal) past.next(line)
    journal.push({ event: { type: 'run-resume', epoch, checkpointId: null, message: 'the agent was lost' } })
    claims.restore(journal.reduce(reduceRun, initialRunState))
    approvals.restore(runId, { decided: past.decided })
  }
  const pending = () =>
    Object.values(journal.reduce(reduceRun, initialRunState).pendingApprovals).map((one) => ({
      id: one.approvalId,
      agentPath: one.agentPath,
      about: String(JSON.parse(one.arguments).path),
    }))
  const answered: string[] = []
  const answer = (count: number): void => {
    for (const { id, about } of pending().slice(0, count)) {
      const decision = about === '11d' ? 'deny' : 'allow'
      expect(approvals.answer(id, { decision, scope: 'once' }, { name: 'ann', via: 'terminal' })).toEqual({
        taken: true,
      })
      // Another client is as quick, and hears who was first.
      expect(
        approvals.answer(id, { decision: 'deny', scope: 'once' }, { name: 'bob', via: 'control' }),
      ).toMatchObject({
        taken: false,
        reason: 'decided',
        message: expect.stringContaining('by ann (terminal)'),
      })
      answered.push(about)
    }
  }

  let agent = await start(1)
  for (const [life, left] of [16, 11, 6].entries()) {
    await expect.poll(() => pending().length, { timeout: 20_000 }).toBe(left)
    const now = pending()
    expect(new Set(now.map(({ id }) => id)).size).toBe(left)
    expect(now.every(({ agentPath, about }) => agentPath === `root/p${[...about].join('/p')}`)).toBe(true)
    expect([...now.map(({ about }) => about), ...answered].toSorted()).toEqual(leaves)
    answer(5)
    await agent.lose()
    recover(life + 2)
    agent = await start(life + 2)
  }
  await expect.poll(() => pending().length, { timeout: 20_000 }).toBe(1)
  answer(1)
  expect(await agent.completion).toMatchObject({ outcome: 'completed', summary: 'part  is done' })
  expect(answered.toSorted()).toEqual(leaves)
  expect(broken).toEqual([])
  // What was denied is there, whatever agent asked.
  expect(readdirSync(agent.root).toSorted()).toEqual(['11d', 'kept'])
  const state = journal.reduce(reduceRun, initialRunState)
  expect(Object.values(state.agents).map((one) => one.state)).toEqual(Array(22).fill('completed'))
  expect(Object.keys(state.agents).every((agentPath) => !agentPath.includes('-'))).toBe(true)
  expect(state.pendingApprovals).toEqual({})
  await agent.lose()
  await requests.close()
  await log[Symbol.asyncDispose]()
}, 120_000)
