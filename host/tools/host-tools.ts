/**
 * The tools that an application brings: what it says of one, and what becomes of that before a run starts. A name that a model
 * could take for another tool's, or a schema that no provider takes, is refused at once: that is a programmer's mistake.
 */

import { type Schema, Validator } from '@cfworker/json-schema'
import * as z from 'zod'
import { CaissonError } from '#specs/errors.ts'
import { isOutOfTime, withinTime } from '#specs/node/bounded-time.ts'
import type { Result, ToolErrorCode } from '#specs/protocol/error.ts'
import { HostTool } from '#specs/protocol/extension.ts'
import { describeIssues, plainMessages } from '#specs/protocol/issue-text.ts'
import { isWithinDepth } from '#specs/protocol/json-depth.ts'
import { isReservedToolName, plainName } from '#specs/protocol/tool-names.ts'

/** What a call is given beside its input. */
export interface HostToolContext {
  /** Aborted when the time is over, the step that called has ended, or the run has. */
  readonly signal: AbortSignal
  readonly runId: string
  /** Who calls, as the agent says: `root`, or `root/NAME` of a sub-agent. */
  readonly agentPath: string
  /** The same for one call, however often it was sent. */
  readonly callId: string
}

/** A JSON schema of an object, or a zod schema. */
export type HostToolSchema = z.ZodType | Readonly<Record<string, unknown>>
export type HostToolInput<S extends HostToolSchema> = S extends z.ZodType ? z.output<S> : unknown

/** A tool that runs in the application's own process, on the host. */
export interface HostToolDefinition<S extends HostToolSchema = HostToolSchema> {
  /** For the model: what it does, when to use it, its bounds. */
  readonly description: string
  readonly inputSchema: S
  /** Whether calls only read, so that several may run at once, and runs that only plan have it. Default false. */
  readonly readOnly?: boolean
  /** Whether a person is asked before each call, unless a rule or the mode answers. Default: unless it only reads. */
  readonly ask?: boolean
  /** How long a call may take. Default 60 s. */
  readonly timeoutMs?: number
  /** What the call will do, for the person who decides; default the arguments alone. */
  preview?(input: HostToolInput<S>): string | Promise<string>
  /**
   * Carries the call out. What it returns is lines to the model, a text as it is and anything else as JSON. A
   * {@link HostToolError} is lines too; of whatever else it throws only the host's log has the details.
   */
  execute(input: HostToolInput<S>, context: HostToolContext): unknown
}

/** By name: 1 to 64 of A-Z a-z 0-9 _ -, none that the agent has. */
export type HostTools = Readonly<Record<string, HostToolDefinition>>

/** Types the functions of a tool from its schema; the value itself is returned unchanged. */
export function defineHostTool<S extends HostToolSchema>(tool: HostToolDefinition<S>): HostToolDefinition<S> {
  return tool
}

/** A failure of a host tool whose message the model gets unchanged. */
export class HostToolError extends Error {
  override readonly name = 'HostToolError'
  readonly code: ToolErrorCode
  readonly retryable: boolean

  /** @param code default `unavailable`. @param retryable whether the same call can succeed later */
  constructor(message: string, { code = 'unavailable', retryable = false }: HostToolErrorOptions = {}) {
    super(message)
    this.code = code
    this.retryable = retryable
  }
}

export interface HostToolErrorOptions {
  readonly code?: ToolErrorCode
  readonly retryable?: boolean
}

/** One that can be offered and called. */
export interface PreparedTool {
  readonly offer: HostTool
  readonly definition: HostToolDefinition
  readonly asks: boolean
  /** The input of a call, or what is wrong with it, for the model. */
  readInput(value: unknown): Result<unknown, string>
}

const issuesMaxCount = 12
/** Within the message that brings the task to the agent. */
const schemaMaxDepth = 16
/** Time limit of validating a call's arguments: a schema's pattern can take very long on a guest's text. */
const checkTimeoutMs = 1_000

/**
 * @throws {CaissonError} `invalid_options` for a name that is taken or that some provider refuses, and for a
 * schema that is none of an object
 */
export function prepareHostTools(tools: HostTools): ReadonlyMap<string, PreparedTool> {
  const prepared = new Map<string, PreparedTool>()
  const names = new Set<string>()
  for (const name of Object.keys(tools).toSorted()) {
    const tool = tools[name]
    if (tool === undefined) continue
    if (isReservedToolName(name))
      throw new CaissonError(
        'invalid_options',
        `the host tool ${name} has the name of a tool of the agent; give it another`,
      )
    if (names.has(plainName(name)))
      throw new CaissonError('invalid_options', `two host tools are named ${name}, case and - aside`)
    names.add(plainName(name))
    prepared.set(name, prepareTool(name, tool))
  }
  return prepared
}

function prepareTool(name: string, definition: HostToolDefinition): PreparedTool {
  const { description, inputSchema, readOnly = false } = definition
  const { json, readInput } = openSchema(inputSchema)
  const offer = HostTool.safeParse({ name, description, parameters: json, readOnly }, plainMessages)
  if (!offer.success)
    throw new CaissonError(
      'invalid_options',
      `the host tool ${JSON.stringify(name.slice(0, 100))} cannot be offered: ${describeIssues(offer.error)}`,
    )
  if (!isWithinDepth(json, schemaMaxDepth))
    throw new CaissonError(
      'invalid_options',
      `the input schema of the host tool ${name} nests deeper than ${schemaMaxDepth} levels`,
    )
  if (json.type !== 'object')
    throw new CaissonError(
      'invalid_options',
      `the input schema of the host tool ${name} is not that of an object`,
    )
  return {
    offer: offer.data,
    definition,
    asks: definition.ask ?? !readOnly,
    readInput: (value) => checkInTime(readInput, value),
  }
}

function checkInTime(readInput: PreparedTool['readInput'], value: unknown): Result<unknown, string> {
  try {
    return withinTime(() => readInput(value), checkTimeoutMs)
  } catch (error) {
    if (!isOutOfTime(error)) throw error
    return { ok: false, error: 'to check them by the tool’s schema takes too long; give shorter ones' }
  }
}

function openSchema(
  schema: HostToolSchema,
): { json: Record<string, unknown> } & Pick<PreparedTool, 'readInput'> {
  if (schema instanceof z.ZodType) {
    const { $schema: _, ...json } = z.toJSONSchema(schema, { io: 'input' })
    return { json, readInput: (value) => fromZod(schema.safeParse(value)) }
  }
  const validator = new Validator(schema as Schema, '2020-12', false)
  return { json: { ...schema }, readInput: (value) => fromJson(validator, value) }
}

function fromZod(parsed: z.ZodSafeParseResult<unknown>): Result<unknown, string> {
  if (parsed.success) return { ok: true, value: parsed.data }
  const lines = parsed.error.issues.map(
    ({ path, message }) => `${path.map(String).join('.') || 'the arguments'}: ${message}`,
  )
  return { ok: false, error: lines.slice(0, issuesMaxCount).join('; ') }
}

function fromJson(validator: Validator, value: unknown): Result<unknown, string> {
  const { valid, errors } = validator.validate(value)
  if (valid) return { ok: true, value }
  const lines = errors.map(
    ({ instanceLocation, error }) => `${instanceLocation.replace(/^#\/?/, '') || 'the arguments'}: ${error}`,
  )
  return { ok: false, error: lines.slice(0, issuesMaxCount).join('; ') }
}
