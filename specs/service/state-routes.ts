/** What belongs to the user of the service and to no run: VMs, notes, permanent answers, skills, the machine. */
import * as z from 'zod'
import { VmResource } from './resources.ts'
import { defineRoute, type Route } from './route.ts'
import {
  FindingResource,
  GrantParams,
  GrantResource,
  NoteResource,
  SkillsResource,
  TemplateResource,
} from './state-resources.ts'

export const stateRoutes = {
  listVms: defineRoute({
    method: 'GET',
    path: '/v1/vms',
    summary: 'List the VMs that run now',
    scope: 'read',
    reply: { status: 200, description: 'The VMs', schema: z.strictObject({ vms: z.array(VmResource) }) },
  }),
  listNotes: defineRoute({
    method: 'GET',
    path: '/v1/notes',
    summary: 'List the kept notes of workspaces and proposals, oldest first; of one workspace newest first',
    scope: 'admin',
    query: z.strictObject({
      /** Real path on the service's machine. Absent: all notes. */
      workspace: z.string().min(1).optional(),
    }),
    reply: {
      status: 200,
      description: 'The notes',
      schema: z.strictObject({ notes: z.array(NoteResource) }),
    },
  }),
  listGrants: defineRoute({
    method: 'GET',
    path: '/v1/grants',
    summary: 'List the permanent answers about network access, oldest first',
    scope: 'admin',
    reply: {
      status: 200,
      description: 'The answers',
      schema: z.strictObject({ grants: z.array(GrantResource) }),
    },
  }),
  revokeGrant: defineRoute({
    method: 'DELETE',
    path: '/v1/grants/{grant}',
    summary: 'Revoke a permanent answer: later accesses are asked about again',
    scope: 'admin',
    params: GrantParams,
    reply: { status: 204, description: 'It is revoked' },
    refusals: [404],
  }),
  listSkills: defineRoute({
    method: 'GET',
    path: '/v1/skills',
    summary: 'List the skills of the user, as a run would get them now, and what is wrong with others',
    scope: 'admin',
    reply: { status: 200, description: 'The skills', schema: SkillsResource },
  }),
  inspectMachine: defineRoute({
    method: 'GET',
    path: '/v1/doctor',
    summary: 'Look at all that a VM needs on the machine of the service',
    scope: 'admin',
    reply: {
      status: 200,
      description: 'What was seen',
      schema: z.strictObject({ findings: z.array(FindingResource) }),
    },
  }),
  listTemplates: defineRoute({
    method: 'GET',
    path: '/v1/templates',
    summary: 'List the saved VMs that others begin from, most recently used first',
    scope: 'admin',
    reply: {
      status: 200,
      description: 'The templates',
      schema: z.strictObject({ templates: z.array(TemplateResource) }),
    },
  }),
} as const satisfies Readonly<Record<string, Route>>
