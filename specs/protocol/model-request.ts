/**
 * Requests to models, as the gateway sees them: start, retries and end are journaled, waits are status. The gateway
 * numbers the requests; which agent, step and turn one belongs to is the agent's own claim.
 */
import * as z from 'zod'
import { Usage } from './task.ts'
import { AgentPath, Count, Id, Line, Milliseconds } from './text.ts'

/** Headers in which the agent says what a model request is for. */
export const sourceHeaders = {
  agentPath: 'x-caisson-agent',
  stepId: 'x-caisson-step',
  turn: 'x-caisson-turn',
} as const

/** What a model request is for, by the agent's claim; what it did not say is absent. */
export const RequestSource = z.strictObject({
  agentPath: AgentPath.optional(),
  /** `plan` while planning. */
  stepId: Id.optional(),
  /** `turn` of the `turn-end` that the answer leads to. */
  turn: Count.min(1).optional(),
})
export type RequestSource = z.infer<typeof RequestSource>

/** The gateway took a request of the guest; exactly one `model-end` follows. */
export const ModelStart = z.strictObject({
  type: z.literal('model-start'),
  /** `model-1`, counted by the gateway. */
  requestId: Id,
  ...RequestSource.shape,
  /** The embedding model, if the request is to one. */
  model: Line.optional(),
  /** Id of the model of `stepModels` that a step or a sub-agent asked for; absent: the run's own. */
  stepModel: Line.optional(),
})

/** The gateway sends a request again, because the server certainly did nothing with it. */
export const ModelRetry = z.strictObject({
  type: z.literal('model-retry'),
  requestId: Id,
  /** Number of the attempt that follows. */
  attempt: Count.min(2),
  /** HTTP status of the refusal. */
  status: z.int(),
  /** The server's reason. */
  cause: Line,
  /** Pause before the attempt; 0: the request was changed, or goes to another model, and is sent at once. */
  delayMs: Milliseconds,
  /** The model of the attempt that follows, if it is another one. */
  fallback: Line.optional(),
})

export const ModelEnd = z.strictObject({
  type: z.literal('model-end'),
  /** Absent in older journals. */
  requestId: Id.optional(),
  /** The provider's own id of the exchange, for its support; absent: it gave none. */
  providerRequestId: Line.optional(),
  /** HTTP status given to the guest. */
  status: z.int(),
  /** Excludes `queuedMs`. */
  durationMs: Milliseconds,
  /** How long the request was queued for the provider; absent: negligible. */
  queuedMs: Milliseconds.optional(),
  usage: Usage,
  /** By the user's price table; absent: unknown. */
  costUsd: z.number().min(0).optional(),
  /** The embedding model, if the request is to one. */
  model: Line.optional(),
  /** Id of the model of `stepModels` that a step or a sub-agent asked for; absent: the run's own. */
  stepModel: Line.optional(),
  /** The model of `fallback` that answered; absent: the one that was asked for. */
  fallback: Line.optional(),
  /** The model that answered, by the server's word; absent: it named none, or the requested one. */
  responseModel: Line.optional(),
  /** Whether the usage is the gateway's estimate because the provider gave none; absent in older journals. */
  estimated: z.boolean().optional(),
  /** Absent when the exchange succeeded. */
  error: Line.optional(),
})
export type ModelEnd = z.infer<typeof ModelEnd>

/** What an open model request waits for now; sent at each change. */
export const ModelWait = z.strictObject({
  type: z.literal('model-wait'),
  requestId: Id,
  for: z.enum([
    /** A hook of the user. */
    'hook',
    /** Other requests of the run, which reserve what is left of its budget. */
    'budget',
    /** Other requests with the same key: as many as may be are open. */
    'turn',
    /** The configured rate: as many as may start within a minute have started. */
    'rate',
    /** The pause that the server demanded. */
    'pause',
    /** The first byte of the answer. */
    'answer',
    /** The rest of the answer, which arrives. */
    'rest',
  ]),
  /** For `turn`, `rate` and `pause`: 1 is sent next, counted over all runs of the process with this key. */
  position: Count.min(1).optional(),
  /** For `rate` and `pause`: when it is over, ms since 1970; absent: unknown. */
  until: Milliseconds.optional(),
})
export type ModelWait = z.infer<typeof ModelWait>
