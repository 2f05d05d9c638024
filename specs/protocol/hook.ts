/** Hooks: checks by the user or a host application before and after actions; all of them run on the host. */
import * as z from 'zod'
import { GivenTurnSection, turnSectionsMaxCount } from './context-section.ts'
import { ToolError } from './error.ts'
import { matchesPattern } from './pattern.ts'
import { StepEndState } from './plan.ts'
import { AgentPath, Document, Id, Line, RunId, Text } from './text.ts'
import { plainName, toolKey } from './tool-names.ts'

export const hookPoints = [
  'before-run',
  'after-run',
  'before-step',
  'after-step',
  'before-turn',
  'before-model',
  'after-model',
  'before-tool',
  'after-tool',
] as const
export const HookPoint = z.enum(hookPoints)
export type HookPoint = z.infer<typeof HookPoint>

/** Points at which the agent stops and asks the host; the host sees the others itself. */
export const AgentHookPoint = HookPoint.extract([
  'before-step',
  'after-step',
  'before-turn',
  'before-tool',
  'after-tool',
])
export type AgentHookPoint = z.infer<typeof AgentHookPoint>

/** Where the agent must ask, and for which tools; points of steps have no tools. */
export const AgentHook = z.strictObject({
  point: AgentHookPoint,
  /** Tool names, `*` for any characters; absent: all. */
  tools: z.array(Line.min(1)).max(64).optional(),
})
export type AgentHook = z.infer<typeof AgentHook>

/**
 * Whether a hook applies at `at`, for the tool of a call. The agent (which stops there) and the host (which asks and
 * verifies) share this rule: all spellings of a tool name are equal.
 */
export function isAskedAt(
  { point, tools }: { readonly point: HookPoint; readonly tools?: readonly string[] | undefined },
  at: HookPoint,
  tool?: string,
): boolean {
  if (point !== at || tool === undefined || tools === undefined) return point === at
  const key = toolKey(tool)
  return tools.some((pattern) => matchesPattern(plainName(pattern), key))
}

const HookedTool = z.strictObject({
  callId: Id,
  tool: Line.min(1),
  /** Canonical JSON of the arguments. */
  arguments: Document,
})
const HookedStep = z.strictObject({ title: Line, instructions: Document })

/** The agent's question; everything here but `runId` is its claim. */
export const HookRequest = z.strictObject({
  /** Stable over sessions: repeated after a lost session, it is the same question. */
  hookId: Id,
  runId: RunId,
  agentPath: AgentPath,
  stepId: Id,
  subject: z.discriminatedUnion('point', [
    z.strictObject({
      point: z.literal('before-tool'),
      ...HookedTool.shape,
      /** Names of arguments that the model did not give: they have the tool's defaults. */
      defaults: z.array(Line).max(64).optional(),
    }),
    z.strictObject({
      point: z.literal('after-tool'),
      ...HookedTool.shape,
      /** The text that the model will receive. */
      output: Text,
      error: ToolError.optional(),
    }),
    z.strictObject({ point: z.literal('before-turn') }),
    z.strictObject({ point: z.literal('before-step'), ...HookedStep.shape }),
    z.strictObject({
      point: z.literal('after-step'),
      ...HookedStep.shape,
      state: StepEndState,
      text: Document,
    }),
  ]),
})
export type HookRequest = z.infer<typeof HookRequest>

/** The combined decision of one point's hooks: one denial denies. */
export const HookDecision = z.strictObject({
  decision: z.enum(['allow', 'deny']),
  /** Reason of a denial; the model receives it. */
  reason: Text.optional(),
  /** Before a tool call: arguments that replace the model's, as JSON. */
  arguments: Document.optional(),
  /** Text for the model in addition to the result. */
  note: Text.optional(),
  /** Before a request of the model: sections that it has. */
  context: z.array(GivenTurnSection).max(turnSectionsMaxCount).optional(),
})
export type HookDecision = z.infer<typeof HookDecision>
