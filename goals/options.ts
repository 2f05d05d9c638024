/** The options of an agent and of a goal, and their schemas. Everything else is refused by name. */
import * as z from 'zod'
import type { Provider } from '#runtime/index.ts'
import { Document, Line } from '#specs/protocol/text.ts'
import { checkArguments, copyOptions, type Names, readOptions } from '../host/files/check-arguments.ts'
import type { HostOptions, HostTools, PendingApproval, TaskAnswer } from '../host/index.ts'
import { ToolOption } from '../host/without-vm.ts'

/** A call that waits for a decision. `arguments` is JSON. All of it is untrusted text. */
export type AgentApproval = Pick<PendingApproval, 'tool' | 'arguments' | 'preview'>

export interface AgentOptions extends Pick<HostOptions, 'config' | 'overrides' | 'env' | 'notes'> {
  /** Whether goals are carried out in a VM. Default: true. */
  readonly vm?: boolean
  /** Model id. Default: as for `host.run`. */
  readonly model?: string
  /** Without a VM: a provider of `caisson/runtime`, in the place of the configured one. */
  readonly provider?: Provider
  /** The directory that goals work on. Default: none; in the VM a new, empty one for each goal. */
  readonly workspace?: string
  /** Further tools: a folder of them, as for `loadTools`, or the tools by name. */
  readonly tools?: string | URL | HostTools
  /** Decides about calls that need approval. Default: they are denied. */
  readonly onApproval?: (
    call: AgentApproval,
    context: { readonly signal: AbortSignal },
  ) => 'allow' | 'deny' | Promise<'allow' | 'deny'>
  /** Receives notes about the model and about tools that were left out. Default: Node warnings. */
  readonly onNotes?: (notes: readonly string[]) => void
}

export interface GoalOptions {
  /** A further fact for the model. */
  readonly context?: string
  /** Names of the tools that may be used. Default: without a VM those that only read, else all. */
  readonly tools?: readonly string[]
  /** Default: the agent's. */
  readonly vm?: boolean
  /** Ends the goal with status `error`. */
  readonly signal?: AbortSignal
  /** Time limit, with all waiting. Default: 30 minutes. */
  readonly timeoutMs?: number
}

/** Of an agent and its only goal. */
export interface OneGoalOptions extends Omit<AgentOptions, 'tools'>, Omit<GoalOptions, 'tools' | 'vm'> {
  /** A list: names of the tools that may be used. Anything else: further tools, as of {@link AgentOptions}. */
  readonly tools?: NonNullable<AgentOptions['tools'] | GoalOptions['tools']>
}

export interface AgentResult extends TaskAnswer {
  /** The run in whose VM the goal was carried out, for `host.changes` and the like. Absent: there was none. */
  readonly runId?: string
}

const defaultTimeoutMs = 30 * 60_000
const longestMs = 2 ** 31 - 1

const givenFunction = z.custom((value) => typeof value === 'function', 'expected a function')
const GivenProvider = z.custom(
  (value) =>
    typeof value === 'object' && value !== null && 'stream' in value && typeof value.stream === 'function',
  'expected a provider of caisson/runtime: an object with the function stream',
)
const Tools = z.union([z.string().min(1).max(4_096), z.instanceof(URL), z.record(z.string(), ToolOption)], {
  error: 'expected a folder, or a map from names to tools',
})
const ToolNames = z.array(Line.min(1)).max(256)

const Agent = z.strictObject({
  vm: z.boolean().optional(),
  model: z.string().min(1).max(4_096).optional(),
  provider: GivenProvider.optional(),
  workspace: z.string().min(1).max(4_096).optional(),
  tools: Tools.optional(),
  onApproval: givenFunction.optional(),
  onNotes: givenFunction.optional(),
  // The host checks these.
  config: z.unknown().optional(),
  overrides: z.unknown().optional(),
  notes: z.unknown().optional(),
  env: z.unknown().optional(),
})

const Goal = z.strictObject({
  context: Document.optional(),
  tools: ToolNames.optional(),
  vm: z.boolean().optional(),
  signal: z.custom((value) => value instanceof AbortSignal, 'expected an AbortSignal').optional(),
  timeoutMs: z.int().min(1).max(longestMs).default(defaultTimeoutMs),
})

const agentNames: Names = { '': Object.keys(Agent.shape) }
const goalNames: Names = { '': Object.keys(Goal.shape) }

/** A copy that was checked, but for what the host checks. @throws {OptionsError} naming every field that is wrong */
export function checkAgentOptions(given: AgentOptions): AgentOptions {
  const what = 'the options of the agent cannot be used'
  const options = readOptions(what, () => copyOptions(given))
  checkArguments(what, Agent, options, agentNames)
  return options
}

/** @throws {OptionsError} naming every field that is wrong */
export function checkGoal(goal: string, given: GoalOptions): GoalOptions & { readonly timeoutMs: number } {
  checkArguments('the goal cannot be used', Document.min(1), goal)
  const what = 'the options of the goal cannot be used'
  const options = readOptions(what, () => copyOptions(given))
  const { timeoutMs } = checkArguments<{ timeoutMs: number }>(what, Goal, options, goalNames)
  return { ...options, timeoutMs }
}

/** What belongs to the agent, and what to its goal. @throws {OptionsError} */
export function splitOptions(given: OneGoalOptions): readonly [AgentOptions, GoalOptions] {
  const what = 'the options of the agent cannot be used'
  const options = readOptions(what, () => copyOptions(given))
  checkArguments(what, z.record(z.string(), z.unknown()), options)
  const { tools, context, signal, timeoutMs, ...agent } = options
  const isList = Array.isArray(tools)
  return [
    { ...agent, ...(tools === undefined || isList ? {} : { tools: tools as HostTools }) },
    {
      ...(isList ? { tools: tools as string[] } : {}),
      ...(context === undefined ? {} : { context }),
      ...(signal === undefined ? {} : { signal }),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
    },
  ]
}
