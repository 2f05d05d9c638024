/** Approvals: the pending question, its answer, and the rules that answer without a person. */
import * as z from 'zod'
import { AccessReach } from './egress.ts'
import { Plan } from './plan.ts'
import { UserAnswer, UserQuestion } from './question.ts'
import { AgentPath, Document, Id, Line, Milliseconds, RunId, Sha256, Text } from './text.ts'

/** The agent's question; everything here but `runId` is its claim. */
export const ApprovalRequest = z.strictObject({
  /** Stable over sessions: repeated after a lost session, it is the same question. */
  approvalId: Id,
  runId: RunId,
  agentPath: AgentPath,
  stepId: Id,
  callId: Id,
  /** The call whose program makes this one; absent: the model makes it. */
  parentCallId: Id.optional(),
  tool: Line.min(1),
  /** Canonical JSON of the arguments (keys sorted). */
  arguments: Document,
  /** Names of arguments that the model did not give: they have the tool's defaults. */
  defaults: z.array(Line).max(64).optional(),
  /** Preview of the call: a diff, a command, names of what is deleted. */
  preview: Text,
  /** For `ask_user`: the question; its answer is the call's result. */
  question: UserQuestion.optional(),
})
export type ApprovalRequest = z.infer<typeof ApprovalRequest>

/**
 * How broadly an answer applies. `command`: to the same command of `run_bash` alone, in this run; the others are for
 * network access.
 */
export const AnswerReach = z.enum([...AccessReach.options, 'command'])
export type AnswerReach = z.infer<typeof AnswerReach>

/** How long an answer applies; `always` only for network access, which the host itself opens. */
export const ApprovalScope = z.enum(['once', 'run', 'always'])
export type ApprovalScope = z.infer<typeof ApprovalScope>

/** Time after which an answer of scope `run` expires, in ms: at most 30 days. Not for network access. */
export const AnswerDuration = z
  .int()
  .min(1)
  .max(30 * 24 * 3_600_000)

/** A question of the host about network access; the host writes all of its text. */
export const AccessQuestion = z.strictObject({
  /** The cause: `request_access`, or a connection attempt. */
  from: z.enum(['agent', 'connection']),
  /** Normalized URL; for a tunnel, whose path is not visible, the root. */
  address: Document.min(1),
  /** Why it is not allowed already. */
  because: Line,
  /**
   * What can be allowed, with its effect; an answer that names none means the first. Empty: approval has no effect.
   */
  offers: z.array(z.strictObject({ reach: AccessReach, allows: Line })).max(3),
})
export type AccessQuestion = z.infer<typeof AccessQuestion>

/** An answer that a question accepts, for a client to offer. Every denial may have a hint. */
export const OfferedAnswer = z.strictObject({
  /** For people. */
  label: Line,
  decision: z.enum(['allow', 'deny']),
  scope: ApprovalScope,
  /** The reach to give with it; absent for a denial, and for a yes to every call of a tool. */
  reach: AnswerReach.optional(),
  /** What must be given with it: the answer to `question`. */
  needs: z.literal('answer').optional(),
  /** What may be given with it: a changed plan. */
  takes: z.literal('plan').optional(),
})
export type OfferedAnswer = z.infer<typeof OfferedAnswer>

/** The answer for the agent. */
export const ApprovalDecision = z.strictObject({
  decision: z.enum(['allow', 'deny']),
  /** For a denial: what the agent should do instead; for network access: what it may do now. */
  hint: Text.optional(),
  /** For the plan question (`submit_plan`), when a person changed it: the plan to execute instead. */
  plan: Plan.optional(),
  /** The answer to a question of `ask_user`. */
  answer: UserAnswer.optional(),
})
export type ApprovalDecision = z.infer<typeof ApprovalDecision>

/** Who or what decided; `cancel`: the run ended, `agent`: it withdrew its question. */
export const DecidedBy = z.enum(['person', 'rule', 'mode', 'cancel', 'agent'])

/**
 * The way by which a person's answer came: the run's own terminal, the JSON lines of its standard input, the application
 * that started it, the control socket, from another process of the user, the HTTP service, or the journal, while no
 * process had the run.
 */
export const AnsweredVia = z.enum(['terminal', 'stdin', 'library', 'control', 'http', 'journal'])
export type AnsweredVia = z.infer<typeof AnsweredVia>

/** The host's record of a decision, as journaled. */
export const ApprovalRecord = z.strictObject({
  approvalId: Id,
  decision: z.enum(['allow', 'deny']),
  scope: ApprovalScope,
  /**
   * For network access: how broadly the answer applies around the address; absent when it changed nothing. `command`:
   * the answer applies to the same command in this run.
   */
  reach: AnswerReach.optional(),
  by: DecidedBy,
  /** Name of the person or program, as the client gave it; only with `by: person`, absent in older journals. */
  name: Line.optional(),
  /** Only with `by: person`; absent in older journals. */
  via: AnsweredVia.optional(),
  /** The deciding rule, the flag that would allow it, or why the question was withdrawn. */
  rule: Line.optional(),
  /** When an answer for the run expires, ms since 1970; absent: with the run. */
  until: Milliseconds.optional(),
  /** The approval whose answer for the run decides this one, too; absent in older journals. */
  earlierId: Id.optional(),
  hint: Text.optional(),
  /** For a question about a plan: the plan as the person changed it. */
  plan: Plan.optional(),
  /** For a question of `ask_user`. */
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
   * Matched against one argument's whole text, `*` for any characters; paths normalized, relative to the workspace. For
   * `run_bash`, an allow rule is matched against one simple command. Absent: every call.
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

/** Digest of the question: sha256 over tool, arguments and agent path. */
export const ApprovalDigest = Sha256
