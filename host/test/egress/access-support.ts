// `EgressApprovals` over a real queue, a real policy and real files.
import { expect } from 'vitest'
import type { ApprovalRequest } from '#specs/protocol/approval.ts'
import type { EgressRule } from '#specs/protocol/egress.ts'
import { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ApprovalQueue, type ApprovalQueueOptions } from '../../approvals/queue.ts'
import { EgressApprovals } from '../../egress/egress-approvals.ts'
import { PersistentGrants } from '../../egress/persistent-grants.ts'
import { decide, makePolicy } from '../../egress/policy.ts'
import { parseAuthority, parseTarget } from '../../net/target.ts'

export const runId = 'run-00000000000000000001'
export const never = new AbortController().signal
export const url = 'https://api.example.com/v1/rates?day=1'

export interface Setting
  extends Partial<Pick<ApprovalQueueOptions, 'mode' | 'rules' | 'interactive' | 'onWaiting'>> {
  readonly otherwise?: 'deny' | 'ask'
  readonly egress?: readonly EgressRule[]
  readonly folder?: string
  readonly lingerMs?: number
}

/** `EgressApprovals` with its queue, and what it journaled. */
export async function openApprovals(setting: Setting = {}) {
  const {
    otherwise = 'deny',
    egress = [],
    folder = await temporaryFolder(),
    lingerMs,
    ...queueOptions
  } = setting
  const made = makePolicy({ configuration: egress, otherwise })
  if (!made.ok) throw new Error(made.error)
  const policy = made.value
  const events: HostEvent[] = []
  const record = async (event: HostEvent) => events.push(HostEvent.parse(event))
  const approvals = new ApprovalQueue({ mode: 'ask', rules: [], interactive: true, ...queueOptions, record })
  const lasting = new PersistentGrants({ home: folder, locks: folder })
  const answers = new EgressApprovals({
    runId,
    policy,
    approvals,
    lasting,
    ...(lingerMs === undefined ? {} : { lingerMs }),
  })
  let count = 0
  const request = (address: string, reason = 'rates are needed'): ApprovalRequest => ({
    approvalId: `ap-${++count}`,
    runId,
    agentPath: 'root',
    stepId: 's',
    callId: `c${count}`,
    tool: 'request_access',
    arguments: JSON.stringify({ reason, url: address }),
    preview: '',
  })
  const tunnel = (authority: string) => {
    const target = parseAuthority(authority)
    if (!target.ok) throw new Error(target.error)
    return target.value
  }
  /** As whoever serves a connection does it. */
  const connect = async (target: ReturnType<typeof tunnel>, signal = never): Promise<string | true> => {
    const decision = decide(policy, target, answers.granted())
    if (decision.effect === 'deny') return decision.rule
    if (decision.effect === 'allow') {
      if (decision.by !== null) answers.used(decision.by)
      return true
    }
    const asked = await answers.askFor(target, decision, signal)
    return asked.ok || asked.error
  }
  const waiting = async (count = 1): Promise<string[]> => {
    await expect.poll(() => approvals.pending.length).toBe(count)
    return approvals.pending
  }
  const questions = () => events.flatMap((event) => (event.type === 'approval-request' ? [event] : []))
  const decisions = () => events.flatMap((event) => (event.type === 'approval-decision' ? [event] : []))
  return {
    answers,
    approvals,
    events,
    lasting,
    folder,
    request,
    tunnel,
    connect,
    waiting,
    questions,
    decisions,
  }
}

export const get = (address: string) => {
  const target = parseTarget(address, 'GET')
  if (!target.ok) throw new Error(target.error)
  return target.value
}
