/**
 * What a workflow adds to its plan: for each step its work, the ways that lead to it, and what it may call. Only a host
 * gives it; a model's plan has none of it. Texts are templates, conditions expressions of `specs/node/workflow/`.
 */
import * as z from 'zod'
import { ToolName } from './extension.ts'
import { isWithinDepth } from './json-depth.ts'
import { limits } from './limits.ts'
import { OutputSchema, Plan, StepId } from './plan.ts'
import { Document, JsonValue, Line, Milliseconds, Sha256, Text } from './text.ts'

const Expression = z.string().min(1).max(limits.expressionMaxChars)

/** A way from a step that has ended. */
const IncomingWay = z.strictObject({
  step: StepId,
  /** How that step must have ended; one skipped by its own condition counts as completed. */
  on: z.enum(['completed', 'failed']),
  /** The case of that step, from 0, that must have been taken. Absent: it is none of several cases. */
  case: z.int().min(0).max(31).optional(),
})
export type IncomingWay = z.infer<typeof IncomingWay>

export const WorkflowStep = z.strictObject({
  /** Id in the workflow file, by which expressions name the step. */
  name: Line.min(1),
  /**
   * The step runs once all these steps have ended and one of the ways is open; with none open it is skipped. Empty: it
   * begins the workflow.
   */
  after: z.array(IncomingWay).max(256),
  /** Conditions of what follows. The first that holds is taken; null: always. Absent: no cases. */
  cases: z.array(Expression.nullable()).min(1).max(32).optional(),
  /** Absent: runs whenever it is reached. */
  when: Expression.optional(),
  /** A conversation with the model. */
  chat: z
    .array(z.strictObject({ role: z.enum(['system', 'user', 'assistant']), text: Document.min(1) }))
    .min(1)
    .max(64)
    .optional(),
  /** Steps that pass their conversation to this chat, if they completed; of several the last. Absent: none. */
  continues: z.array(StepId).min(1).max(32).optional(),
  /** Functions that the model may call; one that fails ends the step. Absent: none. */
  functions: z.array(ToolName).max(128).optional(),
  /** Names and patterns of tools that the model may call; a failure goes back to the model. Absent: none. */
  tools: z.array(Line.min(1)).max(256).optional(),
  /** Whether calls of functions in one turn run at once. Absent: one after the other. */
  callsAtOnce: z.literal(true).optional(),
  /** Maximum turns of the model. Absent: the run's. */
  maxTurns: z.int().min(1).max(1_000).optional(),
  /** A call without the model. */
  call: z.strictObject({ function: ToolName, arguments: z.record(z.string(), JsonValue) }).optional(),
  /** A question to a person. */
  ask: z
    .strictObject({ question: Text.min(1), options: z.array(Line.min(1)).min(2).max(20).optional() })
    .optional(),
  /** A time to wait. */
  wait: z.union([z.strictObject({ forMs: Milliseconds }), z.strictObject({ until: Expression })]).optional(),
  /** A workflow of its own, whose result is the output. */
  workflow: z
    .strictObject({
      /** Key in the parts of the workflow. */
      part: Line.min(1),
      /** Text in it is a template. */
      input: JsonValue,
    })
    .optional(),
  /** Once for each entry of a list. */
  each: z
    .strictObject({
      in: Expression,
      parallel: z.int().min(1).max(16),
      max: z.int().min(1).max(1_000),
    })
    .optional(),
  /** Again until a condition holds. */
  repeat: z.strictObject({ until: Expression, max: z.int().min(1).max(100) }).optional(),
  /** JSON schema of the output. Absent: text, or what the call returns. */
  output: OutputSchema.optional(),
  /** How many steps and functions it may add while it runs, in all. Absent: none. */
  mayAdd: z.strictObject({ steps: z.int().min(0).max(32), functions: z.int().min(0).max(32) }).optional(),
})
export type WorkflowStep = z.infer<typeof WorkflowStep>

export const workOfStep = z.enum(['chat', 'call', 'ask', 'wait', 'workflow'])

/** What people see of a step besides the plan. */
export const OutlineStep = z.strictObject({
  work: workOfStep,
  after: WorkflowStep.shape.after,
  cases: WorkflowStep.shape.cases,
  when: WorkflowStep.shape.when,
  /** Expression of the list. Absent: it runs once. */
  each: Expression.optional(),
  /** The condition that ends its repetition. Absent: it is not repeated. */
  repeat: Expression.optional(),
})
export type OutlineStep = z.infer<typeof OutlineStep>

/** By id of the plan's step. */
export const WorkflowOutline = z.record(StepId, OutlineStep)
export type WorkflowOutline = z.infer<typeof WorkflowOutline>

const outlineMaxChars = 64 * 1024

/** Undefined where it would be too long for a journal's first line. */
export function outlineOf({ steps }: Pick<Workflow, 'steps'>): WorkflowOutline | undefined {
  const outline = Object.fromEntries(
    Object.entries(steps).map(([id, { after, cases, when, each, repeat, ...step }]) => [
      id,
      {
        work: workOfStep.options.find((work) => step[work] !== undefined) ?? 'chat',
        after,
        ...(cases === undefined ? {} : { cases }),
        ...(when === undefined ? {} : { when }),
        ...(each === undefined ? {} : { each: each.in }),
        ...(repeat === undefined ? {} : { repeat: repeat.until }),
      },
    ]),
  )
  return JSON.stringify(outline).length > outlineMaxChars ? undefined : outline
}

/** Arguments of the approval request by which a step waits. */
export const WaitArguments = z.strictObject({
  /** ms since 1970. */
  until: Milliseconds,
})

/** A function whose code runs in the VM. */
export const CodeFunction = z.strictObject({
  name: ToolName,
  description: Text.min(1),
  /** JSON schema of an object; the code takes its properties as arguments, in their order. */
  parameters: OutputSchema,
  language: z.enum(['javascript', 'python']),
  code: Document.min(1),
  /** JSON schema of what it returns. Absent: any JSON. */
  returns: OutputSchema.optional(),
  timeoutMs: Milliseconds.min(100),
  memoryMiB: z.int().min(16).max(2_048),
})
export type CodeFunction = z.infer<typeof CodeFunction>

/** Which workflow a run carries out. */
export const WorkflowId = z.strictObject({
  /** The agent of its file. */
  name: Line.min(1),
  version: Line.min(1),
  /** Digest of the workflow as it was read: of its canonical JSON. */
  sha256: Sha256,
})
export type WorkflowId = z.infer<typeof WorkflowId>

/** A file that a workflow runs, or takes steps or functions of. */
const UsedFile = z.strictObject({
  /** As the workflow names it: a file beside it, or `AGENT@VERSION`. */
  from: Line.min(1),
  /** Digest of its bytes. */
  sha256: Sha256,
})

/** The workflow of a run, and what it uses. */
export const WorkflowSource = z.strictObject({
  ...WorkflowId.shape,
  /** Absent: nothing. */
  uses: z.array(UsedFile).max(16).optional(),
})

/** A workflow that steps of another one run. */
export const WorkflowPart = z.strictObject({
  ...WorkflowId.shape,
  /** JSON schema of its input. Absent: any. */
  inputSchema: OutputSchema.optional(),
  /** As of a workflow. */
  result: Expression.optional(),
  plan: Plan,
  /** By id of the step in its plan. */
  steps: z.record(StepId, WorkflowStep),
})
export type WorkflowPart = z.infer<typeof WorkflowPart>

/** The workflow of a task whose plan has the same steps. */
export const Workflow = z.strictObject({
  ...WorkflowSource.shape,
  /** What expressions read as `input`. */
  input: JsonValue,
  /** Gives the result of the run. Absent: the outputs of the steps that nothing follows. */
  result: Expression.optional(),
  /** By id of the plan's step. */
  steps: z.record(StepId, WorkflowStep),
  /** Functions with code that no application and no server offers. Absent: none. */
  functions: z.array(CodeFunction).max(64).optional(),
  /** Workflows that its steps run, and theirs. Absent: none. */
  parts: z.record(Line, WorkflowPart).optional(),
})
export type Workflow = z.infer<typeof Workflow>

/** Maximum nesting of a value that a workflow keeps: its input, and the outputs of its steps. */
const valueMaxDepth = 32

/** @returns why a workflow cannot keep the parsed JSON; null: it can */
export function findValueProblem(value: unknown): string | null {
  if (!isWithinDepth(value, valueMaxDepth)) return `nests deeper than ${valueMaxDepth} levels`
  const parts = listParts(value)
  if (parts.some((part) => typeof part === 'number' && !Number.isFinite(part)))
    return 'has a number that is too large for JSON programs'
  const isForged = (part: unknown) =>
    typeof part === 'object' && part !== null && Object.hasOwn(part, '__proto__')
  return parts.some(isForged) ? 'has the key "__proto__"' : null
}

/** The value and everything in it. */
function listParts(value: unknown): unknown[] {
  if (typeof value !== 'object' || value === null) return [value]
  const parts: unknown[] = [value]
  for (const child of Object.values(value)) for (const part of listParts(child)) parts.push(part)
  return parts
}
