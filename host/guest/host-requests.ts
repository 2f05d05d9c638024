/** The desks of one link: what the agent may ask its host for, each request worked on once. Knows no run and no session. */
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { HostToolCall, HostToolResult } from '#specs/protocol/extension.ts'
import type { HookDecision, HookRequest } from '#specs/protocol/hook.ts'
import type { HandlerFailure } from '#specs/protocol/peer.ts'
import {
  createIdempotentRequests,
  type IdempotentRequests,
  type RequestHandler,
} from './idempotent-requests.ts'

export interface RequestHandlers {
  /** Called once per question however many sessions it takes. */
  requestApproval: RequestHandler<ApprovalRequest, ApprovalDecision>
  /** Called once per question, as above; absent: the run has no hooks. */
  runHook?: RequestHandler<HookRequest, HookDecision>
  /** Called once per call, also when the answer is lost with its session; absent: the application has no tools. */
  callTool?: RequestHandler<HostToolCall, HostToolResult>
}

export interface HostRequests {
  readonly approvals: IdempotentRequests<ApprovalRequest, ApprovalDecision>
  readonly hooks: IdempotentRequests<HookRequest, HookDecision>
  readonly calls: IdempotentRequests<HostToolCall, HostToolResult>
  /** Withdraws all that is open and forgets the answers. */
  clear(): void
}

/** The answer to whatever is asked for a run that is not under way. */
export const unknownRun = {
  ok: false,
  error: { code: 'notFound', message: 'no such run is under way' },
} as const satisfies { ok: false; error: HandlerFailure }

/** Answers kept for a guest that has to ask again; outputs of tools are larger. */
const keptAnswers = 1_024
const keptOutputs = 64

export function createHostRequests({ requestApproval, runHook, callTool }: RequestHandlers): HostRequests {
  const approvals = createIdempotentRequests({
    idOf: ({ approvalId }) => approvalId,
    work: requestApproval,
    keptAnswers,
  })
  const hooks = createIdempotentRequests<HookRequest, HookDecision>({
    idOf: ({ hookId }) => hookId,
    work: runHook ?? (() => Promise.resolve(refusal('there are no hooks for this run'))),
    keptAnswers,
  })
  const calls = createIdempotentRequests<HostToolCall, HostToolResult>({
    idOf: ({ callId }) => callId,
    work: callTool ?? (() => Promise.resolve(refusal('there are no tools of the host for this run'))),
    keptAnswers: keptOutputs,
    neverTwice: true,
  })
  return {
    approvals,
    hooks,
    calls,
    clear: () => {
      for (const desk of [approvals, hooks, calls]) desk.clear()
    },
  }
}

function refusal(message: string): { ok: false; error: HandlerFailure } {
  return { ok: false, error: { code: 'failed', message } }
}
