/** Exports the runs of one host as traces. It only watches: no run waits for it, and none fails because of it. */
import type { Dispatcher } from 'undici'
import { errorMessage } from '#specs/errors.ts'
import { readPackageVersion } from '../files/package-version.ts'
import type { FeedObserver } from '../journal/run-feed.ts'
import type { Network } from '../net/network.ts'
import { createRedaction } from '../secrets/redaction.ts'
import { createContentFilter } from './content.ts'
import { defaultBounds, type ExportBounds, SpanExporter } from './exporter.ts'
import { RunSpans } from './run-spans.ts'
import { createSender } from './send.ts'
import { traceIdOf } from './span.ts'
import { type Environment, isSampled, readTraceSettings, type TraceSettings } from './trace-settings.ts'

export interface TracedRun {
  readonly runId: string
  /** Takes the known keys of the run out of a text. */
  readonly redact: (text: string) => string
  /** Gets notes about the export, for people; must not throw. */
  readonly note: (text: string) => void
}

interface OpenedTraces {
  /** Null: nothing is exported. */
  readonly traces: Traces | null
  /** Settings that cannot be used, for people. */
  readonly notes: readonly string[]
}

/** A connection that takes longer would hold the process at its end. */
const connectTimeoutMs = 3_000
/** A shorter header value is no key, and would be found in text that has nothing to do with it. */
const keyMinChars = 8

/**
 * @param env the variables of OpenTelemetry
 * @param network the host's way to the internet, with its proxy and authorities
 */
export function openTraces(env: Environment, network: Network): OpenedTraces {
  const version = readPackageVersion()
  const { settings, notes } = readTraceSettings(env, version)
  return { traces: settings === null ? null : new Traces(settings, network, version), notes }
}

export class Traces {
  readonly #settings: TraceSettings
  readonly #network: Network
  readonly #exporter: SpanExporter
  readonly #redact: (text: string) => string
  /** Of the run that was observed last. */
  #note: TracedRun['note'] = () => undefined
  /** Undefined while nothing is sent. */
  #dispatcher: Dispatcher | undefined

  /** @param version of this package */
  constructor(
    settings: TraceSettings,
    network: Network,
    version: string,
    bounds: ExportBounds = defaultBounds,
  ) {
    this.#settings = settings
    this.#network = network
    const source = { resource: settings.resource, scope: { name: 'caisson', version } }
    const sender = createSender(settings, source, () => this.#openDispatcher())
    this.#exporter = new SpanExporter(sender, (text) => this.#note(text), bounds)
    const values = [...settings.headers.values()].map((value) => value.reveal())
    const keys = values.flatMap((value) => [value, ...value.split(/\s+/)])
    const redaction = createRedaction(keys.filter((key) => key.length >= keyMinChars))
    this.#redact = (text) => redaction.text(text)
  }

  /** Exports this run, from its first event on, if the sampler takes it. */
  observe(feed: { observe(observer: FeedObserver): void }, { runId, redact, note }: TracedRun): void {
    const { sampler, hasContent } = this.#settings
    if (!isSampled(traceIdOf(runId), sampler)) return
    this.#note = note
    const filter = hasContent ? createContentFilter((text) => this.#redact(redact(text))) : undefined
    const spans = new RunSpans(runId, filter)
    const exporter = this.#exporter
    /** The run does not depend on its trace. */
    const guarded = (work: () => void): void => {
      try {
        work()
      } catch (error) {
        note(`The trace of ${runId} is incomplete because of an internal error: ${errorMessage(error)}`)
      }
    }
    exporter.begin()
    feed.observe({
      event: (event) => guarded(() => exporter.add(spans.next(event))),
      end: () => {
        guarded(() => exporter.add(spans.interrupt()))
        exporter.end()
        void this.#disconnect()
      },
    })
  }

  /** Sends what waits, for at most a few seconds. */
  async close(): Promise<void> {
    await this.#exporter.flush()
    await this.#closeDispatcher()
  }

  /** Closes an idle connection, which would hold the process at its end. */
  async #disconnect(): Promise<void> {
    await this.#exporter.whenSent()
    if (!this.#exporter.isBusy) await this.#closeDispatcher()
  }

  async #closeDispatcher(): Promise<void> {
    const dispatcher = this.#dispatcher
    this.#dispatcher = undefined
    await dispatcher?.destroy()
  }

  #openDispatcher(): Dispatcher {
    const { timeoutMs } = this.#settings
    this.#dispatcher ??= this.#network.dispatcher({
      connections: 1,
      connectTimeoutMs: Math.min(connectTimeoutMs, timeoutMs),
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
    })
    return this.#dispatcher
  }
}
