/** How steps ended and what they returned: evaluates conditions and resolves references. Pure. */

import { block } from '#specs/node/prompt-block.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result } from '#specs/protocol/error.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Condition, Step, StepState } from '#specs/protocol/plan.ts'
import { findReferences, type Reference } from '#specs/protocol/plan-references.ts'

export interface StepOutcome {
  readonly state: Exclude<StepState, 'pending' | 'running'>
  /** The step's answer, or why there is none. */
  readonly text: string
  /** Answer of a step that has an `output`. */
  readonly value?: unknown
}

type Outcomes = ReadonlyMap<string, StepOutcome>

/** Whether the condition holds for how its step ended. */
export function holds(condition: Condition, outcome: StepOutcome): boolean {
  if (outcome.state !== (condition.state ?? 'completed')) return false
  if (condition.equals === undefined && condition.contains === undefined && condition.path === undefined)
    return true
  const found = valueAt(outcome.value ?? outcome.text, condition.path?.split('.') ?? [])
  if (!found.ok) return false
  const value = typeof found.value === 'string' ? found.value.trim() : found.value
  const { equals, contains } = condition
  const wanted = typeof equals === 'string' ? equals.trim() : equals
  if (wanted !== undefined && value !== wanted) return false
  return contains === undefined || isIn(contains, value)
}

function isIn(part: string, value: unknown): boolean {
  if (typeof value === 'string') return value.includes(part)
  return Array.isArray(value) && value.some((member) => member === part)
}

/** The value at `path`; the error names the first missing part. */
function valueAt(value: unknown, path: readonly string[]): Result<unknown, string> {
  let at = value
  for (const name of path) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, name)) return { ok: false, error: name }
    at = (at as Readonly<Record<string, unknown>>)[name]
  }
  return { ok: true, value: at }
}

/**
 * Resolves references in the step's instructions. Output of other steps is data: except for single plain words it is
 * placed in a block that says so. The error names the reference that is missing or too large.
 */
export function resolveInstructions(step: Step, outcomes: Outcomes): Result<string, string> {
  const parts: string[] = []
  let end = 0
  let chars = step.instructions.length
  for (const reference of findReferences(step.instructions)) {
    const said = resolve(reference, outcomes.get(reference.stepId))
    if (!said.ok) return said
    chars += said.value.length
    if (chars > limits.documentMaxChars) {
      const error = `the instructions have more than ${limits.documentMaxChars} characters with what ${reference.text} stands for; refer to less of the output`
      return { ok: false, error }
    }
    parts.push(step.instructions.slice(end, reference.at), said.value)
    end = reference.at + reference.text.length
  }
  return { ok: true, value: [...parts, step.instructions.slice(end)].join('') }
}

function resolve(
  { text, stepId, path }: Reference,
  outcome: StepOutcome | undefined,
): Result<string, string> {
  if (outcome === undefined || outcome.state === 'skipped')
    return { ok: true, value: `(step "${stepId}" was not taken)` }
  const found = valueAt(outcome.value ?? outcome.text, path)
  if (!found.ok) {
    return {
      ok: false,
      error: `${text} leads nowhere: the output of step "${stepId}" has no "${found.error}"`,
    }
  }
  return { ok: true, value: say(found.value, stepId, path) }
}

/** A path, a number or a name: nothing that could be read as an instruction. */
const plainWord = /^[\p{L}\p{N}_@%+=:,./~-]{1,200}$/u

function say(value: unknown, stepId: string, path: readonly string[]): string {
  const text = typeof value === 'string' ? value : toCanonicalJson(value)
  if (plainWord.test(text)) return text
  const at = path.length === 0 ? '' : ` path="${path.join('.').replaceAll(/["<>]/g, '')}"`
  return `\n${block('result', text, ` step="${stepId}"${at}`)}\n`
}
