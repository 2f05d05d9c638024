/** Steps of a workflow in words: what each is, where it led, and whose entry or inner step a line is of. Pure. */
import type { Plan } from '#specs/protocol/plan.ts'
import type { RunState } from '#specs/protocol/run-state.ts'
import type { WorkflowOutline } from '#specs/protocol/workflow.ts'
import { count, visibleLine } from '../parts/text.ts'

type Titled = Pick<Plan, 'steps'>

interface Shown {
  readonly plan: Titled
  readonly outline: WorkflowOutline
  readonly steps: RunState['steps']
  readonly rounds: ReadonlyMap<string, number>
}

const works = { chat: '', call: 'call', ask: 'question', wait: 'wait', workflow: 'workflow' } as const
const expressionMaxChars = 160

export function titlesOf({ steps }: Titled, ids: readonly string[]): string[] {
  return ids.map((id) => visibleLine(steps.find((step) => step.id === id)?.title ?? id, 100))
}

/** What a row says: short words for the row itself, and all of it. */
export interface StepWords {
  readonly short: readonly string[]
  readonly whole: readonly string[]
}

export function describeStep(id: string, { plan, outline, steps, rounds }: Shown): StepWords | undefined {
  const step = Object.hasOwn(outline, id) ? outline[id] : undefined
  if (step === undefined) return undefined
  const { work, when, each, repeat } = step
  const { state = 'pending', text = '' } = (Object.hasOwn(steps, id) ? steps[id] : undefined) ?? {}
  const begun = rounds.get(id) ?? 0
  const entries = each === undefined || begun === 0 ? [] : [count(begun, 'entry', 'entries')]
  const kind = works[work] === '' ? [] : [works[work]]
  const taken = takenCase(id, outline, steps)
  const led = taken === undefined ? [] : [`→ ${titlesOf(plan, [taken.to]).join('')}`]
  return {
    short: [
      state === 'skipped' ? (text === noWay ? 'not taken' : 'skipped by its condition') : state,
      ...kind,
      ...(each !== undefined && begun === 0 ? ['for each entry'] : entries),
      ...led,
    ],
    whole: [
      state === 'skipped' && text !== '' ? `skipped: ${visibleLine(text, 100)}` : state,
      ...kind,
      ...(each === undefined ? [] : [`for each of ${cut(each)}`]),
      ...entries,
      ...(when === undefined ? [] : [`if ${cut(when)}`]),
      ...(repeat === undefined ? [] : [`until ${cut(repeat)}`]),
      ...(taken === undefined
        ? []
        : [`${led[0]} (${taken.condition === null ? 'else' : cut(taken.condition)})`]),
    ],
  }
}

/** Of the agent, for a step that nothing leads to. */
const noWay = 'no step led here'

function cut(expression: string): string {
  return visibleLine(expression, expressionMaxChars)
}

/** The case by which a step led on, once what it leads to has begun; undefined before, and for a step without cases. */
export function takenCase(
  id: string,
  outline: WorkflowOutline,
  steps: RunState['steps'],
): { readonly to: string; readonly condition: string | null } | undefined {
  if (!Object.hasOwn(steps, id) || steps[id]?.state !== 'completed') return undefined
  for (const [index, condition] of (outline[id]?.cases ?? []).entries())
    for (const [to, { after }] of Object.entries(outline)) {
      const leads = after.some((way) => way.step === id && way.case === index)
      const state = Object.hasOwn(steps, to) ? steps[to]?.state : undefined
      const hasBegun = state !== undefined && state !== 'pending' && state !== 'skipped'
      if (leads && hasBegun && !hasOtherWay(to, id, outline, steps)) return { to, condition }
    }
  return undefined
}

/** Whether another completed step may have led to it. */
function hasOtherWay(to: string, from: string, outline: WorkflowOutline, steps: RunState['steps']): boolean {
  return (outline[to]?.after ?? []).some(
    ({ step, case: index }) => step !== from && index === undefined && steps[step]?.state === 'completed',
  )
}

/** `estimate--2`: the step of the plan, and what of it. Undefined for a step of the plan itself. */
export function innerOf(stepId: string): { readonly outer: string; readonly inner: string } | undefined {
  const at = stepId.indexOf('--')
  return at <= 0 ? undefined : { outer: stepId.slice(0, at), inner: stepId.slice(at + 2) }
}

/** `Estimate · entry 3`, `Review › read`: whose turn or call it is. */
export function labelOf(stepId: string, plan: Titled | null): string | undefined {
  const found = innerOf(stepId)
  if (found === undefined) return undefined
  const title = titlesOf(plan ?? { steps: [] }, [found.outer])[0] ?? found.outer
  const parts = found.inner
    .split('--')
    .map((part) => (/^\d+$/.test(part) ? ` · entry ${Number(part) + 1}` : ` › ${part}`))
  return visibleLine(`${title}${parts.join('')}`, 120)
}
