/** Every method of the control port, declared once as a value; both sides import these and nothing else. */
import * as z from 'zod'
import { ApprovalDecision, ApprovalRequest } from './approval.ts'
import { AgentEvent, Delta } from './event.ts'
import { HostToolCall, HostToolResult } from './extension.ts'
import { HookDecision, HookRequest } from './hook.ts'
import { limits } from './limits.ts'
import { Completion, Task } from './task.ts'
import { AgentPath, Count, Id, Line, Milliseconds, RunId, Sha256, Text } from './text.ts'

export type Direction = 'host-to-guest' | 'guest-to-host'

/** A request: it has a result, and may be asked again under the same ids after a lost session. */
export interface RequestMethod<P extends z.ZodType = z.ZodType, R extends z.ZodType = z.ZodType> {
  readonly kind: 'request'
  readonly name: string
  readonly direction: Direction
  /** One sentence for the generated document. */
  readonly summary: string
  readonly params: P
  readonly result: R
}

/** A notification: no answer, may be lost with its session. */
export interface NotificationMethod<P extends z.ZodType = z.ZodType> {
  readonly kind: 'notification'
  readonly name: string
  readonly direction: Direction
  readonly summary: string
  readonly params: P
}

export type Method = RequestMethod | NotificationMethod

const Empty = z.strictObject({})
/** Drawn by the host for one stream that it asks the guest to open. */
const StreamId = z.string().regex(/^[0-9a-f]{32}$/)

// ---- host to guest ----------------------------------------------------------------------------------------

export const sessionStart = {
  kind: 'request',
  name: 'session/start',
  direction: 'host-to-guest',
  summary: 'Opens a session: the first request of each, before anything else.',
  params: z.strictObject({
    /** 32 hex digits drawn by the host; also the preamble of both ports. */
    session: z.string().regex(/^[0-9a-f]{32}$/),
    /** sha256 of the protocol's schemas as this host has them. */
    protocolSha256: Sha256,
    heartbeatIntervalMs: Milliseconds.min(100),
    /** The VM was resumed from a state that others begin with too: the agent takes a new `processId`. */
    cloned: z.boolean().optional(),
    /** The run that the host believes to be under way and the last of the guest's events that it has. */
    resume: z.strictObject({ runId: RunId, n: Count }).optional(),
  }),
  result: z.strictObject({
    /** sha256 of the protocol's schemas as the agent has them; unequal means: rebuild the image. */
    protocolSha256: Sha256,
    /** Random, one per agent process: tells a new process from a new session. */
    processId: z.string().regex(/^[0-9a-f]{32}$/),
    /** The run that the agent has under way. */
    runId: RunId.optional(),
    /** Times that the agent was started again after a crash, since boot. */
    restarts: Count,
    /** How the last agent process ended; absent in the first. */
    lastExit: Text.optional(),
    /** Names of the tools it has. */
    tools: z.array(Line).max(256),
  }),
} as const satisfies RequestMethod

export const agentPing = {
  kind: 'request',
  name: 'agent/ping',
  direction: 'host-to-guest',
  summary: 'Heartbeat and round-trip measure; answered from the event loop of the agent.',
  params: z.strictObject({ count: Count }),
  result: z.strictObject({ count: Count }),
} as const satisfies RequestMethod

export const workspaceOpen = {
  kind: 'request',
  name: 'workspace/open',
  direction: 'host-to-guest',
  summary:
    'Mounts the workspace disk at /mnt/workspace, with a writable overlay unless it is to be read-only.',
  params: z.strictObject({
    /** For a run that only plans: no program and no tool can change anything below it. Absent: false. */
    readOnly: z.boolean().optional(),
  }),
  result: Empty,
} as const satisfies RequestMethod

export const workspaceReset = {
  kind: 'request',
  name: 'workspace/reset',
  direction: 'host-to-guest',
  summary:
    'Ends all programs in the workspace and unmounts it with all that was changed; the drive may then have another content.',
  params: z.strictObject({
    /** Whether what programs left in their home folder and in /tmp stays. */
    keepHome: z.boolean(),
  }),
  result: Empty,
} as const satisfies RequestMethod

export const workspaceCollect = {
  kind: 'request',
  name: 'workspace/collect',
  direction: 'host-to-guest',
  summary:
    'Compares the workspace with its base and streams the change set as `POST /changes/RUN` on caisson.http.',
  params: z.strictObject({ runId: RunId }),
  result: z.strictObject({ entries: Count, contentBytes: Count }),
} as const satisfies RequestMethod

export const taskSubmit = {
  kind: 'request',
  name: 'task/submit',
  direction: 'host-to-guest',
  summary:
    'Hands the agent a task; answered when it is accepted. Submitting the run under way again changes nothing.',
  params: z.strictObject({ task: Task }),
  result: Empty,
} as const satisfies RequestMethod

export const taskCancel = {
  kind: 'request',
  name: 'task/cancel',
  direction: 'host-to-guest',
  summary: 'Ends the run: tools and model streams stop, then the agent completes the task as cancelled.',
  params: z.strictObject({ runId: RunId, reason: Text }),
  result: Empty,
} as const satisfies RequestMethod

export const taskSteer = {
  kind: 'request',
  name: 'task/steer',
  direction: 'host-to-guest',
  summary:
    'Hands the running agent a message of the person; it is in the conversation from the next turn of the model on. Sent again under the same id it is the same message.',
  params: z.strictObject({ runId: RunId, messageId: Id, text: Text.min(1) }),
  result: Empty,
} as const satisfies RequestMethod

export const taskPause = {
  kind: 'request',
  name: 'task/pause',
  direction: 'host-to-guest',
  summary:
    'Holds the agent before its next effect (a turn of the model, a tool call, a step), or lets it go on; what is under way ends as usual.',
  params: z.strictObject({ runId: RunId, paused: z.boolean() }),
  result: Empty,
} as const satisfies RequestMethod

export const taskHold = {
  kind: 'request',
  name: 'task/hold',
  direction: 'host-to-guest',
  summary:
    'Says whether a person is being asked about something that the agent only waits for, such as a connection: its own clock stands still meanwhile.',
  params: z.strictObject({ runId: RunId, waiting: z.boolean() }),
  result: Empty,
} as const satisfies RequestMethod

/** What a person's shell or command is started with. */
export const ShellOptions = z.strictObject({
  /** Program and arguments; empty for the login shell. */
  argv: z.array(z.string().max(128 * 1024)).max(1024),
  /** Null for a program on pipes. */
  terminal: z
    .strictObject({
      columns: z.int().min(1).max(0xffff),
      rows: z.int().min(1).max(0xffff),
      /** The value of TERM: the type of the person's terminal, such as `xterm-256color`. */
      term: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9+._-]{0,63}$/),
    })
    .nullable(),
})
export type ShellOptions = z.infer<typeof ShellOptions>

/** Of TCP. */
export const Port = z.int().min(1).max(0xffff)

export const shellOpen = {
  kind: 'request',
  name: 'shell/open',
  direction: 'host-to-guest',
  summary:
    'Starts a program of a person in the sandbox and connects it as `POST /shell/ID` on caisson.http, in the frames of the helper socket.',
  params: z.strictObject({ shellId: StreamId, ...ShellOptions.shape }),
  result: Empty,
} as const satisfies RequestMethod

export const forwardOpen = {
  kind: 'request',
  name: 'forward/open',
  direction: 'host-to-guest',
  summary:
    'Connects to a server on 127.0.0.1 of the guest and carries the connection as `POST /forward/ID` on caisson.http.',
  params: z.strictObject({ forwardId: StreamId, port: Port }),
  result: Empty,
} as const satisfies RequestMethod

export const eventAck = {
  kind: 'notification',
  name: 'event/ack',
  direction: 'host-to-guest',
  summary: 'The host has all events of the run up to n; the guest may forget them.',
  params: z.strictObject({ runId: RunId, n: Count }),
} as const satisfies NotificationMethod

// ---- guest to host ----------------------------------------------------------------------------------------

export const eventEmit = {
  kind: 'notification',
  name: 'event/emit',
  direction: 'guest-to-host',
  summary: 'Events of the run, counted by the guest without a gap; doubles are dropped by the host.',
  params: z.strictObject({
    runId: RunId,
    events: z
      .array(z.strictObject({ n: Count.min(1), agentPath: AgentPath, event: AgentEvent }))
      .min(1)
      .max(limits.eventBatchMaxCount),
  }),
} as const satisfies NotificationMethod

export const deltaEmit = {
  kind: 'notification',
  name: 'delta/emit',
  direction: 'guest-to-host',
  summary: 'Pieces of text and tool output as they come; may be lost.',
  params: z.strictObject({ runId: RunId, agentPath: AgentPath, deltas: z.array(Delta).min(1).max(64) }),
} as const satisfies NotificationMethod

export const approvalRequest = {
  kind: 'request',
  name: 'approval/request',
  direction: 'guest-to-host',
  summary: 'Asks whether a tool call may go ahead; stays open for as long as a person thinks.',
  params: ApprovalRequest,
  result: ApprovalDecision,
} as const satisfies RequestMethod

export const hookRun = {
  kind: 'request',
  name: 'hook/run',
  direction: 'guest-to-host',
  summary:
    'Asks the host’s hooks before or after a step or a tool call; only where the task says that there are some.',
  params: HookRequest,
  result: HookDecision,
} as const satisfies RequestMethod

export const toolCall = {
  kind: 'request',
  name: 'tool/call',
  direction: 'guest-to-host',
  summary:
    'Has a tool of the host application carried out on the host; one call under one id, however often it is sent.',
  params: HostToolCall,
  result: HostToolResult,
} as const satisfies RequestMethod

export const taskComplete = {
  kind: 'request',
  name: 'task/complete',
  direction: 'guest-to-host',
  summary: 'Reports the end of the task, exactly once; sent again only when the answer was lost.',
  params: Completion,
  result: Empty,
} as const satisfies RequestMethod

export const logWrite = {
  kind: 'notification',
  name: 'log/write',
  direction: 'guest-to-host',
  summary: 'One line of the agent’s structured log.',
  params: z.strictObject({
    level: z.enum(['debug', 'info', 'warn', 'error']),
    message: Text,
    /** JSON of the other fields. */
    fields: Text,
  }),
} as const satisfies NotificationMethod

export const methods = [
  sessionStart,
  agentPing,
  workspaceOpen,
  workspaceReset,
  workspaceCollect,
  taskSubmit,
  taskCancel,
  taskSteer,
  taskPause,
  taskHold,
  shellOpen,
  forwardOpen,
  eventAck,
  eventEmit,
  deltaEmit,
  approvalRequest,
  hookRun,
  toolCall,
  taskComplete,
  logWrite,
] as const satisfies readonly Method[]
