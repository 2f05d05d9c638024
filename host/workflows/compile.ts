/**
 * Makes the plan of a workflow and what it adds to its steps, for one input. Refuses an input that does not fit, and what
 * nobody can carry out, before a run exists.
 */
import { createHash } from 'node:crypto'
import { openSchema } from '#specs/node/json-schema.ts'
import {
  compileStep,
  findCodeProblem,
  idOf,
  idsOf,
  namesOf,
  planStepOf,
  toCodeFunction,
} from '#specs/node/workflow/compile-step.ts'
import type { WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import { limits } from '#specs/protocol/limits.ts'
import { Plan, type PlanInput } from '#specs/protocol/plan.ts'
import {
  type CodeFunction,
  findValueProblem,
  type WorkflowStep as TaskStep,
  Workflow,
  WorkflowPart,
} from '#specs/protocol/workflow.ts'
import type { LoadedParts, WholeWorkflow } from './load-parts.ts'
import { WorkflowError } from './workflow-file.ts'

export interface CompiledWorkflow {
  readonly plan: Plan
  readonly workflow: Workflow
}

interface CompileOptions {
  /** Names of functions that the application provides. */
  readonly provided: ReadonlySet<string>
  /** Workflows that its steps run. Absent: none. */
  readonly parts?: LoadedParts
  /** Files that it uses. Absent: none. */
  readonly uses?: WholeWorkflow['uses']
}

/** @throws {WorkflowError} */
export async function compileWorkflow(
  data: WorkspaceData,
  input: unknown,
  options: CompileOptions,
): Promise<CompiledWorkflow> {
  const given = await checkInput(data, input)
  const compiler = new Compiler(options)
  const { plan, steps } = compiler.compile(data)
  const { parts, functions } = compiler
  const { uses = [] } = options
  const workflow = Workflow.safeParse(
    {
      ...identify(data),
      input: given,
      ...(data.result === undefined ? {} : { result: data.result }),
      steps,
      ...(functions.length === 0 ? {} : { functions }),
      ...(parts.size === 0 ? {} : { parts: Object.fromEntries(parts) }),
      ...(uses.length === 0 ? {} : { uses }),
    },
    plainMessages,
  )
  if (!workflow.success) throw refusalOf(data, workflow.error.issues[0]?.message ?? 'it cannot run')
  return { plan, workflow: workflow.data }
}

/** Compiles a workflow with its parts, of each one only once. */
class Compiler {
  /** By the name of their file. */
  readonly parts = new Map<string, WorkflowPart>()
  readonly #options: CompileOptions
  readonly #functions = new Map<string, CodeFunction>()

  constructor(options: CompileOptions) {
    this.#options = options
  }

  get functions(): readonly CodeFunction[] {
    return [...this.#functions.values()]
  }

  compile(data: WorkspaceData): Pick<WorkflowPart, 'plan' | 'steps'> {
    const ids = idsOf(data.steps)
    const { provided } = this.#options
    this.#takeCode(data)
    const steps = data.steps.map((step) => {
      const own = compileStep(step, data.steps, ids)
      const part = own.workflow === undefined ? undefined : this.#partOf(data, own.workflow)
      const writes = part?.plan.steps.flatMap((one) => one.writes)
      return {
        id: idOf(ids, step.id),
        own,
        planned: planStepOf(step, idOf(ids, step.id), { own, provided, writes }),
      }
    })
    const plan = Plan.safeParse(
      { goal: describeGoal(data), steps: steps.map(({ planned }) => planned) } satisfies PlanInput,
      plainMessages,
    )
    if (!plan.success) throw refusalOf(data, plan.error.issues[0]?.message ?? 'its plan cannot run')
    return { plan: plan.data, steps: Object.fromEntries(steps.map(({ id, own }) => [id, own])) }
  }

  #partOf(of: WorkspaceData, { part: name }: NonNullable<TaskStep['workflow']>): WorkflowPart {
    const known = this.parts.get(name)
    if (known !== undefined) return known
    const data = this.#options.parts?.get(name)
    if (data === undefined) throw refusalOf(of, `it runs the workflow "${name}", which is not there`)
    const adding = data.steps.find(({ details }) => details.mayAdd !== undefined)
    if (adding !== undefined)
      throw refusalOf(
        data,
        `step "${adding.id}" mayAdd: only the workflow itself gets further steps, none that a step of it runs`,
      )
    const part = WorkflowPart.safeParse(
      {
        ...identify(data),
        ...(data.input === undefined ? {} : { inputSchema: data.input }),
        ...(data.result === undefined ? {} : { result: data.result }),
        ...this.compile(data),
      },
      plainMessages,
    )
    if (!part.success) throw refusalOf(data, part.error.issues[0]?.message ?? 'it cannot run')
    this.parts.set(name, part.data)
    return part.data
  }

  #takeCode(data: WorkspaceData): void {
    const needed = namesOf(data.steps)
    for (const one of data.functions) {
      if (!needed.has(one.name) || this.#options.provided.has(one.name)) continue
      const problem = findCodeProblem(one)
      if (problem !== null) throw refusalOf(data, `the function "${one.name}" ${problem}`)
      const made = toCodeFunction(one)
      const known = this.#functions.get(one.name)
      if (known !== undefined && toCanonicalJson(known) !== toCanonicalJson(made))
        throw refusalOf(data, `another workflow that it runs with has a function "${one.name}" that differs`)
      this.#functions.set(one.name, made)
    }
  }
}

/** Name, version and digest. */
export function identify(data: WorkspaceData): Pick<Workflow, 'name' | 'version' | 'sha256'> {
  const sha256 = createHash('sha256').update(toCanonicalJson(data)).digest('hex')
  return { name: data.agent, version: data.version, sha256 }
}

/** One line, for people. */
export function describeGoal({ agent, version, description = '' }: WorkspaceData): string {
  const text = `${agent}@${version}${description === '' ? '' : `: ${description}`}`.replaceAll(/\s+/g, ' ')
  return text.slice(0, limits.lineMaxChars).toWellFormed()
}

async function checkInput(data: WorkspaceData, input: unknown): Promise<Workflow['input']> {
  const refuse = (message: string) => refusalOf(data, `the input ${message}`)
  let copy: unknown
  try {
    copy = input === undefined ? null : JSON.parse(JSON.stringify(input))
  } catch (cause) {
    throw new WorkflowError(`the input of ${nameOf(data)} must be JSON`, [], { cause })
  }
  const problem = findValueProblem(copy)
  if (problem !== null) throw refuse(problem)
  if (data.input !== undefined) {
    const opened = await openSchema(data.input)
    if (!opened.ok) throw refusalOf(data, `the schema of the input: ${opened.error}`)
    const checked = opened.value.check(copy)
    if (!checked.ok) throw refuse(`does not fit its schema: ${checked.error}`)
  }
  return copy as Workflow['input']
}

function nameOf({ agent, version }: WorkspaceData): string {
  return `the workflow ${agent}@${version}`
}

function refusalOf(data: WorkspaceData, message: string): WorkflowError {
  return new WorkflowError(`${nameOf(data)} cannot run: ${message}`, [])
}
