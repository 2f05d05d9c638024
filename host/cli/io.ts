/** What a command talks through; tests give their own. */
import { userInfo } from 'node:os'
import type { Readable, Writable } from 'node:stream'
import type { VmClient } from '../control/vm-client.ts'
import { Host, type HostOptions } from '../host.ts'
import { openSignIns } from '../open-sign-ins.ts'
import { wordsOf } from '../runs/ending.ts'
import { Settings } from '../settings.ts'
import type { McpSignIns } from '../sign-in/mcp-sign-ins.ts'
import { resolveFolders } from '../state/folders.ts'
import { type InConversation, withFlags } from './options.ts'
import { sanitizeBlock, sanitizeLine } from './render/sanitize.ts'

export interface Io extends InConversation {
  readonly stdin: Readable & { isTTY?: boolean; setRawMode?: (isRaw: boolean) => unknown }
  readonly stdout: Writable & { isTTY?: boolean; columns?: number; rows?: number }
  readonly stderr: Writable & { isTTY?: boolean; columns?: number; rows?: number }
  readonly env: Readonly<Record<string, string | undefined>>
  readonly version: string
  /** Absent: the process's current directory. */
  readonly directory?: string
}

/** Name of the person at the terminal, for journals. */
export function userName(): string {
  try {
    return userInfo().username
  } catch {
    // A user without an entry in the system's list.
    return `user ${process.getuid?.() ?? ''}`.trimEnd()
  }
}

/** The host for this environment. @param overrides settings of `-c`, over the configuration */
export function hostOf(
  io: Io,
  overrides: readonly string[] = [],
  options: Pick<HostOptions, 'queue' | 'pool' | 'fences'> = {},
): Host {
  return new Host({ env: io.env, overrides, ...options })
}

/** The sign-ins to MCP servers of this environment. */
export function signInsOf({ env }: Pick<Io, 'env'>): McpSignIns {
  const folders = resolveFolders(env)
  return openSignIns(new Settings({ folders, env }), { folders, env })
}

/**
 * The id of a run that the command line names. Says on standard error which run `last` is, before anything is done.
 * @param directory for `last`. Absent: the current directory
 */
export async function findRun(io: Io, name: string, directory = io.directory): Promise<string> {
  const { runs } = hostOf(io)
  const { runId } = await runs.find(name, directory)
  if (name !== 'last') return runId
  const { prompt } = await runs.summary(runId)
  io.stderr.write(`caisson: last is ${runId}${prompt === '' ? '' : `: ${sanitizeLine(prompt, 60)}`}\n`)
  return runId
}

/** The VM that the command line names. Says on standard error which VM `last` is. */
export async function findVm(io: Io, name: string): Promise<VmClient> {
  const vm = await hostOf(io).vms.find(name)
  const { id, runId, directory } = vm.info
  if (name !== 'last') return vm
  const about = [
    ...(runId === null ? [] : [` of ${runId}`]),
    ...(directory === null ? [] : [` on ${sanitizeLine(directory)}`]),
  ]
  io.stderr.write(`caisson: last is the VM ${id}${about.join('')}\n`)
  return vm
}

/** Prints a failure: our words, with whatever is untrusted in them made harmless. */
export function printError(io: Io, error: unknown): void {
  const [first = '', ...rest] = withFlags(wordsOf(error)).split('\n')
  io.stderr.write(`caisson: ${sanitizeBlock(first, '')}\n`)
  if (rest.length > 0) io.stderr.write(`${sanitizeBlock(rest.join('\n'))}\n`)
}
