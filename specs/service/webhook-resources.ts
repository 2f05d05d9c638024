/** What the service sends to webhooks (Standard Webhooks 1.0), as JSON. A later version may add fields. */
import * as z from 'zod'
import { RunMetadata } from '../protocol/host-event.ts'
import { Count, Id, RunId, Sha256 } from '../protocol/text.ts'
import { RunKey } from './run-resources.ts'

/** What a webhook can hear of. */
export type WebhookEvent = 'question.waiting' | 'run.ended'
export const webhookEvents = ['question.waiting', 'run.ended'] as const satisfies readonly WebhookEvent[]

/** Which run it is, in the words of who started it. */
const AboutRun = z.object({
  runId: RunId,
  /** The key of `PUT /v1/runs/{key}`. Absent: it has none. */
  key: RunKey.optional(),
  /** Of the request that started it. Absent: none. */
  metadata: RunMetadata.optional(),
})

/** A question waits for a person. Its texts are untrusted. */
export const QuestionWaiting = z.object({
  type: z.literal('question.waiting'),
  /** When it was asked, ISO 8601. */
  timestamp: z.iso.datetime(),
  data: AboutRun.extend({
    questionId: Id,
    /** What it is about: a call of a tool, network access, a plan, or a question of the agent. */
    kind: z.enum(['call', 'access', 'plan', 'question']),
    /** In the words of the service. */
    title: z.string(),
    /** What it shows, at most 2,000 characters. */
    text: z.string(),
    /** SHA-256 of all of the question. */
    digest: Sha256,
    /** Whether the agent wrote `text`, and the host has not checked it. */
    isClaim: z.boolean(),
    /** An address that answers this question once, without a token. Absent: links are off. */
    link: z.url().optional(),
    /** ISO 8601. */
    linkExpiresAt: z.iso.datetime().optional(),
  }),
})

/** A run has ended. */
export const RunEnded = z.object({
  type: z.literal('run.ended'),
  /** When the service saw its end, ISO 8601. */
  timestamp: z.iso.datetime(),
  data: AboutRun.extend({
    outcome: z.string(),
    reason: z.string(),
    /** Why it ended so, at most 2,000 characters; empty when it completed. Untrusted. */
    message: z.string(),
    /** Changed paths; null: it brought no changes. */
    changes: Count.nullable(),
  }),
})

export const WebhookMessage = z.discriminatedUnion('type', [QuestionWaiting, RunEnded])
export type WebhookMessage = z.infer<typeof WebhookMessage>
