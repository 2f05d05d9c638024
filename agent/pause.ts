/** A run's pauses, told to the host once each; the run's clock stands still meanwhile. Holds nothing itself: `Steering.ready` does. */
import type { Logger } from 'pino'
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
