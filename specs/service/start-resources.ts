/** What a run is started with over HTTP: tasks, workflows and uploaded workspaces. */
import * as z from 'zod'
import { ApprovalRule } from '../protocol/approval.ts'
import { RunSectionInput } from '../protocol/context-section.ts'
import { EgressRule } from '../protocol/egress.ts'
import { FileContents } from '../protocol/file-contents.ts'
import { RunMetadata, RunPriority, StartWithin } from '../protocol/host-event.ts'
import { ImagePath, imagesMaxCount } from '../protocol/image.ts'
import { Effort, Plan } from '../protocol/plan.ts'
import { FallbackModels, StepModels } from '../protocol/run-models.ts'
import { AnswerForm, RunLimits } from '../protocol/task.ts'
import { Count, Document, Line, RunId } from '../protocol/text.ts'
import { workOfStep } from '../protocol/workflow.ts'

/** An uploaded workspace: random, with a mark of whose it is. */
export const WorkspaceId = z
  .string()
  .regex(/^workspace-[0-9a-f]{32}$/, 'expected the id of an uploaded workspace')

/** As `--fleet-labels` of a host. */
const HostLabel = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(=[A-Za-z0-9._/-]{0,63})?$/, 'expected NAME or NAME=VALUE')

const RunFields = z.strictObject({
  /** The task for the agent. It may be empty only with `plan.from`. */
  prompt: Document,
  /** Files of the workspace that the model sees with the task: PNG, JPEG, GIF or WebP of 1 MiB each, 3 MiB together. */
  images: z.array(ImagePath).max(imagesMaxCount).optional(),
  /** Absolute path below an allowed folder of the service. Absent: that of `continue`, else an empty one of its own. */
  workspace: z
    .string()
    .min(1)
    .max(4_096)
    .regex(/^\/[^\0]*$/, 'expected an absolute path')
    .optional(),
  /** An uploaded workspace, in place of `workspace`. */
  uploadedWorkspace: WorkspaceId.optional(),
  /** Absent: the default of the service. */
  model: Line.min(1).optional(),
  /** How much the model reasons. Absent: the configuration's, or what the model does by itself. */
  effort: Effort.optional(),
  /** Models that are asked in this order where the other cannot answer. Absent: the configuration's. */
  fallback: FallbackModels.optional(),
  /** Models that the agent may choose for a step or a sub-agent: ids, or names with their ids. Absent: the configuration's. */
  stepModels: StepModels.optional(),
  /** What the service must make of `model` and its own settings, or it refuses the request (409). Absent: anything. */
  expectedModel: z
    .strictObject({
      /** Empty: left to the server's list. */
      id: Line,
      /** Address of its server without a trailing slash; null: the offline model. */
      server: z.string().max(2_048).nullable(),
    })
    .optional(),
  /** Names of allowed tools, or a map from names to true or false. Absent: all. */
  tools: z.union([z.array(Line).max(256), z.record(Line, z.boolean())]).optional(),
  /** Further facts for the model, by name: texts, or sections with a budget and a place. */
  context: z.record(Line.min(1), z.union([Document, RunSectionInput])).optional(),
  /** Facts for lists, such as a ticket; the agent does not get them. */
  metadata: RunMetadata.optional(),
  /** JSON schema that the final answer must fit. */
  outputSchema: AnswerForm.optional(),
  /** The run to continue, on the same workspace. */
  continue: RunId.optional(),
  files: z
    .strictObject({
      /** Patterns of ignored or secret paths to copy anyway. */
      include: z.array(z.string().max(4_096)).max(1_000).optional(),
      /** Accepts the ignore rules as earlier runs left them. */
      acceptIgnoreRules: z.boolean().optional(),
      /** Content in the place of what the disk has, by path: text, or bytes in base64. At most 64 files and 4 MiB. */
      contents: FileContents.optional(),
    })
    .optional(),
  plan: z
    .strictObject({
      /** The run ends with its plan and changes nothing. */
      only: z.boolean().optional(),
      /** The plan and each revision need approval. */
      approve: z.boolean().optional(),
      /** The plan to execute: a plan, or the run that has it. */
      from: z.union([RunId, Plan]).optional(),
    })
    .optional(),
  approvals: z
    .strictObject({
      /** What answers when no rule does: a person, always yes, always no. Absent: `ask`. */
      mode: z.enum(['ask', 'all', 'none']).optional(),
      rules: z.array(ApprovalRule).max(1_000).optional(),
      /** Whether somebody answers what no rule and no mode does. False: it is denied. Absent: true. */
      interactive: z.boolean().optional(),
    })
    .optional(),
  egress: z.strictObject({ rules: z.array(EgressRule).max(1_000).optional() }).optional(),
  limits: RunLimits.partial().optional(),
  /** Among the waiting runs of the same key, subject or owner. Absent: `normal`. */
  priority: RunPriority.optional(),
  /** Time, ms, after which a run that has not begun ends with the reason `queue_timeout`. Absent: it waits without a limit. */
  startWithinMs: StartWithin.optional(),
  /** What a host of a fleet has to have for the run; refused outside a fleet. Absent: nothing. */
  requires: z
    .strictObject({
      /** Each of them, such as `gpu` or `zone=eu`. */
      labels: z.array(HostLabel).max(32).optional(),
      /** As `process.arch` of Node.js says, such as `x64`. */
      architecture: z
        .string()
        .regex(/^[a-z0-9_]{1,32}$/, 'expected an architecture, such as x64')
        .optional(),
      accelerator: z.enum(['kvm', 'hvf', 'tcg']).optional(),
      /** Free memory. Absent: that of its VM, where the request says it. */
      memoryBytes: z.int().positive().optional(),
    })
    .optional(),
  vm: z
    .strictObject({
      memoryBytes: z.int().positive().optional(),
      cpus: z.int().positive().optional(),
      diskBytes: z.int().positive().optional(),
      /** Saves the VM at the end for a run that continues this one. */
      keep: z.boolean().optional(),
      /** Wait for a person, ms, before the VM is saved; 0 for never. Absent: 5 minutes. */
      hibernateAfterMs: z.int().min(0).optional(),
      /** Wait for answers, ms, before the run sleeps without a VM; 0 for never. Absent: the configuration's, 1 hour. */
      sleepAfterMs: z.int().min(0).optional(),
    })
    .optional(),
})

/** The settings of a run that another protocol starts; its task, context and predecessor have places of their own there. */
export const RunSettings = RunFields.omit({
  prompt: true,
  images: true,
  context: true,
  continue: true,
  plan: true,
})

/** What a run is started with; as the options of `host.run` in the library. */
export const RunRequest = RunFields.refine(({ prompt, plan }) => prompt !== '' || plan?.from !== undefined, {
  path: ['prompt'],
  message: 'expected a task',
}).refine(({ workspace, uploadedWorkspace }) => workspace === undefined || uploadedWorkspace === undefined, {
  path: ['uploadedWorkspace'],
  message: 'expected no workspace beside it',
})
export type RunRequest = z.infer<typeof RunRequest>

/** What a run of a workflow is started with. */
export const WorkflowRunRequest = RunFields.omit({
  prompt: true,
  images: true,
  context: true,
  outputSchema: true,
  continue: true,
  plan: true,
})
  .extend({
    /** The workflow file, as text or JSON; or `AGENT@VERSION` of a published one. */
    workflow: z.union([
      z
        .string()
        .min(1)
        .max(512 * 1024),
      z.record(z.string(), z.unknown()),
    ]),
    /** Input of the workflow. Absent: null. */
    input: z.unknown().optional(),
  })
  .refine(({ workspace, uploadedWorkspace }) => workspace === undefined || uploadedWorkspace === undefined, {
    path: ['uploadedWorkspace'],
    message: 'expected no workspace beside it',
  })
export type WorkflowRunRequest = z.infer<typeof WorkflowRunRequest>

/** A workflow to look at. */
export const WorkflowCheckRequest = z.strictObject({ workflow: WorkflowRunRequest.shape.workflow })
export type WorkflowCheckRequest = z.infer<typeof WorkflowCheckRequest>

/** What a workflow is, or what is wrong with it. */
export const WorkflowCheckResource = z.strictObject({
  /** Null where it has problems. Its texts are untrusted. */
  workflow: z
    .strictObject({
      name: z.string(),
      version: z.string(),
      description: z.string().optional(),
      /** JSON schema of its input. Absent: any. */
      input: z.record(z.string(), z.unknown()).optional(),
      /** In the order of the file; the first one begins. */
      steps: z.array(
        z.strictObject({
          id: z.string(),
          name: z.string(),
          /** `from`: it is a step of another workflow. */
          work: z.enum([...workOfStep.options, 'from']),
          /** What follows, in the order in which conditions are tried; `-` ends the workflow. */
          next: z.array(
            z.strictObject({
              to: z.string(),
              on: z.enum(['completed', 'failed']),
              /** Whether it is one of several cases; the first that holds is taken. */
              isCase: z.boolean(),
              when: z.string().optional(),
            }),
          ),
          when: z.string().optional(),
          /** Expression of the list for whose entries it runs. */
          each: z.string().optional(),
          repeat: z.string().optional(),
        }),
      ),
    })
    .nullable(),
  /** In the order of the file, at most 100. */
  problems: z.array(
    z.strictObject({
      /** Key of the file; empty for the file as a whole. */
      key: z.string(),
      /** Below the key, names joined by dots. */
      path: z.string(),
      message: z.string(),
      /** From 1; of a workflow that was sent as JSON, of its compact text. */
      line: Count,
      column: Count,
    }),
  ),
})
export type WorkflowCheckResource = z.infer<typeof WorkflowCheckResource>

/** What was uploaded. */
export const WorkspaceResource = z.strictObject({
  /** For `uploadedWorkspace` of a run. */
  id: WorkspaceId,
  /** Files, directories and links. */
  entries: Count,
  /** Of all files. */
  contentBytes: Count,
})
