/** Routes that are compatible with other services: a run and its answer in one request. */
import { defineRoute, type Route } from './route.ts'
import { RunResultResource } from './run-resources.ts'
import {
  ChatRequest,
  ProposalNotes,
  ProposalParams,
  ServiceHealth,
  TaskAnswer,
  TaskRequest,
} from './task-resources.ts'

export const taskRoutes = {
  runChat: defineRoute({
    method: 'POST',
    path: '/run',
    summary: 'Start a run with an empty workspace and answer when it has ended',
    scope: 'run',
    body: ChatRequest,
    isIdempotent: true,
    reply: { status: 200, description: 'How it ended, with its answer', schema: RunResultResource },
    refusals: [409, 422],
  }),
  runTask: defineRoute({
    method: 'POST',
    path: '/api/v1/run-task',
    summary: 'Start a run with an empty workspace and answer with its tool calls when it has ended',
    scope: 'run',
    body: TaskRequest,
    isIdempotent: true,
    reply: {
      status: 200,
      description: 'Its answer, and what it did; `Location` has its address',
      schema: TaskAnswer,
    },
    refusals: [409, 422],
  }),
  listProposalNotes: defineRoute({
    method: 'GET',
    path: '/api/v1/governance-notes/{proposal}',
    summary: 'List the kept notes of a proposal',
    scope: 'read',
    params: ProposalParams,
    reply: { status: 200, description: 'The notes; none for an unknown proposal', schema: ProposalNotes },
  }),
  serviceHealth: defineRoute({
    method: 'GET',
    path: '/api/v1/health',
    summary: 'Tell whether the service runs, and its version',
    scope: null,
    reply: { status: 200, description: 'It runs', schema: ServiceHealth },
  }),
} as const satisfies Readonly<Record<string, Route>>
