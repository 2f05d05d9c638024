/** Approvals: the question that waits, the answer that ends it, and the rules that answer without a person. */
import * as z from 'zod'
import { AccessReach } from './egress.ts'
import { Plan } from './plan.ts'
import { UserAnswer, UserQuestion } from './question.ts'
import { AgentPath, Document, Id, Line, RunId, Sha256, Text } from './text.ts'

/** What the agent asks; everything here but `runId` is its claim. */
export const ApprovalRequest = z.strictObject({
  /** Stable over sessions: asked again after a lost session, it is the same question. */
  approvalId: Id,
  runId: RunId,
  agentPath: AgentPath,
  stepId: Id,
  callId: Id,
  tool: Line.min(1),
  /** Canonical JSON of the arguments (keys sorted). */
  arguments: Document,
  /** Names of arguments that the model did not give: they stand as the tool has them. */
  defaults: z.array(Line).max(64).optional(),
  /** What the call would do: a diff, a command, the names of what goes. */
  preview: Text,
  /** Of `ask_user`: what is asked; its answer is what the call gives. */
  question: UserQuestion.optional(),
})
export type ApprovalRequest = z.infer<typeof ApprovalRequest>

/** How long an answer holds; `always` only for a way out of the VM, which the host itself opens. */
export const ApprovalScope = z.enum(['once', 'run', 'always'])
export type ApprovalScope = z.infer<typeof ApprovalScope>

/** A question of the host's own about a way out of the VM; all of it is the host's words. */
export const AccessQuestion = z.strictObject({
  /** What brought it about: `request_access`, or an attempt to connect. */
  from: z.enum(['agent', 'connection']),
  /** In one spelling; of a tunnel, in which no path is seen, the root. */
  address: Document.min(1),
  /** Why it is not allowed already. */
  because: Line,
  /** What a yes can be about, with what it then allows; an answer that names none means the first. None: no yes helps. */
  offers: z.array(z.strictObject({ reach: AccessReach, allows: Line })).max(3),
})
export type AccessQuestion = z.infer<typeof AccessQuestion>

/** The answer that goes back to the agent. */
export const ApprovalDecision = z.strictObject({
  decision: z.enum(['allow', 'deny']),
  /** For a denial: what the agent should do instead; for a way out: what it may do now. */
  hint: Text.optional(),
  /** To the question about a plan (`submit_plan`), when a person changed it: what is to be carried out in its place. */
  plan: Plan.optional(),
  /** To a question of `ask_user` that was answered. */
  answer: UserAnswer.optional(),
})
export type ApprovalDecision = z.infer<typeof ApprovalDecision>

/** Who or what decided; `cancel`: the run ends, `agent`: it withdrew its question. */
export const DecidedBy = z.enum(['person', 'rule', 'mode', 'cancel', 'agent'])

/** Host-side words about one decision, as the journal keeps them. */
export const ApprovalRecord = z.strictObject({
  approvalId: Id,
  decision: z.enum(['allow', 'deny']),
  scope: ApprovalScope,
  /** Of an answer about a way out: how far around the address it goes; absent where it changed nothing. */
  reach: AccessReach.optional(),
  by: DecidedBy,
  /** The rule that decided, the flag that would allow it, or why the question was withdrawn. */
  rule: Line.optional(),
  hint: Text.optional(),
  /** Of a question about a plan: as the person changed it. */
  plan: Plan.optional(),
  /** Of a question of `ask_user`. */
  answer: UserAnswer.optional(),
})
export type ApprovalRecord = z.infer<typeof ApprovalRecord>

/**
 * One rule of `--approve FILE`: the effect for calls of a tool whose text matches the pattern.
 * deny wins over ask, ask over allow; a call that no rule matches follows the tool's default.
 */
export const ApprovalRule = z.strictObject({
  effect: z.enum(['allow', 'ask', 'deny']),
  /** Tool name, or `*`. */
  tool: Line.min(1),
  /**
   * Matched against the whole of one argument's text, `*` for any run of characters; paths in one spelling, relative to
   * the workspace. Absent: every call.
   */
  pattern: Line.optional(),
  /** The argument to match; absent: the tool's main ones (`path`, `command`, `code`, `from` and `to`, `host`). */
  argument: Line.optional(),
  /** Shown to people and, for a denial, to the agent. */
  reason: Line.optional(),
})
export type ApprovalRule = z.infer<typeof ApprovalRule>
export const ApprovalRules = z.strictObject({ rules: z.array(ApprovalRule).max(1_000) })
export type ApprovalRules = z.infer<typeof ApprovalRules>

/** Digest of what was asked: sha256 over tool, arguments and agent path. */
export const ApprovalDigest = Sha256
