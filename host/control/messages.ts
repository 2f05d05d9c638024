/**
 * What is said on a control socket: one request a connection, as its first frame; then frames of bytes and messages, the
 * last of them a {@link Reply}. Both ends are processes of one user, and still each checks what the other says.
 */
import * as z from 'zod'
import { ApprovalScope } from '#specs/protocol/approval.ts'
import { AccessReach } from '#specs/protocol/egress.ts'
import { RunReason } from '#specs/protocol/error.ts'
import { Delta, HostDelta, JournalEvent } from '#specs/protocol/event.ts'
import { Port, ShellOptions } from '#specs/protocol/methods.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { UserAnswer } from '#specs/protocol/question.ts'
import { RunOutcome } from '#specs/protocol/task.ts'
import { AgentPath, Count, Document, Id, Line, Milliseconds, RunId, Text } from '#specs/protocol/text.ts'

/** Largest frame: an event of the journal has to fit. */
export const controlFrameMaxBytes = 8 * 1024 * 1024

/** The first frame of a connection. */
export const ControlRequest = z.discriminatedUnion('op', [
  z.strictObject({ op: z.literal('vm/info') }),
  /** Answered by the console so far, and with `follow` by all that comes. */
  z.strictObject({ op: z.literal('vm/console'), follow: z.boolean() }),
  /** Answered at once; the connection ends with the VM. */
  z.strictObject({ op: z.literal('vm/wait') }),
  /** The same, and ends the VM. */
  z.strictObject({ op: z.literal('vm/stop'), now: z.boolean() }),
  /** Answered when it stands still, or runs again. */
  z.strictObject({ op: z.literal('vm/pause'), paused: z.boolean() }),
  z.strictObject({ op: z.literal('vm/shell'), ...ShellOptions.shape }),
  z.strictObject({ op: z.literal('vm/forward'), port: Port }),
  z.strictObject({ op: z.literal('run/watch') }),
  /** A message for the agent; answered when it has it, or will get it when it goes on. */
  z.strictObject({ op: z.literal('run/steer'), text: Text, by: Line }),
  /** The agent is to hold, or to go on; its VM's processors run. Answered likewise. */
  z.strictObject({ op: z.literal('run/pause'), paused: z.boolean(), by: Line }),
])
export type ControlRequest = z.infer<typeof ControlRequest>

/** A VM as its host process describes it. */
export const VmInfo = z.strictObject({
  id: z.string().regex(/^vm-[0-9a-f]{12}$/),
  /** Null for a VM without a run. */
  runId: RunId.nullable(),
  /** The workspace on the host; null without one. */
  directory: z.string().nullable(),
  /** `starting` until its agent has answered. */
  state: z.enum(['starting', 'running', 'paused', 'stopping']),
  createdAtMs: Milliseconds,
  memoryBytes: Count,
  cpus: Count,
  /** QEMU's process. */
  pid: Count,
  /** The process that the VM belongs to. */
  hostPid: Count,
  accelerator: Line,
  confinement: Line,
})
export type VmInfo = z.infer<typeof VmInfo>

export const controlErrorCodes = [
  /** The request is none, or of another version. */
  'bad_request',
  /** This socket does not serve that. */
  'not_served',
  /** Too many at once. */
  'busy',
  /** Agent or VM cannot do it now. */
  'unavailable',
  /** The program or server in the guest was not there. */
  'refused',
  'internal',
] as const

/** Why something was not done. */
export const ControlFailure = z.strictObject({ code: z.enum(controlErrorCodes), message: Text })
export type ControlFailure = z.infer<typeof ControlFailure>

/** The last frame of an answer that has no more to say than that. */
export const Reply = z.discriminatedUnion('ok', [
  z.strictObject({ ok: z.literal(true) }),
  z.strictObject({ ok: z.literal(false), error: ControlFailure }),
])
export type Reply = z.infer<typeof Reply>

export const InfoReply = z.discriminatedUnion('ok', [
  z.strictObject({ ok: z.literal(true), vm: VmInfo }),
  z.strictObject({ ok: z.literal(false), error: ControlFailure }),
])

/** How a program of a shell ended, in the words of the guest's root side. */
export const ShellReply = z.union([
  z.strictObject({
    ok: z.literal(true),
    exitCode: z.int().min(0).max(255).nullable(),
    signal: z.string().max(20).nullable(),
    /** Memory ran out and the kernel killed. */
    oomKilled: z.boolean(),
  }),
  z.strictObject({ ok: z.literal(false), error: z.strictObject({ code: Line, message: Text }) }),
])
export type ShellReply = z.infer<typeof ShellReply>

/** From who watches a run. */
export const WatchInput = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('answer'),
    approvalId: Id,
    decision: z.enum(['allow', 'deny']),
    scope: ApprovalScope,
    reach: AccessReach.optional(),
    hint: Text.optional(),
    plan: Plan.optional(),
    answer: UserAnswer.optional(),
  }),
  z.strictObject({ type: z.literal('cancel'), by: Line, now: z.boolean() }),
])
export type WatchInput = z.infer<typeof WatchInput>

/** To who watches a run. */
export const WatchOutput = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('event'),
    event: JournalEvent,
    /** Whether the question in it waits for a person now. */
    waits: z.boolean(),
  }),
  z.strictObject({
    type: z.literal('delta'),
    runId: RunId,
    agentPath: AgentPath,
    delta: z.union([Delta, HostDelta]),
  }),
  /** Whether an answer came in time to decide. */
  z.strictObject({ type: z.literal('answered'), approvalId: Id, taken: z.boolean() }),
  /** The end of the run and of the watching. */
  z.strictObject({
    type: z.literal('end'),
    end: z
      .strictObject({ outcome: RunOutcome, reason: RunReason, message: Text, summary: Document })
      .nullable(),
    journalHead: z.string().max(64),
  }),
])
export type WatchOutput = z.infer<typeof WatchOutput>
