/** What the details of a step say of its work and of what follows it. */
import type { Result } from '#specs/protocol/error.ts'
import {
  type NextStep,
  type StepDetails,
  type StepWorkName,
  stepWorks,
} from '#specs/protocol/workflow-format.ts'
import type { Edge } from './workspace-data.ts'

/** The one work of a step; else what is wrong. @param allowed absent: any */
export function readWork(
  step: StepDetails,
  allowed: readonly StepWorkName[] = stepWorks,
): Result<StepWorkName, string> {
  const works = stepWorks.filter((work) => step[work] !== undefined)
  const [work] = works
  if (work !== undefined && works.length === 1) return { ok: true, value: work }
  const got = works.length === 0 ? 'none of them' : works.join(' and ')
  return { ok: false, error: `must have one of ${allowed.join(', ')}; has ${got}` }
}

/** What follows a step: its `nextStep`, else the next one of the list; and the step for a failure. */
export function edgesOf({ nextStep, onFailure }: StepDetails, following: string | undefined): Edge[] {
  const after = nextStep ?? following ?? '-'
  const edges = toEdges(after).filter(({ to }) => to !== '-' || Array.isArray(after))
  const failure = typeof onFailure === 'object' ? onFailure.step : null
  return failure === null ? edges : [...edges, { to: failure, on: 'failed', isCase: false }]
}

function toEdges(after: NextStep): Edge[] {
  if (typeof after === 'string') return [{ to: after, on: 'completed', isCase: false }]
  return after.map((one) =>
    typeof one === 'string'
      ? { to: one, on: 'completed', isCase: false }
      : {
          to: one.step,
          on: 'completed',
          isCase: true,
          ...(one.when === undefined ? {} : { when: one.when }),
        },
  )
}
