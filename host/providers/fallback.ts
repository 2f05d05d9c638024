/**
 * Asks the models of a run: the one that a request names, else the run's own. Where its server is unreachable, overloaded,
 * without the model, or limits the model for hours, asks those of the fallback in their order. Never changes an answer that
 * has begun. A model that failed is asked last for a while, also where it failed within its answer.
 */
import type { ProviderFailure } from '#specs/node/provider-quirks/error-words.ts'
import type { Result } from '#specs/protocol/error.ts'
import type { GatewayErrorCode, WireError } from '../net/gateway-error.ts'
import type { SendOptions, Upstream, UpstreamAnswer } from './upstream.ts'

interface RunModel {
  readonly model: string
  readonly upstream: Upstream
}

/** One object for one model of one server, whatever it is for. */
interface RunModels {
  readonly own: RunModel
  /** By the name with which a request asks for them. */
  readonly steps: ReadonlyMap<string, RunModel>
  readonly fallbacks: readonly RunModel[]
}

/** How long a model that failed is asked last. */
const holdMinMs = 60_000
const holdMaxMs = 10 * 60_000

const limitCode: GatewayErrorCode = 'limit_model'
/** The model takes no tools. */
const unableCode: GatewayErrorCode = 'invalid_request'
const outageCodes: ReadonlySet<string> = new Set<GatewayErrorCode>([
  limitCode,
  'upstream_unreachable',
  'upstream_busy',
])
const goneStatuses: ReadonlySet<number> = new Set([404, 410])
/** Of a server's own errors: too many requests, overloaded. */
const busyStatuses: ReadonlySet<number> = new Set([429, 502, 503, 504, 529])
/** Errors within an answer of status 200 that mean the same. */
const busyFailures: ReadonlySet<ProviderFailure> = new Set(['rate_limited', 'overloaded', 'bad_gateway'])

/** @param now monotonic clock in milliseconds */
export function createRunUpstream({ own, steps, fallbacks }: RunModels, now: () => number): Upstream {
  const heldUntil = new Map<RunModel, number>()
  const isHeld = (model: RunModel) => (heldUntil.get(model) ?? 0) > now()
  const hold = (model: RunModel, askedMs: number) =>
    heldUntil.set(model, now() + Math.min(Math.max(askedMs, holdMinMs), holdMaxMs))

  /** The agent repeats a request whose answer ends in an error: that one then goes to another model. */
  function watched(answer: UpstreamAnswer, model: RunModel): UpstreamAnswer {
    return {
      ...answer,
      onFailure: (reported) => {
        answer.onFailure?.(reported)
        if (busyFailures.has(reported.failure)) hold(model, reported.retryAfterMs ?? 0)
      },
    }
  }

  async function send(
    request: Parameters<Upstream['send']>[0],
    options: SendOptions,
  ): Promise<Result<UpstreamAnswer, WireError>> {
    // The gateway has refused names that are not allowed.
    const first = (request.model === undefined ? undefined : steps.get(request.model)) ?? own
    const models = [first, ...fallbacks.filter((model) => model !== first)]
    const order = [...models.filter((model) => !isHeld(model)), ...models.filter(isHeld)]
    const errors: WireError[] = []
    for (const [at, model] of order.entries()) {
      const answer = await model.upstream.send(request, options)
      if (answer.ok) {
        heldUntil.delete(model)
        const value = watched(answer.value, model)
        return { ok: true, value: model === first ? value : { ...value, model: model.model } }
      }
      const { error } = answer
      if (options.signal.aborted) return answer
      // Where another model cannot take such a request, it has nothing to say about it.
      const isUnable = model !== first && error.type === 'gateway_error' && error.code === unableCode
      if (!isUnable) {
        if (!isOutage(error)) return answer
        errors.push(error)
      }
      hold(model, error.retryAfterMs ?? 0)
      const next = order[at + 1]
      const cause = `${error.code}: ${error.message}`
      if (next !== undefined)
        options.onRetry?.({ status: error.status, cause, delayMs: 0, model: next.model })
    }
    return { ok: false, error: worthOf(errors) }
  }

  return {
    send,
    close: async () => {
      const all = new Set([own, ...steps.values(), ...fallbacks])
      await Promise.all([...all].map(({ upstream }) => upstream.close()))
    },
  }
}

function isOutage({ type, code, status }: WireError): boolean {
  return type === 'gateway_error'
    ? outageCodes.has(code)
    : busyStatuses.has(status) || goneStatuses.has(status)
}

/** The error that the agent gets: one that passes soon, else the limit that ends first, else that of a model that is gone. */
function worthOf(errors: readonly WireError[]): WireError {
  const isLimit = ({ code }: WireError) => code === limitCode
  const passing = errors.find((error) => !isLimit(error) && !goneStatuses.has(error.status))
  const [soonest] = errors.filter(isLimit).toSorted((a, b) => (a.retryAfterMs ?? 0) - (b.retryAfterMs ?? 0))
  const error = passing ?? soonest ?? errors[0]
  if (error === undefined) throw new Error('no model was asked')
  return error
}
