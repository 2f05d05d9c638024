// The whole agent asks the whole host for network access, over ports in memory; a scripted model drives it.
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { AgentEvent, HostEvent } from '#specs/protocol/event.ts'
import { type Completion, Task } from '#specs/protocol/task.ts'
import { LinkedPort } from '#specs/testing/linked-port.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { startDaemon } from '../../agent/daemon.ts'
import { toolFailure, toolSuccess } from '../../agent/tool-calls/tool.ts'
import { createAccessTool } from '../../agent/tools/request-access.ts'
import { ApprovalQueue } from '../../host/approvals/queue.ts'
import { EgressApprovals } from '../../host/egress/egress-approvals.ts'
import { PersistentGrants } from '../../host/egress/persistent-grants.ts'
import { makePolicy } from '../../host/egress/policy.ts'
import { createGateway } from '../../host/gateway/gateway.ts'
import { openAgentLink } from '../../host/guest/agent-link.ts'
import { customProvider } from '../../host/test/support/gateway.ts'

const runId = `run-${'0'.repeat(19)}1`
const url = 'https://api.example.com/v1/rates'

const plan = {
  goal: 'rates',
  steps: [{ id: 'ask', title: 'Ask', instructions: 'ask', needs: [], writes: [] }],
}

/** A model that plans one step, asks for access in it, and says what it gets. */
async function openWorld() {
  const model = await startModelServer(({ messages, tools }) => {
    if (tools.some((tool) => tool.function.name === 'submit_plan'))
      return reply({ calls: [{ id: 'plan00001', name: 'submit_plan', arguments: plan }] })
    const last = messages.at(-1)
    return last?.role === 'tool'
      ? reply({ text: `told: ${last.content}` })
      : reply({
          calls: [{ id: 'ask000001', name: 'request_access', arguments: { url, reason: 'today’s rates' } }],
        })
  })
  onTestFinished(() => model[Symbol.asyncDispose]())
  const folder = await temporaryFolder('access')
  const policy = makePolicy({ configuration: [], otherwise: 'deny' })
  if (!policy.ok) throw new Error(policy.error)
  const [events, journal, sessions] = [[] as AgentEvent[], [] as HostEvent[], [] as number[]]
  const approvals = new ApprovalQueue({
    mode: 'ask',
    rules: [],
    interactive: true,
    record: async (event) => journal.push(event),
  })
  const lasting = new PersistentGrants({ home: folder, locks: folder })
  const egress = new EgressApprovals({ runId, policy: policy.value, approvals, lasting })
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
    onSessionStart: ({ number }) => sessions.push(number),
    handlers: {
      onEvent: (_runId, { event }) => void events.push(event),
      onDelta: () => undefined,
      requestApproval: async (request, { signal }) => ({
        ok: true,
        value: await egress.decide(request, signal),
      }),
      completeTask: async (completion) => {
        completed.resolve(completion)
        return { ok: true, value: {} }
      },
      onLog: () => undefined,
    },
  })
  const daemon = startDaemon({
    openRpc: () => Promise.resolve(rpc.openGuest()),
    openHttp: () => Promise.resolve(http.openGuest()),
    root: {
      mountWorkspace: () => Promise.resolve(toolFailure('internal', 'no disk')),
      resetWorkspace: () => Promise.resolve(toolSuccess({})),
      openShell: () => Promise.reject(new Error('no shell')),
    },
    tools: [createAccessTool()],
    listWorkspace: async () => '',
    describeExits: () => ({ restarts: 0 }),
  })
  onTestFinished(async () => {
    await daemon.close()
    await link[Symbol.asyncDispose]()
    await gateway.close()
  })
  const task = Task.parse({ runId, prompt: 'fetch the rates', model: 'test/model', limits: {} })
  expect(await link.submitTask(task)).toMatchObject({ ok: true })
  const toldEnd = () => events.find((event) => event.type === 'tool-end')
  return { link, approvals, journal, sessions, completion: completed.promise, toldEnd, gateway }
}

describe('the agent that asks for network access', () => {
  it('learns what holds now, though its session was lost while a person thought [G.03, S1.11]', async () => {
    const { link, approvals, journal, sessions, completion, toldEnd, gateway } = await openWorld()
    await expect.poll(() => approvals.pending).toHaveLength(1)
    const { pending } = approvals
    // Nothing of it is open at the gateway, so that the VM may sleep meanwhile.
    await expect.poll(() => gateway.isBusy()).toBe(false)
    link.restartSession('as after a sleep')
    await expect.poll(() => sessions.length).toBe(2)
    await sleep(20)
    expect(approvals.pending).toEqual(pending)
    expect(approvals.answer(pending[0] ?? '', { decision: 'allow', scope: 'run' })).toEqual({ taken: true })
    expect((await completion).summary).toContain(
      'told: allowed: https connections to api.example.com (port 443), in this run.',
    )
    expect(toldEnd()).not.toHaveProperty('error')
    expect(journal.map(({ type }) => type)).toEqual(['approval-request', 'approval-decision'])
    expect(journal[0]).toMatchObject({
      kind: 'enforced',
      request: { callId: 'ask000001', tool: 'request_access' },
    })
  })

  it('learns of a no with the person’s words [G.03, S1.11]', async () => {
    const { approvals, completion, toldEnd } = await openWorld()
    await expect.poll(() => approvals.pending).toHaveLength(1)
    approvals.answer(approvals.pending[0] ?? '', { decision: 'deny', scope: 'once', hint: 'use rates.csv' })
    expect((await completion).summary).toContain('They said: use rates.csv')
    expect(toldEnd()).toMatchObject({ error: { code: 'denied', retryable: false } })
  })
})
