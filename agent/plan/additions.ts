/**
 * What steps of a workflow add while it runs. Each addition is checked as the host checks it, and becomes a revision of the
 * plan. A run that is continued adds them in the same order again.
 */
import { openSchema } from '#specs/node/json-schema.ts'
import { addSteps, type GrownWorkflow, roomOf } from '#specs/node/workflow/add-steps.ts'
import { parametersOf } from '#specs/node/workflow/function-schema.ts'
import type { Result } from '#specs/protocol/error.ts'
import { plainMessages } from '#specs/protocol/issue-text.ts'
import { isWithinDepth } from '#specs/protocol/json-depth.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Plan } from '#specs/protocol/plan.ts'
import type { Workflow } from '#specs/protocol/workflow.ts'
import { WorkflowAddition } from '#specs/protocol/workflow-format.ts'
import type { AgentRun } from '../run/run.ts'
import { modelNamesOf } from '../run/step-model.ts'
import { truncate } from '../text/truncate.ts'
import { findTool, isAmong } from '../tool-calls/registry.ts'
import { type GivenSteps, toolFailure } from '../tool-calls/tool.ts'
import { runOfStep } from '../workflow/chat-step.ts'
import type { WorkflowValues } from '../workflow/values.ts'
import { boundsOf } from './parse-plan.ts'
import { askConsent } from './plan-approval.ts'
import type { PlanState } from './plan-state.ts'
import type { Revisions } from './revisions.ts'

interface AdditionParts {
  readonly book: PlanState
  readonly run: AgentRun
  readonly workflow: Workflow
  readonly values: WorkflowValues
  readonly revisions: Pick<Revisions, 'alone'>
  /** A new plan is current, and the host has it. */
  onAdopted(plan: Plan): void
}

/** The message of a refusal is for the model. */
const refusalMaxChars = 8_000

export class Additions {
  readonly #parts: AdditionParts
  #grown: GrownWorkflow
  #run: AgentRun
  /** The call that comes next: in a continued run that of the run before. */
  #next: Promise<string> | undefined
  #taken = Promise.withResolvers<void>()

  constructor(parts: AdditionParts) {
    const { book, run, workflow } = parts
    this.#parts = parts
    this.#run = run
    this.#grown = { plan: book.plan, steps: workflow.steps, functions: workflow.functions ?? [], added: [] }
  }

  /** The run for a step: with the functions that were added until now. */
  runFor(stepId: string): AgentRun {
    return { ...this.#run, addSteps: (given, callId, signal) => this.#add(stepId, given, callId, signal) }
  }

  async #add(
    stepId: string,
    given: GivenSteps,
    callId: string,
    signal: AbortSignal,
  ): Promise<Result<string>> {
    await this.#untilNext(callId, signal)
    return await this.#parts.revisions.alone(async () => {
      const { book, values } = this.#parts
      if (book.isFull) return toolFailure('limit_reached', 'the workflow was changed too often: add nothing')
      const read = await this.#read(stepId, given)
      if (!read.ok)
        return toolFailure(
          'invalid_input',
          truncate(`nothing was added: ${read.error.join('; ')}`, refusalMaxChars),
        )
      const { grown, run } = read.value
      const consent = await askConsent(grown.plan, this.#run, () => boundsOf(this.#run), signal)
      if (!consent.allowed) {
        const said = consent.hint === undefined ? '' : ` They said: ${consent.hint}`
        return toolFailure('denied', `the steps were denied; the workflow stays as it is.${said}`)
      }
      await book.adopt(grown.plan, given.reason, this.#run, grown.added.at(-1))
      this.#grown = grown
      this.#run = run
      values.grow(grown)
      this.#parts.onAdopted(grown.plan)
      return { ok: true, value: this.#describe(stepId) }
    })
  }

  /**
   * Which of two steps adds first decides about both: a continued run takes the order that its log has. Steps begin
   * meanwhile, since the one that comes next may be among them.
   */
  async #untilNext(callId: string, signal: AbortSignal): Promise<void> {
    for (;;) {
      // Of this moment: the call that comes next may be gone before this one reads which it was.
      const taken = this.#taken.promise
      this.#next ??= this.#run.log.once('addition', () => Promise.resolve(callId))
      if ((await this.#next) === callId || signal.aborted) break
      await taken
    }
    this.#next = undefined
    this.#taken.resolve()
    this.#taken = Promise.withResolvers()
  }

  async #read(
    by: string,
    { steps, functions }: GivenSteps,
  ): Promise<Result<{ readonly grown: GrownWorkflow; readonly run: AgentRun }, readonly string[]>> {
    if (!isWithinDepth([steps, functions], limits.additionMaxDepth))
      return { ok: false, error: [`nests deeper than ${limits.additionMaxDepth} levels`] }
    const addition = WorkflowAddition.safeParse({ by, steps, functions }, plainMessages)
    if (!addition.success)
      return {
        ok: false,
        error: addition.error.issues.map(({ path, message }) => `${path.map(String).join('.')}: ${message}`),
      }
    const grown = addSteps(this.#grown, addition.data, modelNamesOf(this.#run))
    if (!grown.ok) return grown
    const run = this.#withFunctions(addition.data, grown.value)
    if (!run.ok) return run
    const problems = [
      ...(await findSchemaProblems(addition.data)),
      ...findToolProblems(addition.data, grown.value, run.value),
    ]
    if (problems.length > 0) return { ok: false, error: problems }
    return { ok: true, value: { grown: grown.value, run: run.value } }
  }

  #withFunctions({ functions }: WorkflowAddition, grown: GrownWorkflow): Result<AgentRun, readonly string[]> {
    const run = this.#run
    const { makeFunction, registry, task, askPatterns = [], addedFunctions = [] } = run
    if (functions.length === 0) return { ok: true, value: run }
    if (makeFunction === undefined) return { ok: false, error: ['functions: this run cannot run code'] }
    const names = functions.map(({ name }) => name)
    const problems = names.flatMap((name) => findNameProblem(name, run))
    if (problems.length > 0) return { ok: false, error: problems }
    const tools = grown.functions.filter(({ name }) => names.includes(name)).map(makeFunction)
    const asked = names.filter((name) => isAmong(name, askPatterns))
    return {
      ok: true,
      value: {
        ...run,
        registry: registry.with(tools),
        task: { ...task, askTools: [...task.askTools, ...asked] },
        addedFunctions: [...addedFunctions, ...names],
      },
    }
  }

  #describe(by: string): string {
    const { steps, functions } = roomOf(this.#grown, by)
    const most = this.#grown.steps[by]?.mayAdd ?? { steps: 0, functions: 0 }
    const left = [most.steps - steps.length, most.functions - functions.length]
    const names = [...steps, ...functions].join(', ')
    return truncate(
      `added until now: ${names}. They run when you have answered; ${left[0]} steps and ${left[1]} functions are left`,
      refusalMaxChars,
    )
  }
}

function findNameProblem(name: string, { registry, task: { tools = ['*'] } }: AgentRun): string[] {
  if (findTool(registry.byName, name) !== undefined) return [`function "${name}": a tool has this name`]
  return isAmong(name, tools) ? [] : [`function "${name}": the tools of the run exclude this name`]
}

async function findSchemaProblems({ steps, functions }: WorkflowAddition): Promise<string[]> {
  const schemas = [
    ...steps.map(({ id, output }) => [`step "${id}" output`, output] as const),
    ...functions.flatMap((one) => [
      [`function "${one.name}" parameters`, parametersOf(one)] as const,
      [`function "${one.name}" returns`, one.returns] as const,
    ]),
  ]
  const problems: string[] = []
  for (const [place, schema] of schemas) {
    if (schema === undefined) continue
    const opened = await openSchema(schema)
    if (!opened.ok) problems.push(`${place}: ${opened.error}`)
  }
  return problems
}

/** Tools that the run does not have. */
function findToolProblems({ steps }: WorkflowAddition, grown: GrownWorkflow, run: AgentRun): string[] {
  const names = new Set(steps.map(({ id }) => id))
  return Object.values(grown.steps)
    .filter(({ name }) => names.has(name))
    .flatMap((step) => {
      const narrowed = runOfStep(step, run)
      return narrowed.ok ? [] : [`step "${step.name}": ${narrowed.error}`]
    })
}
