/**
 * The requests that the agent may send to its host over one link. Each is executed once, even if it is repeated: a
 * request outlives its session, and its answer is kept for the guest. Refuses an id that is reused for another request.
 * Knows no run and no session.
 */
import { createHash } from 'node:crypto'
import type { AgentRunRequest, AgentRunResult } from '#specs/protocol/agent-vm.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { HostToolCall, HostToolResult } from '#specs/protocol/extension.ts'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { checkpointMake } from '#specs/protocol/methods.ts'
import { type HandlerFailure, type ParamsOf, sessionEnded } from '#specs/protocol/peer.ts'

/** Called once per id; `signal` aborts when the guest withdraws the request, or is gone. */
type RequestHandler<Q, A> = (
  request: Q,
  context: { signal: AbortSignal },
) => Promise<Result<A, HandlerFailure>>

export interface RequestHandlers {
  requestApproval: RequestHandler<ApprovalRequest, ApprovalDecision>
  /** Absent: the run has no hooks. */
  runHook?: RequestHandler<HookRequest, HookDecision>
  /** Called once even if the answer is lost with its session. Absent: the application has no tools. */
  callTool?: RequestHandler<HostToolCall, HostToolResult>
  /** Called once per path. Absent: sub-agents have no VM of their own. */
  runAgent?: RequestHandler<AgentRunRequest, AgentRunResult>
  /** Absent: the run has no checkpoints. */
  makeCheckpoint?: RequestHandler<CheckpointRequest, { made: boolean }>
}

export type CheckpointRequest = ParamsOf<typeof checkpointMake>

/** Number of answers kept for repeated requests; tool outputs are larger. */
const keptAnswers = 1_024
const keptOutputs = 64
/** Maximum number of ids kept without their answer. */
const forgottenMaxCount = 200_000

export class GuestRequests {
  readonly approvals: RepeatableRequests<ApprovalRequest, ApprovalDecision>
  readonly hooks: RepeatableRequests<HookRequest, HookDecision>
  readonly calls: RepeatableRequests<HostToolCall, HostToolResult>
  readonly agents: RepeatableRequests<AgentRunRequest, AgentRunResult>
  readonly checkpoints: RepeatableRequests<CheckpointRequest, { made: boolean }>

  constructor({ requestApproval, runHook, callTool, runAgent, makeCheckpoint }: RequestHandlers) {
    const noVms = async () => refusal('failed', 'a sub-agent gets no VM of its own here; leave isolation out')
    const noHooks = async () => refusal('failed', 'there are no hooks for this run')
    const noTools = async () => refusal('failed', 'there are no tools of the host for this run')
    this.approvals = new RepeatableRequests(({ approvalId }) => approvalId, requestApproval)
    this.hooks = new RepeatableRequests(({ hookId }) => hookId, runHook ?? noHooks)
    const noCheckpoints = async () => ({ ok: true, value: { made: false } }) as const
    this.checkpoints = new RepeatableRequests(
      ({ checkpointId }) => checkpointId,
      makeCheckpoint ?? noCheckpoints,
    )
    this.agents = new RepeatableRequests(({ agentPath }) => agentPath, runAgent ?? noVms, true)
    this.calls = new RepeatableRequests(({ callId }) => callId, callTool ?? noTools, true)
  }

  /** Cancels all open requests and forgets the answers. */
  clear(): void {
    const all = [this.approvals, this.hooks, this.calls, this.agents, this.checkpoints]
    for (const requests of all) requests.clear()
  }
}

interface Entry<A> {
  /** Digest of the request, so that an answered request need not be kept. */
  readonly digest: string
  readonly controller: AbortController
  readonly answer: Promise<Result<A, HandlerFailure>>
  open: boolean
}

export class RepeatableRequests<Q, A> {
  readonly #idOf: (request: Q) => string
  readonly #handle: RequestHandler<Q, A>
  readonly #neverTwice: boolean
  readonly #entries = new Map<string, Entry<A>>()
  readonly #forgotten = new Set<string>()

  /**
   * @param idOf the id that identifies a repeated request
   * @param neverTwice the effect cannot be repeated: a request is refused after its answer is forgotten
   */
  constructor(idOf: (request: Q) => string, handle: RequestHandler<Q, A>, neverTwice = false) {
    this.#idOf = idOf
    this.#handle = handle
    this.#neverTwice = neverTwice
  }

  /** @param signal of the peer: withdraws the request, unless the session has ended */
  async ask(request: Q, signal: AbortSignal): Promise<Result<A, HandlerFailure>> {
    const id = this.#idOf(request)
    const digest = createHash('sha256').update(JSON.stringify(request)).digest('hex')
    let entry = this.#entries.get(id)
    if (entry === undefined) {
      if (this.#forgotten.has(id))
        return refusal('invalidParams', 'the answer under this id is not kept any more')
      if (!this.#evictOldest()) return refusal('busy', 'too many requests are open')
      entry = this.#start(request, digest)
      this.#entries.set(id, entry)
    } else if (entry.digest !== digest) {
      return refusal('invalidParams', 'this id was used for another request')
    }
    const { controller, answer } = entry
    // A session that ends also aborts its handlers. The request stays open, since the guest will repeat it.
    const withdraw = (): void => {
      if (signal.reason !== sessionEnded) controller.abort('the step that asked has ended')
    }
    signal.addEventListener('abort', withdraw, { once: true })
    try {
      return await answer
    } finally {
      signal.removeEventListener('abort', withdraw)
    }
  }

  clear(): void {
    for (const entry of this.#entries.values())
      if (entry.open) entry.controller.abort('the agent that asked is gone')
    this.#entries.clear()
    this.#forgotten.clear()
  }

  #start(request: Q, digest: string): Entry<A> {
    const controller = new AbortController()
    const answer = this.#handle(request, { signal: controller.signal }).finally(() => {
      entry.open = false
    })
    const entry: Entry<A> = { digest, controller, open: true, answer }
    answer.catch(() => {})
    return entry
  }

  /** Forgets the oldest answers. Open requests are never forgotten, so this may fail. */
  #evictOldest(): boolean {
    let open = 0
    for (const entry of this.#entries.values()) if (entry.open) open++
    if (open >= limits.pendingMaxRequests || this.#forgotten.size >= forgottenMaxCount) return false
    const kept = this.#neverTwice ? keptOutputs : keptAnswers
    for (const [id, entry] of this.#entries) {
      if (this.#entries.size < kept) break
      if (entry.open) continue
      this.#entries.delete(id)
      if (this.#neverTwice) this.#forgotten.add(id)
    }
    return true
  }
}

function refusal(code: HandlerFailure['code'], message: string): { ok: false; error: HandlerFailure } {
  return { ok: false, error: { code, message } }
}
