/**
 * Repairs of a plan whose outcome is certain: other spellings of fields, ids in another alphabet or used twice, texts that are
 * too long for one line. What could be meant in two ways is left for validation to refuse.
 */

import { isRecord } from '#runtime/llm/json-schema.ts'
import { limits } from '#specs/protocol/limits.ts'

export interface MendedPlan {
  readonly value: unknown
  readonly corrections: readonly string[]
}

const stepAliases: Readonly<Record<string, readonly string[]>> = {
  id: ['name', 'step', 'stepid', 'number'],
  title: ['summary', 'label', 'heading'],
  instructions: ['instruction', 'description', 'details', 'task', 'action', 'prompt'],
  needs: ['dependson', 'dependencies', 'requires', 'after'],
  writes: ['outputs', 'files', 'writesto'],
  onFailure: ['onerror', 'iffails'],
}

/** The plan with its certain slips put right; `value` is not validated. */
export function mendPlan(value: unknown): MendedPlan {
  const corrections: string[] = []
  const plan = unwrap(value, corrections)
  if (!isRecord(plan) || !Array.isArray(plan.steps)) return { value: plan, corrections }
  const steps = plan.steps.map((step: unknown, index) => mendStep(step, index, corrections))
  const ids = mendIds(steps, corrections)
  const goal = typeof plan.goal === 'string' ? toLine(plan.goal) : plan.goal
  noteDropped(Object.keys(plan), ['goal', 'steps'], 'plan', corrections)
  const firstTitle = isRecord(steps[0]) ? steps[0].title : undefined
  if (goal === undefined || goal === '') corrections.push('goal: taken from the first step')
  return { value: { goal: goal === undefined || goal === '' ? firstTitle : goal, steps: ids }, corrections }
}

/** `{ plan: {…} }` and a bare list of steps are plans in another coat. */
function unwrap(value: unknown, corrections: string[]): unknown {
  if (Array.isArray(value)) {
    corrections.push('plan: a bare list of steps')
    return { steps: value }
  }
  if (isRecord(value) && value.steps === undefined && isRecord(value.plan)) {
    corrections.push('plan: taken out of an object')
    return value.plan
  }
  return value
}

function mendStep(step: unknown, index: number, corrections: string[]): unknown {
  if (typeof step === 'string' && step.trim() !== '') {
    corrections.push(`steps.${index}: a sentence was taken as instructions`)
    return { id: `step-${index + 1}`, title: toLine(step), instructions: step }
  }
  if (!isRecord(step)) return step
  const mended: Record<string, unknown> = {}
  for (const field of Object.keys(stepAliases)) {
    const source = findField(step, field)
    if (source === null) continue
    if (source !== field) corrections.push(`steps.${index}.${source.slice(0, 40)}: taken as ${field}`)
    mended[field] = step[source]
  }
  const used = Object.keys(stepAliases).map((field) => findField(step, field) ?? field)
  noteDropped(Object.keys(step), used, `steps.${index}`, corrections)
  mendFields(mended, index, corrections)
  return mended
}

function mendFields(step: Record<string, unknown>, index: number, corrections: string[]): void {
  step.id ??= `step-${index + 1}`
  if (typeof step.id === 'number') step.id = String(step.id)
  if (typeof step.instructions !== 'string' || step.instructions.trim() === '') step.instructions = step.title
  if (typeof step.title !== 'string' || step.title.trim() === '') step.title = step.instructions
  if (typeof step.title === 'string') step.title = toLine(step.title)
  for (const field of ['needs', 'writes']) {
    const value = step[field]
    if (value === null) delete step[field]
    else if (typeof value === 'string' || typeof value === 'number')
      step[field] = value === '' ? [] : [String(value)]
    else if (Array.isArray(value)) {
      step[field] = value.map((item: unknown) => (typeof item === 'number' ? String(item) : item))
    }
  }
  if (typeof step.onFailure === 'string') {
    const word = step.onFailure.trim().toLowerCase()
    if (word !== step.onFailure) corrections.push(`steps.${index}.onFailure: taken as ${word.slice(0, 20)}`)
    step.onFailure = word
  } else if (step.onFailure === null) delete step.onFailure
}

/** Ids in our alphabet and each used once; needs follow, unless two steps had the same id before. */
function mendIds(steps: readonly unknown[], corrections: string[]): unknown[] {
  const renamed = new Map<string, string>()
  const ambiguous = new Set<string>()
  const taken = new Set<string>(['plan'])
  const mended = steps.map((step) => {
    if (!isRecord(step) || typeof step.id !== 'string') return step
    const id = toFreeId(step.id, taken)
    taken.add(id)
    if (renamed.has(step.id)) ambiguous.add(step.id)
    renamed.set(step.id, id)
    if (id !== step.id) corrections.push(`step ${step.id.slice(0, 40)}: renamed to ${id}`)
    return { ...step, id }
  })
  return mended.map((step) => {
    if (!isRecord(step) || !Array.isArray(step.needs)) return step
    const needs = step.needs.map((need: unknown) => {
      if (typeof need !== 'string') return need
      // Two steps of one name: which of them is needed is not certain.
      if (ambiguous.has(need)) return `${need} (used twice)`
      return renamed.get(need) ?? (taken.has(toId(need)) ? toId(need) : need)
    })
    return { ...step, needs: [...new Set(needs)] }
  })
}

function toFreeId(wanted: string, taken: ReadonlySet<string>): string {
  const base = toId(wanted)
  if (!taken.has(base)) return base
  for (let number = 2; ; number++) {
    const id = `${base.slice(0, 28)}-${number}`
    if (!taken.has(id)) return id
  }
}

function toId(text: string): string {
  const plain = text
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]+/g, '-')
    .replace(/^[-_]+/, '')
    .slice(0, 32)
    .replace(/-+$/, '')
  return plain === '' ? 'step' : plain
}

function findField(step: Record<string, unknown>, field: string): string | null {
  if (Object.hasOwn(step, field)) return field
  const words = [field.toLowerCase(), ...(stepAliases[field] ?? [])]
  for (const word of words) {
    const found = Object.keys(step).find((key) => key.toLowerCase().replaceAll(/[_-]/g, '') === word)
    // A name that is itself a field of ours is never taken for another.
    if (found !== undefined && !Object.hasOwn(stepAliases, found)) return found
  }
  return null
}

function noteDropped(
  keys: readonly string[],
  known: readonly string[],
  where: string,
  corrections: string[],
): void {
  for (const key of keys.filter((name) => !known.includes(name)).slice(0, 10)) {
    corrections.push(`${where}.${key.slice(0, 40)}: unknown, left out`)
  }
}

function toLine(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ').trim().toWellFormed()
  return line.length <= limits.lineMaxChars ? line : `${line.slice(0, limits.lineMaxChars - 1)}…`
}
