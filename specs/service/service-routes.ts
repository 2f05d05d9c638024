/** The service itself: whether it runs, its metrics and its reference. */
import * as z from 'zod'
import { Health, Ready } from './resources.ts'
import { defineRoute, type Route } from './route.ts'

export const serviceRoutes = {
  health: defineRoute({
    method: 'GET',
    path: '/healthz',
    summary: 'Tell whether the service runs',
    scope: null,
    reply: { status: 200, description: 'It runs', schema: Health },
  }),
  ready: defineRoute({
    method: 'GET',
    path: '/readyz',
    summary: 'Tell whether a VM can be started; 503 with each reason and what to do where it cannot',
    scope: null,
    reply: { status: 200, description: 'A VM can be started', schema: Ready },
  }),
  metrics: defineRoute({
    method: 'GET',
    path: '/metrics',
    summary: 'Give the metrics of the service and of all runs (Prometheus text format)',
    scope: 'metrics',
    reply: { status: 200, description: 'The metrics', type: 'text/plain; version=0.0.4' },
  }),
  openApi: defineRoute({
    method: 'GET',
    path: '/openapi.json',
    summary: 'Describe all routes (OpenAPI 3.1)',
    scope: null,
    reply: {
      status: 200,
      description: 'The document',
      schema: z.looseObject({ openapi: z.literal('3.1.0') }),
    },
  }),
  docs: defineRoute({
    method: 'GET',
    path: '/docs',
    summary: 'Show the reference of all routes as a page',
    scope: null,
    reply: { status: 200, description: 'The page', type: 'text/html' },
  }),
} as const satisfies Readonly<Record<string, Route>>
