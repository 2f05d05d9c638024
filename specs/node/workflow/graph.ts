/**
 * The graph of a workflow: where its steps lead, and whether it can run. Refuses circles, steps that nothing leads to, and
 * expressions that read a step which has not ended by then.
 */
import { type Expression, parseExpression } from './expression.ts'
import { parseTemplate } from './template.ts'
import type { Edge, WorkflowStep, WorkspaceData } from './workspace-data.ts'

export interface GraphProblem {
  /** Id; null for the list of steps. */
  readonly step: string | null
  /** Below the details. */
  readonly path: readonly (string | number)[]
  readonly message: string
}

export function findGraphProblems(data: Pick<WorkspaceData, 'steps' | 'result'>): GraphProblem[] {
  const byId = new Map(data.steps.map((step) => [step.id, step]))
  const lost = data.steps.flatMap((step) => findLostEdges(step, byId))
  if (lost.length > 0) return lost
  const circle = findCircle(data.steps, byId)
  if (circle !== null) return [circle]
  const before = ancestorsOf(data.steps)
  return [
    ...findUnreached(data.steps, before),
    ...data.steps.flatMap((step) => findConversationProblems(step, data.steps)),
    ...data.steps.flatMap(findAddingProblems),
    ...data.steps.flatMap((step) => findExpressionProblems(step, before.get(step.id) ?? new Set(), byId)),
    ...findResultProblems(data.result, byId),
  ]
}

function findLostEdges(step: WorkflowStep, byId: ReadonlyMap<string, WorkflowStep>): GraphProblem[] {
  const problems: GraphProblem[] = []
  for (const { to, on } of step.next) {
    const path = on === 'failed' ? ['onFailure', 'step'] : ['nextStep']
    if (to !== '-' && !byId.has(to))
      problems.push({
        step: step.id,
        path,
        message: `no step has the id "${to}"; the steps are ${nameSome([...byId.keys()])}`,
      })
  }
  const cases = step.next.filter(({ isCase }) => isCase)
  const always = cases.findIndex(({ when }) => when === undefined)
  if (always >= 0 && always < cases.length - 1)
    problems.push({
      step: step.id,
      path: ['nextStep', always],
      message:
        'always holds, so the cases behind it are never reached; give it a `when`, or move it to the end',
    })
  return problems
}

/** A way that leads back to its beginning; null without one. */
function findCircle(
  steps: readonly WorkflowStep[],
  byId: ReadonlyMap<string, WorkflowStep>,
): GraphProblem | null {
  const done = new Set<string>()
  const follow = (step: WorkflowStep, way: readonly string[]): GraphProblem | null => {
    if (done.has(step.id)) return null
    for (const { to, on } of step.next) {
      const next = byId.get(to)
      if (next === undefined) continue
      const at = [...way, step.id]
      if (at.includes(to))
        return {
          step: step.id,
          path: on === 'failed' ? ['onFailure', 'step'] : ['nextStep'],
          message: `leads back to "${to}"; to repeat a step, give it \`repeat\`, to repeat several, make them a workflow of their own`,
        }
      const found = follow(next, at)
      if (found !== null) return found
    }
    done.add(step.id)
    return null
  }
  for (const step of steps) {
    const found = follow(step, [])
    if (found !== null) return found
  }
  return null
}

/** For each step, the steps that can have ended before it begins. */
export function ancestorsOf(steps: readonly WorkflowStep[]): Map<string, ReadonlySet<string>> {
  const before = new Map(steps.map(({ id }) => [id, new Set<string>()]))
  for (let isChanged = true; isChanged; ) {
    isChanged = false
    for (const { id, next } of steps) {
      for (const { to } of next) {
        const known = before.get(to)
        if (known === undefined) continue
        const size = known.size
        for (const one of [id, ...(before.get(id) ?? [])]) known.add(one)
        isChanged ||= known.size > size
      }
    }
  }
  return before
}

function findUnreached(
  steps: readonly WorkflowStep[],
  before: ReadonlyMap<string, ReadonlySet<string>>,
): GraphProblem[] {
  const [first] = steps
  return steps
    .filter(({ id }) => id !== first?.id && before.get(id)?.has(first?.id ?? '') !== true)
    .map(({ id }) => ({ step: id, path: [], message: 'is never reached; no `nextStep` leads here' }))
}

function findConversationProblems(step: WorkflowStep, steps: readonly WorkflowStep[]): GraphProblem[] {
  const problems: GraphProblem[] = []
  const { work } = step
  if (step.details.passConversationToNextStep === true && work !== 'chat' && work !== 'from')
    problems.push({
      step: step.id,
      path: ['passConversationToNextStep'],
      message: `only a step with \`chat\` has a conversation, this one has \`${step.work}\``,
    })
  const from = steps.filter(
    ({ details, next }) =>
      details.passConversationToNextStep === true &&
      next.some(({ to, on }) => to === step.id && on === 'completed'),
  )
  const isJoin = from.length > 1 && !areExclusive(from, steps)
  if (isJoin)
    problems.push({
      step: step.id,
      path: [],
      message: `would begin with the conversations of ${nameSome(from.map(({ id }) => id))} at once; let one of them pass its conversation`,
    })
  if (step.details.each !== undefined && step.details.passConversationToNextStep === true)
    problems.push({
      step: step.id,
      path: ['passConversationToNextStep'],
      message: 'a step with `each` has several conversations; read its `output` instead',
    })
  return problems
}

function findAddingProblems({ id, work, details }: WorkflowStep): GraphProblem[] {
  if (details.mayAdd === undefined) return []
  const message =
    work !== 'chat'
      ? `only a step with \`chat\` adds steps, this one has \`${work}\``
      : details.each === undefined
        ? null
        : 'a step with `each` has several conversations, and adds no steps'
  return message === null ? [] : [{ step: id, path: ['mayAdd'], message }]
}

/** Whether two steps are reached by different cases of one step. */
function areExclusive(from: readonly WorkflowStep[], steps: readonly WorkflowStep[]): boolean {
  return steps.some(({ next }) => {
    const cases = new Set(next.filter(({ isCase }) => isCase).map(({ to }) => to))
    return from.every(({ id }) => cases.has(id))
  })
}

function findResultProblems(
  result: string | undefined,
  byId: ReadonlyMap<string, WorkflowStep>,
): GraphProblem[] {
  if (result === undefined) return []
  return checkExpression(
    { source: result, path: ['result'] },
    { step: null, known: new Set(byId.keys()), byId },
  )
}

interface Scope {
  readonly step: string | null
  /** Steps that can have ended. */
  readonly known: ReadonlySet<string>
  readonly byId: ReadonlyMap<string, WorkflowStep>
  /** Whether there is an `item` or `index`. */
  readonly hasItem?: boolean
}

function findExpressionProblems(
  { id, details, next }: WorkflowStep,
  before: ReadonlySet<string>,
  byId: ReadonlyMap<string, WorkflowStep>,
): GraphProblem[] {
  const scope = { step: id, known: before, byId }
  const own = { ...scope, known: new Set([...before, id]) }
  const inner = { ...scope, hasItem: details.each !== undefined || details.repeat !== undefined }
  const check = (source: string | undefined, path: GraphProblem['path'], at: Scope): GraphProblem[] =>
    source === undefined ? [] : checkExpression({ source, path }, at)
  const until = details.wait !== undefined && 'until' in details.wait ? details.wait.until : undefined
  return [
    ...check(details.when, ['when'], scope),
    ...check(details.each?.in, ['each', 'in'], scope),
    ...check(details.repeat?.until, ['repeat', 'until'], { ...own, hasItem: true }),
    ...check(until, ['wait', 'until'], inner),
    ...casesOf(next).flatMap(({ when }, index) => check(when, ['nextStep', index, 'when'], own)),
    ...templatesOf(details).flatMap((template) => checkTemplate(template, inner)),
  ]
}

function casesOf(next: readonly Edge[]): readonly Edge[] {
  return next.filter(({ isCase }) => isCase)
}

interface Placed {
  readonly source: string
  readonly path: GraphProblem['path']
}

/** Every text of a step in which expressions are replaced. */
export function templatesOf(details: WorkflowStep['details']): Placed[] {
  return [
    ...(details.chat ?? []).map(({ content }, index) => ({
      source: content,
      path: ['chat', index, 'content'],
    })),
    ...(details.ask === undefined ? [] : [{ source: details.ask.question, path: ['ask', 'question'] }]),
    ...textsIn(details.call?.arguments, ['call', 'arguments']),
    ...textsIn(details.workflow?.input, ['workflow', 'input']),
  ]
}

function textsIn(value: unknown, path: GraphProblem['path']): Placed[] {
  if (typeof value === 'string') return [{ source: value, path }]
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, entry]) => textsIn(entry, [...path, key]))
}

function checkTemplate({ source, path }: Placed, scope: Scope): GraphProblem[] {
  const read = parseTemplate(source)
  if (!read.ok)
    return [{ step: scope.step, path, message: `${read.error}; for two braces as text write {{"{{"}}` }]
  return read.value.parts.flatMap((part) => (typeof part === 'string' ? [] : checkReads(part, path, scope)))
}

function checkExpression({ source, path }: Placed, scope: Scope): GraphProblem[] {
  const read = parseExpression(source)
  return read.ok
    ? checkReads(read.value, path, scope)
    : [{ step: scope.step, path, message: `${read.error} (expression: CEL)` }]
}

function checkReads(
  { steps, readsItem }: Expression,
  path: GraphProblem['path'],
  { step, known, byId, hasItem = false }: Scope,
): GraphProblem[] {
  const problems = steps
    .filter((id) => !known.has(id))
    .map((id) => ({
      step,
      path,
      message: byId.has(id)
        ? `reads step "${id}", which has not ended by then`
        : `reads step "${id}", but no step has this id; the steps are ${nameSome([...byId.keys()])}`,
    }))
  return readsItem && !hasItem && step !== null
    ? [
        ...problems,
        { step, path, message: '`item` and `index` exist only in a step with `each` or `repeat`' },
      ]
    : problems
}

const namesMaxCount = 8

function nameSome(ids: readonly string[]): string {
  const named = ids.slice(0, namesMaxCount).map((id) => JSON.stringify(id))
  const more = ids.length - named.length
  return `${named.join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}
