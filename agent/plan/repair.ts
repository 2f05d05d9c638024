/**
 * Repairs unambiguous mistakes in a plan: field spellings, ids in another alphabet or used twice, texts too long for
 * a line. Leaves ambiguous mistakes to validation.
 */

import { isRecord } from '#runtime/llm/json-schema.ts'
import { limits } from '#specs/protocol/limits.ts'
import { findReferences } from '#specs/protocol/plan-references.ts'

interface RepairedPlan {
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
  kind: [],
  // Dropping a condition would change behavior, so validation must reject an invalid one.
  when: ['condition', 'if', 'runif', 'onlyif'],
  retries: ['retry', 'maxretries'],
  output: ['outputschema', 'schema'],
  tools: ['allowedtools'],
  limits: [],
  model: [],
}
const optionalFields = ['kind', 'when', 'retries', 'output', 'tools', 'limits', 'model'] as const

/**
 * Repairs the plan's unambiguous mistakes; does not validate `value`.
 * @param models names that a step may have as its model; without any, the field is left out
 */
export function repairPlan(value: unknown, models: readonly string[] = []): RepairedPlan {
  const corrections: string[] = []
  const plan = unwrap(value, corrections)
  if (!isRecord(plan) || !Array.isArray(plan.steps)) return { value: plan, corrections }
  const steps = plan.steps.map((step: unknown, index) => {
    const repaired = repairStep(step, index, corrections)
    if (!isRecord(repaired) || repaired.model === undefined || models.length > 0) return repaired
    const { model: _, ...rest } = repaired
    corrections.push(`steps.${index}.model: the run has no other model, left out`)
    return rest
  })
  const ids = repairIds(steps, corrections)
  const goal = typeof plan.goal === 'string' ? toLine(plan.goal) : plan.goal
  noteDropped(Object.keys(plan), ['goal', 'steps'], 'plan', corrections)
  const firstTitle = isRecord(steps[0]) ? steps[0].title : undefined
  if (goal === undefined || goal === '') corrections.push('goal: taken from the first step')
  return { value: { goal: goal === undefined || goal === '' ? firstTitle : goal, steps: ids }, corrections }
}

/** Accepts `{ plan: {…} }` and a bare list of steps as plans. */
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

function repairStep(step: unknown, index: number, corrections: string[]): unknown {
  if (typeof step === 'string' && step.trim() !== '') {
    corrections.push(`steps.${index}: a sentence was taken as instructions`)
    return { id: `step-${index + 1}`, title: toLine(step), instructions: step }
  }
  if (!isRecord(step)) return step
  const repaired: Record<string, unknown> = {}
  for (const field of Object.keys(stepAliases)) {
    const source = findField(step, field)
    if (source === null) continue
    if (source !== field) corrections.push(`steps.${index}.${source.slice(0, 40)}: taken as ${field}`)
    repaired[field] = step[source]
  }
  const used = Object.keys(stepAliases).map((field) => findField(step, field) ?? field)
  noteDropped(Object.keys(step), used, `steps.${index}`, corrections)
  repairFields(repaired, index, corrections)
  return repaired
}

function repairFields(step: Record<string, unknown>, index: number, corrections: string[]): void {
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
  for (const field of optionalFields) if (step[field] === null) delete step[field]
  if (typeof step.retries === 'string' && /^\s*\d\s*$/.test(step.retries)) step.retries = Number(step.retries)
  if (typeof step.onFailure === 'string') repairOnFailure(step, step.onFailure, index, corrections)
  else if (step.onFailure === null) delete step.onFailure
}

/** Moves the number of `retry 2` to `retries`. */
function repairOnFailure(
  step: Record<string, unknown>,
  written: string,
  index: number,
  corrections: string[],
): void {
  const word = written
    .trim()
    .toLowerCase()
    .replace(/^re[-_ ]plan$/, 'replan')
  const retry = /^retry(?:[ (:]*(\d)\)?)?$/.exec(word)
  if (retry === null) step.onFailure = word
  else {
    delete step.onFailure
    step.retries ??= Number(retry[1] ?? 1)
  }
  if (retry !== null || word !== written) {
    const meaning = retry === null ? word.slice(0, 20) : `retries ${String(step.retries)}`
    corrections.push(`steps.${index}.onFailure: taken as ${meaning}`)
  }
}

/** Makes ids valid and unique; `needs` follow, unless two steps had the same id. */
function repairIds(steps: readonly unknown[], corrections: string[]): unknown[] {
  const renamed = new Map<string, string>()
  const ambiguous = new Set<string>()
  const taken = new Set<string>(['plan'])
  const repaired = steps.map((step) => {
    if (!isRecord(step) || typeof step.id !== 'string') return step
    const id = toFreeId(step.id, taken)
    taken.add(id)
    if (renamed.has(step.id)) ambiguous.add(step.id)
    renamed.set(step.id, id)
    if (id !== step.id) corrections.push(`step ${step.id.slice(0, 40)}: renamed to ${id}`)
    return { ...step, id }
  })
  const follow = (id: string): string => {
    // Two steps with one name: a reference to it is ambiguous.
    if (ambiguous.has(id)) return `${id} (used twice)`
    return renamed.get(id) ?? (taken.has(toId(id)) ? toId(id) : id)
  }
  return repaired.map((step) => (isRecord(step) ? followNames(step, follow, corrections) : step))
}

/** Applies the new names to all references of a step and adds steps used in its instructions to `needs`. */
function followNames(
  step: Record<string, unknown>,
  follow: (id: string) => string,
  corrections: string[],
): Record<string, unknown> {
  const { when } = step
  const condition =
    isRecord(when) && typeof when.step === 'string' ? { ...when, step: follow(when.step) } : when
  const followed: Record<string, unknown> = { ...step }
  if (condition !== undefined) followed.when = condition
  const needs = Array.isArray(step.needs)
    ? [...new Set(step.needs.map((need: unknown) => (typeof need === 'string' ? follow(need) : need)))]
    : undefined
  if (needs !== undefined) followed.needs = needs
  if (typeof step.instructions !== 'string') return followed
  const { text, stepIds } = renameReferences(step.instructions, follow)
  followed.instructions = text
  const waited = new Set<unknown>([...(needs ?? []), isRecord(condition) ? condition.step : undefined])
  const unneeded = [...stepIds].filter((id) => !waited.has(id))
  if (unneeded.length > 0 && (needs !== undefined || step.needs === undefined)) {
    followed.needs = [...(needs ?? []), ...unneeded]
    corrections.push(
      `step ${String(step.id)}: needs ${unneeded.join(', ').slice(0, 100)}, which it refers to`,
    )
  }
  return followed
}

function renameReferences(
  instructions: string,
  follow: (id: string) => string,
): { text: string; stepIds: ReadonlySet<string> } {
  const stepIds = new Set<string>()
  const parts: string[] = []
  let end = 0
  for (const { text, at, stepId } of findReferences(instructions)) {
    const id = follow(stepId)
    stepIds.add(id)
    parts.push(
      instructions.slice(end, at),
      text.replace(`steps.${stepId}`, () => `steps.${id}`),
    )
    end = at + text.length
  }
  return { text: [...parts, instructions.slice(end)].join(''), stepIds }
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
    // A name that is also one of our fields is never taken for another field.
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
