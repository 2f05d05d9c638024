/**
 * Adds steps and functions to a workflow that runs. Both sides call it: the agent before it changes its plan, the host before
 * it accepts the change. The steps of the file keep their ways; those that follow the adding step wait for the new ones. Pure.
 */
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import { isWithinDepth } from '#specs/protocol/json-depth.ts'
import { limits } from '#specs/protocol/limits.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'
import { Plan, type PlanInput } from '#specs/protocol/plan.ts'
import { askTool } from '#specs/protocol/question.ts'
import { findModelProblem } from '#specs/protocol/run-models.ts'
import { plainName } from '#specs/protocol/tool-names.ts'
import { type CodeFunction, WorkflowStep as TaskStep, type Workflow } from '#specs/protocol/workflow.ts'
import type { AddedStep, StepWorkName, WorkflowAddition } from '#specs/protocol/workflow-format.ts'
import {
  compileStep,
  describeWork,
  findCodeProblem,
  functionsOf,
  idOf,
  idsOf,
  planStepOf,
  toCodeFunction,
} from './compile-step.ts'
import { edgesOf, readWork } from './edges.ts'
import { findGraphProblems } from './graph.ts'
import type { Edge, WorkflowStep } from './workspace-data.ts'

/** A workflow with what its steps have added. */
export interface GrownWorkflow {
  readonly plan: Plan
  /** By id of the step in the plan. */
  readonly steps: Workflow['steps']
  /** With code, those of the file and those added. */
  readonly functions: readonly CodeFunction[]
  readonly added: readonly WorkflowAddition[]
}

type Grown =
  | { readonly ok: true; readonly value: GrownWorkflow }
  | { readonly ok: false; readonly error: readonly string[] }

const addedWorks: readonly StepWorkName[] = ['chat', 'call', 'ask']

/** @param models names that a step may have as its model @returns the workflow with them, or every problem */
export function addSteps(
  workflow: GrownWorkflow,
  addition: WorkflowAddition,
  models: readonly string[],
): Grown {
  const by = Object.hasOwn(workflow.steps, addition.by) ? workflow.steps[addition.by] : undefined
  if (by?.mayAdd === undefined) return { ok: false, error: [`step "${addition.by}" may not add steps`] }
  const tooLarge = findSizeProblem(addition)
  if (tooLarge !== null) return { ok: false, error: [tooLarge] }
  const room = roomOf(workflow, addition.by)
  const problems = [
    ...findCountProblems(addition, by.mayAdd, room),
    ...findNameProblems(addition, workflow),
    ...findRightProblems(addition, by, room.functions, models),
  ]
  if (problems.length > 0) return { ok: false, error: problems }
  return grow(workflow, addition, by)
}

/** What a step has added until now, by name. */
export function roomOf(
  { added }: Pick<GrownWorkflow, 'added'>,
  by: string,
): { readonly steps: readonly string[]; readonly functions: readonly string[] } {
  const own = added.filter((one) => one.by === by)
  return {
    steps: own.flatMap(({ steps }) => steps.map(({ id }) => id)),
    functions: own.flatMap(({ functions }) => functions.map(({ name }) => name)),
  }
}

function findSizeProblem(addition: WorkflowAddition): string | null {
  const { additionMaxChars, additionMaxDepth } = limits
  if (!isWithinDepth(addition, additionMaxDepth)) return `nests deeper than ${additionMaxDepth} levels`
  const { length } = toCanonicalJson(addition)
  return length <= additionMaxChars
    ? null
    : `has ${length} characters; at most ${additionMaxChars} are allowed`
}

function findCountProblems(
  addition: WorkflowAddition,
  most: NonNullable<TaskStep['mayAdd']>,
  room: ReturnType<typeof roomOf>,
): string[] {
  if (addition.steps.length + addition.functions.length === 0) return ['adds neither steps nor functions']
  return (['steps', 'functions'] as const).flatMap((kind) => {
    const left = most[kind] - room[kind].length
    const { length } = addition[kind]
    return length <= left ? [] : [`${kind}: adds ${length}; ${left} of ${most[kind]} are left`]
  })
}

function findNameProblems({ steps, functions }: WorkflowAddition, workflow: GrownWorkflow): string[] {
  const problems: string[] = []
  const ids = new Set(Object.values(workflow.steps).map(({ name }) => name))
  for (const { id } of steps) {
    if (ids.has(id)) problems.push(`step "${id}": another step has this id`)
    ids.add(id)
  }
  const named = Object.values(workflow.steps).flatMap((step) => [
    ...(step.functions ?? []),
    step.call?.function ?? '',
  ])
  const taken = new Set([...named, ...workflow.functions.map(({ name }) => name)].map(plainName))
  for (const one of functions) {
    const code = findCodeProblem(one)
    if (code !== null) problems.push(`function "${one.name}": ${code}`)
    if (taken.has(plainName(one.name)))
      problems.push(`function "${one.name}": another function has this name`)
    taken.add(plainName(one.name))
    const parameters = new Set(one.parameters.map(({ name }) => name))
    if (parameters.size < one.parameters.length)
      problems.push(`function "${one.name}": two parameters have the same name`)
  }
  return problems
}

/** An added step may do no more than the step that adds it, and call functions that this one added. */
function findRightProblems(
  { steps, functions }: WorkflowAddition,
  by: TaskStep,
  before: readonly string[],
  models: readonly string[],
): string[] {
  const callable = new Set([...(by.functions ?? []), ...before, ...functions.map(({ name }) => name)])
  const { tools = [] } = by
  return steps.flatMap((step) => {
    const work = readWork(step, addedWorks)
    const called = [...functionsOf(step), ...(step.call === undefined ? [] : [step.call.function])]
    const model = findModelProblem(step.model, models)
    const found = [
      ...(work.ok ? [] : [work.error]),
      ...called
        .filter((name) => !callable.has(name))
        .map((name) => `function "${name}" is none of ${describe([...callable])}`),
      ...(step.tools ?? [])
        .filter((tool) => !covers(tools, tool))
        .map((tool) => `tools: "${tool}" is not among ${describe(tools)}`),
      ...(step.ask !== undefined && !covers(tools, askTool)
        ? [`ask: the step that adds it has no tool ${askTool}`]
        : []),
      ...(model === null ? [] : [`model: ${model}`]),
    ]
    return found.map((problem) => `step "${step.id}": ${problem}`)
  })
}

/** Whether a list of names and patterns has this name or, as it stands, this pattern. */
function covers(tools: readonly string[], tool: string): boolean {
  const excluded = tools.filter((one) => one.startsWith('!')).map((one) => one.slice(1))
  if (tool.startsWith('!')) return false
  if (excluded.length > 0 && (tool.includes('*') || excluded.some((one) => matchesPattern(one, tool))))
    return false
  const isAll = tools[0]?.startsWith('!') === true
  return (
    isAll ||
    tools.some((one) => one === tool || one === '*' || (!tool.includes('*') && matchesPattern(one, tool)))
  )
}

function describe(names: readonly string[]): string {
  return names.length === 0 ? 'those of the step that adds it, which has none' : names.slice(0, 20).join(', ')
}

function grow(workflow: GrownWorkflow, addition: WorkflowAddition, by: TaskStep): Grown {
  const steps = toSteps(addition.steps)
  const known = [...stepsBefore(addition.by, workflow.steps), addition.by]
  const frame = frameOf(
    known.map((id) => nameOf(id, workflow)),
    steps,
  )
  const inGraph = findGraphProblems({ steps: [...frame, ...steps] })
  if (inGraph.length > 0)
    return {
      ok: false,
      error: inGraph.map(({ step, path, message }) => `step "${step}" ${path.join('.')}: ${message}`),
    }
  const made = idsOf(
    steps,
    workflow.plan.steps.map(({ id }) => id),
  )
  const ids = new Map([...made, [by.name, addition.by]])
  const last = frame.slice(-1)
  const compiled = steps.map((step) => {
    const own = compileStep(step, [...last, ...steps], ids)
    const id = idOf(ids, step.id)
    return { id, own, planned: planAdded(step, id, own) }
  })
  const ends = steps.filter(({ next }) => next.every(({ to }) => to === '-')).map(({ id }) => idOf(ids, id))
  return settle(workflow, addition, compiled, ends)
}

/** People read what the step does, and not only what the model says of it. */
function planAdded(step: WorkflowStep, id: string, own: TaskStep): CompiledStep['planned'] {
  const planned = planStepOf(step, id, { own, provided: new Set() })
  const { work, details } = step
  if (details.description === undefined) return planned
  const instructions = `${describeWork(work, details)}\n\n${details.description}`
  return { ...planned, instructions: instructions.slice(0, limits.textMaxChars).toWellFormed() }
}

interface CompiledStep {
  readonly id: string
  readonly own: TaskStep
  readonly planned: PlanInput['steps'][number]
}

function settle(
  { plan, steps, functions, added }: GrownWorkflow,
  addition: WorkflowAddition,
  compiled: readonly CompiledStep[],
  ends: readonly string[],
): Grown {
  const own = new Set([addition.by, ...ownIds(addition.by, { steps, added })])
  const at = plan.steps.findLastIndex(({ id }) => own.has(id)) + 1
  const waiting = plan.steps.map((step) =>
    !own.has(step.id) && steps[step.id]?.after.some((way) => way.step === addition.by) === true
      ? { ...step, needs: [...step.needs, ...ends] }
      : step,
  )
  const next = Plan.safeParse(
    {
      goal: plan.goal,
      steps: [...waiting.slice(0, at), ...compiled.map(({ planned }) => planned), ...waiting.slice(at)],
    },
    plainMessages,
  )
  if (!next.success) return { ok: false, error: next.error.issues.map(describeIssue) }
  const problems = compiled.flatMap((one) => {
    const read = TaskStep.safeParse(one.own, plainMessages)
    return read.success
      ? []
      : read.error.issues.map((issue) => `step "${one.own.name}": ${describeIssue(issue)}`)
  })
  if (problems.length > 0) return { ok: false, error: problems }
  return {
    ok: true,
    value: {
      plan: next.data,
      steps: Object.fromEntries([
        ...Object.entries(steps),
        ...compiled.map((one) => [one.id, one.own] as const),
      ]),
      functions: [...functions, ...addition.functions.map(toCodeFunction)],
      added: [...added, addition],
    },
  }
}

/** Ids in the plan of the steps that a step has added. */
function ownIds(by: string, { steps, added }: Pick<GrownWorkflow, 'steps' | 'added'>): string[] {
  const names = new Set(roomOf({ added }, by).steps)
  return Object.entries(steps).flatMap(([id, { name }]) => (names.has(name) ? [id] : []))
}

function describeIssue({
  path,
  message,
}: {
  readonly path: readonly PropertyKey[]
  readonly message: string
}): string {
  return path.length === 0 ? message : `${path.map(String).join('.')}: ${message}`
}

/** In the order of the list; one without `nextStep` leads to the next one. */
function toSteps(added: readonly AddedStep[]): WorkflowStep[] {
  return added.map((step, index) => {
    const work = readWork(step, addedWorks)
    return {
      id: step.id,
      name: step.id,
      work: work.ok ? work.value : 'chat',
      details: step,
      next: edgesOf(step, added[index + 1]?.id),
    }
  })
}

/** The steps that have ended by then, as one chain: they can be read, and nothing may lead back to them. */
function frameOf(names: readonly string[], added: readonly WorkflowStep[]): WorkflowStep[] {
  const led = new Set(added.flatMap(({ next }) => next.map(({ to }) => to)))
  const first = added.filter(({ id }) => !led.has(id)).map(({ id }) => id)
  const toEdge = (to: string): Edge => ({ to, on: 'completed', isCase: false })
  return names.map((id, index) => {
    const next = names[index + 1]
    return {
      id,
      name: id,
      work: 'chat',
      details: {},
      next: (next === undefined ? first : [next]).map(toEdge),
    }
  })
}

/** Ids of the steps that can have ended before this one begins, the earlier first. */
function stepsBefore(of: string, steps: Workflow['steps']): string[] {
  const found = new Set<string>()
  const visit = (id: string): void => {
    for (const { step } of steps[id]?.after ?? []) {
      if (found.has(step)) continue
      visit(step)
      found.add(step)
    }
  }
  visit(of)
  return [...found]
}

function nameOf(id: string, { steps }: Pick<GrownWorkflow, 'steps'>): string {
  return steps[id]?.name ?? id
}
