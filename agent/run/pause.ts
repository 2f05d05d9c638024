/**
 * A run's pauses: told to the host once each, with the run's clock standing still, and no request to the model meanwhile. What
 * else is an effect waits by itself, for `Steering.ready`.
 */
import type { Logger } from 'pino'
import { modelError } from '#runtime/llm/errors.ts'
import type { Model } from '#runtime/llm/model.ts'
import type { RunBudget } from './budget.ts'
import type { Report } from './run.ts'
import type { Steering } from './steering.ts'

/** Follows the pauses until `end`, which also ends one that is under way. */
export function followPauses(
  steering: Steering,
  budget: RunBudget,
  report: Report,
  logger: Logger,
): { end(): Promise<void> } {
  let held: PromiseWithResolvers<void> | null = null
  let told: Promise<void> = Promise.resolve()
  const tell = (type: 'pause-start' | 'pause-end'): void => {
    const sent = report.event({ type })
    told = Promise.all([told, sent]).then(
      () => undefined,
      (error: unknown) => logger.error({ err: error }, 'a pause was not told'),
    )
  }
  const follow = (paused: boolean): void => {
    if (paused === (held !== null)) return
    held?.resolve()
    held = paused ? Promise.withResolvers<void>() : null
    if (held !== null) void budget.whileWaiting(held.promise)
    tell(paused ? 'pause-start' : 'pause-end')
  }
  const leave = steering.onPause(follow)
  return {
    end: async () => {
      leave()
      follow(false)
      await told
    },
  }
}

/** `model`, asked only while the run does not hold. */
export function holdModel(model: Model, steering: Steering): Model {
  return async (request, hooks) => {
    await steering.ready(hooks.signal)
    if (hooks.signal.aborted)
      return { ok: false, error: modelError('cancelled', 'the request was cancelled') }
    return model(request, hooks)
  }
}
