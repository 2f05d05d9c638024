/**
 * Handles the agent's messages: its events, approvals, hooks, calls of host tools and completion. A call that hooks look
 * at runs only with the arguments they allowed.
 */
import { hash } from 'node:crypto'
import { type CaissonError, hasCode } from '#specs/errors.ts'
import type { AgentRunRequest, AgentRunResult } from '#specs/protocol/agent-vm.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { AgentEvent } from '#specs/protocol/event.ts'
import { type HostToolCall, type HostToolResult, mcpOfferTool } from '#specs/protocol/extension.ts'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { HandlerFailure } from '#specs/protocol/peer.ts'
import { askTool } from '#specs/protocol/question.ts'
import type { Completion } from '#specs/protocol/task.ts'
import { planTool } from '../../approvals/plan-question.ts'
import { toolsNamedByRules } from '../../approvals/rules.ts'
import { accessTool } from '../../egress/egress-approvals.ts'
import type { LinkHandlers } from '../../guest/agent-link.ts'
import type { HookedCall } from '../../hooks/hook.ts'
import type { HooksDecision, RunHooks } from '../../hooks/run-hooks.ts'
import type { BoundedLog } from '../../journal/bounded-log.ts'
import type { Recorder } from '../../recording/recorder.ts'
import { parseToolArguments } from '../../tools/arguments.ts'
import { type HostCallResults, HostCalls, hostToolFailure } from '../../tools/calls.ts'
import type { ResolvedRun } from '../resolved-run.ts'
import type { GuestApprovals, GuestClaims, GuestRecord } from './guest-parts.ts'

interface RunRequestsParts {
  readonly hooks: RunHooks
  readonly approvals: GuestApprovals
  readonly record: GuestRecord
  readonly log: BoundedLog
  readonly hostCallResults: HostCallResults
  readonly recorder: Pick<Recorder, 'web' | 'flush'>
  /** By tool: answers of another part of the host than the approval queue. Absent: none. */
  readonly deciders?: ReadonlyMap<string, Decider>
}

type Decider = (request: ApprovalRequest, signal: AbortSignal) => Promise<ApprovalDecision>

/** Maximum hook requests of one run: each may start a process, and the guest can send any number. */
const hooksMaxCount = (maxToolCalls: number): number => 4 * maxToolCalls + 4_096

export class RunRequests {
  readonly #hooks: RunHooks
  readonly #approvals: GuestApprovals
  readonly #deciders: ReadonlyMap<string, Decider>
  readonly #calls: HostCalls
  readonly #hooksMaxCount: number
  /** Digests of host-tool calls, with the arguments that hooks allowed. */
  readonly #allowed = new Set<string>()
  /** Digests of calls that a person allowed at a hook's request. */
  readonly #allowedByPerson = new Set<string>()
  #asked = 0

  constructor(
    plan: ResolvedRun,
    { hooks, approvals, record, recorder, log, hostCallResults, deciders = new Map() }: RunRequestsParts,
  ) {
    this.#hooks = hooks
    this.#approvals = approvals
    this.#deciders = deciders
    this.#hooksMaxCount = hooksMaxCount(plan.limits.maxToolCalls)
    const { rules } = plan.approvals
    const named = new Set(toolsNamedByRules(rules, ['*']))
    this.#calls = new HostCalls({
      tools: plan.hostTools ?? new Map(),
      onlyPlans: plan.mode === 'plan',
      maxCalls: plan.limits.maxToolCalls,
      results: hostCallResults,
      keep: async (call, result) => {
        recorder.web('call', call, { ok: true, value: result })
        await recorder.flush()
      },
      isNamed: (tool) => named.has('*') || named.has(tool),
      note: (event) => record.host(event),
      ask: async (request, signal) =>
        this.isAllowed(request)
          ? { decision: 'allow' }
          : await approvals.ask(request, signal, undefined, { askedBy: 'host', isUnseen: true }),
      log: (fields, message) =>
        log.write({ at: Date.now(), from: 'host', level: 'error', message, ...fields }),
    })
  }

  /** Answers the agent's question. Called once per question. @param signal withdraws it */
  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<ApprovalDecision> {
    if (this.isAllowed(request)) return { decision: 'allow' }
    // The agent's wording must not describe an action of the host.
    if (this.#calls.has(request.tool)) return askedByHost
    const decide = this.#deciders.get(request.tool)
    return decide === undefined ? await this.#approvals.ask(request, signal) : await decide(request, signal)
  }

  /** Whether a person already allowed this exact call at a hook's request. */
  isAllowed(request: Pick<ApprovalRequest, 'agentPath' | 'callId' | 'tool' | 'arguments'>): boolean {
    return !answeredByHost.has(request.tool) && this.#allowedByPerson.has(digestOf(request))
  }

  /** Called once per question. @param signal withdraws it */
  async runHook(request: HookRequest, signal: AbortSignal): Promise<HookDecision> {
    if (++this.#asked > this.#hooksMaxCount)
      return { decision: 'deny', reason: 'hooks were asked too often in this run' }
    return toDecision(await this.#askHooks(request, signal))
  }

  /** Called once per call. @param signal withdraws it */
  async callTool(call: HostToolCall, signal: AbortSignal): Promise<HostToolResult> {
    const isHooked = this.#hooks.has('before-tool', call.tool)
    if (isHooked && !this.#allowed.has(digestOf(call)))
      return hostToolFailure('denied', `the hooks before ${call.tool} were not asked about this call`)
    return await this.#calls.call(call, signal)
  }

  async close(): Promise<void> {
    await this.#calls.close()
  }

  async #askHooks({ agentPath, stepId, subject }: HookRequest, signal: AbortSignal): Promise<HooksDecision> {
    if (subject.point === 'before-step') {
      const { title, instructions } = subject
      return await this.#hooks.ask('before-step', { agentPath, stepId, title, instructions }, signal)
    }
    if (subject.point === 'before-turn')
      return await this.#hooks.ask('before-turn', { agentPath, stepId }, signal)
    if (subject.point === 'after-step') {
      const { point, ...about } = subject
      return await this.#hooks.ask(point, { agentPath, stepId, ...about }, signal)
    }
    const given = parseToolArguments(subject.arguments)
    if (!given.ok) return { decision: 'deny', reason: `the arguments of the call: ${given.error}` }
    const { callId, tool } = subject
    const call: HookedCall = { agentPath, stepId, callId, tool, arguments: given.value.value }
    if (subject.point === 'after-tool') {
      const { output, error } = subject
      const about = { ...call, output, ...(error === undefined ? {} : { error }) }
      return await this.#hooks.ask('after-tool', about, signal)
    }
    const { defaults } = subject
    const about = { ...call, ...(defaults === undefined ? {} : { defaults }) }
    const decision = await this.#hooks.ask('before-tool', about, signal)
    this.#remember(call, decision)
    return decision
  }

  #remember(
    call: HookedCall,
    { decision, arguments: changed = call.arguments, byPerson }: HooksDecision,
  ): void {
    if (decision === 'deny') return
    const digest = digestOf({ ...call, arguments: toCanonicalJson(changed) })
    if (this.#calls.has(call.tool)) this.#allowed.add(digest)
    if (byPerson === true) this.#allowedByPerson.add(digest)
  }
}

const askedByHost: ApprovalDecision = {
  decision: 'deny',
  hint: 'the host asks about this tool itself, when it is called',
}

interface AgentHandlerParts {
  readonly record: GuestRecord
  readonly log: BoundedLog
  readonly claims: GuestClaims
  /** Why an event is not this guest's to report; null where it is. Absent: all are. */
  readonly objection?: (agentPath: string, event: AgentEvent) => string | null
  readonly requests: RunRequests
  readonly onCompletion: (completion: Completion) => void
  /** Carries out a sub-agent in a VM of its own. Absent: there is none for it. */
  readonly runAgent?: (
    request: AgentRunRequest,
    signal: AbortSignal,
  ) => Promise<Result<AgentRunResult, HandlerFailure>>
  /** Makes a checkpoint; false: there is none. */
  readonly makeCheckpoint: (checkpointId: string) => Promise<boolean>
  /** Called when a call of a tool has ended. */
  readonly onToolEnd: () => void
  /** Called when the journal's limit for guest events is reached. */
  readonly onJournalFull: (error: CaissonError) => void
  /** Called when an event could not be journaled; the link ends as well. */
  readonly onUnrecorded: (cause: unknown) => void
}

/**
 * Handlers of the agent's messages: journal and show its events, answer its requests, take its completion. The link
 * calls a handler once for each request.
 */
export function agentHandlers({
  record,
  log,
  claims,
  objection,
  requests,
  runAgent,
  onToolEnd,
  onCompletion,
  makeCheckpoint,
  onJournalFull,
  onUnrecorded,
}: AgentHandlerParts): LinkHandlers {
  /** Refuses a request from an inactive agent; null for an active one. */
  const refuseFor = async (agentPath: string): Promise<{ ok: false; error: HandlerFailure } | null> => {
    if (await claims.waitUntilAtWork(agentPath)) return null
    const message = `no agent ${agentPath} is at work, so nobody is asked for it`
    return { ok: false, error: { code: 'invalidParams', message } }
  }
  return {
    checkEvent: ({ agentPath, event }) => objection?.(agentPath, event) ?? claims.check(agentPath, event),
    onEvent: async (_, { n, agentPath, event }) => {
      try {
        await record.agent(agentPath, n, event)
        if (event.type === 'tool-end') onToolEnd()
      } catch (error) {
        // The link stays open, so that the changes can still be collected.
        if (hasCode(error, 'limit_reached')) return onJournalFull(error)
        onUnrecorded(error)
        throw error
      }
    },
    onDelta: ({ agentPath, deltas }) => {
      if (!claims.isAtWork(agentPath)) return
      for (const delta of deltas) record.delta(agentPath, delta)
    },
    requestApproval: async (request, { signal }) =>
      (await refuseFor(request.agentPath)) ?? { ok: true, value: await requests.decide(request, signal) },
    runHook: async (request, { signal }) => {
      const refusal = await refuseFor(request.agentPath)
      if (refusal !== null) return refusal
      claims.noteHook(request)
      const value = await requests.runHook(request, signal)
      if (value.decision === 'deny') claims.noteRefusal(request)
      return { ok: true, value }
    },
    callTool: async (call, { signal }) =>
      (await refuseFor(call.agentPath)) ?? { ok: true, value: await requests.callTool(call, signal) },
    ...(runAgent === undefined
      ? {}
      : {
          runAgent: async (request, { signal }) =>
            (await refuseFor(request.agentPath)) ?? (await runAgent(request, signal)),
        }),
    makeCheckpoint: async ({ checkpointId }) => ({
      ok: true,
      value: { made: await makeCheckpoint(checkpointId) },
    }),
    completeTask: async (completion) => {
      onCompletion(completion)
      return { ok: true, value: {} }
    },
    onLog: (entry) => log.write({ at: Date.now(), from: 'agent', ...entry }),
  }
}

/** The host's answer to these carries more than permission, so permission for the call does not answer it. */
const answeredByHost: ReadonlySet<string> = new Set([accessTool, askTool, mcpOfferTool, planTool])

function toDecision({ decision, reason, arguments: changed, note, context }: HooksDecision): HookDecision {
  const given = changed === undefined ? undefined : toCanonicalJson(changed)
  if (given !== undefined && given.length > limits.documentMaxChars)
    return { decision: 'deny', reason: 'a hook gave arguments that are too long' }
  return {
    decision,
    ...(reason === undefined ? {} : { reason: bound(reason) }),
    ...(given === undefined ? {} : { arguments: given }),
    ...(note === undefined ? {} : { note: bound(note) }),
    ...(context === undefined ? {} : { context: [...context] }),
  }
}

function bound(text: string): string {
  return text.toWellFormed().slice(0, limits.textMaxChars)
}

/** Digest of agent, tool and arguments. Arguments are long, and a guest may have any number of them allowed. */
function digestOf(call: Pick<ApprovalRequest, 'agentPath' | 'callId' | 'tool' | 'arguments'>): string {
  const read = parseToolArguments(call.arguments)
  const given = read.ok ? read.value.text : call.arguments
  return hash('sha256', JSON.stringify([call.agentPath, call.callId, call.tool, given]))
}
