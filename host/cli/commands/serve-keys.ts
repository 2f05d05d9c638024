/** `caisson serve keys`: makes, lists and revokes API keys of the HTTP service. A secret is printed once. */
import { CaissonError } from '#specs/errors.ts'
import { type Scope, scopes } from '#specs/service/route.ts'
import type { ApiKey, ApiKeyQuotas } from '../../api-keys/api-keys.ts'
import { formatDate, formatTable } from '../../files/format.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'

export interface QuotaFlags {
  readonly maxRequestsPerMinute?: number | undefined
  readonly maxRuns?: number | undefined
  readonly maxTokens?: number | undefined
  readonly maxCostUsd?: number | undefined
}

export interface CreateKeyFlags extends QuotaFlags {
  readonly scope: readonly string[]
  /** Milliseconds. */
  readonly expires?: number
  readonly json?: boolean
}

export async function createKey(io: Io, name: string, flags: CreateKeyFlags): Promise<ExitCode> {
  const { scope, expires, json } = flags
  const { key, secret } = await hostOf(io).apiKeys.create({
    name,
    scopes: scope.map(scopeOf),
    quotas: quotasOf(flags),
    ...(expires === undefined ? {} : { expiresInMs: expires }),
  })
  if (json === true) await writeJsonLine(io.stdout, { ...key, secret })
  else {
    io.stderr.write(`Made the key ${key.name} (${key.id}) with ${key.scopes.join(', ')}.\n`)
    io.stderr.write('Copy the secret now; it cannot be shown again:\n')
    io.stdout.write(`${secret}\n`)
  }
  return exitCodes.completed
}

/** @throws {CaissonError} `invalid_options` */
function scopeOf(word: string): Scope {
  const known = scopes.find((scope) => scope === word)
  if (known !== undefined) return known
  throw new CaissonError('invalid_options', `--scope: there is no scope ${JSON.stringify(word)}`, {
    remedy: `use ${scopes.join(', ')}, with commas between them`,
  })
}

export async function listKeys(io: Io, flags: { json?: boolean }): Promise<ExitCode> {
  const keys = await hostOf(io).apiKeys.list()
  if (flags.json === true) for (const key of keys) await writeJsonLine(io.stdout, key)
  else if (keys.length === 0)
    io.stdout.write('no API keys yet; make one: caisson serve keys create NAME --scope run,read\n')
  else io.stdout.write(`${formatTable(['ID', 'NAME', 'SCOPES', 'EXPIRES', 'QUOTAS'], keys.map(rowOf))}`)
  return exitCodes.completed
}

export async function revokeKey(io: Io, nameOrId: string): Promise<ExitCode> {
  const { apiKeys, folders } = hostOf(io)
  await prepareFolders(folders)
  const key = await apiKeys.revoke(nameOrId)
  if (key === null)
    // Not repeated: somebody may have given the secret itself.
    throw new CaissonError('invalid_options', 'no API key has this name or ID; nothing was revoked', {
      remedy: 'list them: caisson serve keys list',
    })
  io.stdout.write(`revoked ${sanitizeLine(key.name)} (${key.id}); its runs continue\n`)
  return exitCodes.completed
}

export function quotasOf(flags: QuotaFlags): ApiKeyQuotas {
  const { maxRequestsPerMinute, maxRuns, maxTokens, maxCostUsd } = flags
  return {
    ...(maxRequestsPerMinute === undefined ? {} : { maxRequestsPerMinute }),
    ...(maxRuns === undefined ? {} : { maxRuns }),
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...(maxCostUsd === undefined ? {} : { maxCostUsd }),
  }
}

function rowOf({ id, name, scopes, expiresAt, quotas }: ApiKey): string[] {
  const { maxRequestsPerMinute, maxRuns, maxTokens, maxCostUsd } = quotas
  const parts = [
    ...(maxRequestsPerMinute === undefined ? [] : [`${maxRequestsPerMinute} requests/min`]),
    ...(maxRuns === undefined ? [] : [`${maxRuns} runs at once`]),
    ...(maxTokens === undefined ? [] : [`${maxTokens} tokens/day`]),
    ...(maxCostUsd === undefined ? [] : [`$${maxCostUsd}/day`]),
  ]
  const expiry = expiresAt === undefined ? 'never' : formatDate(expiresAt)
  const isExpired = expiresAt !== undefined && expiresAt <= Date.now()
  return [id, name, scopes.join(','), isExpired ? 'expired' : expiry, parts.join(', ') || '-']
}
