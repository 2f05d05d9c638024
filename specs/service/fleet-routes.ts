/** A fleet of hosts: what it has, and how runs leave a host. Refused by a service that is in none. */
import * as z from 'zod'
import {
  DrainRequest,
  FleetHostParams,
  FleetHostResource,
  FleetResource,
  MoveRequest,
  MoveResource,
} from './fleet-resources.ts'
import { RunParams } from './resources.ts'
import { defineRoute, type Route } from './route.ts'

export const fleetRoutes = {
  getFleet: defineRoute({
    method: 'GET',
    path: '/v1/fleet',
    summary: 'Show the hosts of the fleet, its runs by state, and what it lacks',
    scope: 'admin',
    reply: { status: 200, description: 'The fleet', schema: FleetResource },
    refusals: [409],
  }),
  drainHost: defineRoute({
    method: 'POST',
    path: '/v1/fleet/hosts/{host}/drain',
    summary: 'Let a host of the fleet take no more runs and give those that it has to others, or undo that',
    scope: 'admin',
    params: FleetHostParams,
    body: DrainRequest,
    reply: {
      status: 202,
      description: 'Its processes, which see it within seconds',
      schema: z.strictObject({ hosts: z.array(FleetHostResource) }),
    },
    refusals: [404, 409],
  }),
  moveRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/move',
    summary: 'Let another host of the fleet continue a run from its next checkpoint',
    scope: 'admin',
    params: RunParams,
    body: MoveRequest,
    reply: { status: 202, description: 'It goes to another host', schema: MoveResource },
    refusals: [404, 409],
  }),
} as const satisfies Readonly<Record<string, Route>>
