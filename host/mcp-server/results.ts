/** What the tools answer: a run as structured content, and what a client or its person can do next. */
import type { CallToolResult } from '@modelcontextprotocol/server'
import * as z from 'zod'
import type { RunView } from '../run-view/run-view.ts'

/** Why a question waits that this client did not ask its person. */
export type WaitingReason = 'declined' | 'no_forms' | 'too_long' | 'not_allowed'

const questionsMax = 20

export const RunAnswer = z.object({
  runId: z.string(),
  /** `queued`, `running`, `waiting`, `sleeping`, `interrupted`, or how it ended. */
  status: z.string(),
  /** Whether the run is over. */
  hasEnded: z.boolean(),
  /** Why it ended so. */
  message: z.string().optional(),
  /** Answer of the agent; untrusted text. */
  answer: z.string().optional(),
  /** Changed files; none is applied before a person applies it. */
  changes: z
    .object({ entries: z.number(), flagged: z.array(z.string()) })
    .nullable()
    .optional(),
  costUsd: z.number().nullable(),
  /** What it waits for. */
  questions: z.array(z.object({ approvalId: z.string(), tool: z.string() })),
  /** What to do next. */
  next: z.string(),
  resources: z.array(z.string()),
})
export type RunAnswer = z.infer<typeof RunAnswer>

export function runAnswer({ run, result, questions }: RunView, reason?: WaitingReason): RunAnswer {
  return {
    ...{ runId: run.id, status: run.status, hasEnded: result !== undefined, costUsd: run.costUsd },
    ...(result === undefined
      ? {}
      : { message: result.message, answer: result.summary, changes: result.changes }),
    questions: questions
      .slice(0, questionsMax)
      .map(({ approval: { approvalId, tool } }) => ({ approvalId, tool })),
    next: nextOf({ run, result, questions }, reason),
    resources: resourcesOf(run.id),
  }
}

export function runResult(view: RunView, reason?: WaitingReason): CallToolResult {
  const structuredContent = runAnswer(view, reason)
  const isFailed = view.result !== undefined && view.result.outcome !== 'completed'
  return {
    content: [{ type: 'text', text: JSON.stringify(structuredContent) }],
    structuredContent,
    ...(isFailed ? { isError: true } : {}),
  }
}

/** What of a run is a resource. */
export const resourceParts = ['journal', 'plan', 'changes'] as const
export type ResourcePart = (typeof resourceParts)[number]

/** @param runId id of a run, or the variable of a template */
export function resourceOf(runId: string, part: ResourcePart): string {
  return `caisson://runs/${runId}/${part}`
}

export function resourcesOf(runId: string): string[] {
  return resourceParts.map((part) => resourceOf(runId, part))
}

function nextOf({ run: { id }, result, questions }: RunView, reason: WaitingReason | undefined): string {
  if (result !== undefined)
    return (result.changes?.entries ?? 0) > 0
      ? `A person reviews and applies the changes: caisson workspace diff ${id}, then caisson workspace apply ${id}, or the web page. No tool applies them.`
      : 'The run is over.'
  if (questions.length === 0) return `It is at work. Call get_run with waitSeconds to wait for its end.`
  const where = `A person answers in Caisson: caisson approvals list, or the web page. No tool answers it. Then call get_run.`
  return reason === undefined ? where : `${whys[reason]} ${where}`
}

const whys: Readonly<Record<WaitingReason, string>> = {
  declined: 'The person did not answer here, and the question still waits.',
  no_forms: 'It waits for a person, and this client shows no forms (elicitation).',
  too_long: 'It waits for a person, and the question is too long for a form.',
  not_allowed: 'It waits for a person, and the key of this client may not answer (scope approve).',
}
