/** The keys and secrets that this host knows, to take them out of what leaves it. */
import { CaissonError } from '#specs/errors.ts'
import type { Task } from '#specs/protocol/task.ts'
import type { Config } from './config/schema.ts'
import { mcpServersOf } from './mcp/config.ts'
import type { HostState } from './resolve-run.ts'
import { findLikelySecret } from './secrets/likely-secret.ts'

/** Variables that hold keys by their names. */
const keyName = /(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$/i
/** A shorter value is in texts that have nothing to do with it. */
const valueMinChars = 8

/**
 * @param servers MCP servers of the run
 * @param note gets what of the configuration could not be read, so that it is not looked for
 */
export async function findKnownKeys(
  host: HostState,
  servers: NonNullable<Task['mcpServers']>,
  note: (text: string) => void,
): Promise<string[]> {
  const config = await host.settings.config()
  const found = [
    ...Object.entries(host.env).flatMap(([name, value]) => (keyName.test(name) && value ? [value] : [])),
    ...(await modelKeys(config, host)),
    ...(await secretValues(config, host, note)),
    ...serverValues(servers),
    ...serverValues(configuredServers(config)),
  ]
  return [...new Set(found)].filter((value) => value.length >= valueMinChars)
}

async function modelKeys(config: Config, host: HostState): Promise<string[]> {
  try {
    const choice = await host.settings.chooseServer(config)
    const { key } = await host.settings.fetchKey(choice)
    return key === null ? [] : [key.reveal()]
  } catch (error) {
    // A machine without a key of a model has none to leave out.
    if (error instanceof CaissonError && error.code === 'provider_unavailable') return []
    throw error
  }
}

async function secretValues(
  { secrets }: Config,
  { settings }: HostState,
  note: (text: string) => void,
): Promise<string[]> {
  const values: string[] = []
  for (const [name, { from }] of Object.entries(secrets)) {
    const value = await settings.resolveKey(from)
    if (value.ok) values.push(value.value.reveal())
    else note(`the secret ${name} could not be read, so it was not looked for: ${value.error}`)
  }
  return values
}

function configuredServers({ mcpServers }: Config): NonNullable<Task['mcpServers']> {
  const servers = mcpServersOf(mcpServers)
  return servers.ok ? servers.value : {}
}

function serverValues(servers: NonNullable<Task['mcpServers']>): string[] {
  return Object.values(servers).flatMap(({ env = {}, headers = {} }) =>
    [...Object.entries(env), ...Object.entries(headers)].flatMap(([name, value]) =>
      isKey(name, value) ? [value, ...value.split(/\s+/)] : [],
    ),
  )
}

function isKey(name: string, value: string): boolean {
  if (/\{\{[A-Z0-9_]+\}\}/.test(value)) return false
  return keyName.test(name) || /auth|cookie/i.test(name) || findLikelySecret(value) !== undefined
}
