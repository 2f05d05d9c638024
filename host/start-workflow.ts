/** What {@link Host.startWorkflow} takes, and how a workflow becomes the options of a run. */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { parametersOf } from '#specs/node/workflow/function-schema.ts'
import type { WorkspaceData } from '#specs/node/workflow/workspace-data.ts'
import { namedModels, type StepModels } from '#specs/protocol/run-models.ts'
import type { Workflow } from '#specs/protocol/workflow.ts'
import { OptionsError, ToolOption } from './check-options.ts'
import type { Config } from './config/schema.ts'
import { checkArguments, copyOptions, readOptions } from './files/check-arguments.ts'
import type { RunOptions } from './run-options.ts'
import type { GivenPlan } from './runs/given-plan.ts'
import type { HostToolContext, HostToolDefinition, HostTools } from './tools/host-tools.ts'
import { type CompiledWorkflow, compileWorkflow, describeGoal } from './workflows/compile.ts'
import { type FoundWorkflow, findWorkflow, loadWhole } from './workflows/load-parts.ts'
import { isStore, storeExpected, type WorkflowStore } from './workflows/workflow-store.ts'
import { WorkspaceManager } from './workflows/workspace-manager.ts'

/**
 * The application's functions by name. A plain function gets the arguments as one object; the workflow file describes it. A
 * tool describes itself. Like each tool of the host, one that is not `readOnly` asks a person before each call, unless
 * `approvals` or its `ask` say otherwise.
 */
export type WorkflowFunctions = Readonly<
  Record<
    string,
    HostToolDefinition | ((input: Readonly<Record<string, unknown>>, context: HostToolContext) => unknown)
  >
>

/** Options of {@link Host.startWorkflow}: those of a run, without what the workflow itself says. */
export interface WorkflowOptions
  extends Omit<
    RunOptions,
    'prompt' | 'images' | 'plan' | 'outputSchema' | 'context' | 'continue' | 'replay'
  > {
  /** What its expressions read as `input`. Default: null. */
  readonly input?: unknown
  /** Implementations of its functions. Default: none; code in the file runs in the VM. */
  readonly functions?: WorkflowFunctions
  /** Where `AGENT@VERSION` is looked up if the folder of the file does not have it. Default: `workflows` of the host. */
  readonly store?: WorkflowStore
}

/** A workflow with the run that carries it out. */
export interface StartedWorkflow {
  readonly options: RunOptions
  readonly given: GivenPlan
  readonly workflow: Workflow
}

const optionsProblem = 'the options of the workflow cannot be used'
/** The workflow itself says these. */
const refused = ['prompt', 'images', 'plan', 'outputSchema', 'context', 'continue', 'replay'] as const
const Functions = z.record(
  z.string(),
  z.union([z.custom((value) => typeof value === 'function'), ToolOption], {
    error: 'expected a function, or a tool with description, inputSchema and execute',
  }),
)

const Given = z.looseObject({
  functions: Functions.optional(),
  store: z.custom(isStore, storeExpected).optional(),
})

/** A copy; the options of a run in it are checked later. @throws {OptionsError} */
function readGiven(options: WorkflowOptions): WorkflowOptions {
  return readOptions(optionsProblem, () => {
    if (typeof options !== 'object' || options === null)
      throw new OptionsError(optionsProblem, [{ field: '', message: 'expected an object' }])
    const copy = copyOptions(options)
    const wrong = refused.filter((name) => Object.hasOwn(copy, name))
    if (wrong.length > 0)
      throw new OptionsError(
        optionsProblem,
        wrong.map((field) => ({ field, message: 'the workflow itself says this' })),
      )
    checkArguments(optionsProblem, Given, copy)
    return copy
  })
}

/** @throws {WorkflowError} @throws {OptionsError} */
export async function readWorkflow(
  from: string | URL | WorkspaceData,
  options: WorkflowOptions,
  { stepModels }: Pick<Config, 'stepModels'>,
  hostStore: WorkflowStore,
): Promise<StartedWorkflow> {
  const { input, functions = {}, store = hostStore, ...rest } = readGiven(options)
  const found = await find(from, store)
  const { data, parts, uses } = await loadWhole(found.data, { folder: found.folder, store })
  const described = [data, ...parts.values()].flatMap((one) => one.functions)
  const hostTools = { ...rest.extensions?.hostTools, ...workflowTools({ functions: described }, functions) }
  const { plan, workflow } = await compileWorkflow(data, input, {
    provided: new Set(Object.keys(hostTools)),
    parts,
    uses,
  })
  return {
    options: {
      ...rest,
      prompt: describeGoal(data),
      extensions: { ...rest.extensions, hostTools },
      ...modelsOf({ plan, workflow }, rest.stepModels, stepModels),
    },
    given: { plan, from: found.origin },
    workflow,
  }
}

/** Models that the steps name: names of the options, else of the configuration, else ids. */
function modelsOf(
  { plan, workflow }: CompiledWorkflow,
  given: StepModels | undefined,
  configured: StepModels = [],
): Pick<RunOptions, 'stepModels'> {
  const models = new Map(namedModels(given ?? []))
  const known = namedModels(configured)
  const plans = [plan, ...Object.values(workflow.parts ?? {}).map((part) => part.plan)]
  for (const { model } of plans.flatMap(({ steps }) => steps))
    if (model !== undefined && !models.has(model)) models.set(model, known.get(model) ?? model)
  return models.size === 0 ? {} : { stepModels: Object.fromEntries(models) }
}

async function find(from: string | URL | WorkspaceData, store: WorkflowStore): Promise<FoundWorkflow> {
  if (typeof from === 'string' || from instanceof URL) return await findWorkflow(from, store)
  return { data: new WorkspaceManager().check(from), origin: 'the application', folder: null }
}

/**
 * The application's functions as tools of the host, such as {@link Host.resume} takes.
 * @throws {CaissonError} `invalid_options`
 */
export function workflowTools(
  { functions }: Pick<WorkspaceData, 'functions'>,
  given: WorkflowFunctions,
): HostTools {
  const tools = Object.entries(given).map(([name, made]): [string, HostToolDefinition] => {
    if (typeof made !== 'function') return [name, made]
    const described = functions.find((one) => one.name === name)
    if (described === undefined)
      throw new CaissonError(
        'invalid_options',
        `the function ${name} is not described by the workflow; pass a tool with a description and an inputSchema`,
      )
    return [
      name,
      {
        description: described.description,
        inputSchema: parametersOf(described),
        ...(described.timeoutMs === undefined ? {} : { timeoutMs: described.timeoutMs }),
        execute: (input, context) => made(input as Readonly<Record<string, unknown>>, context),
      },
    ]
  })
  return Object.fromEntries(tools)
}
