/** Questions that runs wait for, their answers, and who hears of them. */
import * as z from 'zod'
import { AnswerDuration, AnswerReach, ApprovalRequest, ApprovalScope } from '../protocol/approval.ts'
import { Plan } from '../protocol/plan.ts'
import { UserAnswer } from '../protocol/question.ts'
import { Id, Line, Milliseconds, RunId, Sha256, Text } from '../protocol/text.ts'

/** A question that a run waits for. Everything but `kind`, `access` and `answers` is what the agent says. */
export const ApprovalResource = z.strictObject({
  runId: RunId,
  /** Time of the question. */
  at: Milliseconds,
  approval: ApprovalRequest.omit({ runId: true }).extend({
    kind: z.enum(['enforced', 'cooperative']),
    access: z.unknown().optional(),
    because: z.string().optional(),
    answers: z.array(z.unknown()).optional(),
  }),
  /** SHA-256 of the question as it is here. An answer that has it counts for no other question. */
  digest: Sha256,
})

/** The answer of a person. */
export const AnswerRequest = z.strictObject({
  decision: z.enum(['allow', 'deny']),
  /** How long it applies. Absent: `once`. */
  scope: ApprovalScope.default('once'),
  reach: AnswerReach.optional(),
  /** With scope `run`: ms after which it expires. Absent: with the run. */
  forMs: AnswerDuration.optional(),
  /** For a denial: what the agent should do instead. */
  hint: Text.optional(),
  /** For the question about a plan: the plan to execute instead. */
  plan: Plan.optional(),
  /** For a question of the agent. */
  answer: UserAnswer.optional(),
  /** `digest` of the question that the person saw. Absent: for whatever the run asks under this ID. */
  digest: Sha256.optional(),
  /** Who answers, for the journal. Absent: the name of the key. */
  by: Line.min(1).optional(),
})

const PushId = z.string().regex(/^[A-Za-z0-9_-]{24}$/, 'expected the id of a browser')

/** A browser that subscribed to messages, as `PushSubscription.toJSON()` has it. */
export const PushRequest = z.strictObject({
  /** Of its push service. */
  endpoint: z.url({ protocol: /^https?$/ }).max(2_048),
  keys: z.strictObject({
    p256dh: z.string().regex(/^[A-Za-z0-9_-]{87}$/, 'expected 65 bytes in base64url'),
    auth: z.string().regex(/^[A-Za-z0-9_-]{22}$/, 'expected 16 bytes in base64url'),
  }),
})
export type PushRequest = z.infer<typeof PushRequest>

/** A browser that gets messages. */
export const PushResource = z.strictObject({
  /** Made of its endpoint. */
  id: PushId,
})

export const PushParams = z.strictObject({ browser: PushId })

export const PushKeyResource = z.strictObject({
  /** `applicationServerKey`, in base64url. */
  publicKey: z.string(),
})

/** An answer of a person that applies to later calls of the run, until it is revoked or expires. */
export const RunAnswerResource = z.strictObject({
  /** The approval that was answered so. */
  approvalId: Id,
  decision: z.enum(['allow', 'deny']),
  tool: z.string(),
  /** Canonical JSON of the call's arguments, when the answer is for the same command alone. Untrusted text. */
  arguments: z.string().optional(),
  /** For network access: the address that was asked about, how broadly the answer applies, and what that is in words. */
  access: z
    .strictObject({ address: z.string(), reach: z.enum(['host', 'suffix', 'path']), allows: z.string() })
    .optional(),
  /** Who answered; absent in older journals. */
  name: z.string().optional(),
  /** When it expires, ms since 1970. Absent: with the run. */
  until: Milliseconds.optional(),
})
