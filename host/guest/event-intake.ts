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
  /**
   * Takes a batch as far as nothing is wrong with it. `done` settles when the sink has finished with all of it.
   * `claim`: an event says what cannot be.
   */
  take(
    events: readonly NumberedEvent[],
  ): { fault: 'gap' | 'too_many' | 'claim'; message: string } | { done: Promise<void> }
  /** From here on events are only counted: nobody looks at them, and the sink hears of none. */
  close(): void
}

export interface EventIntakeOptions {
  /** Looks at each event before it is taken, in order; what is wrong with it, or null. */
  readonly check?: (event: NumberedEvent) => string | null
  readonly maxEvents?: number
}

/** `onFailure` is called once when the sink throws; nothing more is handed on after that. */
export function createEventIntake(
  runId: string,
  sink: EventSink,
  onFailure: (cause: unknown) => void,
  { check, maxEvents = limits.runMaxEvents }: EventIntakeOptions = {},
): EventIntake {
  let received = 0
  let handled = 0
  let failed = false
  let closed = false
  let queue: Promise<void> = Promise.resolve()

  async function hand(event: NumberedEvent, isHeard: boolean): Promise<void> {
    if (failed) return
    try {
      if (isHeard) await sink(runId, event)
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
        const problem = closed ? null : (check?.(event) ?? null)
        if (problem !== null) return { fault: 'claim', message: problem }
        received = event.n
        const isHeard = !closed
        queue = queue.then(() => hand(event, isHeard))
      }
      return { done: queue }
    },
    close() {
      closed = true
    },
  }
}
