/**
 * Handles the agent's messages: validates, journals and shows its events, and forwards approvals and the completion.
 */
import { type CaissonError, hasCode } from '#specs/errors.ts'
import type { ApprovalDecision } from '#specs/protocol/approval.ts'
import type { HandlerFailure } from '#specs/protocol/peer.ts'
import type { Completion } from '#specs/protocol/task.ts'
import type { LinkHandlers } from '../../guest/agent-link.ts'
import type { BoundedLog } from '../../journal/bounded-log.ts'
import type { RunRecord } from '../../journal/run-record.ts'
import { waitForActiveAgent } from './active-agent.ts'
import type { AgentEventValidator } from './agent-event-validator.ts'
import type { RunGateway } from './run-gateway.ts'

const askedByHost: ApprovalDecision = {
  decision: 'deny',
  hint: 'the host asks about this tool itself, when it is called',
}

export interface AgentHandlerParts {
  readonly record: RunRecord
  readonly log: BoundedLog
  readonly claims: AgentEventValidator
  readonly outside: Pick<RunGateway, 'approve' | 'requests'>
  readonly onCompletion: (completion: Completion) => void
  /** Called when the journal's limit for guest events is reached. */
  readonly onJournalFull: (error: CaissonError) => void
}

export function agentHandlers({
  record,
  log,
  claims,
  outside: { approve, requests },
  onCompletion,
  onJournalFull,
}: AgentHandlerParts): LinkHandlers {
  /** Refuses a request from an inactive agent; null for an active one. */
  const refuseFor = async (agentPath: string): Promise<{ ok: false; error: HandlerFailure } | null> => {
    if (await waitForActiveAgent(claims, agentPath)) return null
    const message = `no agent ${agentPath} is at work, so nobody is asked for it`
    return { ok: false, error: { code: 'invalidParams', message } }
  }
  return {
    checkEvent: ({ agentPath, event }) => claims.check(agentPath, event),
    onEvent: async (_, { n, agentPath, event }) => {
      try {
        await record.agent(agentPath, n, event)
      } catch (error) {
        // The link stays open, so that the changes can still be collected.
        if (!hasCode(error, 'limit_reached')) throw error
        onJournalFull(error)
      }
    },
    onDelta: ({ agentPath, deltas }) => {
      if (!claims.isAtWork(agentPath)) return
      for (const delta of deltas) record.delta(agentPath, delta)
    },
    requestApproval: async (request, { signal }) => {
      const refusal = await refuseFor(request.agentPath)
      if (refusal !== null) return refusal
      if (requests.isAllowed(request)) return { ok: true, value: { decision: 'allow' } }
      // The agent's wording must not describe an action of the host.
      if (requests.asksItself(request.tool)) return { ok: true, value: askedByHost }
      return { ok: true, value: await approve(request, signal) }
    },
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
    completeTask: async (completion) => {
      onCompletion(completion)
      return { ok: true, value: {} }
    },
    onLog: (entry) => log.write({ at: Date.now(), from: 'agent', ...entry }),
  }
}
