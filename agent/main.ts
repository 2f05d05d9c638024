/**
 * The agent's process in the guest: its two ports, the helper socket of PID 1 and its tools, handed to the daemon.
 * Ends only with the VM or by a crash, which PID 1 reports and answers with a new process.
 */
import { readFileSync } from 'node:fs'
import { z } from 'zod'
import type { Result, ToolErrorCode } from '#specs/protocol/error.ts'
import { startDaemon } from './daemon.ts'
import { createCodeTools } from './tools/code.ts'
import { createFileTools, type RunSandboxed } from './tools/files.ts'
import { listWorkspace } from './tools/listing.ts'
import { toolFailure, toolSuccess } from './tools/tool.ts'
import {
  createHelper,
  DEFAULT_HELPER_SOCKET,
  type HelperErrorCode,
  type HelperResult,
} from './utils/helper.ts'
import { createPortOpener } from './utils/port.ts'
import type { AgentDescription } from './utils/rpc.ts'

const MIB = 1024 * 1024
/** What ripgrep may use. */
const searchLimits = { memoryBytes: 256 * MIB, pids: 64, cpuPercent: 200 }

/** Written by PID 1. */
const Exits = z.object({
  restarts: z.int().min(0),
  last: z
    .object({ code: z.int().nullable(), signal: z.string().nullable(), stderrTail: z.string() })
    .nullable(),
})

const helper = createHelper(process.env.CAISSON_HELPER ?? DEFAULT_HELPER_SOCKET)

const searchInSandbox: RunSandboxed = async ({ argv, timeoutMs }, { signal, onOutput }) =>
  toToolResult(
    await helper.execInSandbox(
      { argv, limits: { ...searchLimits, wallMs: timeoutMs } },
      { signal, onOutput },
    ),
  )

startDaemon({
  openRpc: createPortOpener('caisson.rpc'),
  openHttp: createPortOpener('caisson.http'),
  root: {
    mountWorkspace: async () => toToolResult(await helper.mountWorkspace()),
    setClock: async (epochMs) => toToolResult(await helper.setClock(epochMs)),
  },
  tools: [...createFileTools(searchInSandbox), ...createCodeTools(helper)],
  listWorkspace: (signal) => listWorkspace(signal),
  describeExits,
})

const toolCodes: Readonly<Record<HelperErrorCode, ToolErrorCode>> = {
  bad_request: 'invalid_input',
  not_ready: 'unavailable',
  busy: 'unavailable',
  no_space: 'no_space',
  internal: 'internal',
  cancelled: 'cancelled',
  unavailable: 'unavailable',
}

function toToolResult<T>(result: HelperResult<T>): Result<T> {
  if (result.ok) return toolSuccess(result.value)
  const { code, message } = result.error
  return toolFailure(toolCodes[code], message, code === 'busy' || code === 'not_ready')
}

function describeExits(): Pick<AgentDescription, 'restarts' | 'lastExit'> {
  try {
    const { restarts, last } = Exits.parse(
      JSON.parse(readFileSync(process.env.CAISSON_AGENT_EXITS ?? '', 'utf8')),
    )
    if (last === null) return { restarts }
    const how = last.signal ?? `code ${last.code}`
    return { restarts, lastExit: `${how}\n${last.stderrTail}`.slice(0, 8_000) }
  } catch {
    // No file: nothing has ended yet.
    return { restarts: 0 }
  }
}
