/**
 * Names that no tool of an application or of an MCP server may have: those of the agent's own tools, and those by which models
 * of other systems know such tools.
 */

/** The agent's own tools; which of them a run has is the agent's to say. */
export const agentToolNames = [
  'apply_patch',
  'ask_user',
  'delete_file',
  'edit_file',
  'get_mcp_prompt',
  'governance_note',
  'list_files',
  'list_mcp_resources',
  'load_skill',
  'math',
  'move_file',
  'read_agent_file',
  'read_file',
  'read_mcp_resource',
  'read_output',
  'recall',
  'remember',
  'request_access',
  'revise_plan',
  'run_bash',
  'run_python',
  'search_code',
  'search_files',
  'spawn_agent',
  'submit_plan',
  'take_agent_file',
  'use_mcp_server',
  'web_fetch',
  'web_search',
  'write_file',
] as const

/** What a name of another system means here; a call by it is put right where the arguments have one meaning. */
export const toolAliases = {
  grep: 'search_files',
  human_intervention_request: 'ask_user',
  shell_cmd: 'run_bash',
} as const satisfies Readonly<Record<string, string>>

const reserved: ReadonlySet<string> = new Set([...agentToolNames, ...Object.keys(toolAliases)].map(plainName))

/** Whether a name is taken, in whatever spelling a model may write it. */
export function isReservedToolName(name: string): boolean {
  return reserved.has(plainName(name))
}

/** The agent's name of the tool that another spelling, or another system's name, means; undefined for every other name. */
export function meantToolName(name: string): string | undefined {
  const plain = plainName(name)
  const aliases: Readonly<Record<string, string>> = toolAliases
  const own = Object.hasOwn(aliases, plain) ? aliases[plain] : agentToolNames.find((one) => one === plain)
  return own === name ? undefined : own
}

/** The beginning of the names of an MCP server's tools: these are `server_tool`, in what every provider takes for a name. */
export function serverToolPrefix(server: string): string {
  return `${server}_`.replaceAll(/[^A-Za-z0-9_]/g, '_').replace(/^(?=\d)/, '_')
}

/** Whether a name, or a pattern with `*`, can mean a tool of this MCP server. */
export function mayBeOfServer(server: string, entry: string): boolean {
  const prefix = serverToolPrefix(server).slice(0, uncutMaxChars)
  const [head = '', ...rest] = entry.split('*')
  return head.startsWith(prefix) || (rest.length > 0 && prefix.startsWith(head))
}

/** Of a name that is too long, what is there in any case: the rest is a digest. */
const uncutMaxChars = 55

/** What all spellings and other names of a tool have in common: to compare by, not to show. */
export function toolKey(name: string): string {
  const plain = name.trim().replace(/^functions\./, '')
  return plainName(meantToolName(plain) ?? plain)
}

/** Names that differ in case or in `-` for `_` alone are one name to a model. */
export function plainName(name: string): string {
  return name.replaceAll('-', '_').toLowerCase()
}
