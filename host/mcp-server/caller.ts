/** Who calls the MCP server: a client of the service with the caller's own credentials, and what bounds its calls. */
import { CaissonError } from '#specs/errors.ts'
import type { ServiceClient } from '../../client/index.ts'

/** Metadata of the runs that MCP clients start. */
export const mcpMark = { 'started-by': 'mcp' } as const

export interface McpCaller {
  readonly service: ServiceClient
  /** The same for as long as it is the same caller, over all nodes; signed states are for this caller alone. */
  readonly id: string
  /** Whether it sees only runs that MCP clients started, whatever its credentials may read. */
  readonly seesMarkedRunsAlone: boolean
}

const callsMaxOfCaller = 32
const callsMax = 256

/** Counts the calls at work, so that a flood of calls that wait for a run holds nothing but its own share. */
export class CallSlots {
  readonly #ofCallers = new Map<string, number>()
  #all = 0

  /** @throws {CaissonError} `not_possible_now` */
  async use<T>(callerId: string, work: () => Promise<T>): Promise<T> {
    const own = this.#ofCallers.get(callerId) ?? 0
    if (own >= callsMaxOfCaller || this.#all >= callsMax)
      throw new CaissonError('not_possible_now', `${own} calls of this client are at work already`, {
        remedy: 'wait until one of them has ended',
      })
    this.#ofCallers.set(callerId, own + 1)
    this.#all++
    try {
      return await work()
    } finally {
      this.#all--
      const left = (this.#ofCallers.get(callerId) ?? 1) - 1
      if (left === 0) this.#ofCallers.delete(callerId)
      else this.#ofCallers.set(callerId, left)
    }
  }
}
