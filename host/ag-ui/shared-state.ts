/** What a front end sees of a run as shared state, and the changes of it as a JSON Patch (RFC 6902). Pure. */
import type { JsonPatchOperation } from '@ag-ui/core'
import type { RunState } from '../index.ts'

type Json = string | number | boolean | null | readonly Json[] | { readonly [name: string]: Json }

/** Texts of the plan are the agent's. */
export function sharedState(runId: string, state: RunState): Json {
  const { phase, plan, revision, steps, toolCalls, costUsd, changes, end } = state
  return {
    ...{ runId, phase, toolCalls, costUsd },
    plan:
      plan === null
        ? null
        : {
            revision,
            steps: plan.steps.map(({ id, title }) => ({ id, title, state: steps[id]?.state ?? 'pending' })),
          },
    changes: changes === null ? null : { entries: changes.entries, flagged: [...changes.flagged] },
    outcome: end === null ? null : end.outcome,
  }
}

/** What makes `after` of `before`; lists of another length are replaced. */
export function patchOf(before: Json, after: Json, path: string): JsonPatchOperation[] {
  if (before === after) return []
  const areLists = Array.isArray(before) && Array.isArray(after) && before.length === after.length
  if (!areLists && !(isPlain(before) && isPlain(after) && hasSameNames(before, after)))
    return JSON.stringify(before) === JSON.stringify(after) ? [] : [{ op: 'replace', path, value: after }]
  const left = before as Readonly<Record<string, Json>>
  return Object.entries(after as Readonly<Record<string, Json>>).flatMap(([name, value]) =>
    patchOf(left[name] ?? null, value, `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`),
  )
}

function isPlain(value: Json): value is { readonly [name: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function hasSameNames(before: object, after: object): boolean {
  const names = Object.keys(after)
  return names.length === Object.keys(before).length && names.every((name) => Object.hasOwn(before, name))
}
