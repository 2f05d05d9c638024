/**
 * The events of one run as they come from the guest: each exactly once and in order to the host, whatever sessions
 * come and go in between. Refuses gaps and more than a run may have.
 */
import type { z } from 'zod'
import { limits } from '#specs/protocol/limits.ts'
import type { eventEmit } from '#specs/protocol/methods.ts'

export type NumberedEvent = z.output<typeof eventEmit.params>['events'][number]
export type EventSink = (runId: string, event: NumberedEvent) => void | Promise<void>

export interface EventIntake {
  readonly runId: string
  /** The last event that has been taken over. */
  readonly received: number
  /** The last event that the sink has finished with. */
  readonly handled: number
  /** Takes a batch; what is wrong with it, or null. `done` settles when the sink has finished with all of it. */
  take(
    events: readonly NumberedEvent[],
  ): { fault: 'gap' | 'too_many'; message: string } | { done: Promise<void> }
}

/** `onFailure` is called once when the sink throws; nothing more is handed on after that. */
export function createEventIntake(
  runId: string,
  sink: EventSink,
  onFailure: (cause: unknown) => void,
  maxEvents: number = limits.runMaxEvents,
): EventIntake {
  let received = 0
  let handled = 0
  let failed = false
  let queue: Promise<void> = Promise.resolve()

  async function hand(event: NumberedEvent): Promise<void> {
    if (failed) return
    try {
      await sink(runId, event)
      handled = event.n
    } catch (cause) {
      failed = true
      onFailure(cause)
    }
  }

  return {
    runId,
    get received() {
      return received
    },
    get handled() {
      return handled
    },
    take(events) {
      for (const event of events) {
        if (event.n <= received) continue
        if (event.n !== received + 1) {
          return { fault: 'gap', message: `event ${event.n} came where ${received + 1} was due` }
        }
        if (event.n > maxEvents) {
          return { fault: 'too_many', message: `the run has more than the ${maxEvents} events allowed` }
        }
        received = event.n
        queue = queue.then(() => hand(event))
      }
      return { done: queue }
    },
  }
}
