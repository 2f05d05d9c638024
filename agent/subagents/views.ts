/**
 * The views of one run's sub-agents: opened when one begins, closed when it has come home, kept where something of it could
 * not be brought over. When room is short, the view that was kept longest gives way.
 */
import { randomBytes } from 'node:crypto'
import type { Logger } from 'pino'
import type { HelperError, HelperResult, ViewPaths } from '../utils/helper.ts'

/** Whoever can make views. */
export interface ViewSource {
  openView(id: string): Promise<HelperResult<ViewPaths>>
  closeView(id: string): Promise<HelperResult<void>>
}

/** A view under the id by which programs are started in it. */
export interface AgentView extends ViewPaths {
  readonly id: string
}

export class Views {
  readonly #source: ViewSource
  readonly #logger: Logger
  readonly #open = new Set<AgentView>()
  /** By the agent's path, the oldest first. */
  readonly #kept = new Map<string, AgentView>()

  constructor(source: ViewSource, logger: Logger) {
    this.#source = source
    this.#logger = logger
  }

  async open(): Promise<HelperResult<AgentView>> {
    for (;;) {
      const id = `v${randomBytes(6).toString('hex')}`
      const opened = await this.#source.openView(id)
      if (opened.ok) {
        const view = { ...opened.value, id }
        this.#open.add(view)
        return { ok: true, value: view }
      }
      if (!isShortOfRoom(opened.error) || !(await this.#closeOldest())) return opened
    }
  }

  /** Keeps the view of an agent that has ended. */
  keep(agentPath: string, view: AgentView): void {
    this.#kept.set(agentPath, view)
  }

  find(agentPath: string): AgentView | undefined {
    return this.#kept.get(agentPath)
  }

  async close(view: AgentView): Promise<void> {
    if (!this.#open.delete(view)) return
    const closed = await this.#source.closeView(view.id)
    if (!closed.ok)
      this.#logger.warn({ view: view.id, code: closed.error.code }, `view: ${closed.error.message}`)
  }

  async closeAll(): Promise<void> {
    this.#kept.clear()
    await Promise.all([...this.#open].map((view) => this.close(view)))
  }

  /** Whether there was one. */
  async #closeOldest(): Promise<boolean> {
    const [oldest] = this.#kept
    if (oldest === undefined) return false
    const [agentPath, view] = oldest
    this.#kept.delete(agentPath)
    this.#logger.info({ agentPath }, 'a kept view gave way')
    await this.close(view)
    return true
  }
}

function isShortOfRoom({ code }: HelperError): boolean {
  return code === 'busy' || code === 'no_space'
}
