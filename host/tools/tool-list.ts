/**
 * Which tools a run may use, as a program says it, made into the list that the agent takes. Refuses entries
 * that no tool can ever have.
 */

import { existsSync } from 'node:fs'
import path from 'node:path'
import { CaissonError } from '#specs/errors.ts'
import { mcpOfferTool } from '#specs/protocol/extension.ts'
import { workspaceMcpFile } from '#specs/protocol/mcp-config.ts'
import { matchesPattern } from '#specs/protocol/pattern.ts'
import { agentToolNames, mayBeOfServer, meantToolName, serverToolPrefix } from '#specs/protocol/tool-names.ts'
import { planTool } from '../approvals/plan-question.ts'

/**
 * `true`: all; `false`: none; a list of names and patterns (`*` for any run of characters, `!` in front to take away; all but
 * those when the first takes away); or a map. Where a map names any with `true`, those alone; else all but those with `false`; an
 * empty map is none. `'*': true` is all.
 */
export type ToolChoice = boolean | readonly string[] | Readonly<Record<string, boolean>>

/** The list; undefined when there is nothing to narrow. */
export function toolListOf(choice: ToolChoice | undefined): readonly string[] | undefined {
  if (choice === undefined || choice === true) return undefined
  if (choice === false) return []
  if (isList(choice)) return choice
  const names = (wanted: boolean): string[] =>
    Object.keys(choice).filter((name) => name !== '*' && choice[name] === wanted)
  if (names(true).length > 0 && choice['*'] !== true) return names(true)
  const without = names(false).map((name) => `!${name}`)
  if (choice['*'] === false || Object.keys(choice).length === 0) return []
  return without.length === 0 ? undefined : without
}

function isList(choice: ToolChoice): choice is readonly string[] {
  return Array.isArray(choice)
}

/** What a run may have beside the agent's own tools. */
interface FurtherTools {
  /** Names of the application's. */
  readonly hostTools: Iterable<string>
  /** Names of the user's MCP servers. */
  readonly mcpServers: readonly string[]
  /** The workspace; servers that it names itself are known in the VM alone. */
  readonly directory: string
}

/** Names under which the agent asks something; no model is given them as tools. */
const questions: ReadonlySet<string> = new Set([planTool, mcpOfferTool])

/**
 * What can be said before there is a VM; the agent, who has the tools, looks again.
 * @throws {CaissonError} `invalid_options` naming the entry and what there is
 */
export function requirePossible(entries: readonly string[], further: FurtherTools): void {
  const { hostTools, mcpServers, directory } = further
  const known = [...agentToolNames.filter((name) => !questions.has(name)), ...hostTools].toSorted()
  for (const entry of entries) {
    const takesAway = entry.startsWith('!')
    const pattern = takesAway ? entry.slice(1) : entry
    if (known.some((name) => matchesPattern(pattern, name))) continue
    // To take away by a pattern what is not there is no mistake.
    if (takesAway && pattern.includes('*')) continue
    if (mcpServers.some((server) => mayBeOfServer(server, pattern))) continue
    if (existsSync(path.join(directory, workspaceMcpFile))) continue
    const meant = meantToolName(pattern)
    if (meant !== undefined)
      throw new CaissonError('invalid_options', `the tool ${pattern} is called ${meant}: name it so`)
    const prefixes = mcpServers.map((server) => `${serverToolPrefix(server)}*`)
    const ofServers = prefixes.length === 0 ? '' : `, and ${prefixes.join(', ')} of your MCP servers`
    throw new CaissonError(
      'invalid_options',
      `no tool is named ${JSON.stringify(pattern)}; the tools that there can be are ${known.join(', ')}${ofServers}`,
    )
  }
}
