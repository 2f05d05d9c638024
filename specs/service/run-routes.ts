/** Runs: their lists, results and events, and what callers do with one. */
import * as z from 'zod'
import { RunMetadata } from '../protocol/host-event.ts'
import { wholeNumber } from './number-text.ts'
import { ImageParams, RunParams } from './resources.ts'
import { defineRoute, type Route } from './route.ts'
import {
  CancelRequest,
  EventPage,
  MessageRequest,
  PauseRequest,
  RunResource,
  RunResultResource,
  RunWait,
} from './run-resources.ts'

/** Longest time that a request waits for something to happen. */
const waitMaxMs = 60_000
const WaitMs = wholeNumber({ min: 0, max: waitMaxMs, unit: 'milliseconds' })

export const runRoutes = {
  listRuns: defineRoute({
    method: 'GET',
    path: '/v1/runs',
    summary: 'List runs, newest first',
    scope: 'read',
    query: z.strictObject({
      status: z.string().optional(),
      workspace: z.string().optional(),
      model: z.string().optional(),
      /** As JSON: `{"ticket":"T-1"}`. */
      metadata: z
        .string()
        .transform((text, context) => {
          try {
            return JSON.parse(text) as unknown
          } catch {
            context.addIssue({ code: 'custom', message: 'expected a JSON object' })
            return z.NEVER
          }
        })
        .pipe(RunMetadata)
        .optional(),
      cursor: z.string().optional(),
      limit: wholeNumber({ min: 1, max: 1_000 }).optional(),
    }),
    reply: {
      status: 200,
      description: 'One page',
      schema: z.strictObject({
        runs: z.array(RunResource),
        /** `cursor` of the next page. Absent: this is the last one. */
        nextCursor: z.string().optional(),
      }),
    },
  }),
  getRun: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}',
    summary:
      'Show a run; waits up to `waitMs` for its end, or for a question; answers 304 to a matching `If-None-Match`',
    scope: 'read',
    params: RunParams,
    query: z.strictObject({
      /** Time to wait. Absent: it is shown as it is. */
      waitMs: WaitMs.optional(),
      /** What ends the wait: the end of the run, or with `attention` also that it waits for a person. Absent: `end`. */
      until: RunWait.optional(),
    }),
    reply: { status: 200, description: 'The run', schema: RunResource },
    refusals: [404],
  }),
  getResult: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/result',
    summary: 'Give the result of a run; waits for its end for up to `waitMs`',
    scope: 'read',
    params: RunParams,
    query: z.strictObject({ waitMs: WaitMs.optional() }),
    reply: { status: 200, description: 'The result', schema: RunResultResource },
    refusals: [404, 409],
  }),
  listEvents: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/events',
    summary:
      'Give the events of a run: a page as JSON, or with `Accept: text/event-stream` all of them as they happen',
    scope: 'read',
    params: RunParams,
    query: z.strictObject({
      /** `seq` of the first event. `Last-Event-ID` has precedence. Absent: 1. */
      from: wholeNumber({ min: 1 }).optional(),
      /** Of a page. */
      limit: wholeNumber({ min: 1, max: 10_000 }).optional(),
      /** Time to wait for a first event. */
      waitMs: WaitMs.optional(),
    }),
    reply: { status: 200, description: 'Events', schema: EventPage, type: 'text/event-stream' },
    refusals: [404],
  }),
  getImage: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/images/{image}',
    summary: 'Give an image that the model looked at, by its sha256 in `run-start` or `tool-end`',
    scope: 'read',
    params: ImageParams,
    reply: { status: 200, description: 'Its bytes: PNG, JPEG, WebP or GIF', type: 'image/*' },
    refusals: [404],
  }),
  sendMessage: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/messages',
    summary: 'Send a message to the agent, or to a sub-agent, which reads it on its next turn',
    scope: 'run',
    params: RunParams,
    body: MessageRequest,
    reply: { status: 202, description: 'The agent has it, or will get it' },
    refusals: [404, 409],
  }),
  pauseRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/pause',
    summary: 'Pause the agent before its next effect',
    scope: 'run',
    params: RunParams,
    body: PauseRequest,
    reply: { status: 202, description: 'It pauses' },
    refusals: [404, 409],
  }),
  unpauseRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/unpause',
    summary: 'Let a paused agent continue',
    scope: 'run',
    params: RunParams,
    body: PauseRequest,
    reply: { status: 202, description: 'It continues' },
    refusals: [404, 409],
  }),
  cancelRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/cancel',
    summary: 'Cancel a run, or one of its sub-agents',
    scope: 'run',
    params: RunParams,
    body: CancelRequest,
    reply: { status: 202, description: 'It ends; the result of the run tells how' },
    refusals: [404, 409],
  }),
  resumeRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/resume',
    summary:
      'Start a fork, or continue a run whose process ended before the run did, such as one that sleeps',
    scope: 'run',
    params: RunParams,
    reply: { status: 202, description: 'It continues', schema: RunResource },
    refusals: [404, 409],
  }),
  removeRun: defineRoute({
    method: 'DELETE',
    path: '/v1/runs/{run}',
    summary: 'Remove an ended run with its journal and changes',
    scope: 'admin',
    params: RunParams,
    reply: { status: 204, description: 'It is removed' },
    refusals: [404, 409],
  }),
} as const satisfies Readonly<Record<string, Route>>
