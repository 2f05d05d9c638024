/** Routes of protocols between agents and front ends, which call other routes for their caller. */
import { A2aReply, A2aRequest, AgentCardResource } from './a2a-resources.ts'
import { AgUiRequest } from './ag-ui-resources.ts'
import { defineRoute, type Route } from './route.ts'

export const agentRoutes = {
  agUi: defineRoute({
    method: 'POST',
    path: '/v1/ag-ui',
    summary:
      'Speak AG-UI 1.0: start or continue a run of a thread, or answer its interrupts, and stream it as AG-UI events',
    scope: 'run',
    body: AgUiRequest,
    reply: { status: 200, description: 'Events of AG-UI', type: 'text/event-stream' },
    refusals: [404, 409, 422],
  }),
  agentCard: defineRoute({
    method: 'GET',
    path: '/.well-known/agent-card.json',
    summary: 'Describe the agent for other agents (A2A 1.0)',
    scope: null,
    reply: { status: 200, description: 'The agent card', schema: AgentCardResource },
  }),
  a2a: defineRoute({
    method: 'POST',
    path: '/v1/a2a',
    summary: 'Speak A2A 1.0 over JSON-RPC; streaming methods answer with server-sent events',
    scope: 'read',
    body: A2aRequest,
    reply: {
      status: 200,
      description: 'The answer, or answers in server-sent events',
      schema: A2aReply,
      type: 'text/event-stream',
    },
  }),
} as const satisfies Readonly<Record<string, Route>>
