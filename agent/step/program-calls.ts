/**
 * Calls that the program of a call makes: each is validated, asked about, journaled and counted as a call of the model.
 * Refuses tools that are not for programs, and calls beyond those of the run.
 */
import { toCanonicalJson } from '#specs/protocol/canonical-json.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { AgentRun } from '../run/run.ts'
import type { Invocation } from '../tool-calls/call.ts'
import { findTool } from '../tool-calls/registry.ts'
import { type ProgramTools, type Tool, toolFailure, toolSuccess } from '../tool-calls/tool.ts'
import { describeFunctions } from '../tool-calls/tool-signature.ts'

/** Calls of one program at once. */
const parallelMax = 8

/** One call of a program. */
export interface ProgramCall {
  readonly callId: string
  readonly parentCallId: string
  readonly tool: string
  readonly argumentsText: string
  readonly signal: AbortSignal
  /** Receives the tool's value. */
  onValue(value: unknown): void
}

/**
 * @param make carries one call out, with its events
 * @param onDenied called when a person, a rule or a hook denied a call
 */
export function createProgramTools(
  { stepId, parentCallId }: { readonly stepId: string; readonly parentCallId: string },
  run: AgentRun,
  make: (call: ProgramCall) => Promise<Invocation>,
  onDenied: () => void,
): ProgramTools {
  const { registry } = run
  const order = new CallOrder()
  /** The call outside of the VM whose effect is not known. */
  let unknown: string | undefined

  const refusal = (name: string, tool: Tool | undefined): ReturnType<typeof toolFailure> | null => {
    if (tool?.inPrograms === false)
      return toolFailure(
        'unavailable',
        `${tool.name} is not for programs: end the program and call it yourself`,
      )
    if (isOutside(tool) && unknown !== undefined)
      return toolFailure(
        'unavailable',
        `${name} was not called: the effect of an earlier call of ${unknown} is unknown, so this program makes no more calls outside of the VM. Print what you have, end the program, and find out what happened`,
      )
    // Not the run's end: the model reads what the program found, and has no calls either.
    if (run.budget.left.calls >= 1 && run.budget.takeCall()) return null
    return toolFailure('limit_reached', 'no tool calls are left in this run')
  }

  const perform = async (
    name: string,
    argumentsText: string,
    signal: AbortSignal,
  ): Promise<Result<unknown>> => {
    await run.steering.ready(signal)
    if (signal.aborted) return ended
    const tool = findTool(registry.byName, name)
    const refused = refusal(name, tool)
    if (refused !== null) return refused
    const callId = run.callIds
      .ofStep(stepId)
      .ofProgram(parentCallId, `${name} ${plainArguments(argumentsText)}`)
    let value: unknown
    const onValue = (given: unknown): void => {
      value = given
    }
    const work = () => make({ callId, parentCallId, tool: name, argumentsText, signal, onValue })
    // Behind it no checkpoint is made until the program has ended: its memory is not on the disk.
    const { error } = isOutside(tool) ? await run.log.effect('outside', work) : await work()
    if (error === undefined) return toolSuccess(value)
    if (error.code === 'denied') onDenied()
    if (isOutside(tool) && (error.code === 'cancelled' || error.code === 'timed_out')) unknown ??= name
    return { ok: false, error }
  }

  return {
    get functions() {
      return describeFunctions(registry)
    },
    get callsLeft() {
      return run.budget.left.calls
    },
    call: (name, argumentsText, signal) =>
      order.take(registry.isConcurrent(name), () => perform(name, argumentsText, signal)),
  }
}

const ended = toolFailure('cancelled', 'the program ended before this call began')

function isOutside(tool: Tool | undefined): boolean {
  return tool?.runs === 'host' || tool?.runs === 'server'
}

/** The same text for the same arguments. */
function plainArguments(text: string): string {
  try {
    return toCanonicalJson(JSON.parse(text)) ?? text
  } catch {
    return text
  }
}

/** Starts calls in their order; only those that may run beside others do. */
class CallOrder {
  readonly #waiting: { readonly isShared: boolean; readonly start: () => void }[] = []
  #running = 0
  #isAlone = false

  async take<T>(isShared: boolean, work: () => Promise<T>): Promise<T> {
    const turn = Promise.withResolvers<void>()
    this.#waiting.push({ isShared, start: turn.resolve })
    this.#advance()
    await turn.promise
    try {
      return await work()
    } finally {
      this.#running -= 1
      this.#isAlone = false
      this.#advance()
    }
  }

  #advance(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const isFree = this.#running === 0 || (next.isShared && !this.#isAlone && this.#running < parallelMax)
      if (!isFree) return
      this.#waiting.shift()
      this.#running += 1
      this.#isAlone = !next.isShared
      next.start()
    }
  }
}
