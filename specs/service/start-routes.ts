/** What starts runs: uploaded workspaces, tasks and workflows. */
import * as z from 'zod'
import { KeyParams } from './resources.ts'
import { defineRoute, type Route } from './route.ts'
import { RunResource } from './run-resources.ts'
import {
  RunRequest,
  WorkflowCheckRequest,
  WorkflowCheckResource,
  WorkflowRunRequest,
  WorkspaceResource,
} from './start-resources.ts'
import { StoredWorkflowResource } from './state-resources.ts'

export const startRoutes = {
  createWorkspace: defineRoute({
    method: 'POST',
    path: '/v1/workspaces',
    summary: 'Upload a workspace as an uncompressed tar archive, for runs of its caller',
    scope: 'run',
    upload: 'application/x-tar',
    reply: { status: 201, description: 'The workspace', schema: WorkspaceResource },
    refusals: [400],
  }),
  createRun: defineRoute({
    method: 'POST',
    path: '/v1/runs',
    summary: 'Start a run',
    scope: 'run',
    body: RunRequest,
    isIdempotent: true,
    reply: { status: 201, description: 'The run; `Location` has its address', schema: RunResource },
    refusals: [409, 422],
  }),
  putRun: defineRoute({
    method: 'PUT',
    path: '/v1/runs/{key}',
    summary: 'Start a run with a key of the caller, or find the run that the same request started before',
    scope: 'run',
    params: KeyParams,
    body: RunRequest,
    reply: { status: 201, description: 'The new run; `Location` has its address', schema: RunResource },
    known: 'The run of the key',
    refusals: [409],
  }),
  checkWorkflow: defineRoute({
    method: 'POST',
    path: '/v1/workflows/check',
    summary: 'Show what a workflow is, or its problems with line and column; starts nothing',
    scope: 'run',
    body: WorkflowCheckRequest,
    reply: { status: 200, description: 'The workflow, or its problems', schema: WorkflowCheckResource },
  }),
  createWorkflowRun: defineRoute({
    method: 'POST',
    path: '/v1/workflows/runs',
    summary: 'Start a run that carries out a workflow',
    scope: 'run',
    body: WorkflowRunRequest,
    isIdempotent: true,
    reply: { status: 201, description: 'The run; `Location` has its address', schema: RunResource },
    refusals: [409, 422],
  }),
  putWorkflowRun: defineRoute({
    method: 'PUT',
    path: '/v1/workflows/runs/{key}',
    summary:
      'Start a run that carries out a workflow, with a key of the caller, or find the run that the same request started',
    scope: 'run',
    params: KeyParams,
    body: WorkflowRunRequest,
    reply: { status: 201, description: 'The new run; `Location` has its address', schema: RunResource },
    known: 'The run of the key',
    refusals: [409],
  }),
  listWorkflows: defineRoute({
    method: 'GET',
    path: '/v1/workflows',
    summary: 'List the published workflows of the service, which a request starts by name and version',
    scope: 'read',
    reply: {
      status: 200,
      description: 'The workflows, by name and version',
      schema: z.strictObject({ workflows: z.array(StoredWorkflowResource) }),
    },
  }),
} as const satisfies Readonly<Record<string, Route>>
