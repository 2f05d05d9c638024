// VMs of sub-agents without a VM: what the host lets them say and do, and how many there are.
import { rm } from 'node:fs/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { AgentRunRequest } from '#specs/protocol/agent-vm.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { RunLimits, type Task } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Budget } from '../../../gateway/budget.ts'
import { RunQueue, type Turn } from '../../../queue/run-queue.ts'
import { AgentEventValidator } from '../../../runs/guest/agent-event-validator.ts'
import { claimsOf, planFor, taskFor } from '../../../runs/guest/agent-vm-parts.ts'
import { AgentVms } from '../../../runs/guest/agent-vms.ts'
import type { GuestParts } from '../../../runs/guest/guest-parts.ts'
import type { PreparedWorkspace } from '../../../runs/prepare.ts'
import type { ResolvedRun } from '../../../runs/resolved-run.ts'
import type { HostCallResults } from '../../../tools/calls.ts'
import type { Vm } from '../../../vm/vm.ts'

const runId = 'run-00000000000000000001'
const limits = RunLimits.parse({ maxParallelAgents: 2, maxTokens: 10_000, maxRequests: 8 })
const task = {
  runId,
  prompt: 'All',
  model: 'm',
  askTools: [],
  limits,
  outputSchema: {},
  approvePlan: true,
} as Task
const tool = (name: string) => ({ name, description: name, inputSchema: {} })
const plan = {
  runId,
  limits,
  egress: { rules: [], otherwise: 'deny' },
  vm: {},
  resumed: { task: { ...task, hostTools: [tool('order'), tool('refund')] } },
  hostTools: new Map([
    ['order', {}],
    ['refund', {}],
  ]),
} as unknown as ResolvedRun
const request = (over: Partial<AgentRunRequest> = {}): AgentRunRequest => ({
  ...{ runId, agentPath: 'root/one', stepId: 's', brief: 'Work', tools: ['order', 'read_file'] },
  limits: { maxToolCalls: 9_999, maxTokens: 99_999, maxWallMs: 5_000, maxRequests: 99 },
  ...over,
})

const usage = { requests: 0, inputTokens: 0, outputTokens: 0, reasoningTokens: 0 }
const ended = {
  runId,
  outcome: 'completed',
  reason: 'completed',
  message: '',
  summary: 'done',
  usage,
} as const

async function open(perform: () => Promise<typeof ended>, turn?: Turn) {
  const agents = await temporaryFolder('agents')
  const by = (agentPath: string) => ({
    agentPath,
    result: Promise.resolve({ ok: true, output: `for ${agentPath}` } as const),
  })
  const results: HostCallResults = new Map([
    ['own', by('root/sorter')],
    ['below', by('root/sorter/helper')],
    ['of the run', by('root')],
    ['of another', by('root/sorter2')],
  ])
  const given: GuestParts[] = []
  const parts = {
    record: { paths: { agents }, state: {} },
    claims: new AgentEventValidator({ mode: 'work', approvePlan: false, maxAgents: 4, maxDepth: 3 }),
    hostCallResults: results,
  } as unknown as GuestParts
  const vms = new AgentVms({
    plan: turn === undefined ? plan : { ...plan, turn },
    parts,
    workspace: {} as PreparedWorkspace,
    vm: () =>
      ({
        checkpoints: { make: async () => {}, fork: async () => ({}), drop: async () => {} },
      }) as unknown as Vm,
    budget: new Budget({ maxTokens: 1 }, null, 'm'),
    isTaskPaused: () => false,
    start: async (_, own) => {
      given.push(own)
      const nothing = async () => ({ ok: true, value: {} }) as const
      return {
        ...{ perform, steer: nothing, cancelAgent: nothing, setTaskPaused: nothing },
        ...{ setPaused: async () => undefined, holdTask: async () => {} },
        [Symbol.asyncDispose]: async () => {},
      }
    },
  })
  onTestFinished(async () => await rm(agents, { recursive: true, force: true }))
  return { vms, given, results }
}

describe('VMs of sub-agents', () => {
  it('are at most as many at once as sub-agents may work, whatever the guest asks for [A.07 S1.13]', async () => {
    const held = Promise.withResolvers<typeof ended>()
    const { vms } = await open(() => held.promise)
    const never = new AbortController().signal
    const first = ['root/a', 'root/b'].map((agentPath) => vms.run(request({ agentPath }), never))
    await expect.poll(() => vms.isBusy).toBe(true)
    expect(await vms.run(request({ agentPath: 'root/c' }), never)).toMatchObject({
      ok: false,
      error: { message: expect.stringContaining('maxParallelAgents') },
    })
    held.resolve(ended)
    expect(await Promise.all(first)).toMatchObject([{ value: { text: 'done' } }, { value: { text: 'done' } }])
    expect(vms.isBusy).toBe(false)
    expect(await vms.run(request({ agentPath: 'root' }), never)).toMatchObject({ ok: false })
    await vms.close()
    expect(await vms.run(request({ agentPath: 'root/d' }), never)).toMatchObject({ ok: false })
  })

  it('count for the queue of the host: one beyond the runs at work, the others wait and are first [A.07 S4.12]', async () => {
    const queue = new RunQueue({ maxAtWork: 1, maxWaiting: 9, maxWaitingPerLane: 9 })
    const entry = (id: string) => ({ runId: id, lane: '', priority: 'normal' as const, isContinued: false })
    const turn = queue.enter(entry('run'))
    const next = queue.enter(entry('next'))
    const held = [Promise.withResolvers<typeof ended>(), Promise.withResolvers<typeof ended>()]
    let begun = 0
    const { vms } = await open(() => (held[begun++] ?? held[0])?.promise ?? Promise.resolve(ended), turn)
    const never = new AbortController().signal
    const first = vms.run(request({ agentPath: 'root/a' }), never)
    await expect.poll(() => begun).toBe(1)
    const withdrawn = new AbortController()
    const gone = vms.run(request({ agentPath: 'root/b' }), withdrawn.signal)
    withdrawn.abort(new Error('not any more'))
    expect(await gone).toMatchObject({ ok: false, error: { message: 'not any more' } })
    const second = vms.run(request({ agentPath: 'root/c' }), never)
    expect([begun, next.isAtWork]).toEqual([1, false])
    // The run ends before its sub-agents: its place is the next sub-agent's.
    turn.leave()
    expect(next.isAtWork).toBe(false)
    held[0]?.resolve(ended)
    await first
    await expect.poll(() => begun).toBe(2)
    expect(next.isAtWork).toBe(false)
    held[1]?.resolve(ended)
    await second
    expect(next.isAtWork).toBe(true)
  })

  it('get results of their own calls before a loss; a call of another agent is not repeated, and its result is not theirs [A.07 R.01]', async () => {
    const { vms, given, results } = await open(async () => ended)
    results.set('since', { agentPath: 'root', result: Promise.resolve({ ok: true, output: '2' }) })
    await vms.run(request({ agentPath: 'root/sorter' }), new AbortController().signal)
    const seen = [...(given[0]?.hostCallResults ?? [])].map(async ([call, { result }]) => [
      call,
      await result,
    ])
    const hidden = { ok: false, error: { code: 'cancelled' } }
    expect(Object.fromEntries(await Promise.all(seen))).toMatchObject({
      own: { output: 'for root/sorter' },
      below: { output: 'for root/sorter/helper' },
      'of the run': hidden,
      'of another': hidden,
    })
    expect(seen).toHaveLength(4)
  })

  it('end with what asked for them, and leave nothing [A.07 S1.02]', async () => {
    const { vms } = await open(() => new Promise(() => undefined))
    const withdrawn = new AbortController()
    const running = vms.run(request(), withdrawn.signal)
    await expect.poll(() => vms.isBusy).toBe(true)
    withdrawn.abort('the step that asked has ended')
    expect(await running).toMatchObject({ ok: false })
    const other = vms.run(request({ agentPath: 'root/two' }), new AbortController().signal)
    await vms.close()
    expect(await other).toMatchObject({ ok: false })
  })

  it('report nothing about other agents, and the VM of the run nothing about theirs [A.07 S1.04]', async () => {
    const { vms } = await open(async () => ended)
    const claims = new AgentEventValidator({ mode: 'work', approvePlan: false, maxAgents: 4, maxDepth: 3 })
    const start: AgentEvent = { type: 'agent-start', stepId: 's', brief: 'b', tools: [], limits: {} }
    for (const path of ['root/one', 'root/other']) expect(claims.check(path, start)).toBeNull()
    const own = claimsOf(claims, 'root/one')
    const note = { type: 'note', level: 'info', text: 'x' } as const
    expect(own.check('root/one', note)).toBeNull()
    expect(own.check('root/other', note)).toBe('note of root/other from the VM of root/one')
    expect(own.check('root', note)).toBe('note of root from the VM of root/one')
    expect(own.check('root/one2', start)).toContain('from the VM of root/one')
    expect(own.check('root/one', start)).toContain('which its parent reports')
    expect(own.check('root/one/below', start)).toBeNull()
    expect([own.isAtWork('root'), own.isAtWork('root/other'), own.isAtWork('root/one/below')]).toEqual([
      false,
      false,
      true,
    ])
    await vms.run(request(), new AbortController().signal)
    expect(vms.check('root/one', note)).toBe('note of root/one, which works in another VM')
    expect(vms.check('root/one/below', note)).toContain('another VM')
    expect(vms.check('root/other', note)).toBeNull()
  })

  it('get never more than the run has: limits, host tools, and a task without its plan [A.07 G.05]', () => {
    const narrowed = planFor(plan, request({ hosts: [] }))
    expect(narrowed.limits).toMatchObject({
      maxTokens: 10_000,
      maxToolCalls: 400,
      maxRequests: 8,
      maxWallMs: 5_000,
    })
    expect([...(narrowed.hostTools?.keys() ?? [])]).toEqual(['order'])
    expect(narrowed.egress.within).toEqual([])
    expect(() => planFor(plan, request({ hosts: ['not a host'] }))).toThrow()
    const given = taskFor(plan, narrowed, request({ messages: [{ messageId: 'm1', text: 'hello' }] }))
    expect(given).toMatchObject({
      prompt: 'Work',
      tools: ['order', 'read_file'],
      subAgent: { agentPath: 'root/one', stepId: 's' },
      messages: [{ messageId: 'm1', text: 'hello', agentPath: 'root/one' }],
    })
    expect(given.hostTools?.map(({ name }) => name)).toEqual(['order'])
    expect(Object.keys(given)).not.toEqual(expect.arrayContaining(['approvePlan']))
    expect(given.outputSchema).toBeUndefined()
  })
})
