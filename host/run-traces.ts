/**
 * Exports the runs of a host as traces where the environment names a collector. Loads nothing of it before; no run waits
 * for it.
 */
import { errorMessage } from '#specs/errors.ts'
import type { FeedObserver } from './journal/run-feed.ts'
import type { RunOptions } from './run-options.ts'
import type { PlannedRun } from './runs/resolved-run.ts'
import { createRedaction } from './secrets/redaction.ts'
import type { Traces } from './traces/traces.ts'

const endpoints = ['OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_EXPORTER_OTLP_ENDPOINT'] as const

export class RunTraces {
  readonly #env: Readonly<Record<string, string | undefined>>
  /** Undefined until the first run. */
  #traces: Promise<Traces | null> | undefined

  constructor(env: Readonly<Record<string, string | undefined>>) {
    this.#env = env
  }

  /** @param warn gets notes of a run whose options have no callback for them */
  observe(
    feed: { observe(observer: FeedObserver): void },
    plan: Pick<PlannedRun, 'runId' | 'network' | 'provider' | 'embeddings' | 'secrets'>,
    { onNotes = undefined }: Pick<RunOptions, 'onNotes'>,
    warn: (notes: readonly string[]) => void,
  ): void {
    if (endpoints.every((name) => (this.#env[name] ?? '').trim() === '')) return
    const note = (text: string): void => {
      try {
        if (onNotes === undefined) warn([text])
        else onNotes([text])
      } catch {
        // The run is under way; what its owner does with a note cannot fail it.
      }
    }
    this.#traces ??= this.#open(plan, note)
    const { runId } = plan
    const redact = redactionOf(plan)
    void this.#traces
      .then((traces) => traces?.observe(feed, { runId, redact, note }))
      .catch((error: unknown) => note(internalError(error)))
  }

  async #open(
    { network }: Pick<PlannedRun, 'network'>,
    note: (text: string) => void,
  ): Promise<Traces | null> {
    try {
      const { openTraces } = await import('./traces/traces.ts')
      const { traces, notes } = openTraces(this.#env, network)
      for (const text of notes) note(text)
      return traces
    } catch (error) {
      note(internalError(error))
      return null
    }
  }

  /** Sends what waits, for at most a few seconds. */
  async close(): Promise<void> {
    const traces = await this.#traces
    await traces?.close()
  }
}

function internalError(error: unknown): string {
  return `Traces of runs are not exported: internal error: ${errorMessage(error)}`
}

/** Takes the keys that the host knows out of a text. */
function redactionOf({
  provider,
  embeddings,
  secrets,
}: Pick<PlannedRun, 'provider' | 'embeddings' | 'secrets'>): (text: string) => string {
  const keys = [provider, embeddings].flatMap((server) => server?.key?.reveal() ?? [])
  const redaction = createRedaction(keys)
  // Secrets are known once they are used.
  return (text) => redaction.text(secrets.redactionForUser().text(text))
}
