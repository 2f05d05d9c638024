/**
 * Reads the MCP servers that the workspace names in `.mcp.json`: programs inside the VM, nothing else. The file is
 * untrusted: bounded, parsed strictly, never read through a link that leaves the workspace. Servers with an address
 * are not contacted.
 */

import { McpServer, McpServerName } from '#specs/protocol/extension.ts'
import { describeIssues, plainMessagesWithoutValues } from '#specs/protocol/issue-text.ts'
import { listMcpServers, readMcpServer, workspaceMcpFile } from '#specs/protocol/mcp-config.ts'
import { type FileToolsOptions, readBounded } from '../workspace/file-access.ts'

const maxBytes = 64 * 1024
const maxServers = 8

export interface WorkspaceServers {
  readonly servers: ReadonlyMap<string, McpServer>
  /** What in the file is not used, and why. */
  readonly notes: readonly string[]
}

const nothing: WorkspaceServers = { servers: new Map(), notes: [] }

export async function readWorkspaceServers(options: FileToolsOptions = {}): Promise<WorkspaceServers> {
  const read = await readBounded(options, workspaceMcpFile, maxBytes)
  if (!read.ok) return read.error.code === 'not_found' ? nothing : only(read.error.message)
  if (read.value.length > maxBytes) return only(`it is longer than ${maxBytes} bytes`)
  return parseWorkspaceServers(read.value.toString('utf8'))
}

export function parseWorkspaceServers(text: string): WorkspaceServers {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return only('it is not JSON')
  }
  const listed = listMcpServers(value)
  if (!listed.ok) return only(listed.error)
  const servers = new Map<string, McpServer>()
  const notes: string[] = []
  for (const [name, entry] of listed.value) {
    const read = readEntry(name, entry)
    if (read === null) continue
    if (typeof read === 'string') notes.push(noteOf(`${JSON.stringify(name.slice(0, 64))}: ${read}`))
    else if (servers.size >= maxServers)
      notes.push(noteOf(`${name}: at most ${maxServers} servers of it are used`))
    else servers.set(name, read)
  }
  return { servers, notes: notes.slice(0, maxServers) }
}

/** The server, the reason why it is not used, or null when it is disabled. */
function readEntry(name: string, entry: unknown): McpServer | string | null {
  const read = readMcpServer(entry)
  if (!read.ok) return read.error
  if (read.value === null) return null
  if (!McpServerName.safeParse(name).success) return 'a name is 1 to 64 of A-Z a-z 0-9 _ . -'
  if (read.value.transport !== 'stdio')
    return 'an address that a workspace names is not asked; a server of your own configuration may have it'
  // The file does not decide whether it is trusted.
  const { command, args, env, cwd, timeoutMs, connectTimeoutMs } = read.value
  const fields = { transport: 'stdio', command, args, env, cwd, timeoutMs, connectTimeoutMs }
  const parsed = McpServer.safeParse(
    Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)),
    plainMessagesWithoutValues,
  )
  if (parsed.success) return parsed.data
  return describeIssues(parsed.error, { root: 'it' })
}

function only(problem: string): WorkspaceServers {
  return { ...nothing, notes: [noteOf(problem)] }
}

function noteOf(problem: string): string {
  return `${workspaceMcpFile} of the workspace: ${problem}`.slice(0, 500)
}
