/** All routes of the HTTP service. */
import * as z from 'zod'
import { RunMetadata } from '../protocol/host-event.ts'
import { WorkspacePath } from '../protocol/text.ts'
import {
  AnswerRequest,
  ApprovalResource,
  PushKeyResource,
  PushParams,
  PushRequest,
  PushResource,
  RunAnswerResource,
} from './approval-resources.ts'
import {
  ApplyRequest,
  ApplyResource,
  BlameResource,
  ChangeResource,
  ComparisonResource,
  MergedResource,
  MergeRequest,
  TestRequest,
  TestResource,
  UndoResource,
} from './change-resources.ts'
import { ApprovalParams, Health, ImageParams, Ready, RunParams, VmResource } from './resources.ts'
import { defineRoute, type Route } from './route.ts'
import {
  CancelRequest,
  EventPage,
  ForkRequest,
  ForksResource,
  MessageRequest,
  RewindRequest,
  RewoundResource,
  RunResource,
  RunResultResource,
} from './run-resources.ts'
import {
  RunRequest,
  WorkflowCheckRequest,
  WorkflowCheckResource,
  WorkflowRunRequest,
  WorkspaceResource,
} from './start-resources.ts'
import {
  FindingResource,
  GrantParams,
  GrantResource,
  NoteResource,
  SkillsResource,
  StoredWorkflowResource,
  TemplateResource,
} from './state-resources.ts'
import {
  ChatRequest,
  ProposalNotes,
  ProposalParams,
  ServiceHealth,
  TaskAnswer,
  TaskRequest,
} from './task-resources.ts'

/** Longest time that a request waits for something to happen. */
export const waitMaxMs = 60_000
const WaitMs = z.coerce.number().int().min(0).max(waitMaxMs)

export const routes = {
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
  listRuns: defineRoute({
    method: 'GET',
    path: '/v1/runs',
    summary: 'List runs, newest first',
    scope: 'read',
    query: z.strictObject({
      status: z.string().optional(),
      workspace: z.string().optional(),
      model: z.string().optional(),
      /** As JSON: `{"ticket":"T-1"}`. */
      metadata: z
        .string()
        .transform((text, context) => {
          try {
            return JSON.parse(text) as unknown
          } catch {
            context.addIssue({ code: 'custom', message: 'expected a JSON object' })
            return z.NEVER
          }
        })
        .pipe(RunMetadata)
        .optional(),
      cursor: z.string().optional(),
      limit: z.coerce.number().int().min(1).max(1_000).optional(),
    }),
    reply: {
      status: 200,
      description: 'One page',
      schema: z.strictObject({
        runs: z.array(RunResource),
        /** `cursor` of the next page. Absent: this is the last one. */
        nextCursor: z.string().optional(),
      }),
    },
  }),
  getRun: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}',
    summary: 'Show a run; answers 304 to a matching `If-None-Match`',
    scope: 'read',
    params: RunParams,
    reply: { status: 200, description: 'The run', schema: RunResource },
    refusals: [404],
  }),
  getResult: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/result',
    summary: 'Give the result of a run; waits for its end for up to `waitMs`',
    scope: 'read',
    params: RunParams,
    query: z.strictObject({ waitMs: WaitMs.optional() }),
    reply: { status: 200, description: 'The result', schema: RunResultResource },
    refusals: [404, 409],
  }),
  listEvents: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/events',
    summary:
      'Give the events of a run: a page as JSON, or with `Accept: text/event-stream` all of them as they happen',
    scope: 'read',
    params: RunParams,
    query: z.strictObject({
      /** `seq` of the first event. `Last-Event-ID` has precedence. Absent: 1. */
      from: z.coerce.number().int().min(1).optional(),
      /** Of a page. */
      limit: z.coerce.number().int().min(1).max(10_000).optional(),
      /** Time to wait for a first event. */
      waitMs: WaitMs.optional(),
    }),
    reply: { status: 200, description: 'Events', schema: EventPage, type: 'text/event-stream' },
    refusals: [404],
  }),
  getImage: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/images/{image}',
    summary: 'Give an image that the model looked at, by its sha256 in `run-start` or `tool-end`',
    scope: 'read',
    params: ImageParams,
    reply: { status: 200, description: 'Its bytes: PNG, JPEG, WebP or GIF', type: 'image/*' },
    refusals: [404],
  }),
  sendMessage: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/messages',
    summary: 'Send a message to the agent, or to a sub-agent, which reads it on its next turn',
    scope: 'run',
    params: RunParams,
    body: MessageRequest,
    reply: { status: 202, description: 'The agent has it, or will get it' },
    refusals: [404, 409],
  }),
  pauseRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/pause',
    summary: 'Pause the agent before its next effect',
    scope: 'run',
    params: RunParams,
    reply: { status: 202, description: 'It pauses' },
    refusals: [404, 409],
  }),
  unpauseRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/unpause',
    summary: 'Let a paused agent continue',
    scope: 'run',
    params: RunParams,
    reply: { status: 202, description: 'It continues' },
    refusals: [404, 409],
  }),
  cancelRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/cancel',
    summary: 'Cancel a run, or one of its sub-agents',
    scope: 'run',
    params: RunParams,
    body: CancelRequest,
    reply: { status: 202, description: 'It ends; the result of the run tells how' },
    refusals: [404, 409],
  }),
  resumeRun: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/resume',
    summary:
      'Start a fork, or continue a run whose process ended before the run did, such as one that sleeps',
    scope: 'run',
    params: RunParams,
    reply: { status: 202, description: 'It continues', schema: RunResource },
    refusals: [404, 409],
  }),
  removeRun: defineRoute({
    method: 'DELETE',
    path: '/v1/runs/{run}',
    summary: 'Remove an ended run with its journal and changes',
    scope: 'admin',
    params: RunParams,
    reply: { status: 204, description: 'It is removed' },
    refusals: [404, 409],
  }),
  listApprovals: defineRoute({
    method: 'GET',
    path: '/v1/approvals',
    summary: 'List the questions that runs wait for, oldest first',
    scope: 'read',
    query: z.strictObject({ run: RunParams.shape.run.optional() }),
    reply: {
      status: 200,
      description: 'The questions',
      schema: z.strictObject({ approvals: z.array(ApprovalResource) }),
    },
  }),
  getApproval: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/approvals/{approval}',
    summary: 'Show a question that a run waits for; 409 with who decided it when it no longer waits',
    scope: 'approve',
    params: ApprovalParams,
    reply: { status: 200, description: 'The question', schema: ApprovalResource },
    refusals: [404, 409, 410],
  }),
  answerApproval: defineRoute({
    method: 'POST',
    path: '/v1/runs/{run}/approvals/{approval}',
    summary: 'Answer a question; the first answer counts',
    scope: 'approve',
    params: ApprovalParams,
    body: AnswerRequest,
    reply: {
      status: 200,
      description: 'The answer counts',
      schema: z.strictObject({ taken: z.literal(true) }),
    },
    refusals: [404, 409, 410],
  }),
  getPushKey: defineRoute({
    method: 'GET',
    path: '/v1/push',
    summary: 'Give the key with which a browser subscribes to messages about questions (Web Push, RFC 8292)',
    scope: 'approve',
    reply: { status: 200, description: 'The key', schema: PushKeyResource },
  }),
  addPushSubscription: defineRoute({
    method: 'POST',
    path: '/v1/push',
    summary: 'Tell a browser of questions that its caller may answer, until it unsubscribes',
    scope: 'approve',
    body: PushRequest,
    reply: { status: 200, description: 'It gets messages from now on', schema: PushResource },
  }),
  removePushSubscription: defineRoute({
    method: 'DELETE',
    path: '/v1/push/{browser}',
    summary: 'Tell a browser of its caller no more of questions',
    scope: 'approve',
    params: PushParams,
    reply: { status: 204, description: 'It gets no more messages' },
    refusals: [404],
  }),
  listAnswers: defineRoute({
    method: 'GET',
    path: '/v1/runs/{run}/answers',
    summary: 'List the answers that apply to later calls of a run, oldest first',
    scope: 'read',
    params: RunParams,
    reply: {
      status: 200,
      description: 'The answers; none of a run that has ended',
      schema: z.strictObject({ answers: z.array(RunAnswerResource) }),
    },
    refusals: [404],
  }),
  revokeAnswer: defineRoute({
    method: 'DELETE',
    path: '/v1/runs/{run}/answers/{approval}',
    summary: 'Revoke an answer: later calls are asked about again, and what it decided stays',
    scope: 'approve',
    params: ApprovalParams,
    reply: { status: 204, description: 'It is revoked' },
    refusals: [404, 409],
  }),
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
        .pipe(z.array(RunParams.shape.run).min(2).max(16)),
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

export type RouteName = keyof typeof routes
