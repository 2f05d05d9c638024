/**
 * What a front end sends by AG-UI 1.0 (https://docs.ag-ui.com/spec/1.0). As that protocol wants it, fields that are not
 * described are left out and refuse nothing; all that is read has bounds.
 */
import * as z from 'zod'
import { Document } from '../protocol/text.ts'
import { RunSettings } from './start-resources.ts'

/** IDs that a front end draws. */
const GivenId = z.string().min(1).max(200)
const partsMax = 1_000

const Part = z.object({
  /** `text`; other kinds are refused in the newest message of a person. */
  type: z.string().max(100),
  text: z.string().optional(),
})

const Message = z.object({
  id: GivenId,
  role: z.enum(['developer', 'system', 'assistant', 'user', 'tool', 'activity', 'reasoning']),
  /** Of an activity an object, which is not read. */
  content: z.union([z.string(), z.array(Part).max(partsMax), z.record(z.string(), z.unknown())]).optional(),
  toolCalls: z
    .array(z.object({ id: GivenId }))
    .max(partsMax)
    .optional(),
  /** Of a result. */
  toolCallId: GivenId.optional(),
})
export type AgUiMessage = z.infer<typeof Message>

/** The answer to one interrupt. */
const Resume = z.object({
  /** Names run, approval and digest of the question. */
  interruptId: z.string().min(1).max(1_200),
  /** `cancelled` decides nothing: the question waits. */
  status: z.enum(['resolved', 'cancelled']),
  /** In the form of the interrupt's `responseSchema`. */
  payload: z.unknown().optional(),
})
export type AgUiResume = z.infer<typeof Resume>

export const AgUiRequest = z.object({
  /** The conversation. Its runs continue one another. */
  threadId: GivenId,
  /** Drawn by the front end for this request. */
  runId: GivenId,
  protocolVersion: z.string().max(100).optional(),
  parentRunId: GivenId.optional(),
  /** Not read. It comes back in the snapshot, with `caisson` beside what it has. */
  state: z.unknown().optional(),
  /** The newest one of a person is the task. The others are facts for the first run of a thread, whatever their role. */
  messages: z.array(Message).max(10_000),
  /** Must be empty: the agent cannot call a front end. */
  tools: z
    .array(z.object({ name: z.string() }))
    .max(1_000)
    .nullish(),
  /** Facts for the model. */
  context: z
    .array(z.object({ description: Document, value: Document }))
    .max(24)
    .nullish(),
  forwardedProps: z
    .object({
      /** Settings of a new run, as `POST /v1/runs` takes them. */
      caisson: RunSettings.optional(),
    })
    .nullish(),
  /** Answers to the interrupts of the thread. Absent or empty: nothing is answered. */
  resume: z.array(Resume).max(64).nullish(),
})
export type AgUiRequest = z.infer<typeof AgUiRequest>
