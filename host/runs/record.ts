/** The record of one run: its journal, its state as the fold over it, and the feed to its watchers, always in step. */
import type { AgentEvent, Delta, HostEvent } from '#specs/protocol/event.ts'
import { initialRunState, type RunState, reduceRun } from '#specs/protocol/run-state.ts'
import { Recorder } from '../recording/recorder.ts'
import { Feed } from './feed.ts'
import { Journal, readJournal } from './journal.ts'
import type { RunPaths } from './store.ts'

export class RunRecord {
  readonly paths: RunPaths
  readonly feed = new Feed()
  readonly #journal: Journal
  #state: RunState = initialRunState
  #recorder: Recorder | null = null
  #closed = false

  private constructor(paths: RunPaths, journal: Journal) {
    this.paths = paths
    this.#journal = journal
  }

  static async open(paths: RunPaths, now?: () => number): Promise<RunRecord> {
    const clock = now === undefined ? {} : { now }
    const record = new RunRecord(
      paths,
      await Journal.open({ runId: paths.runId, path: paths.journal, ...clock }),
    )
    for (const line of await readJournal(paths.journal, paths.runId))
      record.#state = reduceRun(record.#state, line)
    return record
  }

  get state(): RunState {
    return this.#state
  }

  /** `hash` of the journal's last line. */
  get head(): string {
    return this.#journal.head
  }

  /** Journals a fact of the host, then shows it. */
  async host(event: HostEvent): Promise<void> {
    const written = await this.#journal.append({ source: 'host', event })
    this.#state = reduceRun(this.#state, { event })
    this.feed.push(written)
  }

  /** Journals the end. A journal that cannot be written any more does not keep the run from having one: then only the state has it. */
  async conclude(event: HostEvent): Promise<void> {
    await this.host(event).catch(() => {
      this.#state = reduceRun(this.#state, { event })
    })
  }

  /** Journals a claim of the agent, then shows it. */
  async agent(agentPath: string, n: number, event: AgentEvent): Promise<void> {
    const written = await this.#journal.append({ source: 'agent', agentPath, n, event })
    this.#state = reduceRun(this.#state, { event, agentPath })
    this.feed.push(written)
  }

  /** Shows a delta; it is kept nowhere. */
  delta(agentPath: string, delta: Delta): void {
    if (!this.#closed) this.feed.push({ source: 'delta', runId: this.paths.runId, agentPath, delta })
  }

  /** Where the exchanges with the run's model and the web are kept; ends with this record. */
  async openRecorder({ model, name }: { readonly model: string; readonly name: string }): Promise<Recorder> {
    const { runId, exchanges } = this.paths
    const header = { version: 1, runId, model, provider: name, at: Date.now() } as const
    this.#recorder ??= await Recorder.open(exchanges, header)
    return this.#recorder
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.feed.end()
    await this.#recorder?.[Symbol.asyncDispose]()
    // Every line was handed to the system when it was appended; a failed close has nothing to say about the run.
    await this.#journal.close().catch(() => undefined)
  }
}
