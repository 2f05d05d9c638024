/**
 * MCP servers as an extension: the user's, which come with the task, and the workspace's. A user's server takes
 * precedence over a workspace server of the same name. Loads no protocol code when there is no server.
 */
import { workspaceMcpFile } from '#specs/protocol/mcp-config.ts'
import { mayBeOfServer, serverToolPrefix } from '#specs/protocol/tool-names.ts'
import type { ExtensionParts, OpenExtension } from '../extensions/extension.ts'
import type { ChosenServer, McpEnvironment } from './open-servers.ts'
import { readWorkspaceServers, type WorkspaceServers } from './workspace-servers.ts'

/** Names of the tools in `resource-tools.ts`, which is loaded only when there is a server. */
const resourceTools: ReadonlySet<string> = new Set([
  'list_mcp_resources',
  'read_mcp_resource',
  'get_mcp_prompt',
])
/** The servers of one run, all started when it begins. */
const serversMaxCount = 12

export function createMcpExtension(environment: McpEnvironment): OpenExtension {
  return async (parts) => {
    const { task, host } = parts
    const found = await readWorkspaceServers(environment.files)
    const { chosen, notes } = chooseServers(task, found)
    for (const note of notes) await host.note('warn', note)
    if (chosen.length === 0 || parts.signal.aborted) return null
    // Planning waits until all are ready, which can take a while.
    await host.note('info', `Starting MCP servers: ${chosen.map(({ name }) => name).join(', ')}`)
    const { openServers } = await import('./open-servers.ts')
    return await openServers(chosen, parts, environment)
  }
}

/** The servers whose tools the task may use, and notes about the others. */
export function chooseServers(
  { mcpServers = {}, tools }: Pick<ExtensionParts['task'], 'mcpServers' | 'tools'>,
  found: WorkspaceServers,
): { readonly chosen: readonly ChosenServer[]; readonly notes: readonly string[] } {
  const notes = [...found.notes]
  const own = Object.entries(mcpServers).map(([name, config]) => ({ name, source: 'user' as const, config }))
  const others = [...found.servers].flatMap(([name, config]) => {
    if (!Object.hasOwn(mcpServers, name)) return [{ name, source: 'workspace' as const, config }]
    notes.push(`${workspaceMcpFile} of the workspace: ${name}: your own server of that name is used`)
    return []
  })
  const wanted = [...own, ...others].filter(({ name }) => isWanted(name, tools))
  const left = wanted.slice(serversMaxCount).map(({ name }) => name)
  if (left.length > 0)
    notes.push(`at most ${serversMaxCount} MCP servers are used in a run; left out: ${left.join(', ')}`)
  return { chosen: wanted.slice(0, serversMaxCount), notes }
}

/** Whether the task allows any tool that could be the server's: entries may be patterns and exclusions with `!`. */
function isWanted(server: string, tools: readonly string[] | undefined): boolean {
  if (tools === undefined || tools.includes(`!${serverToolPrefix(server)}*`)) return tools === undefined
  if (tools[0]?.startsWith('!') === true) return true
  return tools.some((entry) => resourceTools.has(entry) || mayBeOfServer(server, entry))
}
