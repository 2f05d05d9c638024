/** Defines a hook: its point, its input, and its possible answers. Knows neither programs nor runs. */

import * as z from 'zod'
import { TurnSection, turnSectionsMaxCount } from '#specs/protocol/context-section.ts'
import type { RunReason, ToolError } from '#specs/protocol/error.ts'
import type { HookPoint } from '#specs/protocol/hook.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { StepState } from '#specs/protocol/plan.ts'
import type { RunOutcome } from '#specs/protocol/task.ts'

/** Version of hook inputs; increased when an existing field changes its meaning. */
export const hookVersion = 1

/** A step of the plan, or the whole work of a sub-agent; all of it is the agent's claim. */
interface HookedStep {
  readonly agentPath: string
  readonly stepId: string
  readonly title: string
  readonly instructions: string
}

/** A call of a tool; all of it is the agent's claim. */
export interface HookedCall {
  readonly agentPath: string
  readonly stepId: string
  readonly callId: string
  readonly tool: string
  readonly arguments: Readonly<Record<string, unknown>>
}

/** Input of a hook at each point, besides {@link HookHead}. */
export interface HookSubjects {
  'before-run': {
    readonly prompt: string
    readonly directory: string
    readonly mode: 'work' | 'plan'
    readonly model: string
    readonly provider: string
  }
  'after-run': {
    readonly prompt: string
    readonly directory: string
    readonly outcome: RunOutcome
    readonly reason: RunReason
    readonly message: string
    readonly summary: string
    /** The run's changes; null if there are none. */
    readonly changes: { readonly entries: number; readonly flagged: readonly string[] } | null
  }
  'before-step': HookedStep
  'after-step': HookedStep & {
    readonly state: Exclude<StepState, 'pending' | 'running'>
    /** Its answer, or why it did not complete. */
    readonly text: string
  }
  /** An agent is about to ask the model; all of it is the agent's claim. */
  'before-turn': { readonly agentPath: string; readonly stepId: string }
  /** The request as the gateway took it from the guest, without key and address. */
  'before-model': { readonly request: unknown }
  'after-model': {
    readonly request: unknown
    readonly answer: {
      readonly text: string
      readonly reasoning: string
      readonly calls: readonly { readonly name: string; readonly arguments: string }[]
    }
  }
  'before-tool': HookedCall & {
    /** Names of arguments that the model did not give; absent: it gave all, or a hook did. */
    readonly defaults?: readonly string[]
  }
  'after-tool': HookedCall & {
    /** Text for the model. */
    readonly output: string
    readonly error?: ToolError
  }
}

interface HookHead<P extends HookPoint = HookPoint> {
  readonly version: typeof hookVersion
  readonly point: P
  readonly runId: string
}

/** The complete input of a hook at a point; for a command, the JSON on its standard input. */
export type HookInput<P extends HookPoint = HookPoint> = P extends HookPoint
  ? HookHead<P> & HookSubjects[P]
  : never

/**
 * What a hook says. Arguments and `ask` are for `before-tool` alone, notes for the two points of tools, sections of the
 * context for `before-turn`.
 */
export const HookVerdict = z.strictObject({
  decision: z.enum(['allow', 'deny', 'ask']).default('allow'),
  /** Reason of a denial or question, shown to the model and to people. */
  reason: z.string().max(limits.textMaxChars).optional(),
  /** In the place of the model's; the tool's schema is asked again. */
  arguments: z.record(z.string(), z.unknown()).optional(),
  /** Shown to the model beside the result. */
  note: z.string().max(limits.textMaxChars).optional(),
  /** Sections that the request has, each added where its text is not yet in the conversation. */
  context: z.array(TurnSection).max(turnSectionsMaxCount).optional(),
})
export type HookVerdict = z.infer<typeof HookVerdict>

/** What came of asking one hook; the error says why it said nothing that counts. */
export type HookAnswer = { ok: true; value: HookVerdict } | { ok: false; error: string }

/** One that can be asked. */
export interface Hook {
  readonly name: string
  readonly point: HookPoint
  /** Tools that it is about, `*` for any run of characters; absent: all. */
  readonly tools?: readonly string[]
  /** What counts when it fails. */
  readonly onFailure: 'allow' | 'deny'
  /** Never rejects; ends within its own time limit. @param signal aborted when the answer is no longer needed */
  ask(input: HookInput, signal: AbortSignal): Promise<HookAnswer>
}

/** A verdict, or why it is none at this point. */
export function readVerdict(value: unknown, point: HookPoint): HookAnswer {
  const parsed = HookVerdict.safeParse(value, plainMessages)
  if (!parsed.success) {
    const issues = describeIssues(parsed.error, { root: 'the decision', max: 1 })
    return { ok: false, error: `gave no decision that can be read: ${issues}` }
  }
  const { decision, arguments: changed, note, context } = parsed.data
  const misplaced =
    (decision === 'ask' && point !== 'before-tool' && 'the decision ask') ||
    (changed !== undefined && point !== 'before-tool' && 'arguments') ||
    (note !== undefined && !point.endsWith('-tool') && 'a note') ||
    (context !== undefined && point !== 'before-turn' && 'sections of the context')
  if (misplaced) return { ok: false, error: `gave ${misplaced}, which ${point} does not take` }
  return { ok: true, value: parsed.data }
}

/** Default effect of a failure: hooks before an action deny it, hooks after it only report. */
export function defaultOnFailure(point: HookPoint): Hook['onFailure'] {
  return point.startsWith('before-') ? 'deny' : 'allow'
}
