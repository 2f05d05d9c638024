/**
 * MCP servers that an editor names for a session. Those over HTTP without headers are used by the runs, under the rules of
 * network access and pins as any other. Programs of the editor's machine, and headers that may hold keys, are refused: both
 * would be in the VM.
 */
import type { McpServer } from '@agentclientprotocol/sdk'
import { McpServerName } from '#specs/protocol/extension.ts'

const namesMax = 32

export interface TakenServers {
  /** As `mcpServers` of a run has them, by name. */
  readonly servers: Readonly<Record<string, { readonly type: 'http'; readonly url: string }>>
  /** Why others are not used, one sentence or two each. */
  readonly notes: readonly string[]
}

/** @param configured names of the servers of the configuration, which an editor does not replace */
export function takeMcpServers(given: readonly McpServer[], configured: readonly string[]): TakenServers {
  const servers: Record<string, { type: 'http'; url: string }> = {}
  const notes: string[] = []
  for (const server of given) {
    const why = findRefusal(server, [...configured, ...Object.keys(servers)])
    if (why !== undefined)
      notes.push(
        `The MCP server ${JSON.stringify(server.name.slice(0, 64))} of the editor is not used: ${why}.`,
      )
    else if ('url' in server) servers[server.name] = { type: 'http', url: server.url }
  }
  return { servers, notes: notes.slice(0, namesMax) }
}

function findRefusal(server: McpServer, taken: readonly string[]): string | undefined {
  if (!('type' in server))
    return 'its program is on your machine, and servers run in the VM; configure it in Caisson, with a program that the VM has'
  if (server.type !== 'http') return `the transport ${server.type.slice(0, 20)} is not supported; use http`
  if (!McpServerName.safeParse(server.name).success)
    return 'a name begins with a letter or digit and has at most 64 of A-Z a-z 0-9 _ . -; give it another one'
  if (taken.includes(server.name)) return 'another server has its name; the one of your configuration is used'
  if (taken.length >= namesMax) return `a run has at most ${namesMax} servers`
  if (server.headers.length > 0)
    return 'its headers may hold a key, which would be in the VM; configure it in Caisson, with a secret in the place of the key'
  return isWebAddress(server.url) ? undefined : 'its address is no http or https URL'
}

function isWebAddress(url: string): boolean {
  try {
    const { protocol, username, password } = new URL(url)
    return ['http:', 'https:'].includes(protocol) && username === '' && password === ''
  } catch {
    return false
  }
}
