/** What the HTTP service takes and gives as JSON. Objects are strict: an unknown field is refused. */
import * as z from 'zod'
import { HostEvent, JournalEvent } from '../protocol/event.ts'
import { Count, Id, JsonValue, RunId, Sha256 } from '../protocol/text.ts'
import { AnswerRequest, ApprovalResource, RunAnswerResource } from './approval-resources.ts'
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
import {
  DeltaItem,
  EventPage,
  ForkRequest,
  ForksResource,
  RewindRequest,
  RewoundResource,
  RunKey,
  RunName,
  RunResource,
  RunResultResource,
} from './run-resources.ts'
import { RunRequest, WorkspaceResource } from './start-resources.ts'
import {
  FindingResource,
  GrantResource,
  NoteResource,
  SkillsResource,
  TemplateResource,
} from './state-resources.ts'
import { ChatRequest, TaskAnswer, TaskRequest } from './task-resources.ts'

/** An error, as RFC 9457 (`application/problem+json`) has it. */
export const Problem = z.strictObject({
  /** Anchor of the code in the reference at `/docs`. */
  type: z.string(),
  title: z.string(),
  status: z.int(),
  /** A code of specs/errors.md, or the service's own `unauthorized`, `forbidden`, `not_found`, … */
  code: z.string(),
  /** What failed, what was expected, what was seen. */
  detail: z.string(),
  /** What to do. */
  remedy: z.string().optional(),
  /** For a request that does not fit the schema: each wrong field. */
  errors: z.array(z.strictObject({ field: z.string(), message: z.string() })).optional(),
})
export type Problem = z.infer<typeof Problem>

export const VmResource = z.looseObject({
  id: z.string(),
  runId: RunId.nullable(),
  state: z.string(),
  memoryBytes: Count,
  cpus: Count,
})

/** The service runs; whether a run can start is another question, see {@link Ready}. */
export const Health = z.strictObject({
  status: z.literal('running'),
  version: z.string(),
  /** Its runs are those of a fleet, which any host carries out. Absent: it carries them out itself. */
  isOfFleet: z.literal(true).optional(),
})

export const Ready = z.strictObject({ status: z.literal('ready') })

/** Schemas with a name of their own in the OpenAPI document. */
export const named = {
  Problem,
  JsonValue,
  RunRequest,
  Workspace: WorkspaceResource,
  Run: RunResource,
  RunResult: RunResultResource,
  Approval: ApprovalResource,
  Answer: AnswerRequest,
  RunAnswer: RunAnswerResource,
  HostEvent,
  JournalEvent,
  DeltaItem,
  EventPage,
  Change: ChangeResource,
  ApplyRequest,
  ApplyResult: ApplyResource,
  UndoResult: UndoResource,
  ForkRequest,
  Forks: ForksResource,
  RewindRequest,
  Rewound: RewoundResource,
  Comparison: ComparisonResource,
  Blame: BlameResource,
  MergeRequest,
  Merged: MergedResource,
  TestRequest,
  TestResult: TestResource,
  Vm: VmResource,
  Note: NoteResource,
  Grant: GrantResource,
  Skills: SkillsResource,
  Finding: FindingResource,
  Template: TemplateResource,
  Health,
  Ready,
  ChatRequest,
  TaskRequest,
  TaskAnswer,
} as const satisfies Readonly<Record<string, z.ZodType>>

export const RunParams = z.strictObject({ run: RunName })

export const KeyParams = z.strictObject({ key: RunKey })

export const ApprovalParams = z.strictObject({ run: RunName, approval: Id })

/** `image` is the sha256 of its bytes. */
export const ImageParams = z.strictObject({ run: RunName, image: Sha256 })
