/** The event that puts a request to people: what is asked, its digest, and the answers that it accepts. Pure. */
import { createHash } from 'node:crypto'
import type { AccessQuestion, ApprovalRequest } from '#specs/protocol/approval.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { offeredAnswers } from './offered-answers.ts'

interface RequestDetails {
  readonly access: AccessQuestion | undefined
  /** Whether the host performs the effect itself. */
  readonly isEnforced: boolean
  /** Whether a yes can be for the same command in this run. */
  readonly remembers: boolean
  /** Why rules leave it to a person. */
  readonly because: string | undefined
}

export function describeRequest(
  request: ApprovalRequest,
  { access, isEnforced, remembers, because }: RequestDetails,
): Extract<HostEvent, { type: 'approval-request' }> {
  const { runId: _, ...asked } = request
  return {
    type: 'approval-request',
    kind: isEnforced ? 'enforced' : 'cooperative',
    request: asked,
    digest: digestOf(request),
    ...(access === undefined ? {} : { access }),
    ...(because === undefined ? {} : { because: because.slice(0, limits.lineMaxChars).toWellFormed() }),
    answers: offeredAnswers(request, access, remembers),
  }
}

function digestOf(request: ApprovalRequest): string {
  const { agentPath, tool, arguments: given, question } = request
  const asked = question === undefined ? [] : [toCanonicalJson(question)]
  return createHash('sha256')
    .update(JSON.stringify([agentPath, tool, given, ...asked]))
    .digest('hex')
}
