/**
 * The details of steps and functions in a workflow file. A step is one of: a chat with the model, a call of a function, a
 * question to a person, a wait, another workflow, or a step of one. The file's keys are in `workflow-keys.ts`.
 */
import * as z from 'zod'
import { limits } from './limits.ts'
import { Effort, OutputSchema, StepId } from './plan.ts'
import { findSchemaProblems } from './schema-problems.ts'
import { Document, JsonValue, Line, Text } from './text.ts'
import { functionReference, stepReference } from './workflow-keys.ts'

/** A CEL expression over `input`, `steps` and, with `each` or `repeat`, `item` and `index`. */
const ExpressionText = z.string().min(1).max(limits.expressionMaxChars)

/** A JSON schema, with types and references that exist. */
const JsonSchema = OutputSchema.superRefine((schema, context) => {
  for (const { path, message } of findSchemaProblems(schema))
    context.addIssue({ code: 'custom', path: [...path], message })
})

/** Id of a step: the part of its key behind `step-`. */
const StepName = Line.min(1).max(100)

/** Name of a function, as the model sees it. */
export const FunctionName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_-]{0,63}$/, 'expected a letter or _, then at most 63 of A-Z a-z 0-9 _ -')

const ChatMessage = z.strictObject({
  role: z.enum(['system', 'developer', 'user', 'assistant']),
  /** `{{ EXPRESSION }}` is replaced by its value. */
  content: Document.min(1),
})
export type ChatMessage = z.infer<typeof ChatMessage>

/** What follows a step: nothing (`-`), one step, several at once, or the first case whose condition holds. */
const NextStep = z.union([
  z.literal('-'),
  StepName,
  z.array(StepName).min(1).max(32),
  z
    .array(
      z.strictObject({
        /** Absent: always. */
        when: ExpressionText.optional(),
        /** `-`: nothing. */
        step: StepName,
      }),
    )
    .min(1)
    .max(32),
])
export type NextStep = z.infer<typeof NextStep>

const FunctionReference = z.union([FunctionName, z.strictObject({ name: FunctionName })])

/** SHA-256 of the whole file that `from` names, in hex. Absent: not checked. */
const FileDigest = z.string().regex(/^[0-9a-f]{64}$/, 'expected 64 hex digits')

/** A number of seconds, or a time in a day's units: `90s`, `15m`, `2h`, `3d`. */
const Duration = z.union([
  z
    .number()
    .positive()
    .max(366 * 86_400),
  z.string().regex(/^[1-9][0-9]{0,5}(s|m|h|d)$/, 'expected a number and s, m, h or d, such as 15m'),
])

function hasBothWaits(wait: unknown): boolean {
  return typeof wait === 'object' && wait !== null && 'for' in wait && 'until' in wait
}

/** What a step is. Exactly one of these is given. */
const StepWork = z.strictObject({
  /** Messages to the model, which then works with the step's functions and tools until it answers. */
  chat: z.array(ChatMessage).min(1).max(64).optional(),
  /** One call without the model. Text in the arguments is a template. */
  call: z
    .strictObject({ function: FunctionName, arguments: z.record(z.string(), JsonValue).default({}) })
    .optional(),
  /** A question to a person; the answer is the step's output. */
  ask: z
    .strictObject({
      /** A template. */
      question: Text.min(1),
      /** Absent: any text. */
      options: z.array(Line.min(1)).min(2).max(20).optional(),
    })
    .optional(),
  /** A time to wait. No VM runs meanwhile. */
  wait: z
    .union(
      [
        z.strictObject({ for: Duration }),
        z.strictObject({
          /** An expression that gives a time, such as `2026-01-31T12:00:00Z`. */
          until: ExpressionText,
        }),
      ],
      {
        error: ({ input }) =>
          hasBothWaits(input) ? 'has both `for` and `until`; give one of them' : undefined,
      },
    )
    .optional(),
  /** Another workflow; its result is the step's output. */
  workflow: z
    .strictObject({
      /** A file beside this one, or `AGENT@VERSION` of one there or in the store. */
      from: Line.min(1),
      sha256: FileDigest.optional(),
      /** Text in it is a template. */
      input: JsonValue.optional(),
    })
    .optional(),
  /**
   * A step of another workflow, beside this one or in the store, with the functions that it names. Fields given here replace
   * those of that step; where it leads is said here alone.
   */
  from: z.string().regex(stepReference, 'expected AGENT@VERSION@step-NAME').optional(),
})

export const StepDetails = z.strictObject({
  /** The same as in the key, or absent. */
  id: StepName.optional(),
  /** For people. */
  description: Text.optional(),
  ...StepWork.shape,
  sha256: FileDigest.optional(),
  /** Functions of the file, the application, or MCP servers that the model may call. Absent: none. */
  function: z.array(FunctionReference).max(128).optional(),
  /** Tools of Caisson that the model may call; `*` for all. Absent: none. */
  tools: z.array(Line.min(1)).max(256).optional(),
  /** Absent: the next step of the list. */
  nextStep: NextStep.optional(),
  /** Absent: the run's. */
  model: Line.min(1).optional(),
  /** How much the model reasons. Absent: as the run says. */
  effort: Effort.optional(),
  /** Whether the calls of one turn run at once. Absent: one after the other. */
  runFunctionsInParallel: z.boolean().optional(),
  /** Whether the next step begins with this conversation. Absent: with its own chat alone. */
  passConversationToNextStep: z.boolean().optional(),
  /** Maximum turns of the model. Absent: the run's. */
  maxTurns: z.int().min(1).max(1_000).optional(),
  /** Runs only where this is true; otherwise the step is skipped. */
  when: ExpressionText.optional(),
  /** Once for each entry of a list; the output is the list of outputs. */
  each: z
    .strictObject({
      /** An expression that gives the list. */
      in: ExpressionText,
      /** How many at once. Absent: one. */
      parallel: z.int().min(1).max(16).optional(),
      /** A longer list fails the step. Absent: 100. */
      max: z.int().min(1).max(1_000).optional(),
    })
    .optional(),
  /** Again until a condition holds; the output is that of the last round. */
  repeat: z
    .strictObject({
      /** Read after each round; `output` of this step is that of the round. */
      until: ExpressionText,
      /** When it does not hold after so many rounds, the step fails. */
      max: z.int().min(1).max(100),
    })
    .optional(),
  /** JSON schema of the answer. Absent: text. */
  output: JsonSchema.optional(),
  /** Further attempts after a failure. Absent: none. */
  retries: z.int().min(0).max(5).optional(),
  /** What a failure does: end the run, continue without the steps behind it, or continue with another step. Absent: `abort`. */
  onFailure: z.union([z.enum(['abort', 'continue']), z.strictObject({ step: StepName })]).optional(),
  /** Paths of the workspace that the step writes; `*` for any. Steps with one in common never run at once. Absent: `*`. */
  writes: z.array(Line.min(1)).max(64).optional(),
  /** What a step with `chat` may add to the workflow while it runs, in all. Absent: nothing. */
  mayAdd: z
    .strictObject({
      steps: z.int().min(0).max(32).optional(),
      functions: z.int().min(0).max(32).optional(),
    })
    .optional(),
})
export type StepDetails = z.infer<typeof StepDetails>

/** Fields that exclude one another: a step has exactly one. */
export const stepWorks: readonly StepWorkName[] = ['chat', 'call', 'ask', 'wait', 'workflow', 'from']
/** `from`: it is not known before the other workflow is read. */
export type StepWorkName = 'chat' | 'call' | 'ask' | 'wait' | 'workflow' | 'from'

const ParameterType = z.enum(['string', 'number', 'integer', 'boolean', 'object', 'array'])

const Parameter = z.strictObject({
  type: ParameterType,
  name: z.string().regex(/^(?!__proto__$)[A-Za-z_$][A-Za-z0-9_$]{0,63}$/, 'expected the name of a parameter'),
  description: Text.optional(),
  /** Absent: true. */
  required: z.boolean().optional(),
  /** The only values allowed. */
  enum: z
    .array(z.union([Line, z.number(), z.boolean()]))
    .min(1)
    .max(64)
    .optional(),
  /** JSON schema of the entries of an `array`. */
  items: JsonSchema.optional(),
})

export const FunctionDetails = z.strictObject({
  /** The same as in the key, or absent. */
  name: FunctionName.optional(),
  /** What the function does, for the model. */
  description: Text.min(1),
  /** In the order in which the code takes them. */
  parameters: z.array(Parameter).max(32).default([]),
  /** Runs in the VM, where no function of this name is registered by the application or offered by an MCP server. */
  code: Document.min(1).optional(),
  /** Language of the code. Absent: `javascript`, whose types are stripped. */
  language: z.enum(['javascript', 'python']).optional(),
  /** JSON schema of what the function returns. Absent: not checked. */
  returns: JsonSchema.optional(),
  /** Absent: 30 s. */
  timeoutMs: z.int().min(100).max(600_000).optional(),
  /** Absent: 256. */
  memoryMiB: z.int().min(16).max(2_048).optional(),
})
export type FunctionDetails = z.infer<typeof FunctionDetails>

/** A function of another workflow, beside this one or in the store, under the same name. */
export const TakenFunctionDetails = z.strictObject({
  from: z.string().regex(functionReference, 'expected AGENT@VERSION@func-NAME'),
  sha256: FileDigest.optional(),
})
export type TakenFunctionDetails = z.infer<typeof TakenFunctionDetails>

export const WorkflowDetails = z.strictObject({
  /** In order; a step without `nextStep` leads to the next one. */
  steps: z
    .array(
      z.strictObject({
        id: StepName,
        /** For people. Absent: the id. */
        name: StepName.optional(),
      }),
    )
    .min(1)
    .max(64),
  /** For people. */
  description: Text.optional(),
  /** JSON schema of the input. Absent: any. */
  input: JsonSchema.optional(),
  /** An expression that gives the result of the run. Absent: the outputs of the steps that nothing follows. */
  result: ExpressionText.optional(),
})
export type WorkflowDetails = z.infer<typeof WorkflowDetails>

const additionMaxCount = 32

/** A step that another one adds: it chats, calls or asks, and adds nothing itself. */
export const AddedStep = StepDetails.omit({
  workflow: true,
  wait: true,
  mayAdd: true,
  from: true,
  sha256: true,
}).extend({
  id: StepName,
})
export type AddedStep = z.infer<typeof AddedStep>

const AddedFunction = FunctionDetails.extend({ name: FunctionName, code: Document.min(1) })

/** What a running step adds to its workflow, in the form of a file. */
export const WorkflowAddition = z.strictObject({
  /** Id of the adding step in the plan. */
  by: StepId,
  steps: z.array(AddedStep).max(additionMaxCount),
  functions: z.array(AddedFunction).max(additionMaxCount),
})
export type WorkflowAddition = z.infer<typeof WorkflowAddition>
