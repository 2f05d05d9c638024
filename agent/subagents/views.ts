/**
 * The workspace views of one agent's sub-agents: created in batches, removed in the background, kept after a conflict.
 * When space is short, the view kept longest in the run is removed. Never throws.
 */
import { randomBytes } from 'node:crypto'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Mutex } from '#specs/node/semaphore.ts'
import type { HelperError, HelperResult, ViewPaths } from '../link/root-helper.ts'

/** Creates views. */
export interface ViewSource {
  /**
   * Creates views of the current workspace, or of the view `source`, in the order of their ids; all or none.
   */
  openViews(ids: readonly string[], source?: string): Promise<HelperResult<readonly ViewPaths[]>>
  closeViews(ids: readonly string[]): Promise<HelperResult<void>>
}

/** A view with the id by which programs start in it. */
export interface AgentView extends ViewPaths {
  readonly id: string
}

type Opened = HelperResult<AgentView>

/** The views that a run keeps, by agent path, the one kept longest first. */
export type KeptViews = Map<string, { readonly view: AgentView; readonly owner: Views }>

interface ViewsParts {
  readonly source: ViewSource
  /** Merges that a new view must not see half done. */
  readonly turns: Mutex
  readonly logger: Logger
  /** Id of the view below these; absent: the workspace. */
  readonly of?: string | undefined
  /** Of the whole run; absent: these are all. */
  readonly kept?: KeptViews
}

export class Views {
  readonly #source: ViewSource
  readonly #of: string | undefined
  readonly #turns: Mutex
  readonly #logger: Logger
  readonly #open = new Set<AgentView>()
  readonly #kept: KeptViews
  #asked: PromiseWithResolvers<Opened>[] = []
  #leaving: AgentView[] = []
  #closing: Promise<void> | null = null

  constructor({ source, turns, logger, of, kept = new Map() }: ViewsParts) {
    this.#source = source
    this.#turns = turns
    this.#logger = logger
    this.#of = of
    this.#kept = kept
  }

  /** Creates a view of the workspace, in one batch with all requests that arrive before its turn. */
  async open(): Promise<Opened> {
    const asked = Promise.withResolvers<Opened>()
    this.#asked.push(asked)
    if (this.#asked.length === 1) this.#turns.run(() => this.#openAsked()).catch(asked.reject)
    return await asked.promise
  }

  /** Keeps the view of an ended agent. */
  keep(agentPath: string, view: AgentView): void {
    this.#kept.set(agentPath, { view, owner: this })
  }

  find(agentPath: string): AgentView | undefined {
    return this.#kept.get(agentPath)?.view
  }

  /** Runs in the background; requests that arrive meanwhile join the next batch. */
  close(view: AgentView): void {
    if (!this.#open.delete(view)) return
    this.#leaving.push(view)
    this.#closing ??= this.#closeLeaving()
  }

  /** Resolves when no view is left. */
  async closeAll(): Promise<void> {
    for (const [agentPath, { owner }] of this.#kept) if (owner === this) this.#kept.delete(agentPath)
    for (const view of this.#open) this.close(view)
    await this.#closing
  }

  async #openAsked(): Promise<void> {
    // The calls of one model reply arrive within one turn of the event loop.
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

  /** Creates as many views as fit; all others get the same failure. */
  async #openTogether(count: number): Promise<Opened[]> {
    for (;;) {
      const ids = Array.from({ length: count }, () => `v${randomBytes(6).toString('hex')}`)
      const opened = await this.#source.openViews(ids, this.#of)
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

  /** Whether a retry may succeed now. */
  async #makeRoom(): Promise<boolean> {
    if (this.#closing !== null) {
      await this.#closing
      return true
    }
    const [oldest] = this.#kept
    if (oldest === undefined) return false
    const [agentPath, { view, owner }] = oldest
    this.#kept.delete(agentPath)
    this.#logger.info({ agentPath }, 'a kept view gave way')
    owner.close(view)
    await owner.#closing
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
