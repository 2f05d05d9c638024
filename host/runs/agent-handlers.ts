/** What a run does with what its agent says: claims are checked, journaled and shown; questions and the completion go on. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { Completion } from '#specs/protocol/task.ts'
import type { LinkHandlers } from '../rpc/agent-link.ts'
import type { CappedLog } from './capped-log.ts'
import type { AgentClaims } from './claims.ts'
import type { RunRecord } from './record.ts'

/** A question may overtake the event by which its agent begins. */
const beginningMs = 1_000

export interface AgentHandlerParts {
  readonly record: RunRecord
  readonly log: CappedLog
  readonly claims: AgentClaims
  readonly approve: (request: ApprovalRequest, signal: AbortSignal) => Promise<ApprovalDecision>
  readonly onCompletion: (completion: Completion) => void
}

export function agentHandlers({
  record,
  log,
  claims,
  approve,
  onCompletion,
}: AgentHandlerParts): LinkHandlers {
  return {
    checkEvent: ({ agentPath, event }) => claims.check(agentPath, event),
    onEvent: (_, { n, agentPath, event }) => record.agent(agentPath, n, event),
    onDelta: ({ agentPath, deltas }) => {
      if (!claims.isAtWork(agentPath)) return
      for (const delta of deltas) record.delta(agentPath, delta)
    },
    requestApproval: async (request, { signal }) => {
      const { agentPath } = request
      if (!claims.isAtWork(agentPath)) await sleep(beginningMs)
      if (!claims.isAtWork(agentPath)) {
        const message = `no agent ${agentPath} is at work, so nobody is asked for it`
        return { ok: false, error: { code: 'invalidParams', message } }
      }
      return { ok: true, value: await approve(request, signal) }
    },
    completeTask: async (completion) => {
      onCompletion(completion)
      return { ok: true, value: {} }
    },
    onLog: (entry) => log.write({ at: Date.now(), from: 'agent', ...entry }),
  }
}
