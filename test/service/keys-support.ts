// API keys of a served host, runs that belong to them, and requests with their secrets.
import type { HostEvent } from '#specs/protocol/event.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import type { Scope } from '#specs/service/route.ts'
import type { ApiKey, ApiKeyOptions, Host } from '../../host/index.ts'
import type { Account } from '../../host/service/callers.ts'
import { beginRun } from '../../host/test/support/begun-run.ts'
import { beginChanging, changedRunId, placeOfRuns } from '../../host/test/support/changed-run.ts'
import { treeOf } from '../../host/test/workspace/support.ts'
import { type Received, type Sent, type ServedHost, serveHost } from './support.ts'

export interface Holder {
  readonly key: ApiKey
  readonly secret: string
  /** As journals name it. */
  readonly label: string
  /** Metadata of the runs that it starts. */
  readonly metadata: Readonly<Record<string, string>>
  /** Sends a request with the key; `body` as JSON. */
  send(method: string, path: string, body?: unknown, headers?: Sent['headers']): Promise<Received>
}

const allScopes: readonly Scope[] = ['read', 'run', 'approve', 'apply']

export async function holderOf(
  host: Host,
  { send }: Pick<ServedHost, 'send'>,
  name: string,
  options: Partial<ApiKeyOptions> = {},
): Promise<Holder> {
  const { key, secret } = await host.apiKeys.create({ name, scopes: allScopes, ...options })
  const label = `key ${name} (${key.id})`
  return {
    ...{ key, secret, label, metadata: { 'caisson.owner': label, 'caisson.started-by': 'service' } },
    send: (method, path, body, headers = {}) =>
      send(method, path, {
        headers: {
          authorization: `Bearer ${secret}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      }),
  }
}

/** As the service has a caller with the key. */
export function accountOf({ id, quotas }: ApiKey): Account {
  return { id, quotas, kind: 'key', isValid: async () => true }
}

/** A run of a key that has ended and used as much of the model. */
export async function runThatUsed(
  host: Host,
  runId: string,
  metadata: Readonly<Record<string, string>>,
  { tokens = 0, costUsd = 0 }: { readonly tokens?: number; readonly costUsd?: number } = {},
): Promise<void> {
  const { record } = await beginRun(host, runId, '/nowhere', metadata)
  await using _ = record
  const usage = { requests: 1, inputTokens: tokens, outputTokens: 0, reasoningTokens: 0 }
  await record.host({ type: 'model-end', status: 200, durationMs: 1, usage, costUsd })
  const end = { outcome: 'failed', reason: 'internal', message: '', summary: '' } as const
  await record.host({ type: 'run-end', ...end, usage, durationMs: 1 })
}

/** The beginning of a run that another process carries out. */
export function startOf(metadata: Readonly<Record<string, string>>): HostEvent {
  return {
    ...{ type: 'run-start', prompt: 'p', model: 'm', provider: 'offline', directory: '/nowhere' },
    ...{ metadata, limits: RunLimits.parse({}) },
  }
}

export const unknownRun = 'run-ffffffffffffffffffff'
export const codeOf = ({ json }: Received) => (json as { code?: string }).code
export const detailOf = ({ json }: Received) => (json as { detail?: string }).detail

/** A served host with a workspace. Call it from within a test. */
export async function serveKeys(before = {}) {
  const place = await placeOfRuns(before)
  const served = await serveHost(place.host, { workspaces: [place.directory] })
  return { ...place, ...served }
}

/** A run of a holder that has changed `a.txt`. */
export async function changedBy({ metadata }: Pick<Holder, 'metadata'>, host: Host, directory: string) {
  const end = await beginChanging(host, directory, changedRunId, metadata)
  await end(treeOf({ 'a.txt': 'one\n' }), treeOf({ 'a.txt': 'two\n' }))
}
