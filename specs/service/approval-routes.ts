/** Questions that runs wait for, their answers, and who hears of them. */
import * as z from 'zod'
import { Line, RunId } from '../protocol/text.ts'
import {
  AnswerRequest,
  ApprovalResource,
  PushKeyResource,
  PushParams,
  PushRequest,
  PushResource,
  RunAnswerResource,
} from './approval-resources.ts'
import { ApprovalParams, RunParams } from './resources.ts'
import { defineRoute, type Route } from './route.ts'

export const approvalRoutes = {
  listApprovals: defineRoute({
    method: 'GET',
    path: '/v1/approvals',
    summary: 'List the questions that runs wait for, oldest first; in a fleet of the runs that began last',
    scope: 'read',
    query: z.strictObject({ run: RunId.optional() }),
    reply: {
      status: 200,
      description: 'At most 1,000 questions; `hasMore` says whether there are others',
      schema: z.strictObject({ approvals: z.array(ApprovalResource), hasMore: z.boolean() }),
    },
  }),
  getApproval: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/approvals/{approval}',
    summary: 'Show a question that a run waits for; 409 with who decided it when it no longer waits',
    scope: 'approve',
    params: ApprovalParams,
    reply: { status: 200, description: 'The question', schema: ApprovalResource },
    refusals: [404, 409, 410],
  }),
  answerApproval: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/approvals/{approval}',
    summary: 'Answer a question; the first answer counts',
    scope: 'approve',
    params: ApprovalParams,
    body: AnswerRequest,
    reply: {
      status: 200,
      description: 'The answer counts',
      schema: z.strictObject({ taken: z.literal(true) }),
    },
    refusals: [404, 409, 410],
  }),
  getPushKey: defineRoute({
    method: 'GET',
    path: '/v1/push',
    summary: 'Give the key with which a browser subscribes to messages about questions (Web Push, RFC 8292)',
    scope: 'approve',
    reply: { status: 200, description: 'The key', schema: PushKeyResource },
  }),
  addPushSubscription: defineRoute({
    method: 'POST',
    path: '/v1/push',
    summary: 'Tell a browser of questions that its caller may answer, until it unsubscribes',
    scope: 'approve',
    body: PushRequest,
    reply: { status: 200, description: 'It gets messages from now on', schema: PushResource },
  }),
  removePushSubscription: defineRoute({
    method: 'DELETE',
    path: '/v1/push/{browser}',
    summary: 'Tell a browser of its caller no more of questions',
    scope: 'approve',
    params: PushParams,
    reply: { status: 204, description: 'It gets no more messages' },
    refusals: [404],
  }),
  listAnswers: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/answers',
    summary: 'List the answers that apply to later calls of a run, oldest first',
    scope: 'read',
    params: RunParams,
    reply: {
      status: 200,
      description: 'The answers; none of a run that has ended',
      schema: z.strictObject({ answers: z.array(RunAnswerResource) }),
    },
    refusals: [404],
  }),
  revokeAnswer: defineRoute({
    method: 'DELETE',
    path: '/v1/runs/{run}/answers/{approval}',
    summary: 'Revoke an answer: later calls are asked about again, and what it decided stays',
    scope: 'approve',
    params: ApprovalParams,
    query: z.strictObject({
      /** Who revokes it, for the journal. Absent: the name of the key. */
      by: Line.min(1).optional(),
    }),
    reply: { status: 204, description: 'It is revoked' },
    refusals: [404, 409],
  }),
} as const satisfies Readonly<Record<string, Route>>
