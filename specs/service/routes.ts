/** All routes of the HTTP service, by noun. */
import { agentRoutes } from './agent-routes.ts'
import { approvalRoutes } from './approval-routes.ts'
import { changeRoutes } from './change-routes.ts'
import { fleetRoutes } from './fleet-routes.ts'
import { forkRoutes } from './fork-routes.ts'
import type { Route } from './route.ts'
import { runRoutes } from './run-routes.ts'
import { serviceRoutes } from './service-routes.ts'
import { startRoutes } from './start-routes.ts'
import { stateRoutes } from './state-routes.ts'
import { taskRoutes } from './task-routes.ts'

export const routes = {
  ...serviceRoutes,
  ...startRoutes,
  ...runRoutes,
  ...approvalRoutes,
  ...changeRoutes,
  ...forkRoutes,
  ...stateRoutes,
  ...fleetRoutes,
  ...taskRoutes,
  ...agentRoutes,
} as const satisfies Readonly<Record<string, Route>>

export type RouteName = keyof typeof routes
