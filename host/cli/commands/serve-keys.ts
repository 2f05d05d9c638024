/** `caisson serve keys`: makes, lists and revokes API keys of the HTTP service. A secret is printed once. */
import { CaissonError } from '#specs/errors.ts'
import { type Scope, scopes } from '#specs/service/route.ts'
import { type ApiKey, type ApiKeyQuotas, ApiKeys } from '../../api-keys/api-keys.ts'
import { formatDate, formatTable } from '../../files/format.ts'
import { ApiKeyRows } from '../../fleet/api-key-rows.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { prepareFolders } from '../../state/folders.ts'
import { type ExitCode, exitCodes } from '../exit-codes.ts'
import { hostOf, type Io } from '../io.ts'
import { writeJsonLine } from '../render/json-lines.ts'
import { sanitizeLine } from '../render/sanitize.ts'
import { addressOf, type FleetFlags } from './fleet-environment.ts'

export interface QuotaFlags {
  readonly maxRequestsPerMinute?: number | undefined
  readonly maxRuns?: number | undefined
  readonly maxTokens?: number | undefined
  readonly maxCostUsd?: number | undefined
}

export interface CreateKeyFlags extends QuotaFlags, FleetFlags {
  readonly scope: readonly string[]
  /** Milliseconds. */
  readonly expires?: number
  readonly json?: boolean
}

export async function createKey(io: Io, name: string, flags: CreateKeyFlags): Promise<ExitCode> {
  const { scope, expires, json } = flags
  await using keys = await openKeys(io, flags)
  const { key, secret } = await keys.apiKeys.create({
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

export async function listKeys(io: Io, flags: FleetFlags & { json?: boolean }): Promise<ExitCode> {
  await using opened = await openKeys(io, flags)
  const keys = await opened.apiKeys.list()
  if (flags.json === true) for (const key of keys) await writeJsonLine(io.stdout, key)
  else if (keys.length === 0)
    io.stdout.write('no API keys yet; make one: caisson serve keys create NAME --scope run,read\n')
  else io.stdout.write(`${formatTable(['ID', 'NAME', 'SCOPES', 'EXPIRES', 'QUOTAS'], keys.map(rowOf))}`)
  return exitCodes.completed
}

export async function revokeKey(io: Io, nameOrId: string, flags: FleetFlags): Promise<ExitCode> {
  await using keys = await openKeys(io, flags)
  await prepareFolders(keys.folders)
  const key = await keys.apiKeys.revoke(nameOrId)
  if (key === null)
    // Not repeated: somebody may have given the secret itself.
    throw new CaissonError('invalid_options', 'no API key has this name or ID; nothing was revoked', {
      remedy: 'list them: caisson serve keys list',
    })
  io.stdout.write(`revoked ${sanitizeLine(key.name)} (${key.id}); its runs continue\n`)
  return exitCodes.completed
}

/** Those of a fleet where one is named, else of this user. @throws {CaissonError} `invalid_options`, `state_unavailable` */
async function openKeys(io: Io, flags: FleetFlags) {
  const { apiKeys, folders } = hostOf(io)
  await using undo = new AsyncDisposableStack()
  const address = await addressOf(io, flags)
  if (address === undefined) return { apiKeys, folders, [Symbol.asyncDispose]: async () => undefined }
  const database = undo.use(await FleetDatabase.open(address))
  const opened = undo.move()
  return {
    apiKeys: new ApiKeys(folders, Date.now, new ApiKeyRows(database)),
    folders,
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  }
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
