/** Gives the events of a host's own runs to who observes them, such as the metrics of a service. No run waits for it. */
import * as z from 'zod'
import { errorMessage } from '#specs/errors.ts'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { checkArguments, FunctionOption } from './files/check-arguments.ts'
import type { RunRecord } from './journal/run-record.ts'

/** What gets the events of a host's runs. */
export interface RunObserver {
  event(event: JournalEvent): void
  /** The host no longer carries out the run: it has ended, sleeps, or was left to another process. */
  end?(runId: string): void
}

const ObserverSchema = z.looseObject({ event: FunctionOption.unwrap(), end: FunctionOption })

export class RunObservers {
  readonly #entries = new Set<{ readonly observer: RunObserver }>()

  /** @returns a function that ends this. @throws {OptionsError} */
  add(observer: RunObserver): () => void {
    checkArguments('the observer cannot be used', ObserverSchema, observer)
    // Each call has an entry of its own, also with the same observer.
    const entry = { observer }
    this.#entries.add(entry)
    return () => void this.#entries.delete(entry)
  }

  /** Tells of a run from now on, without the events that it had before. @param warn gets what an observer throws */
  follow(
    { feed, seq: past, paths: { runId } }: Pick<RunRecord, 'feed' | 'seq' | 'paths'>,
    warn: (note: string) => void,
  ): void {
    const tell = (call: (observer: RunObserver) => void): void => {
      for (const { observer } of this.#entries) {
        try {
          call(observer)
        } catch (error) {
          warn(`An observer of runs threw: ${errorMessage(error)}`)
        }
      }
    }
    feed.observe({
      event: (event) => {
        if (event.seq > past) tell((observer) => observer.event(event))
      },
      end: () => tell((observer) => observer.end?.(runId)),
    })
  }
}
