/**
 * The open extensions of one run: their tools for the root agent and for each sub-agent's view. The agent's own names
 * always win. An extension's failure becomes a note and never fails the run.
 */

import type { Logger } from 'pino'
import { errorMessage } from '#specs/errors.ts'
import { limits } from '#specs/protocol/limits.ts'
import type { Task } from '#specs/protocol/task.ts'
import { isReservedToolName } from '#specs/protocol/tool-names.ts'
import { truncate } from '../text/truncate.ts'
import type { Tool } from '../tool-calls/tool.ts'
import type { AgentWorkspace, Extension, ExtensionHost, OpenExtension } from './extension.ts'

/** How long extensions may take to close. */
const closeGraceMs = 3_000

interface OpenParts {
  readonly task: Task
  readonly host: ExtensionHost
  /** Names of the agent's own tools and other reserved names. */
  readonly taken: ReadonlySet<string>
  /** The root agent's workspace. */
  readonly workspace: AgentWorkspace
  /** Aborted when the run ends. */
  readonly signal: AbortSignal
  readonly logger: Logger
}

export interface OpenedExtensions {
  /** Tools for the root agent. */
  readonly tools: readonly Tool[]
  /** The same tools for a sub-agent over its view; whatever they start ends with `signal`. */
  toolsFor(workspace: AgentWorkspace, signal: AbortSignal): Promise<readonly Tool[]>
  /** Makes a tool of a function that a step of a workflow adds; undefined where no extension does. */
  readonly makeFunction: Extension['toolOf']
  /** Closes all of them; waits a few seconds at most. */
  close(): Promise<void>
}

/** An open extension and its tool names that no other extension has. */
interface Opened {
  readonly extension: Extension
  readonly names: ReadonlySet<string>
}

/** Opens extensions one after the other, so that each knows the names taken before it. */
export async function openExtensions(
  extensions: readonly OpenExtension[],
  parts: OpenParts,
): Promise<OpenedExtensions> {
  const opened: Opened[] = []
  const tools: Tool[] = []
  const taken = new Set(parts.taken)
  for (const open of extensions) {
    if (parts.signal.aborted) break
    try {
      const { task, host, signal, logger } = parts
      const extension = await open({ task, host, taken: new Set(taken), signal, logger })
      if (extension === null) continue
      const own = await openTools(extension, taken, parts)
      for (const { name } of own) taken.add(name)
      tools.push(...own)
      opened.push({ extension, names: new Set(own.map(({ name }) => name)) })
    } catch (error) {
      await noteFault('an extension did not open; the run continues without its tools', error, parts)
    }
  }
  return {
    tools,
    toolsFor: async (workspace, signal) => {
      const lists = opened.map(async ({ extension, names }) => {
        try {
          return (await extension.toolsFor(workspace, signal)).filter(({ name }) => names.has(name))
        } catch (error) {
          const what = `an extension has no tools for ${workspace.agentPath}, which continues without them`
          await noteFault(what, error, parts)
          return []
        }
      })
      return (await Promise.all(lists)).flat()
    },
    makeFunction: opened.find(({ extension }) => extension.toolOf !== undefined)?.extension.toolOf,
    close: () => closeAll(opened, parts.logger),
  }
}

/** The root agent's tools with unused names; the others are reported. Closes an extension that fails here. */
async function openTools(
  extension: Extension,
  taken: ReadonlySet<string>,
  { workspace, host, signal, logger }: OpenParts,
): Promise<readonly Tool[]> {
  try {
    const tools = await extension.toolsFor(workspace, signal)
    const names = new Set(taken)
    const own: Tool[] = []
    for (const tool of tools) {
      const isOwn = tool.isOwn ?? (tool.runs ?? 'agent') === 'agent'
      if (!isOwn && isReservedToolName(tool.name))
        await host.note('warn', `a tool named ${tool.name} is left out: the name is reserved`)
      else if (names.has(tool.name)) await host.note('warn', `a second tool named ${tool.name} is left out`)
      else own.push(tool)
      names.add(tool.name)
    }
    return own
  } catch (error) {
    await closeAll([{ extension, names: new Set() }], logger)
    throw error
  }
}

async function noteFault(what: string, error: unknown, { host, logger }: OpenParts): Promise<void> {
  logger.error({ err: error }, what)
  const why = errorMessage(error)
  await host.note('warn', truncate(`${what}: ${why}`, limits.textMaxChars))
}

async function closeAll(opened: readonly Opened[], logger: Logger): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<'late'>((resolve) => {
    timer = setTimeout(() => resolve('late'), closeGraceMs)
  })
  const closing = opened.map(async ({ extension }) => {
    try {
      await extension.close()
    } catch (error) {
      logger.error({ err: error }, 'an extension did not close')
    }
  })
  const end = await Promise.race([Promise.all(closing), late])
  clearTimeout(timer)
  if (end === 'late') logger.error('extensions were abandoned: they did not close in time')
}
