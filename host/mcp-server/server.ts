/** The MCP server of one caller, the same over stdio and HTTP and for both revisions. */

import { McpServer } from '@modelcontextprotocol/server'
import type { CleanText } from '#specs/protocol/shown-text.ts'
import type { CallSlots, McpCaller } from './caller.ts'
import { tasksExtension } from './client-facts.ts'
import { questionStates } from './request-state.ts'
import { addResources } from './resources.ts'
import { addTasks } from './tasks.ts'
import { addTools } from './tools.ts'

export interface CaissonMcpOptions {
  readonly version: string
  /** 32 bytes that sign the states of questions, the same at each node. */
  readonly stateKey: Uint8Array
  readonly clean: CleanText
  readonly slots: CallSlots
  /** Workspace of tasks that name none. Absent: an empty one of the service. */
  readonly workspace?: string
}

/** Rounds of one call with a client of 2025-11-25, whose questions are asked while the call waits. */
const roundsMax = 64
/** For a person to answer there; afterwards the call fails, and the question still waits. */
const roundTimeoutMs = 30 * 60_000
const argumentElementsMax = 100

export function createCaissonServer(options: CaissonMcpOptions, caller: McpCaller): McpServer {
  const { version, stateKey, clean, slots, workspace } = options
  const states = questionStates(stateKey, caller.id)
  const server = new McpServer(
    { name: 'caisson', title: 'Caisson', version },
    {
      capabilities: { tools: {}, resources: {}, extensions: { [tasksExtension]: {} } },
      instructions:
        'Caisson runs tasks of an AI agent in a virtual machine. Start one with run_task, and wait for it with get_run. ' +
        'Only a person approves what the agent asks, and only a person applies changes to files.',
      inputRequired: { maxRounds: roundsMax, roundTimeoutMs },
      maxToolInputElements: argumentElementsMax,
      requestState: { verify: (state, context) => states.verify(state, context) },
    },
  )
  addTools(server, { caller, slots, clean, states, ...(workspace === undefined ? {} : { workspace }) })
  addTasks(server, { caller, slots, clean, states })
  addResources(server, caller, slots)
  return server
}
