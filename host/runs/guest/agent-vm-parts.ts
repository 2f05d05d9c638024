/**
 * The parts of a run as a sub-agent in a VM of its own gets them: its events and questions are those of its path alone, and
 * what it may reach, spend and ask is a part of what its run may.
 */
import { CaissonError } from '#specs/errors.ts'
import type { AgentRunRequest } from '#specs/protocol/agent-vm.ts'
import type { AgentBounds } from '#specs/protocol/plan.ts'
import { noUsage, type RunLimits, type Task } from '#specs/protocol/task.ts'
import type { EgressPolicy } from '../../egress/policy.ts'
import { readEgressRules } from '../../egress/rules.ts'
import { type ResolvedRun, taskOf } from '../resolved-run.ts'
import type { GuestApprovals, GuestClaims, GuestRecord } from './guest-parts.ts'

/** What is counted of its events. */
export interface AgentVmCounts {
  toolCalls: number
  agents: number
}

/** Events of the VM that the journal has of the run's VM alone. */
const ofVm: ReadonlySet<string> = new Set([
  'vm-ready',
  'vm-end',
  'vm-sleep',
  'vm-wake',
  'session-start',
  'session-end',
])

/** Writes to the run's journal under the sub-agent's path; its own files are in `directory`. */
export function recordOf(
  record: GuestRecord,
  agentPath: string,
  directory: string,
  counts: AgentVmCounts,
): GuestRecord {
  const file = (name: string): string => `${directory}/${name}`
  return {
    paths: {
      ...record.paths,
      agentLog: file('agent.log'),
      console: file('console.log'),
      scratch: file('scratch'),
      hibernated: file('hibernated'),
      kept: file('kept'),
    },
    // Its VM and its changes are not shown as those of the run.
    feed: { isWatched: false },
    get state() {
      return { ...record.state, usage: noUsage, costUsd: null }
    },
    host: async (event) => {
      if (!ofVm.has(event.type)) await record.host(event)
    },
    agent: async (path, n, event) => {
      if (event.type === 'tool-start') counts.toolCalls += 1
      if (event.type === 'agent-start') counts.agents += 1
      await record.agent(path, n, event)
    },
    delta: (path, delta) => record.delta(path === 'root' ? agentPath : path, delta),
    openRecorder: (provider) => record.openRecorder(provider),
  }
}

/** Takes what the VM says of the sub-agent and those below it, and nothing about others. */
export function claimsOf(claims: GuestClaims, agentPath: string): GuestClaims {
  const isOwn = (path: string): boolean => path === agentPath || path.startsWith(`${agentPath}/`)
  return {
    check: (path, event) => {
      if (!isOwn(path)) return `${event.type} of ${path} from the VM of ${agentPath}`
      const isFrame = event.type === 'agent-start' || event.type === 'agent-end'
      if (path === agentPath && isFrame) return `${event.type} of ${path}, which its parent reports`
      return claims.check(path, event)
    },
    isAtWork: (path) => isOwn(path) && claims.isAtWork(path),
    waitUntilAtWork: async (path) => isOwn(path) && (await claims.waitUntilAtWork(path)),
    noteHook: (request) => claims.noteHook(request),
    noteRefusal: (request) => claims.noteRefusal(request),
  }
}

/** Its questions are hidden from its parent's agent, whose clock stands still meanwhile. */
export function approvalsOf(queue: GuestApprovals, { approvals }: AgentBounds): GuestApprovals {
  return {
    ask: (request, signal, enforced, asking) =>
      queue.ask(request, signal, enforced, {
        ...asking,
        isUnseen: true,
        ...(approvals === 'deny' ? { isUnattended: true } : {}),
      }),
    get networkAnswers() {
      return approvals === 'deny' ? [] : queue.networkAnswers
    },
  }
}

/** @throws {CaissonError} `invalid_options` for a host that no rule could name */
export function planFor(plan: ResolvedRun, request: AgentRunRequest): ResolvedRun {
  const { continues: _, given: __, workflow: ___, outputSchema: ____, leavesOnSleep: _____, ...rest } = plan
  const has = (tool: string): boolean => request.tools.includes(tool)
  const { hostTools, memory, ...shared } = rest
  const offered = hostTools && new Map([...hostTools].filter(([name]) => has(name)))
  return {
    ...shared,
    ...(offered === undefined ? {} : { hostTools: offered }),
    ...(memory === undefined || !(has('remember') || has('recall')) ? {} : { memory }),
    limits: limitsFor(plan.limits, request),
    egress: egressFor(plan.egress, request),
    approvePlan: false,
    keep: false,
    vm: { ...plan.vm, hibernateAfterMs: 0, sleepAfterMs: 0 },
  }
}

/** Never more than the run's, whatever its agent asks for. */
function limitsFor(run: RunLimits, { limits }: AgentRunRequest): RunLimits {
  const least = (name: 'maxToolCalls' | 'maxTokens' | 'maxWallMs'): number =>
    Math.min(run[name], limits[name])
  const lower = (a: number | undefined, b: number | undefined): number | undefined =>
    a === undefined ? b : Math.min(a, b ?? a)
  const maxRequests = lower(run.maxRequests, limits.maxRequests)
  const maxCostUsd = lower(run.maxCostUsd, limits.maxCostUsd)
  return {
    ...run,
    maxTurnsPerStep: Math.min(run.maxTurnsPerStep, limits.maxTurns ?? run.maxTurnsPerStep),
    maxToolCalls: least('maxToolCalls'),
    maxTokens: least('maxTokens'),
    maxWallMs: least('maxWallMs'),
    // Its agent counts itself.
    maxAgents: Math.min(run.maxAgents, limits.maxAgents ?? run.maxAgents, 255) + 1,
    ...(maxRequests === undefined ? {} : { maxRequests }),
    ...(maxCostUsd === undefined ? {} : { maxCostUsd }),
  }
}

function egressFor(policy: EgressPolicy, { hosts }: AgentRunRequest): EgressPolicy {
  if (hosts === undefined) return policy
  const rules = hosts.map((host) => ({ effect: 'ask', host }) as const)
  const within = readEgressRules(rules, 'run', 'hosts')
  if (!within.ok) throw new CaissonError('invalid_options', within.error)
  return { ...policy, within: within.value }
}

/** The task for the agent of the VM. */
export function taskFor(
  plan: ResolvedRun,
  narrowed: ResolvedRun,
  { agentPath, stepId, brief, tools, output, effort, model, messages }: AgentRunRequest,
): Task {
  const {
    plan: _,
    approvePlan: __,
    outputSchema: ___,
    mode: ____,
    resume: _____,
    cancelledAgents: ______,
    messages: _______,
    images: ________,
    workflow: _________,
    memory,
    ...task
  } = plan.resumed?.task ?? taskOf(plan, false)
  return {
    ...task,
    ...(memory === undefined || narrowed.memory === undefined ? {} : { memory }),
    hostTools: task.hostTools?.filter(({ name }) => tools.includes(name)),
    prompt: brief,
    ...(effort === undefined ? {} : { effort }),
    ...(model === undefined ? {} : { stepModel: model }),
    tools,
    limits: narrowed.limits,
    subAgent: { agentPath, stepId, ...(output === undefined ? {} : { output }) },
    ...(messages === undefined ? {} : { messages: messages.map((one) => ({ ...one, agentPath })) }),
  }
}
