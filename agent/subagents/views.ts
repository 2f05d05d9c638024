/**
 * The views of a run's sub-agents: made together where they are asked for together, ended behind everybody's back, kept where
 * something could not be brought over. When room is short, the view that was kept longest gives way. None of it throws.
 */
import { randomBytes } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Mutex } from '#specs/node/semaphore.ts'
import type { HelperError, HelperResult, ViewPaths } from '../link/root-helper.ts'

/** Whoever can make views. */
export interface ViewSource {
  /** Views of the workspace as it is at one moment, in the order of their ids; all or none. */
  openViews(ids: readonly string[]): Promise<HelperResult<readonly ViewPaths[]>>
  closeViews(ids: readonly string[]): Promise<HelperResult<void>>
}

/** A view under the id by which programs are started in it. */
export interface AgentView extends ViewPaths {
  readonly id: string
}

type Opened = HelperResult<AgentView>

export class Views {
  readonly #source: ViewSource
  readonly #turns: Mutex
  readonly #logger: Logger
  readonly #open = new Set<AgentView>()
  /** By the agent's path, the oldest first. */
  readonly #kept = new Map<string, AgentView>()
  #asked: PromiseWithResolvers<Opened>[] = []
  #leaving: AgentView[] = []
  #closing: Promise<void> | null = null

  /** @param turns whose work nothing is to be seen of in a view while it is half done */
  constructor(source: ViewSource, turns: Mutex, logger: Logger) {
    this.#source = source
    this.#turns = turns
    this.#logger = logger
  }

  /** A view of the workspace as it is when its turn comes, together with all that are asked for until then. */
  async open(): Promise<Opened> {
    const asked = Promise.withResolvers<Opened>()
    this.#asked.push(asked)
    if (this.#asked.length === 1) this.#turns.run(() => this.#openAsked()).catch(asked.reject)
    return await asked.promise
  }

  /** Keeps the view of an agent that has ended. */
  keep(agentPath: string, view: AgentView): void {
    this.#kept.set(agentPath, view)
  }

  find(agentPath: string): AgentView | undefined {
    return this.#kept.get(agentPath)
  }

  /** Nobody waits for it: what is asked for meanwhile goes together with the next. */
  close(view: AgentView): void {
    if (!this.#open.delete(view)) return
    this.#leaving.push(view)
    this.#closing ??= this.#closeLeaving()
  }

  /** Resolves when none is left. */
  async closeAll(): Promise<void> {
    this.#kept.clear()
    for (const view of this.#open) this.close(view)
    await this.#closing
  }

  async #openAsked(): Promise<void> {
    // What one reply of the model asks for is asked for within a turn.
    await nextTurn()
    const asked = this.#asked
    this.#asked = []
    try {
      const opened = await this.#openTogether(asked.length)
      for (const [index, { resolve, reject }] of asked.entries()) {
        const own = opened[index]
        if (own === undefined) reject(new TypeError('fewer views than were asked for'))
        else resolve(own)
      }
    } catch (error) {
      for (const { reject } of asked) reject(error)
    }
  }

  /** As many as there is room for, the same failure for all others. */
  async #openTogether(count: number): Promise<Opened[]> {
    for (;;) {
      const ids = Array.from({ length: count }, () => `v${randomBytes(6).toString('hex')}`)
      const opened = await this.#source.openViews(ids)
      if (opened.ok) {
        const views = opened.value.map((paths, index) => ({ ...paths, id: ids[index] ?? '' }))
        for (const view of views) this.#open.add(view)
        return views.map((value) => ({ ok: true, value }))
      }
      if (isShortOfRoom(opened.error) && (await this.#makeRoom())) continue
      if (!isShortOfRoom(opened.error) || count === 1) return Array.from({ length: count }, () => opened)
      return [...(await this.#openTogether(count - 1)), opened]
    }
  }

  /** Whether there may be more of it now. */
  async #makeRoom(): Promise<boolean> {
    if (this.#closing === null) {
      const [oldest] = this.#kept
      if (oldest === undefined) return false
      const [agentPath, view] = oldest
      this.#kept.delete(agentPath)
      this.#logger.info({ agentPath }, 'a kept view gave way')
      this.close(view)
    }
    await this.#closing
    return true
  }

  async #closeLeaving(): Promise<void> {
    while (this.#leaving.length > 0) {
      const ids = this.#leaving.map(({ id }) => id)
      this.#leaving = []
      const closed = await this.#source.closeViews(ids)
      if (!closed.ok)
        this.#logger.warn({ views: ids, code: closed.error.code }, `views: ${closed.error.message}`)
    }
    this.#closing = null
  }
}

function isShortOfRoom({ code }: HelperError): boolean {
  return code === 'busy' || code === 'no_space'
}
