/**
 * The requests that the agent may send to its host over one link; each is executed once. Knows no run and no session.
 */
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
  /** Called once per question, over any number of sessions. */
  requestApproval: RequestHandler<ApprovalRequest, ApprovalDecision>
  /** Called once per question. Absent: the run has no hooks. */
  runHook?: RequestHandler<HookRequest, HookDecision>
  /** Called once per call, even if the answer is lost with its session. Absent: the application has no tools. */
  callTool?: RequestHandler<HostToolCall, HostToolResult>
}

export interface HostRequests {
  readonly approvals: IdempotentRequests<ApprovalRequest, ApprovalDecision>
  readonly hooks: IdempotentRequests<HookRequest, HookDecision>
  readonly calls: IdempotentRequests<HostToolCall, HostToolResult>
  /** Cancels all open requests and forgets the answers. */
  clear(): void
}

/** The answer to a request for an inactive run. */
export const unknownRun = {
  ok: false,
  error: { code: 'notFound', message: 'no such run is under way' },
} as const satisfies { ok: false; error: HandlerFailure }

/** Number of answers kept for repeated requests; tool outputs are larger. */
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
      for (const requests of [approvals, hooks, calls]) requests.clear()
    },
  }
}

function refusal(message: string): { ok: false; error: HandlerFailure } {
  return { ok: false, error: { code: 'failed', message } }
}
