/**
 * Messages on a control socket: one request per connection as its first frame, then frames of bytes and messages, the
 * last of them a {@link ControlReply}. Both ends belong to one user, and still validate each other.
 */
import * as z from 'zod'
import { AnswerDuration, AnswerReach, ApprovalScope } from '#specs/protocol/approval.ts'
import { RunReason } from '#specs/protocol/error.ts'
import { Delta, HostDelta, JournalEvent } from '#specs/protocol/event.ts'
import { RunMetadata } from '#specs/protocol/host-event.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Port, ShellOptions } from '#specs/protocol/methods.ts'
import { Plan } from '#specs/protocol/plan.ts'
import { UserAnswer } from '#specs/protocol/question.ts'
import { RunOutcome } from '#specs/protocol/task.ts'
import {
  AgentPath,
  CheckpointId,
  Count,
  Document,
  Id,
  Line,
  Milliseconds,
  RunId,
  Sha256,
  Text,
} from '#specs/protocol/text.ts'

/** Maximum frame size: an event of the journal must fit. */
export const controlFrameMaxBytes = 8 * 1024 * 1024

/** What a process that carries out a run is asked for, to fork it. */
export const ForkFields = z.strictObject({
  /** As `host.fork` takes it. */
  at: Line.min(1),
  count: z.int().min(1).max(limits.forksMaxCount),
  prompts: z.array(Text).max(limits.forksMaxCount),
  by: Line,
  /** Effects outside the VM behind the moment that the person accepted. Absent: nothing was asked. */
  despite: z.array(Line).max(20).optional(),
  /** As `host.fork` takes it. */
  metadata: RunMetadata.optional(),
})

/** The first frame of a connection. */
export const ControlRequest = z.discriminatedUnion('op', [
  z.strictObject({ op: z.literal('vm/info') }),
  z.strictObject({ op: z.literal('vm/inspect') }),
  /** Answered with the console output so far, and with `follow` with all later output. */
  z.strictObject({ op: z.literal('vm/console'), follow: z.boolean() }),
  /** Answered immediately; the connection ends with the VM. */
  z.strictObject({ op: z.literal('vm/wait') }),
  /** The same, and ends the VM. */
  z.strictObject({ op: z.literal('vm/stop'), now: z.boolean() }),
  /** Answered when the VM is paused or running again. */
  z.strictObject({ op: z.literal('vm/pause'), paused: z.boolean() }),
  z.strictObject({ op: z.literal('vm/shell'), ...ShellOptions.shape }),
  z.strictObject({ op: z.literal('vm/forward'), port: Port }),
  z.strictObject({ op: z.literal('run/watch') }),
  /** Revokes an answer for the run; answered when that is journaled. */
  z.strictObject({ op: z.literal('run/revokeAnswer'), approvalId: Id, by: Line }),
  /** A message for the agent; answered when it has it, or when it is queued. */
  z.strictObject({ op: z.literal('run/steer'), text: Text, to: AgentPath.optional(), by: Line }),
  /** Cancels the run, from who does not watch it; answered when that has begun. */
  z.strictObject({ op: z.literal('run/cancel'), by: Line, now: z.boolean() }),
  /** Cancels one sub-agent. Answered like `run/steer`. */
  z.strictObject({ op: z.literal('run/cancelAgent'), agentPath: AgentPath, reason: Text, by: Line }),
  /** Pauses or resumes the agent; its VM's processors keep running. Answered like `run/steer`. */
  z.strictObject({ op: z.literal('run/pause'), paused: z.boolean(), by: Line }),
  /** Makes runs that continue this one from a moment of it; answered when their folders are there. */
  z.strictObject({ op: z.literal('run/fork'), ...ForkFields.shape }),
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
  /** The host process of the VM. */
  hostPid: Count,
  accelerator: Line,
  confinement: Line,
})
export type VmInfo = z.infer<typeof VmInfo>

/** What a VM uses of the host; from the host's kernel, not from the guest. */
export const VmUsage = z.strictObject({
  atMs: Milliseconds,
  /** CPU time of QEMU's process so far, over all its threads. */
  cpuMs: Count,
  /** Memory of QEMU's process in RAM; what VMs of one template share is counted in each. */
  residentBytes: Count,
  /** What the scratch disk takes on the host. */
  diskBytes: Count,
  /** Of QEMU's process; 0 where the system does not say. */
  threads: Count,
})
export type VmUsage = z.infer<typeof VmUsage>

/** All that the host knows of a VM and may show: no key, no secret. */
export const VmDetails = z.strictObject({
  ...VmInfo.shape,
  /** Of the image; null for a bootable disk. */
  imageKey: Line.nullable(),
  qemuVersion: Line,
  /** The largest size of the scratch disk. */
  diskMaxBytes: Count,
  /** Guest ports that a person connected to since the start. */
  ports: z.array(Port),
  /** Egress rules, strongest first, and what holds for other hosts; null where nothing leaves the VM. */
  egress: z.strictObject({ rules: z.array(Line), otherwise: z.enum(['deny', 'ask']) }).nullable(),
  /** Null when QEMU is gone. */
  usage: VmUsage.nullable(),
})
export type VmDetails = z.infer<typeof VmDetails>

const controlErrorCodes = [
  /** Not a valid request, or of another version. */
  'bad_request',
  /** This socket does not serve that request. */
  'not_served',
  /** Too many requests at once. */
  'busy',
  /** The agent or VM cannot do it now. */
  'unavailable',
  /** The program or server does not exist in the guest. */
  'refused',
  'internal',
] as const

/** Why a request failed. */
export const ControlFailure = z.strictObject({ code: z.enum(controlErrorCodes), message: Text })
export type ControlFailure = z.infer<typeof ControlFailure>

/** The last frame of an answer without further data. */
export const ControlReply = z.discriminatedUnion('ok', [
  z.strictObject({ ok: z.literal(true) }),
  z.strictObject({ ok: z.literal(false), error: ControlFailure }),
])
export type ControlReply = z.infer<typeof ControlReply>

export const InfoReply = z.discriminatedUnion('ok', [
  z.strictObject({ ok: z.literal(true), vm: VmInfo }),
  z.strictObject({ ok: z.literal(false), error: ControlFailure }),
])

export const InspectReply = z.discriminatedUnion('ok', [
  z.strictObject({ ok: z.literal(true), vm: VmDetails }),
  z.strictObject({ ok: z.literal(false), error: ControlFailure }),
])

export const ForkReply = z.discriminatedUnion('ok', [
  z.strictObject({
    ok: z.literal(true),
    step: Line,
    notNow: Line.optional(),
    /** Null: from the beginning. */
    checkpointId: CheckpointId.nullable(),
    runIds: z.array(RunId).min(1).max(limits.forksMaxCount),
  }),
  z.strictObject({ ok: z.literal(false), error: ControlFailure }),
])

/** How a shell's program ended, as reported by the guest's privileged service. */
export const ShellReply = z.union([
  z.strictObject({
    ok: z.literal(true),
    exitCode: z.int().min(0).max(255).nullable(),
    signal: z.string().max(20).nullable(),
    /** The kernel killed it because memory ran out. */
    oomKilled: z.boolean(),
  }),
  z.strictObject({ ok: z.literal(false), error: z.strictObject({ code: Line, message: Text }) }),
])
export type ShellReply = z.infer<typeof ShellReply>

/** From a client that watches a run. */
export const WatchInput = z.strictObject({
  type: z.literal('answer'),
  approvalId: Id,
  decision: z.enum(['allow', 'deny']),
  scope: ApprovalScope,
  reach: AnswerReach.optional(),
  forMs: AnswerDuration.optional(),
  hint: Text.optional(),
  plan: Plan.optional(),
  answer: UserAnswer.optional(),
  digest: Sha256.optional(),
  /** Who answers. */
  by: Line,
})
export type WatchInput = z.infer<typeof WatchInput>

/** To a client that watches a run. */
export const WatchOutput = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('event'),
    event: JournalEvent,
    /** Whether the question now waits for a person. */
    waits: z.boolean(),
  }),
  z.strictObject({
    type: z.literal('delta'),
    runId: RunId,
    agentPath: AgentPath,
    delta: z.union([Delta, HostDelta]),
  }),
  /** Whether the answer counts; if not, why. */
  z.strictObject({
    type: z.literal('answered'),
    approvalId: Id,
    result: z.discriminatedUnion('taken', [
      z.strictObject({ taken: z.literal(true) }),
      z.strictObject({
        taken: z.literal(false),
        reason: z.enum(['decided', 'unknown', 'not_offered', 'question_changed', 'connection_lost']),
        message: Text,
      }),
    ]),
  }),
  /** End of the run and of the watch. */
  z.strictObject({
    type: z.literal('end'),
    end: z
      .strictObject({ outcome: RunOutcome, reason: RunReason, message: Text, summary: Document })
      .nullable(),
    journalHead: z.string().max(64),
  }),
])
export type WatchOutput = z.infer<typeof WatchOutput>
