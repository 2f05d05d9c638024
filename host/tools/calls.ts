/**
 * Executes each call of a host tool once: validates arguments, asks a person if required, journals start and end. A
 * call without a journaled end has an unknown outcome and is never repeated.
 */
import { randomBytes } from 'node:crypto'
import { AwakeLimit } from '#specs/node/awake-timer.ts'
import type { ApprovalDecision, ApprovalRequest } from '#specs/protocol/approval.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { HostToolCall, HostToolResult } from '#specs/protocol/extension.ts'
import { limits } from '#specs/protocol/limits.ts'
import { parseToolArguments } from './arguments.ts'
import { HostToolError, type PreparedTool } from './host-tools.ts'

export interface HostCallsOptions {
  readonly tools: ReadonlyMap<string, PreparedTool>
  /** Whether the run only plans: then nothing but what reads is called. */
  readonly onlyPlans: boolean
  /** Whether a rule wants every call of the tool asked about. */
  readonly isNamed: (tool: string) => boolean
  /** Calls of the whole run. */
  readonly maxCalls: number
  /** Journals an event; resolves when it is kept. */
  readonly note: (event: HostEvent) => Promise<unknown>
  /** Submits a question of the host to the approval queue. */
  readonly ask: (request: ApprovalRequest, signal: AbortSignal) => Promise<ApprovalDecision>
  /** Results of this run's calls; a call of an agent that continues the run is not carried out again. */
  readonly results: HostCallResults
  /** Keeps the result, before its end is journaled. */
  readonly keep: (call: KeptCall, result: HostToolResult) => Promise<void>
  /** Details that the guest does not get. */
  readonly log: (fields: object, message: string) => void
  /** Milliseconds, for durations. */
  readonly now?: () => number
}

/** What a call is known by. */
export type KeptCall = Pick<HostToolCall, 'agentPath' | 'callId' | 'tool' | 'arguments'>

export interface HostCallResult {
  /** The agent that made the call. */
  readonly agentPath: string
  readonly result: Promise<HostToolResult>
}

export type HostCallResults = Map<string, HostCallResult>

const defaultTimeoutMs = 60_000
/** Longer timers overflow in Node and fire at once. */
const timeoutMaxMs = 2 ** 31 - 1
/** Time for a cancelled tool to end. */
const graceMs = 1_000

export class HostCalls {
  readonly #options: HostCallsOptions
  readonly #ending = new AbortController()
  readonly #open = new Set<Promise<unknown>>()
  #count = 0

  constructor(options: HostCallsOptions) {
    this.#options = options
  }

  /** Whether such a tool is the application's. */
  has(name: string): boolean {
    return this.#options.tools.has(name)
  }

  /** Called once per call; the answer goes to the agent. @param signal withdraws it */
  async call(call: HostToolCall, signal: AbortSignal): Promise<HostToolResult> {
    const tool = this.#options.tools.get(call.tool)
    if (tool === undefined) return hostToolFailure('unknown_tool', `the host has no tool ${call.tool}`)
    if (this.#options.onlyPlans && tool.offer.readOnly === false)
      return hostToolFailure('denied', `${call.tool} is not for a run that only plans`)
    if (++this.#count > this.#options.maxCalls)
      return hostToolFailure('limit_reached', 'no calls of host tools are left in this run')
    const given = parseToolArguments(call.arguments)
    const input = given.ok ? tool.readInput(given.value.value) : given
    if (!given.ok || !input.ok)
      return hostToolFailure(
        'invalid_input',
        `the arguments do not fit ${call.tool}, and nothing was done: ${input.ok ? '' : input.error}`,
      )
    const earlier = this.#options.results.get(keyOf(call.callId, call.tool, given.value.text))
    if (earlier !== undefined) return await earlier.result
    const ends = AbortSignal.any([signal, this.#ending.signal])
    const plain = { ...call, arguments: given.value.text }
    const refusal =
      tool.asks || this.#options.isNamed(call.tool) ? await this.#ask(tool, plain, input.value, ends) : null
    if (refusal !== null) return refusal
    if (ends.aborted) return cancelled
    const performed = this.#track(this.#perform(tool, plain, input.value, ends))
    this.#options.results.set(keyOf(call.callId, call.tool, plain.arguments), {
      agentPath: call.agentPath,
      result: performed,
    })
    return await performed
  }

  /** Ends running calls and waits until this is journaled. No further call starts. */
  async close(): Promise<void> {
    this.#ending.abort('the run is over')
    await Promise.allSettled([...this.#open])
  }

  async #ask(
    tool: PreparedTool,
    call: HostToolCall,
    input: unknown,
    signal: AbortSignal,
  ): Promise<HostToolResult | null> {
    const { runId, agentPath, stepId, callId, parentCallId } = call
    const answer = await this.#options.ask(
      {
        // Drawn: under an id that the agent can guess it could have asked before, in words of its own.
        approvalId: `host-${randomBytes(12).toString('hex')}`,
        runId,
        agentPath,
        stepId,
        callId,
        ...(parentCallId === undefined ? {} : { parentCallId }),
        tool: call.tool,
        arguments: call.arguments,
        preview: (await this.#preview(tool, input)).slice(0, limits.textMaxChars),
      },
      signal,
    )
    if (answer.decision === 'allow') return null
    const hint = answer.hint === undefined || answer.hint.trim() === '' ? '' : ` They said: ${answer.hint}`
    return hostToolFailure(
      'denied',
      `this call of ${call.tool} was denied; do not try it again in another way.${hint}`,
    )
  }

  async #preview({ definition, offer }: PreparedTool, input: unknown): Promise<string> {
    const head = `Runs ${offer.name} on this host, outside the VM.`
    if (definition.preview === undefined) return head
    try {
      return `${head}\n${(await definition.preview(input)).toWellFormed()}`
    } catch (error) {
      this.#options.log({ tool: offer.name, error: describe(error) }, 'the preview of a host tool failed')
      return `${head} (what it will do could not be said: its preview failed)`
    }
  }

  async #perform(
    tool: PreparedTool,
    call: HostToolCall,
    input: unknown,
    signal: AbortSignal,
  ): Promise<HostToolResult> {
    const { note, now = () => performance.now() } = this.#options
    const { runId: _, parentCallId: _parent, ...claim } = call
    const startedAt = now()
    await note({ type: 'host-tool-start', ...claim })
    const result = await this.#execute(tool, call, input, signal)
    const { agentPath, callId, tool: name, arguments: given } = call
    await this.#options.keep({ agentPath, callId, tool: name, arguments: given }, result)
    await note({
      type: 'host-tool-end',
      callId: call.callId,
      tool: call.tool,
      ...(result.ok ? {} : { error: result.error }),
      durationMs: Math.max(0, Math.round(now() - startedAt)),
    })
    return result
  }

  async #execute(
    tool: PreparedTool,
    call: HostToolCall,
    input: unknown,
    ends: AbortSignal,
  ): Promise<HostToolResult> {
    const { definition, offer } = tool
    const { runId, agentPath, callId } = call
    const timeoutMs = Math.min(definition.timeoutMs ?? defaultTimeoutMs, timeoutMaxMs)
    using time = new AwakeLimit(timeoutMs, { unref: true })
    const signal = AbortSignal.any([ends, time.signal])
    const work = async (): Promise<unknown> =>
      await definition.execute(input, { signal, runId, agentPath, callId })
    try {
      const end = await withGrace(work(), signal)
      if (end !== gaveUp) return hostToolOutput(end.value)
    } catch (error) {
      if (!signal.aborted) {
        this.#options.log({ tool: offer.name, callId, error: describe(error) }, 'a host tool threw')
        return failureOf(offer.name, error)
      }
    }
    if (ends.aborted) return cancelled
    return hostToolFailure(
      'timed_out',
      `${offer.name} did not end within ${timeoutMs / 1000} s; its effect is unknown`,
    )
  }

  async #track<T>(work: Promise<T>): Promise<T> {
    this.#open.add(work)
    try {
      return await work
    } finally {
      this.#open.delete(work)
    }
  }
}

/**
 * The results for an agent in a VM of its own: those of its calls and of agents below it. A call that another agent made
 * is not carried out again either, and its result is not this agent's to know.
 */
export function resultsFor(results: HostCallResults, agentPath: string): HostCallResults {
  const isOwn = (path: string): boolean => path === agentPath || path.startsWith(`${agentPath}/`)
  const unknown = Promise.resolve(
    hostToolFailure('cancelled', 'another agent of the run made this call, and its result is for that agent'),
  )
  return new Map(
    [...results].map(([key, kept]) => [key, isOwn(kept.agentPath) ? kept : { ...kept, result: unknown }]),
  )
}

/** Of a call in the map of results. */
export function keyOf(callId: string, tool: string, canonicalArguments: string): string {
  return JSON.stringify([callId, tool, canonicalArguments])
}

const cancelled = hostToolFailure(
  'cancelled',
  'interrupted: the run ended before this call did; its effect is unknown',
)
const gaveUp = Symbol('gave up')

/** The value of the work; `gaveUp` when it does not end within the grace after the signal. */
async function withGrace(
  work: Promise<unknown>,
  signal: AbortSignal,
): Promise<{ value: unknown } | typeof gaveUp> {
  // A cancelled call may still fail later, without a listener.
  work.catch(() => undefined)
  const late = Promise.withResolvers<typeof gaveUp>()
  let timer: NodeJS.Timeout | undefined
  const onAbort = (): void => {
    timer = setTimeout(() => late.resolve(gaveUp), graceMs)
  }
  if (signal.aborted) onAbort()
  else signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([work.then((value) => ({ value })), late.promise])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
  }
}

function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error)
}

/** Maximum characters of one call's output for the model. */
const outputMaxChars = 128 * 1024

type Failure = Extract<HostToolResult, { ok: false }>

export function hostToolFailure(code: Failure['error']['code'], message: string, retryable = false): Failure {
  return {
    ok: false,
    error: { code, message: message.toWellFormed().slice(0, limits.textMaxChars), retryable },
  }
}

/** A text as it is, nothing as nothing, anything else as JSON. @throws TypeError for what has no JSON */
function hostToolOutput(value: unknown): HostToolResult {
  const text = typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value)
  if (text === undefined) throw new TypeError('the value of the tool has no form as JSON')
  return { ok: true, output: bound(text.toWellFormed()) }
}

/** The model gets only the error text that was meant for it. */
export function failureOf(tool: string, thrown: unknown): Failure {
  if (thrown instanceof HostToolError) return hostToolFailure(thrown.code, thrown.message, thrown.retryable)
  return hostToolFailure(
    'internal',
    `${tool} failed on the host; whoever runs it finds the details in the run's log`,
  )
}

/** Within characters, and within a frame: text of control characters grows sixfold there. */
function bound(text: string): string {
  let kept = text.slice(0, outputMaxChars)
  while (Buffer.byteLength(JSON.stringify(kept)) > limits.frameMaxBytes / 2)
    kept = kept.slice(0, kept.length / 2)
  const gone = text.length - kept.length
  return gone === 0 ? text : `${kept.toWellFormed()}\n[… ${gone} characters cut …]`
}
