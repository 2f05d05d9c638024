/** Hooks: what the user, or a host application, has looked at before and after; all of them run on the host. */
import * as z from 'zod'
import { ToolError } from './error.ts'
import { matchesPattern } from './pattern.ts'
import { StepState } from './plan.ts'
import { AgentPath, Document, Id, Line, RunId, Text } from './text.ts'
import { plainName, toolKey } from './tool-names.ts'

export const hookPoints = [
  'before-run',
  'after-run',
  'before-step',
  'after-step',
  'before-model',
  'after-model',
  'before-tool',
  'after-tool',
] as const
export const HookPoint = z.enum(hookPoints)
export type HookPoint = z.infer<typeof HookPoint>

/** Points that the agent stops at and asks the host; the others the host sees by itself. */
export const AgentHookPoint = HookPoint.extract(['before-step', 'after-step', 'before-tool', 'after-tool'])
export type AgentHookPoint = z.infer<typeof AgentHookPoint>

/** Where the agent is to ask, and about which tools; of a step's points there are no tools. */
export const AgentHook = z.strictObject({
  point: AgentHookPoint,
  /** Names, `*` for any run of characters; absent: all. */
  tools: z.array(Line.min(1)).max(64).optional(),
})
export type AgentHook = z.infer<typeof AgentHook>

/**
 * Whether a hook is asked at `at`, about the tool where one is called. The agent, who stops there, the host, who asks, and the
 * host, who looks whether the agent did, all go by this: a tool is the same one in whatever spelling it is named.
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

/** What the agent asks; everything here but `runId` is its claim. */
export const HookRequest = z.strictObject({
  /** Stable over sessions: asked again after a lost session, it is the same question. */
  hookId: Id,
  runId: RunId,
  agentPath: AgentPath,
  stepId: Id,
  subject: z.discriminatedUnion('point', [
    z.strictObject({
      point: z.literal('before-tool'),
      ...HookedTool.shape,
      /** Names of arguments that the model did not give: they stand as the tool has them. */
      defaults: z.array(Line).max(64).optional(),
    }),
    z.strictObject({
      point: z.literal('after-tool'),
      ...HookedTool.shape,
      /** What the model is to be told. */
      output: Text,
      error: ToolError.optional(),
    }),
    z.strictObject({ point: z.literal('before-step'), ...HookedStep.shape }),
    z.strictObject({
      point: z.literal('after-step'),
      ...HookedStep.shape,
      state: StepState.exclude(['pending', 'running']),
      text: Document,
    }),
  ]),
})
export type HookRequest = z.infer<typeof HookRequest>

/** What the hooks of one point said together: one no is a no. */
export const HookDecision = z.strictObject({
  decision: z.enum(['allow', 'deny']),
  /** Of a no: told to the model. */
  reason: Text.optional(),
  /** Before a tool call: arguments in the place of the model's, as JSON. */
  arguments: Document.optional(),
  /** Told to the model beside the result. */
  note: Text.optional(),
})
export type HookDecision = z.infer<typeof HookDecision>
