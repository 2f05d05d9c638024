/** A step of a workflow file as the plan has it, and what it has besides; and a function with code as the agent gets it. */
import { limits } from '#specs/protocol/limits.ts'
import type { PlanInput } from '#specs/protocol/plan.ts'
import { isReservedToolName } from '#specs/protocol/tool-names.ts'
import type { CodeFunction, WorkflowStep as TaskStep } from '#specs/protocol/workflow.ts'
import { parametersOf } from './function-schema.ts'
import type { Edge, WorkflowFunction, WorkflowStep } from './workspace-data.ts'

/** A step with `each` adds `--` and a number below 1,000 to its id: none of these ids has two dashes in a row. */
const idMaxChars = 26
const codeTimeoutMs = 30_000
const codeMemoryMiB = 256
const eachMaxCount = 100

/** Ids of the plan: short, of few characters, each once. @param used ids that others have */
export function idsOf(
  steps: readonly WorkflowStep[],
  used: Iterable<string> = [],
): ReadonlyMap<string, string> {
  const ids = new Map<string, string>()
  const taken = new Set<string>(used)
  for (const { id } of steps) {
    const plain = id
      .toLowerCase()
      .replaceAll(/[^a-z0-9_]+/g, '-')
      .replaceAll(/^[-_]+|[-_]+$/g, '')
    const base = plain.slice(0, idMaxChars) || 'step'
    let made = base
    for (let count = 2; taken.has(made); count++) {
      const end = `-${count}`
      made = `${base.slice(0, idMaxChars - end.length)}${end}`
    }
    taken.add(made)
    ids.set(id, made)
  }
  return ids
}

export function idOf(ids: ReadonlyMap<string, string>, id: string): string {
  const made = ids.get(id)
  if (made === undefined) throw new TypeError(`no step ${id}`)
  return made
}

export function namesOf(steps: readonly WorkflowStep[]): ReadonlySet<string> {
  return new Set(
    steps.flatMap(({ details }) => [
      ...functionsOf(details),
      ...(details.call === undefined ? [] : [details.call.function]),
    ]),
  )
}

export function functionsOf({ function: listed = [] }: WorkflowStep['details']): string[] {
  return listed.map((one) => (typeof one === 'string' ? one : one.name))
}

export function compileStep(
  step: WorkflowStep,
  steps: readonly WorkflowStep[],
  ids: ReadonlyMap<string, string>,
): TaskStep {
  const { details } = step
  const functions = functionsOf(details)
  const cases = step.next.filter(({ isCase }) => isCase)
  const continues = steps
    .filter(
      (from) =>
        from.details.passConversationToNextStep === true &&
        from.next.some(({ to, on }) => to === step.id && on === 'completed'),
    )
    .map(({ id }) => idOf(ids, id))
  const {
    chat,
    when,
    tools,
    runFunctionsInParallel,
    maxTurns,
    call,
    ask,
    wait,
    workflow,
    each,
    repeat,
    output,
    mayAdd: { steps: addsSteps = 0, functions: addsFunctions = 0 } = {},
  } = details
  return {
    name: step.id,
    after: steps.flatMap((from) => waysFrom(from, step.id, idOf(ids, from.id))),
    ...(cases.length === 0 ? {} : { cases: cases.map((one) => one.when ?? null) }),
    ...(when === undefined ? {} : { when }),
    ...(chat === undefined
      ? {}
      : {
          chat: chat.map(({ role, content }) => ({
            role: role === 'developer' ? 'system' : role,
            text: content,
          })),
        }),
    ...(continues.length === 0 || chat === undefined ? {} : { continues }),
    ...(functions.length === 0 ? {} : { functions }),
    ...(tools === undefined || tools.length === 0 ? {} : { tools }),
    ...(runFunctionsInParallel === true ? { callsAtOnce: true } : {}),
    ...(maxTurns === undefined ? {} : { maxTurns }),
    ...(call === undefined ? {} : { call }),
    ...(ask === undefined ? {} : { ask }),
    ...(workflow === undefined ? {} : { workflow: { part: workflow.from, input: workflow.input ?? null } }),
    ...(each === undefined
      ? {}
      : { each: { in: each.in, parallel: each.parallel ?? 1, max: each.max ?? eachMaxCount } }),
    ...(repeat === undefined ? {} : { repeat }),
    ...(wait === undefined ? {} : { wait: 'until' in wait ? wait : { forMs: millisecondsOf(wait.for) } }),
    ...(output === undefined ? {} : { output }),
    ...(addsSteps + addsFunctions === 0 ? {} : { mayAdd: { steps: addsSteps, functions: addsFunctions } }),
  }
}

/** @param duration seconds, or a number with s, m, h or d */
function millisecondsOf(duration: number | string): number {
  if (typeof duration === 'number') return Math.ceil(duration * 1_000)
  const units: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }
  return Number.parseInt(duration, 10) * (units[duration.at(-1) ?? ''] ?? 0)
}

/** Ways from a step that lead to another one. */
function waysFrom(from: WorkflowStep, to: string, id: string): TaskStep['after'] {
  const cases = from.next.filter(({ isCase }) => isCase)
  return from.next
    .filter((edge: Edge) => edge.to === to)
    .map((edge) => ({ step: id, on: edge.on, ...(edge.isCase ? { case: cases.indexOf(edge) } : {}) }))
}

interface PlannedParts {
  readonly own: TaskStep
  /** Functions of the application. */
  readonly provided: ReadonlySet<string>
  /** What the steps of its workflow write. Absent: it runs none. */
  readonly writes?: readonly string[] | undefined
}

/** The step as the plan has it, which people see. */
export function planStepOf(
  { name, work, details }: WorkflowStep,
  id: string,
  { own, provided, writes: written }: PlannedParts,
): PlanInput['steps'][number] {
  const { onFailure, retries, model, effort, description, writes } = details
  const calls = [...(own.functions ?? []), ...(own.call === undefined ? [] : [own.call.function])]
  // What runs outside the VM alone changes nothing in the workspace.
  const isOutside = own.tools === undefined && calls.every((one) => provided.has(one))
  const known = written ?? (isOutside ? [] : ['*'])
  return {
    id,
    title: name,
    instructions: description ?? describeWork(work, details),
    needs: [...new Set(own.after.map(({ step }) => step))],
    writes: writes ?? (known.length > limits.stepMaxWrites ? ['*'] : [...new Set(known)]),
    ...(retries === undefined ? {} : { retries }),
    ...(onFailure === undefined || onFailure === 'abort' ? {} : { onFailure: 'continue' }),
    ...(model === undefined ? {} : { model }),
    ...(effort === undefined ? {} : { effort }),
  }
}

/** What the step does, for people. */
export function describeWork(
  work: WorkflowStep['work'],
  { chat = [], call, ask }: WorkflowStep['details'],
): string {
  if (ask !== undefined)
    return `asks: ${ask.question}`.replaceAll('{{', '{ {').slice(0, limits.textMaxChars).toWellFormed()
  if (call !== undefined) return `calls ${call.function}`
  if (work !== 'chat') return work
  // Two braces would be a reference of a plan.
  const text = chat.map(({ role, content }) => `${role}: ${content}`).join('\n\n')
  return text.replaceAll('{{', '{ {').slice(0, limits.textMaxChars).toWellFormed()
}

export function findCodeProblem({ name, code, language = 'javascript' }: WorkflowFunction): string | null {
  if (code === undefined) return 'has no code, and the application provides none of this name'
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return 'has code, so its name may have A-Z a-z 0-9 _ alone'
  if (reservedWords[language].has(name)) return `has a name that ${language} reserves; give it another`
  return isReservedToolName(name) ? 'has the name of a tool of Caisson; give it another' : null
}

/** Names that no function of a module can have. */
const reservedWords: Readonly<Record<'javascript' | 'python', ReadonlySet<string>>> = {
  javascript: new Set(
    'arguments await break case catch class const continue debugger default delete do else enum eval export extends false finally for function if implements import in instanceof interface let new null package private protected public return static super switch this throw true try typeof var void while with yield'.split(
      ' ',
    ),
  ),
  python: new Set(
    'False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield'.split(
      ' ',
    ),
  ),
}

export function toCodeFunction(made: WorkflowFunction): CodeFunction {
  const { name, description, code = '', language = 'javascript', returns, timeoutMs, memoryMiB } = made
  return {
    name,
    description,
    parameters: parametersOf(made),
    language,
    code,
    ...(returns === undefined ? {} : { returns }),
    timeoutMs: timeoutMs ?? codeTimeoutMs,
    memoryMiB: memoryMiB ?? codeMemoryMiB,
  }
}
