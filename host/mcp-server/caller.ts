/** Who calls the MCP server: a client of the service with the caller's own credentials, and what bounds its calls. */
import { CaissonError } from '#specs/errors.ts'
import type { ServiceClient } from '../../client/index.ts'
import { type RunView, viewRun } from '../run-view/run-view.ts'

/** Metadata of the runs that MCP clients start. */
export const mcpMark = { 'started-by': 'mcp' } as const

export interface McpCaller {
  readonly service: ServiceClient
  /** The same for as long as it is the same caller, over all nodes; signed states are for this caller alone. */
  readonly id: string
  /** Whether it sees only runs that MCP clients started, whatever its credentials may read. */
  readonly seesMarkedRunsAlone: boolean
}

/** @throws {ServiceError} `run_not_found` of a run that the caller does not see @throws {CaissonError} the same */
export async function viewOwnRun(
  { service, seesMarkedRunsAlone }: McpCaller,
  runId: string,
  signal?: AbortSignal,
): Promise<RunView> {
  const view = await viewRun(service, runId, signal)
  if (seesMarkedRunsAlone && view.run.metadata?.['started-by'] !== mcpMark['started-by'])
    throw new CaissonError('run_not_found', `no run of this server has the ID "${runId}"`, {
      remedy: 'use an ID that run_task or list_runs gave; a person sees other runs with `caisson runs list`',
    })
  return view
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
