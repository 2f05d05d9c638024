/** The state of a run, computed from its events by one reducer for host, agent, screens and `runs show`. */
import type { AccessReach } from './egress.ts'
import type { RunReason } from './error.ts'
import type { AgentEvent, HostEvent } from './event.ts'
import type { RunPriority } from './host-event.ts'
import type { RequestSource } from './model-request.ts'
import type { Plan, StepState } from './plan.ts'
import { addUsage, noUsage, type RunOutcome, type Usage } from './task.ts'
import type { WorkflowAddition } from './workflow-format.ts'

/** An undecided approval: the agent's request, and what its `approval-request` says of it. */
export type PendingApproval = Extract<HostEvent, { type: 'approval-request' }>['request'] &
  Pick<Extract<HostEvent, { type: 'approval-request' }>, 'kind' | 'access' | 'because' | 'answers'>

/** What an `approval-request` asks, as long as nobody decided it. */
export function pendingApprovalOf({
  request,
  kind,
  access,
  because,
  answers,
}: Extract<HostEvent, { type: 'approval-request' }>): PendingApproval {
  return {
    ...request,
    kind,
    ...(access === undefined ? {} : { access }),
    ...(because === undefined ? {} : { because }),
    ...(answers === undefined ? {} : { answers }),
  }
}

/** An answer of a person that applies for the rest of the run, unless it is revoked or expires. */
export interface RunAnswer {
  /** The approval that was answered so. */
  readonly approvalId: string
  readonly decision: 'allow' | 'deny'
  readonly tool: string
  /** Canonical JSON of the call's arguments, when the answer is for the same command alone. */
  readonly arguments?: string
  /** For network access: the address that was asked about, how broadly the answer applies, and what that is in words. */
  readonly access?: { readonly address: string; readonly reach: AccessReach; readonly allows: string }
  /** Who answered; absent in older journals. */
  readonly name?: string
  /** When it expires, ms since 1970; absent: with the run. */
  readonly until?: number
}

/** A run that waits in the queue of its host. */
export interface QueuedRun {
  readonly priority: RunPriority
  /** Whether it waits to continue, having used a VM already. */
  readonly isContinued: boolean
  /** It ends if it has not begun by then, ms since 1970. Absent: it waits without a limit. */
  readonly startBy?: number
}

export interface RunState {
  /** Null: it does not wait in a queue. */
  queue: QueuedRun | null
  phase: 'preparing' | 'planning' | 'working' | 'ended'
  plan: Plan | null
  revision: number
  /** What steps of its workflow added, in order. */
  added: readonly WorkflowAddition[]
  /** By step id, in plan order. */
  steps: Record<string, { state: StepState; text: string }>
  /** Sub-agents by path, in start order. */
  agents: Record<
    string,
    { state: 'running' | 'completed' | 'failed' | 'cancelled'; brief: string; text: string }
  >
  /** The last checkpoint, and what the run was there. Null before the first. */
  checkpoint: CheckpointMoment | null
  /** The last checkpoint before each step first started, by step id, in start order; of the newest steps. */
  moments: Record<string, CheckpointMoment>
  /** Number of agents that the run has had. */
  epoch: number
  /** Whether the agent is paused. */
  paused: boolean
  /** Tool calls that started and have not ended, by call id. */
  openCalls: Record<string, { stepId: string; tool: string; agentPath: string; parentCallId?: string }>
  toolCalls: number
  /** Model requests that started and have not ended, by request id. */
  openRequests: Record<string, RequestSource & { model?: string | undefined }>
  /** Host tool calls that started and have not ended, by call id. If the run has ended, their outcome is unknown. */
  openHostCalls: Record<string, { tool: string; arguments: string }>
  /** Undecided approvals, by approval id. */
  pendingApprovals: Record<string, PendingApproval>
  /** Answers for the rest of the run, by approval id, oldest first. Some may have expired. */
  runAnswers: Record<string, RunAnswer>
  /** As counted by the gateway. */
  usage: Usage
  /** Whether any of it is the gateway's estimate because the provider gave no numbers. */
  isUsageEstimated: boolean
  /** Cost of the model's answers; null when no price is known. */
  costUsd: number | null
  changes: { entries: number; flagged: readonly string[] } | null
  /** Applied paths as of the last finished apply or undo; null before the first. */
  applied: number | null
  /** An apply or undo that started and has not ended: it is active, or its process died. */
  unfinished: 'apply' | 'undo' | null
  /** Notes that the run proposed and that are undecided, by id. */
  proposedNotes: readonly string[]
  /** Why nothing is applied without a person: a hook's message after the run; null when none denied it. */
  heldBack: string | null
  /** How it ended; `structured`: whether `summary` is JSON that fits the output schema. Null before. */
  end: {
    outcome: RunOutcome
    reason: RunReason
    message: string
    summary: string
    structured?: boolean
  } | null
}

/** What of the state another agent continues with. */
export type RunMoment = Pick<RunState, 'phase' | 'plan' | 'revision' | 'added' | 'steps' | 'agents'>

/** A checkpoint, and what the run was there. */
export type CheckpointMoment = RunMoment & {
  checkpointId: string
  /** Time that counted toward the run's limit until there. */
  elapsedMs: number
  /** Exchanges recorded until there. */
  exchanges: number
}

export const initialRunState: RunState = {
  queue: null,
  phase: 'preparing',
  plan: null,
  revision: 0,
  added: [],
  steps: {},
  agents: {},
  checkpoint: null,
  moments: {},
  epoch: 1,
  paused: false,
  openCalls: {},
  toolCalls: 0,
  openRequests: {},
  openHostCalls: {},
  pendingApprovals: {},
  runAnswers: {},
  usage: noUsage,
  isUsageEstimated: false,
  costUsd: null,
  changes: null,
  applied: null,
  unfinished: null,
  proposedNotes: [],
  heldBack: null,
  end: null,
}

/** Maximum open calls tracked; otherwise a guest that ends none would make each event slower. */
const OPEN_CALLS_MAX = 256
/** The maximum that a run can be allowed. */
const AGENTS_MAX = 256
/** Answers for the run that apply at the same time; the oldest then no longer does. */
export const RUN_ANSWERS_MAX = 1_000
/** Steps whose moments are known, each a layer of the run's disk. */
export const MOMENTS_MAX = 12
/** Tools that a sub-agent lacks, since the plan is not its own. */
const rootEvents: ReadonlySet<string> = new Set([
  'plan-update',
  'step-start',
  'step-end',
  'pause-start',
  'pause-end',
])

/** The fields of a journal line that the reducer reads; without a path it is the host's, or the root agent's. */
export interface RunLine {
  readonly event: AgentEvent | HostEvent
  readonly agentPath?: string
}

/** The state after a line; events without effect return the same object. Only the root agent has a plan and steps. */
export function reduceRun(state: RunState, line: RunLine): RunState {
  const { event, agentPath = 'root' } = line
  if (agentPath !== 'root' && rootEvents.has(event.type)) return state
  switch (event.type) {
    case 'queue-start':
      return { ...state, queue: queuedRun(state, event) }
    case 'queue-end':
      return { ...state, queue: null }
    case 'session-start':
      return state.phase === 'preparing' ? { ...state, phase: 'planning' } : state
    case 'plan-update':
      return {
        ...state,
        phase: 'working',
        plan: event.plan,
        revision: event.revision,
        added: event.added === undefined ? state.added : [...state.added, event.added],
        steps: stepsOf(event.plan, state),
      }
    case 'step-start':
      return withStep(withMoment(state, event.stepId), event.stepId, 'running', '')
    case 'step-end':
      return withStep(state, event.stepId, event.state, event.text)
    case 'tool-start': {
      const { stepId, tool, parentCallId } = event
      const call = { stepId, tool, agentPath, ...(parentCallId === undefined ? {} : { parentCallId }) }
      const isFull = Object.keys(state.openCalls).length >= OPEN_CALLS_MAX
      return {
        ...state,
        toolCalls: state.toolCalls + 1,
        openCalls: isFull ? state.openCalls : { ...state.openCalls, [event.callId]: call },
      }
    }
    case 'tool-end':
      return { ...state, openCalls: without(state.openCalls, event.callId) }
    case 'agent-start': {
      const isFull = Object.keys(state.agents).length >= AGENTS_MAX
      const agent = { state: 'running' as const, brief: event.brief, text: '' }
      return isFull ? state : { ...state, agents: { ...state.agents, [agentPath]: agent } }
    }
    case 'agent-end': {
      const agent = Object.hasOwn(state.agents, agentPath) ? state.agents[agentPath] : undefined
      if (agent === undefined) return state
      const ended = { ...agent, state: event.state, text: event.text }
      return { ...state, agents: { ...state.agents, [agentPath]: ended } }
    }
    case 'pause-start':
      return { ...state, paused: true }
    case 'pause-end':
      return { ...state, paused: false }
    case 'approval-request': {
      const { approvalId } = event.request
      return {
        ...state,
        pendingApprovals: { ...state.pendingApprovals, [approvalId]: pendingApprovalOf(event) },
      }
    }
    case 'approval-decision':
      return {
        ...state,
        pendingApprovals: without(state.pendingApprovals, event.approvalId),
        runAnswers: withRunAnswer(state, event),
      }
    case 'approval-revoke':
      return { ...state, runAnswers: without(state.runAnswers, event.approvalId) }
    case 'model-start': {
      const { type: _, requestId, ...request } = event
      return { ...state, openRequests: { ...state.openRequests, [requestId]: request } }
    }
    case 'model-end':
      return {
        ...state,
        openRequests:
          event.requestId === undefined ? state.openRequests : without(state.openRequests, event.requestId),
        usage: addUsage(state.usage, event.usage),
        isUsageEstimated: state.isUsageEstimated || event.estimated === true,
        costUsd: event.costUsd === undefined ? state.costUsd : (state.costUsd ?? 0) + event.costUsd,
      }
    case 'checkpoint': {
      const { checkpointId, elapsedMs, exchanges } = event
      return { ...state, checkpoint: { checkpointId, elapsedMs, exchanges, ...momentOf(state) } }
    }
    case 'run-resume':
      return resumeRun(state, event)
    case 'changes-ready':
      return { ...state, changes: { entries: event.entries, flagged: event.flagged } }
    case 'apply-start':
      return { ...state, unfinished: 'apply' }
    case 'undo-start':
      return { ...state, unfinished: 'undo' }
    case 'apply-end': {
      const applied = event.total ?? (state.applied ?? 0) + event.applied
      return { ...state, unfinished: null, applied }
    }
    case 'undo-end': {
      const applied = event.total ?? Math.max(0, (state.applied ?? 0) - event.restored)
      return { ...state, unfinished: null, applied }
    }
    case 'memory-propose':
    case 'note-propose': {
      const { noteId } = event.note
      const replaced = event.type === 'memory-propose' ? event.replaces : undefined
      const others = state.proposedNotes.filter((id) => id !== noteId && id !== replaced)
      return { ...state, proposedNotes: [...others, noteId] }
    }
    case 'notes-decide': {
      const decided = new Set([...event.kept, ...event.dropped])
      return { ...state, proposedNotes: state.proposedNotes.filter((id) => !decided.has(id)) }
    }
    case 'host-tool-start': {
      const call = { tool: event.tool, arguments: event.arguments }
      return { ...state, openHostCalls: { ...state.openHostCalls, [event.callId]: call } }
    }
    case 'host-tool-end':
      return { ...state, openHostCalls: without(state.openHostCalls, event.callId) }
    case 'hook-end': {
      const { point, decision, reason, hook } = event
      if (point !== 'after-run' || decision !== 'deny') return state
      return { ...state, heldBack: reason ?? `the hook ${hook} said no` }
    }
    case 'run-end':
      return endRun(state, event)
    default:
      return state
  }
}

/** The answers for the run that have not expired, oldest first. @param now ms since 1970 */
export function answersThatApply(
  { runAnswers }: Pick<RunState, 'runAnswers'>,
  now = Date.now(),
): RunAnswer[] {
  return Object.values(runAnswers).filter(({ until }) => until === undefined || until > now)
}

/** Another process that continues the run queues it again: what has not begun still has not. */
function queuedRun(
  { queue, phase, epoch }: RunState,
  { priority, startBy }: Extract<HostEvent, { type: 'queue-start' }>,
): QueuedRun {
  const isContinued = queue?.isContinued ?? (phase !== 'preparing' || epoch > 1)
  return { priority, isContinued, ...(startBy === undefined ? {} : { startBy }) }
}

function momentOf({ phase, plan, revision, added, steps, agents }: RunState): RunMoment {
  return { phase, plan, revision, added, steps, agents }
}

/** What was under way is done again; what was paid stays paid. */
function resumeRun(state: RunState, event: Extract<HostEvent, { type: 'run-resume' }>): RunState {
  const { checkpoint } = state
  const isKnown = checkpoint !== null && checkpoint.checkpointId === event.checkpointId
  return {
    ...state,
    ...momentOf(isKnown ? { ...state, ...checkpoint } : initialRunState),
    checkpoint: isKnown ? checkpoint : null,
    moments: isKnown ? state.moments : {},
    epoch: event.epoch,
    paused: false,
    openCalls: {},
    openRequests: {},
    pendingApprovals: {},
  }
}

function endRun(state: RunState, event: Extract<HostEvent, { type: 'run-end' }>): RunState {
  const { outcome, reason, message, summary, structured } = event
  return {
    ...state,
    queue: null,
    phase: 'ended',
    openCalls: {},
    openRequests: {},
    paused: false,
    pendingApprovals: {},
    runAnswers: {},
    end: { outcome, reason, message, summary, ...(structured === true ? { structured } : {}) },
  }
}

/** A later answer about the same replaces an earlier one. */
function withRunAnswer(
  { pendingApprovals, runAnswers }: RunState,
  event: Extract<HostEvent, { type: 'approval-decision' }>,
): RunState['runAnswers'] {
  const { approvalId, decision, scope, reach, by, name, until, earlierId } = event
  const asked = Object.hasOwn(pendingApprovals, approvalId) ? pendingApprovals[approvalId] : undefined
  const isForRun = by === 'person' && scope === 'run' && earlierId === undefined
  if (!isForRun || asked === undefined) return runAnswers
  const offer = asked.access?.offers.find((offered) => offered.reach === reach)
  if (asked.access !== undefined && offer === undefined) return runAnswers
  const answer: RunAnswer = {
    ...{ approvalId, decision, tool: asked.tool },
    ...(reach === 'command' ? { arguments: asked.arguments } : {}),
    ...(asked.access === undefined || offer === undefined
      ? {}
      : { access: { address: asked.access.address, ...offer } }),
    ...(name === undefined ? {} : { name }),
    ...(until === undefined ? {} : { until }),
  }
  const others = Object.entries(runAnswers).filter(
    ([id, other]) =>
      id !== approvalId &&
      (other.tool !== answer.tool ||
        other.arguments !== answer.arguments ||
        other.access?.address !== answer.access?.address ||
        other.access?.reach !== answer.access?.reach),
  )
  return Object.fromEntries([...others, [approvalId, answer] as const].slice(-RUN_ANSWERS_MAX))
}

function stepsOf(plan: Plan, state: RunState): RunState['steps'] {
  const fresh = { state: 'pending', text: '' } as const
  // A model may call a step "constructor" or "__proto__".
  const known = (id: string) => (Object.hasOwn(state.steps, id) ? state.steps[id] : undefined)
  return Object.fromEntries(plan.steps.map((step) => [step.id, known(step.id) ?? fresh]))
}

function withMoment(state: RunState, stepId: string): RunState {
  const { checkpoint, moments } = state
  if (checkpoint === null || !Object.hasOwn(state.steps, stepId) || Object.hasOwn(moments, stepId))
    return state
  const kept = [...Object.entries(moments), [stepId, checkpoint] as const].slice(-MOMENTS_MAX)
  return { ...state, moments: Object.fromEntries(kept) }
}

function withStep(state: RunState, stepId: string, stepState: StepState, text: string): RunState {
  if (!Object.hasOwn(state.steps, stepId)) return state
  return { ...state, steps: { ...state.steps, [stepId]: { state: stepState, text } } }
}

function without<T>(record: Record<string, T>, key: string): Record<string, T> {
  return Object.fromEntries(Object.entries(record).filter(([name]) => name !== key))
}
