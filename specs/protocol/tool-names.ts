/**
 * Reserved tool names, which tools of an application or MCP server cannot use: the agent's own tools and their names
 * in other systems.
 */
import * as z from 'zod'

/** What a tool does, by the kinds of the Agent Client Protocol. */
export const ToolKind = z.enum([
  'read',
  'edit',
  'delete',
  'move',
  'search',
  'execute',
  'think',
  'fetch',
  'other',
])
export type ToolKind = z.infer<typeof ToolKind>

/** The agent's own tools; the agent decides which of them a run has. */
export const agentToolNames = [
  'add_steps',
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
  'run_javascript',
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

/** What each of the agent's own tools does. A tool of an application or MCP server is `other`. */
export const toolKinds: Readonly<Record<(typeof agentToolNames)[number], ToolKind>> = {
  add_steps: 'think',
  apply_patch: 'edit',
  ask_user: 'other',
  delete_file: 'delete',
  edit_file: 'edit',
  get_mcp_prompt: 'read',
  governance_note: 'other',
  list_files: 'read',
  list_mcp_resources: 'read',
  load_skill: 'read',
  math: 'other',
  move_file: 'move',
  read_agent_file: 'read',
  read_file: 'read',
  read_mcp_resource: 'read',
  read_output: 'read',
  recall: 'read',
  remember: 'other',
  request_access: 'other',
  revise_plan: 'think',
  run_bash: 'execute',
  run_javascript: 'execute',
  run_python: 'execute',
  search_code: 'search',
  search_files: 'search',
  spawn_agent: 'other',
  submit_plan: 'think',
  take_agent_file: 'edit',
  use_mcp_server: 'other',
  web_fetch: 'fetch',
  web_search: 'search',
  write_file: 'edit',
}

export function toolKindOf(name: string): ToolKind {
  const kinds: Readonly<Record<string, ToolKind>> = toolKinds
  return Object.hasOwn(kinds, name) ? (kinds[name] ?? 'other') : 'other'
}

/** Meaning of another system's tool name; a call by it is translated when its arguments have one meaning. */
export const toolAliases = {
  grep: 'search_files',
  human_intervention_request: 'ask_user',
  shell_cmd: 'run_bash',
} as const satisfies Readonly<Record<string, string>>

/** Tool name of the approval request by which a step of a workflow waits. The clock answers it, so no tool has this name. */
export const waitTool = 'wait_until'

const reserved: ReadonlySet<string> = new Set(
  [...agentToolNames, ...Object.keys(toolAliases), waitTool].map(plainName),
)

/** Whether a name is reserved, in any spelling that a model may use. */
export function isReservedToolName(name: string): boolean {
  return reserved.has(plainName(name))
}

/** The agent's name for another spelling or another system's name; undefined for every other name. */
export function meantToolName(name: string): string | undefined {
  const plain = plainName(name)
  const aliases: Readonly<Record<string, string>> = toolAliases
  const own = Object.hasOwn(aliases, plain) ? aliases[plain] : agentToolNames.find((one) => one === plain)
  return own === name ? undefined : own
}

/** Name prefix of an MCP server's tools, `server_tool`, in the alphabet that every provider accepts. */
export function serverToolPrefix(server: string): string {
  return `${server}_`.replaceAll(/[^A-Za-z0-9_]/g, '_').replace(/^(?=\d)/, '_')
}

/** Whether a name, or a pattern with `*`, can match a tool of this MCP server. */
export function mayBeOfServer(server: string, entry: string): boolean {
  const prefix = serverToolPrefix(server).slice(0, uncutMaxChars)
  const [head = '', ...rest] = entry.split('*')
  return head.startsWith(prefix) || (rest.length > 0 && prefix.startsWith(head))
}

/** Minimum kept part of a name that is too long; a digest replaces the rest. */
const uncutMaxChars = 55

/** The comparison key of all spellings and other names of a tool; not for display. */
export function toolKey(name: string): string {
  const plain = name.trim().replace(/^functions\./, '')
  return plainName(meantToolName(plain) ?? plain)
}

/** To a model, names that differ only in case or in `-` and `_` are equal. */
export function plainName(name: string): string {
  return name.replaceAll('-', '_').toLowerCase()
}
