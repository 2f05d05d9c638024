/**
 * Delivers the events of one run to the host, each exactly once and in order, across sessions. Refuses gaps and more
 * events than a run may have.
 */
import type { z } from 'zod'
import { limits } from '#specs/protocol/limits.ts'
import type { eventEmit } from '#specs/protocol/methods.ts'

export type NumberedEvent = z.output<typeof eventEmit.params>['events'][number]
export type EventSink = (runId: string, event: NumberedEvent) => void | Promise<void>

export interface EventIntake {
  readonly runId: string
  /** Sequence number of the last accepted event. */
  readonly received: number
  /** Sequence number of the last event that the sink has handled. */
  readonly handled: number
  /**
   * Accepts a batch up to its first error. `done` settles when the sink has handled the accepted events. `claim`: an
   * event is invalid.
   */
  take(
    events: readonly NumberedEvent[],
  ): { fault: 'gap' | 'too_many' | 'claim'; message: string } | { done: Promise<void> }
  /** From now on events are only counted, neither checked nor delivered. */
  close(): void
}

interface EventIntakeOptions {
  /** Checks each event in order before it is accepted; returns the problem, or null. */
  readonly check?: (event: NumberedEvent) => string | null
  readonly maxEvents?: number
}

/** `onFailure` is called once when the sink throws; no further event is delivered. */
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
          return { fault: 'gap', message: `event ${event.n} arrived, but event ${received + 1} was expected` }
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
