/** Routes of protocols between agents and front ends, which call other routes for their caller. */
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
} as const satisfies Readonly<Record<string, Route>>
