/** Changes of a run: reviewed, explained, applied and undone. */
import * as z from 'zod'
import { WorkspacePath } from '../protocol/text.ts'
import {
  ApplyRequest,
  ApplyResource,
  BlameResource,
  ChangeResource,
  UndoResource,
} from './change-resources.ts'
import { RunParams } from './resources.ts'
import { defineRoute, type Route } from './route.ts'

export const changeRoutes = {
  listChanges: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/changes',
    summary: 'Show the changes of a run with their diffs, compared with the files on the host now',
    scope: 'read',
    params: RunParams,
    reply: {
      status: 200,
      description: 'The changes',
      schema: z.strictObject({ directory: z.string(), changes: z.array(ChangeResource) }),
    },
    refusals: [404, 409],
  }),
  blameLines: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/changes/blame',
    summary: 'Say for each line of a changed file which call made it, with its turn, task and approval',
    scope: 'read',
    params: RunParams,
    query: z.strictObject({
      /** Path of a change. */
      path: WorkspacePath,
    }),
    reply: { status: 200, description: 'The lines and the calls', schema: BlameResource },
    refusals: [404, 409],
  }),
  getPatch: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/changes.patch',
    summary: 'Give the changes of a run as a unified diff; what has no diff is named in a comment',
    scope: 'read',
    params: RunParams,
    reply: { status: 200, description: 'The diff', type: 'text/x-diff' },
    refusals: [404, 409],
  }),
  getChangedFiles: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/changes.tar',
    summary:
      'Give the changes as a tar archive: `changes.json` lists the paths, `files/` has the new files, directories and links',
    scope: 'read',
    params: RunParams,
    reply: { status: 200, description: 'The archive', type: 'application/x-tar' },
    refusals: [404, 409],
  }),
  applyChanges: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/changes/apply',
    summary: 'Apply changes to the files on the host',
    scope: 'apply',
    params: RunParams,
    body: ApplyRequest,
    reply: { status: 200, description: 'What was applied, and what was not', schema: ApplyResource },
    refusals: [404, 409],
  }),
  undoChanges: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/changes/undo',
    summary: 'Undo all that was applied of a run',
    scope: 'apply',
    params: RunParams,
    reply: { status: 200, description: 'What was restored', schema: UndoResource },
    refusals: [404, 409],
  }),
} as const satisfies Readonly<Record<string, Route>>
