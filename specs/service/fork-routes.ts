/** Runs that continue others: made, compared, merged and tested. */
import * as z from 'zod'
import { RunId } from '../protocol/text.ts'
import {
  ComparisonResource,
  MergedResource,
  MergeRequest,
  TestRequest,
  TestResource,
} from './change-resources.ts'
import { RunParams } from './resources.ts'
import { defineRoute, type Route } from './route.ts'
import { ForkRequest, ForksResource, RewindRequest, RewoundResource } from './run-resources.ts'

export const forkRoutes = {
  forkRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/fork',
    summary: 'Make runs that continue this one from an earlier moment; the run stays as it is',
    scope: 'run',
    params: RunParams,
    body: ForkRequest,
    reply: { status: 201, description: 'The new runs; `resume` starts each', schema: ForksResource },
    refusals: [404, 409],
  }),
  rewindRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/rewind',
    summary: 'Make a run that takes the place of this one from an earlier moment; this run ends',
    scope: 'run',
    params: RunParams,
    body: RewindRequest,
    reply: { status: 201, description: 'The new run; `resume` starts it', schema: RewoundResource },
    refusals: [404, 409],
  }),
  compareRuns: defineRoute({
    method: 'GET',
    path: '/v1/compare',
    summary: 'Compare the changes of runs that began with the same files, such as forks of one run',
    scope: 'read',
    query: z.strictObject({
      /** Ids of 2 to 16 runs, with commas between them. */
      runs: z
        .string()
        .transform((text) => text.split(','))
        .pipe(z.array(RunId).min(2).max(16)),
    }),
    reply: { status: 200, description: 'The comparison', schema: ComparisonResource },
    refusals: [404, 409],
  }),
  mergeRuns: defineRoute({
    method: 'POST',
    path: '/v1/merge',
    summary:
      'Merge the changes of runs that began with the same files into those of a new run, to review and apply',
    scope: 'apply',
    body: MergeRequest,
    reply: { status: 200, description: 'The new run, or the conflicts', schema: MergedResource },
    refusals: [404, 409],
  }),
  testRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/test',
    summary: 'Run a command over the result of a run, in a VM of its own without network access',
    scope: 'run',
    params: RunParams,
    body: TestRequest,
    reply: { status: 200, description: 'What the command did', schema: TestResource },
    refusals: [404, 409],
  }),
} as const satisfies Readonly<Record<string, Route>>
