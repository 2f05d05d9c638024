/** Runs that something on the screen follows: their journal and what is live, read once for all views. */
import * as vscode from 'vscode'
import { RunHistory } from '../../page/run/history.ts'
import { RunLive } from '../../page/run/live.ts'
import type { Session } from '../session/session.ts'

/** Between two drawings. */
const drawEveryMs = 200
/** Until a stream that the service refused is opened again. */
const retryMs = 2_000

export type Connection = 'open' | 'broken' | 'over'

export class FollowedRun {
  readonly runId: string
  readonly history = new RunHistory()
  readonly live = new RunLive()
  readonly #session: Session
  readonly #changed = new vscode.EventEmitter<void>()
  readonly #ending = new AbortController()
  #drawing: ReturnType<typeof setTimeout> | undefined
  connection: Connection = 'broken'
  /** Why the service refuses its events; empty: it does not. */
  problem = ''
  users = 0

  constructor(session: Session, runId: string) {
    this.#session = session
    this.runId = runId
  }

  /** Fires a few times a second at most. */
  readonly onChange = this.#changed.event

  /** Reads until it is disposed of; events can follow the end of a run, such as those of an apply. */
  async follow(): Promise<void> {
    const { signal } = this.#ending
    while (!signal.aborted) {
      try {
        await this.#read(signal)
        if (this.history.state.end !== null) return this.#turn('over', '')
      } catch (error) {
        if (!signal.aborted) this.#turn('broken', this.#session.note(error))
      }
      await new Promise((resolve) => setTimeout(resolve, retryMs))
    }
  }

  dispose(): void {
    this.#ending.abort()
    clearTimeout(this.#drawing)
    this.#changed.dispose()
  }

  async #read(signal: AbortSignal): Promise<void> {
    const events = this.#session.client.events(this.runId, {
      from: this.history.next,
      signal,
      onConnection: (state) => this.#turn(state, ''),
    })
    for await (const item of events) {
      if (item.source === 'delta') this.live.add(item.delta, item.agentPath)
      else {
        this.history.add(item)
        this.live.settle(item.event, item.source === 'agent' ? item.agentPath : 'root')
      }
      this.#draw()
    }
  }

  #turn(connection: Connection, problem: string): void {
    this.connection = connection
    this.problem = problem
    this.#draw()
  }

  #draw(): void {
    if (this.#ending.signal.aborted) return
    this.#drawing ??= setTimeout(() => {
      this.#drawing = undefined
      this.#changed.fire()
    }, drawEveryMs)
  }
}

/** A run that somebody uses; disposing of it ends the use. */
export interface RunUse extends vscode.Disposable {
  readonly run: FollowedRun
}

export class Following implements vscode.Disposable {
  readonly #session: Session
  readonly #runs = new Map<string, FollowedRun>()

  constructor(session: Session) {
    this.#session = session
  }

  use(runId: string): RunUse {
    const known = this.#runs.get(runId)
    const run = known ?? new FollowedRun(this.#session, runId)
    run.users += 1
    if (known === undefined) {
      this.#runs.set(runId, run)
      void run.follow()
    }
    let isUsed = true
    const dispose = () => {
      if (isUsed) run.users -= 1
      isUsed = false
      if (run.users === 0) this.#end(run)
    }
    return { run, dispose }
  }

  dispose(): void {
    for (const run of [...this.#runs.values()]) this.#end(run)
  }

  #end(run: FollowedRun): void {
    if (this.#runs.get(run.runId) === run) this.#runs.delete(run.runId)
    run.dispose()
  }
}
