/** Counts what happens in the runs of the service, from their events. Keeps a few words of each run that starts. */
import { type StartPhase, startPhases } from '#specs/service/metrics.ts'
import type { JournalEvent, RunObserver } from '../index.ts'
import type { MetricValues, Sample } from './metric-values.ts'

/** A run without an agent. */
interface Starting {
  /** ms since 1970 */
  readonly since: number
  readonly phase: StartPhase
  readonly kind: 'boot' | 'template' | 'saved'
}

export class RunMetrics implements RunObserver {
  readonly #values: MetricValues
  readonly #starting = new Map<string, Starting>()
  /** When runs began to wait in the queue, ms since 1970. */
  readonly #waiting = new Map<string, number>()

  constructor(values: MetricValues) {
    this.#values = values
  }

  event({ runId, at, event }: JournalEvent): void {
    this.#count(event)
    switch (event.type) {
      case 'run-start':
        this.#starting.set(runId, { since: at, phase: 'workspace', kind: 'boot' })
        break
      case 'run-resume':
        this.#starting.set(runId, { since: at, phase: 'vm', kind: 'boot' })
        break
      case 'queue-start':
        this.#waiting.set(runId, at)
        this.#continue(runId, { phase: 'queue' })
        break
      case 'queue-end':
        this.#waiting.delete(runId)
        this.#continue(runId, { since: at, phase: 'workspace' })
        break
      case 'workspace-ready':
        this.#continue(runId, { phase: 'vm' })
        break
      case 'vm-ready':
        this.#continue(runId, { phase: 'agent', kind: event.start ?? 'boot' })
        break
      case 'session-start':
        this.#measure(runId, at)
        break
      case 'run-sleep':
      case 'run-end':
        this.end(runId)
        break
      default:
    }
  }

  end(runId: string): void {
    this.#starting.delete(runId)
    this.#waiting.delete(runId)
  }

  /** ms since 1970; undefined: none waits. */
  get oldestWait(): number | undefined {
    return this.#waiting.size === 0 ? undefined : Math.min(...this.#waiting.values())
  }

  /** Runs that start now, by what they wait for. */
  samples(): Sample[] {
    const starting = [...this.#starting.values()]
    return startPhases.map((phase) => ({
      name: 'caisson_runs_starting',
      labels: { for: phase },
      value: starting.filter((run) => run.phase === phase).length,
    }))
  }

  #count(event: JournalEvent['event']): void {
    const values = this.#values
    switch (event.type) {
      case 'run-start':
        values.add('caisson_runs_started_total', {})
        break
      case 'run-resume':
        values.add('caisson_runs_resumed_total', {})
        break
      case 'queue-end':
        values.observe('caisson_queue_wait_seconds', {}, event.waitedMs / 1_000)
        break
      case 'run-end':
        values.add('caisson_runs_ended_total', { outcome: event.outcome })
        break
      case 'model-end':
        this.#countModel(event)
        break
      case 'approval-decision':
        values.add('caisson_approval_decisions_total', { decision: event.decision, by: event.by })
        break
      case 'egress-denied':
        values.add('caisson_egress_denied_total', {})
        break
      default:
    }
  }

  #countModel({ error, usage, costUsd = 0 }: Extract<JournalEvent['event'], { type: 'model-end' }>): void {
    const values = this.#values
    const { inputTokens, outputTokens, reasoningTokens, cachedTokens = 0 } = usage
    values.add('caisson_model_requests_total', { result: error === undefined ? 'ok' : 'error' })
    values.add('caisson_model_tokens_total', { kind: 'input' }, inputTokens)
    values.add('caisson_model_tokens_total', { kind: 'output' }, outputTokens)
    values.add('caisson_model_tokens_total', { kind: 'reasoning' }, reasoningTokens)
    values.add('caisson_model_tokens_total', { kind: 'cached' }, cachedTokens)
    values.add('caisson_model_cost_usd_total', {}, costUsd)
  }

  #continue(runId: string, change: Partial<Starting>): void {
    const run = this.#starting.get(runId)
    if (run !== undefined) this.#starting.set(runId, { ...run, ...change })
  }

  /** A later session of the same agent has no start. */
  #measure(runId: string, at: number): void {
    const run = this.#starting.get(runId)
    if (run === undefined) return
    this.#starting.delete(runId)
    // The clock of the machine can be set back.
    const seconds = Math.max(0, at - run.since) / 1_000
    this.#values.observe('caisson_run_start_seconds', { start: run.kind }, seconds)
  }
}
