/** A plan as lines: as it is announced, as it differs from the one before, and whole for who is to allow it. */
import type { Condition, Plan, Step } from '#specs/protocol/plan.ts'
import { formatCount } from '../../files/format.ts'
import type { Colors } from './colors.ts'
import { sanitizeLine, sanitizeRows } from './sanitize.ts'

const margin = '  │ '
/** Of a list in a line. */
const listedMax = 12

/** The goal and a line for each step, in the plan's order. */
export function planLines(plan: Plan, colors: Colors): string[] {
  const numbers = numbersOf(plan)
  return plan.steps.map((step) => stepLine(step, numbers, colors))
}

/** What a plan changes of the one before; steps that are as they were are only counted. */
export function planChanges(before: Plan, after: Plan, colors: Colors): string[] {
  const was = new Map(before.steps.map((step) => [step.id, step]))
  const numbers = numbersOf(after)
  const kept = new Set(after.steps.map(({ id }) => id))
  const goal = before.goal === after.goal ? [] : [`  ~ ${sanitizeLine(`the goal: ${after.goal}`)}`]
  const changed = after.steps.flatMap((step) => {
    const old = was.get(step.id)
    if (old === undefined) return [colors.green(`  + ${stepLine(step, numbers, colors).trimStart()}`)]
    const fields = changedFields(old, step)
    if (fields.length === 0) return []
    return [
      colors.yellow(`  ~ ${stepLine(step, numbers, colors).trimStart()} · changed: ${fields.join(', ')}`),
    ]
  })
  const gone = before.steps
    .filter(({ id }) => !kept.has(id))
    .map(({ title }) => colors.red(`  - ${sanitizeLine(title)}`))
  const same = after.steps.length - changed.length
  const rest = same === 0 ? [] : [colors.dim(`    ${formatCount(same, 'step')} as before`)]
  return [...goal, ...changed, ...gone, ...rest]
}

/** Everything of a plan behind a margin, in rows of at most `width` cells: all that a yes would be about. */
export function planRows(plan: Plan, width: number): string[] {
  const numbers = numbersOf(plan)
  const row = (text: string, indent = '') => sanitizeRows(text, `${margin}${indent}`, width)
  return [
    ...row(`Goal: ${plan.goal}`),
    ...plan.steps.flatMap((step, index) => [
      ...row(`${index + 1}. ${step.title}`),
      ...detailsOf(step, numbers).flatMap((detail) => row(detail, '   ')),
      ...(step.writes.length === 0 ? [] : row(`writes: ${writesOf(step)}`, '   ')),
      ...(step.tools === undefined ? [] : row(`tools: ${listOf(step.tools, step.tools.length)}`, '   ')),
      ...(step.limits === undefined ? [] : row(`limits: ${JSON.stringify(step.limits)}`, '   ')),
      ...(step.output === undefined ? [] : row(`answers: ${JSON.stringify(step.output)}`, '   ')),
      ...row(step.instructions, '   '),
    ]),
  ]
}

function stepLine(step: Step, numbers: ReadonlyMap<string, string>, colors: Colors): string {
  const details = detailsOf(step, numbers)
    .map((detail) => sanitizeLine(detail, 300))
    .join('; ')
  const head = `  ${numbers.get(step.id)}. ${sanitizeLine(step.title)}`
  return details === '' ? head : `${head}${colors.dim(` (${details})`)}`
}

/** Ids mean nothing to people: steps are named by their place. */
function numbersOf(plan: Plan): Map<string, string> {
  return new Map(plan.steps.map(({ id }, index) => [id, String(index + 1)]))
}

function detailsOf(step: Step, numbers: ReadonlyMap<string, string>): string[] {
  const { kind, needs, when, retries = 0, onFailure, model } = step
  const otherwise = { abort: '', continue: 'may fail', replan: 'replanned on failure' }[onFailure]
  return [
    kind === 'agent' ? 'by a sub-agent' : '',
    model === undefined ? '' : `model ${model}`,
    needs.length === 0
      ? ''
      : `after ${listOf(
          needs.map((id) => numbers.get(id) ?? id),
          listedMax,
        )}`,
    when === undefined ? '' : `only if ${conditionOf(when, numbers)}`,
    retries === 0 ? '' : `up to ${retries + 1} attempts`,
    otherwise,
  ].filter((detail) => detail !== '')
}

function conditionOf(
  { step, state, path, equals, contains }: Condition,
  numbers: ReadonlyMap<string, string>,
): string {
  const name = numbers.get(step) ?? step
  const value = path === undefined ? `the answer of ${name}` : `${path} of ${name}`
  const tests = [
    ...(equals === undefined ? [] : [`${value} is ${JSON.stringify(equals)}`]),
    ...(contains === undefined ? [] : [`${value} has ${JSON.stringify(contains)}`]),
  ]
  if (tests.length > 0 && (state ?? 'completed') === 'completed') return tests.join(' and ')
  return [`${name} ${state ?? 'completed'}`, ...tests].join(' and ')
}

function changedFields(before: Step, after: Step): string[] {
  const names = [
    'kind',
    'title',
    'instructions',
    'needs',
    'when',
    'writes',
    'retries',
    'onFailure',
    'output',
    'tools',
    'limits',
    'model',
  ] as const
  return names.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]))
}

function writesOf({ writes }: Step): string {
  return listOf(
    writes.map((place) => (place === '*' ? '* (any file)' : place)),
    writes.length,
  )
}

function listOf(items: readonly string[], maxItems: number): string {
  const rest = items.length - maxItems
  return `${items.slice(0, maxItems).join(', ')}${rest > 0 ? `, … (${rest} more)` : ''}`
}
