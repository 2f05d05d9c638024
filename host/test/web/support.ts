/** A web of real TLS servers on this machine, reached by name through a run's own egress. */
import { once } from 'node:events'
import { createServer as createHttp, type RequestListener } from 'node:http'
import { createServer as createHttps } from 'node:https'
import type { AddressInfo, Server } from 'node:net'
import { onTestFinished } from 'vitest'
import type { EgressRecord, EgressRule, WebFetchRequest } from '#specs/protocol/egress.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import type { SearchConfig } from '../../config/schema.ts'
import { createConnector } from '../../egress/connect.ts'
import { type EgressPolicy, makePolicy } from '../../egress/policy.ts'
import { type AccessAnswers, RunEgress } from '../../egress/run-egress.ts'
import { Secret } from '../../keys/secret.ts'
import { openNetwork } from '../../net/network.ts'
import { Secrets } from '../../secrets/secrets.ts'
import type { Web } from '../../web/web.ts'
import { createWeb } from '../../web/web.ts'
import { makeAuthority } from '../support/authority.ts'

export interface TestWeb {
  readonly web: Web
  readonly secrets: Secrets
  readonly records: EgressRecord[]
  readonly denied: string[]
  /** Of each server, in their order. */
  readonly ports: readonly number[]
  /** Fetches, and gives the answer or the error that the guest would get. */
  fetch(url: string, more?: Partial<WebFetchRequest>): ReturnType<Web['fetch']>
}

export interface TestWebOptions {
  /** Servers with a certificate for `*.site.test` and `site.test`; one that speaks plain HTTP where it says so. */
  readonly servers: readonly (RequestListener | { readonly plain: RequestListener })[]
  /** Absent: every host on the servers' ports, with GET. */
  readonly rules?: (ports: readonly number[]) => readonly EgressRule[]
  readonly secrets?: ConstructorParameters<typeof Secrets>[0]
  /** What the variables stand for from which secrets and keys are read. */
  readonly env?: Record<string, string>
  readonly pageTimeoutMs?: number
  readonly search?: (ports: readonly number[]) => SearchConfig
  /** Addresses by name; absent: this machine. */
  readonly addresses?: Readonly<Record<string, string>>
  /** Who answers what is asked; absent: nobody. */
  readonly access?: (policy: EgressPolicy) => AccessAnswers
}

/** Call it from within a test. */
export async function openWeb(options: TestWebOptions): Promise<TestWeb> {
  const authority = await makeAuthority('DNS:site.test', 'DNS:*.site.test')
  const ports = await Promise.all(
    options.servers.map((server) =>
      listen('plain' in server ? createHttp(server.plain) : createHttps(authority, server)),
    ),
  )
  const rules = options.rules?.(ports) ?? [
    { effect: 'allow', host: '*', ports: [...ports], schemes: ['http', 'https'], methods: ['GET'] },
  ]
  const policy = makePolicy({
    configuration: [
      ...rules,
      { effect: 'allow', host: '127.0.0.1', ports: [...ports], schemes: ['http', 'https'] },
    ],
    otherwise: 'deny',
  })
  if (!policy.ok) throw new Error(policy.error)
  const network = openNetwork({ ca: authority.caFile })
  if (!network.ok) throw new Error(network.error)
  const records: EgressRecord[] = []
  const denied: string[] = []
  const note = async (event: HostEvent): Promise<boolean> => {
    if (event.type === 'egress-denied') denied.push(`${event.target}: ${event.reason}`)
    if (event.type !== 'egress-end') return true
    const { type: _, ...record } = event
    records.push(record)
    return true
  }
  const egress = new RunEgress({
    policy: policy.value,
    access: options.access?.(policy.value) ?? nobody,
    connect: createConnector({
      network: network.value,
      resolve: async (host) => ({ ok: true, value: [options.addresses?.[host] ?? '127.0.0.1'] }),
    }),
    note,
  })
  const env = options.env ?? {}
  const resolveKey: ConstructorParameters<typeof Secrets>[1] = async (source) => {
    const value = 'env' in source ? env[source.env] : undefined
    return value === undefined
      ? { ok: false, error: 'the variable is not set' }
      : { ok: true, value: new Secret(value) }
  }
  const secrets = new Secrets(options.secrets ?? {}, resolveKey)
  const web = createWeb({
    egress,
    secrets,
    network: network.value,
    search: options.search?.(ports),
    ...(options.pageTimeoutMs === undefined ? {} : { pageTimeoutMs: options.pageTimeoutMs }),
    resolveKey,
  })
  const { signal } = new AbortController()
  return { web, secrets, records, denied, ports, fetch: (url, more) => web.fetch({ url, ...more }, signal) }
}

const nobody: AccessAnswers = {
  granted: () => [],
  used: () => undefined,
  askFor: async () => ({ ok: false, error: 'refused: nobody is there' }),
  decide: async () => ({ decision: 'deny' }),
}

async function listen(server: Server & { closeAllConnections(): void }): Promise<number> {
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return (server.address() as AddressInfo).port
}
