/**
 * What `caisson config check` says of MCP servers: where each runs or is, whether its secrets are configured
 * and its address let out.
 */
import type { McpServer } from '#specs/protocol/extension.ts'
import { describeMcpServer } from '#specs/protocol/mcp-config.ts'
import type { Config } from '../config/schema.ts'
import { decide, makePolicy } from '../egress/policy.ts'
import { mcpServersOf } from '../mcp/config.ts'
import { parseTarget } from '../net/target.ts'
import { findPlaceholders } from '../secrets/placeholders.ts'
import type { ConfigFact } from './config-fact.ts'

export function inspectMcpServers(config: Config): ConfigFact[] {
  return Object.entries(config.mcpServers).map(([name, form]) => {
    const what = `mcpServers.${name}`
    const read = mcpServersOf({ [name]: form })
    if (!read.ok) return { what, seen: 'cannot be used', problem: read.error }
    const server = read.value[name]
    return server === undefined ? { what, seen: 'switched off' } : inspectServer(what, server, config)
  })
}

function inspectServer(what: string, server: McpServer, config: Config): ConfigFact {
  const { url, headers = {}, transport } = server
  const seen = `${describeMcpServer(server)}, ${url === undefined ? 'in the VM' : `by ${transport}`}`
  const missing = Object.values(headers)
    .flatMap(findPlaceholders)
    .find((name) => !Object.hasOwn(config.secrets, name))
  if (missing !== undefined)
    return {
      what,
      seen,
      problem: `there is no secret ${missing}; add [secrets.${missing}] with its source and hosts`,
    }
  const denied = url === undefined ? null : findDenial(url, config)
  return denied === null ? { what, seen } : { what, seen, note: denied }
}

/** A run may have rules of its own, so that this is no fault yet. */
function findDenial(url: string, { egress }: Config): string | null {
  const made = makePolicy({ configuration: egress.rules, otherwise: egress.default })
  const target = parseTarget(url, 'POST')
  if (!made.ok || !target.ok) return target.ok ? null : target.error
  const { effect, rule } = decide(made.value, target.value)
  if (effect === 'allow') return null
  const { host } = target.value
  return `its address ${effect === 'ask' ? 'requires approval' : 'is denied'} (${rule}); to allow it, add { effect = "allow", host = "${host}" } to egress.rules`
}
