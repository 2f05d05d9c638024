/**
 * Pauses of a run: reports each to the host once, stops the run's clock, and holds model requests. Other effects wait
 * for `Steering.ready` themselves.
 */
import type { Logger } from 'pino'
import type { Model } from '#runtime/llm/model.ts'
import { modelError } from '#specs/node/model-protocols/model-error.ts'
import type { RunBudget } from './budget.ts'
import type { Report } from './run.ts'
import type { Steering } from './steering.ts'

/** Follows the pauses until `end`, which also ends a current pause. */
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
      (error: unknown) => logger.error({ err: error }, 'a pause was not reported'),
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

/** The run's model: opened with its first request, and asked only while the run is not paused. */
export function openRunModel(open: () => Model | Promise<Model>, steering: Steering): Model {
  let opened: Model | Promise<Model> | undefined
  return async (request, hooks) => {
    await steering.ready(hooks.signal)
    if (hooks.signal.aborted)
      return { ok: false, error: modelError('cancelled', 'the request was cancelled') }
    opened ??= open()
    return (await opened)(request, hooks)
  }
}
