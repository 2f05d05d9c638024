/** What {@link Host.startWorkflow} takes, and how a workflow becomes the options of a run. */
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import type { Workflow } from '#specs/protocol/workflow.ts'
import { OptionsError } from './check-options.ts'
import type { RunOptions } from './run-options.ts'
import type { GivenPlan } from './runs/given-plan.ts'
import type { HostToolContext, HostToolDefinition, HostTools } from './tools/host-tools.ts'
import { compileWorkflow, describeGoal } from './workflows/compile.ts'
import { parametersOf } from './workflows/function-schema.ts'
import type { WorkspaceData } from './workflows/workspace-data.ts'
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
  extends Omit<RunOptions, 'prompt' | 'plan' | 'outputSchema' | 'context' | 'continue' | 'replay'> {
  /** What its expressions read as `input`. Default: null. */
  readonly input?: unknown
  /** Implementations of its functions. Default: none; code in the file runs in the VM. */
  readonly functions?: WorkflowFunctions
}

/** A workflow with the run that carries it out. */
export interface StartedWorkflow {
  readonly options: RunOptions
  readonly given: GivenPlan
  readonly workflow: Workflow
}

const refused = ['prompt', 'plan', 'outputSchema', 'context', 'continue', 'replay'] as const

/** @throws {WorkflowError} @throws {OptionsError} */
export async function readWorkflow(
  from: string | URL | WorkspaceData,
  options: WorkflowOptions,
): Promise<StartedWorkflow> {
  const problem = 'the options of the workflow cannot be used'
  const given = z.record(z.string(), z.unknown()).safeParse(options)
  if (!given.success) throw new OptionsError(problem, [{ field: '', message: 'expected an object' }])
  const wrong = refused.filter((name) => Object.hasOwn(options, name))
  if (wrong.length > 0)
    throw new OptionsError(
      problem,
      wrong.map((field) => ({ field, message: 'the workflow itself says this' })),
    )
  const { input, functions = {}, ...rest } = options
  const { data, origin } = await load(from)
  const hostTools = { ...rest.extensions?.hostTools, ...functionsOf(data, functions) }
  const { plan, workflow } = await compileWorkflow(data, input, new Set(Object.keys(hostTools)))
  return {
    options: { ...rest, prompt: describeGoal(data), extensions: { ...rest.extensions, hostTools } },
    given: { plan, from: origin },
    workflow,
  }
}

async function load(from: string | URL | WorkspaceData): Promise<{ data: WorkspaceData; origin: string }> {
  const manager = new WorkspaceManager()
  if (typeof from === 'string' || from instanceof URL)
    return { data: await manager.load(from), origin: String(from) }
  return { data: manager.check(from), origin: 'the application' }
}

/**
 * The application's functions as tools of the host, such as {@link Host.resume} takes.
 * @throws {CaissonError} `invalid_options`
 */
export function functionsOf(
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
