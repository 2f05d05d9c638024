/**
 * Requests that wait for something of a run: for its end, or until it waits for people. The events of this process wake
 * them, so a request that waits reads nothing. Each counts in the share of its caller, and the end of the service ends it.
 */
import type { ServerResponse } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { waitTool } from '#specs/protocol/tool-names.ts'
import type { RunWait } from '#specs/service/run-resources.ts'
import type { Host, JournalEvent } from '../index.ts'
import type { Caller } from './callers.ts'
import type { Quotas } from './quotas.ts'

/** How often a run is looked at that no process carries out; another process may continue it. */
const recheckMs = 2_000
/** For what waits to be answered when the service ends. */
const drainMs = 2_000

export interface RunWaitsOptions {
  readonly host: Pick<Host, 'runs' | 'reach'>
  readonly quotas: Pick<Quotas, 'openStream'>
  /** Whether this process carries out the run. */
  readonly isHeld: (runId: string) => boolean
}

export class RunWaits {
  readonly #options: RunWaitsOptions
  readonly #closing = new AbortController()
  /** Those that wait for news of a run, by its id. */
  readonly #wakers = new Map<string, Set<() => void>>()
  /** Requests that wait, until each is answered. */
  readonly #open = new Set<Promise<void>>()

  constructor(options: RunWaitsOptions) {
    this.#options = options
  }

  /**
   * Counts a request that waits until it is answered or its client is gone.
   * @returns aborted when the service ends @throws {Refusal} 429 beyond the share of its caller
   */
  begin(caller: Caller, response: ServerResponse): AbortSignal {
    const leave = this.#options.quotas.openStream(caller)
    const answered = new Promise<void>((resolve) => {
      if (response.destroyed) resolve()
      response.once('close', resolve)
    })
    this.#open.add(answered)
    void answered.then(() => {
      this.#open.delete(answered)
      leave()
    })
    return this.#closing.signal
  }

  /** Wakes those that wait for news of a run: this process began or left it. */
  wake(runId: string): void {
    for (const wake of this.#wakers.get(runId) ?? []) wake()
  }

  /** Of the runs of this process. */
  event({ event, runId }: JournalEvent): void {
    if (event.type === 'approval-request') this.wake(runId)
  }

  /** Resolves when what is waited for is so, or when the signal aborts. @throws {CaissonError} `run_not_found` */
  async until(runId: string, what: RunWait, signal: AbortSignal): Promise<void> {
    let news = Promise.withResolvers<void>()
    const wake = (): void => news.resolve()
    const wakers = this.#wakers.get(runId) ?? new Set()
    this.#wakers.set(runId, wakers.add(wake))
    signal.addEventListener('abort', wake, { once: true })
    try {
      while (!signal.aborted) {
        news = Promise.withResolvers()
        // What is asked during the look counts as news.
        const since = Date.now()
        if (await this.#isSo(runId, what)) return
        if (this.#options.isHeld(runId)) await news.promise
        else await this.#newsFromElsewhere(runId, { news: news.promise, since }, signal)
      }
    } finally {
      signal.removeEventListener('abort', wake)
      wakers.delete(wake)
      if (wakers.size === 0) this.#wakers.delete(runId)
    }
  }

  /** Ends what waits: each request is answered with what is so now. */
  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.race([Promise.all(this.#open), sleep(drainMs, undefined, { ref: false })])
  }

  async #isSo(runId: string, what: RunWait): Promise<boolean> {
    const { host, isHeld } = this.#options
    const isHere = isHeld(runId)
    if (what === 'attention') {
      const questions = await host.runs.pendingApprovals(runId)
      // The clock answers a wait.
      if (questions.some(({ approval }) => approval.tool !== waitTool)) return true
    }
    // Once this process has left it, its result is there.
    if (isHere) return false
    const { state, status } = await host.runs.summary(runId)
    return state.end !== null || status === 'damaged' || (what === 'attention' && status === 'sleeping')
  }

  /** Of a run that another process carries out, or none. @param since ms since 1970, before which nothing is news */
  async #newsFromElsewhere(
    runId: string,
    { news, since }: { readonly news: Promise<void>; readonly since: number },
    signal: AbortSignal,
  ): Promise<void> {
    const ending = new AbortController()
    const handle = await this.#options.host.reach(runId)
    const recheck = sleep(recheckMs, undefined, { signal: AbortSignal.any([signal, ending.signal]) })
    const rechecked = recheck.catch(() => undefined)
    if (handle === null) {
      await Promise.race([news, rechecked])
      ending.abort()
      return
    }
    const feed = handle.watch({ deltas: false })
    const seen = (async () => {
      for await (const item of feed) {
        const isQuestion = item.source === 'host' && item.event.type === 'approval-request'
        if (isQuestion && item.at >= since) return
      }
      // Its process is about to write what comes after its end.
      await rechecked
    })()
    try {
      await Promise.race([news, seen])
    } finally {
      ending.abort()
      await feed.return?.()
      await handle.detach()
    }
  }
}
