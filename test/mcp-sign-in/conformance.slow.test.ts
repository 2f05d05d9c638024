// MCP's own conformance suites against our client and the sign-ins of the host, of both revisions: the scenarios with
// authorization. What is not done is named with its reason.
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { listClientScenarios, runClientScenario, type Suite } from '../support/conformance.ts'

const client = path.join(import.meta.dirname, 'conformance-client.ts')

const ofBoth = [
  ...['metadata-default', 'metadata-var1', 'metadata-var2', 'metadata-var3', 'basic-cimd'],
  ...['scope-from-www-authenticate', 'scope-from-scopes-supported', 'scope-omitted-when-undefined'],
  ...['scope-step-up', 'scope-retry-limit', 'pre-registration'],
  ...['token-endpoint-auth-basic', 'token-endpoint-auth-post', 'token-endpoint-auth-none'],
]
const ofOldest = ['2025-03-26-oauth-metadata-backcompat', '2025-03-26-oauth-endpoint-fallback']
const ofExtensions = ['client-credentials-jwt', 'client-credentials-basic']
const ofNewest = [
  ...['resource-mismatch', 'offline-access-scope', 'offline-access-not-supported'],
  ...['authorization-server-migration', 'metadata-issuer-mismatch'],
  ...['iss-supported', 'iss-not-advertised', 'iss-supported-missing', 'iss-wrong-issuer'],
  ...['iss-unexpected', 'iss-normalized'],
]

/** Scenarios that pass, by suite and revision; without a revision the suite chooses. */
const passed: readonly (readonly [Suite, string | undefined, readonly string[]])[] = [
  [
    'stable',
    undefined,
    [
      ...[...ofBoth, '2025-03-26-oauth-endpoint-fallback', ...ofExtensions],
      ...['resource-mismatch', 'offline-access-scope', 'offline-access-not-supported'],
    ],
  ],
  ['next', '2025-03-26', ofOldest],
  ['next', '2025-11-25', ofBoth],
  ['next', '2026-07-28', [...ofBoth, ...ofNewest]],
  ['next', undefined, ofExtensions],
]

/** Those that do not apply, and why. */
const left: Readonly<Record<string, string>> = {
  '2025-03-26-oauth-metadata-backcompat':
    'in the stable suite alone: its server names an issuer that was not asked, which is refused; passes in the next suite',
  'cross-app-access-complete-flow':
    'an extension: tokens of a company are exchanged; no configuration has them',
  'enterprise-managed-authorization': 'the same extension, in the next suite',
  dpop: 'an extension: tokens that are bound to a key; the gateway would have to sign each request',
  'dpop-nonce': 'the same extension',
  'wif-jwt-bearer': 'an extension: identities of workloads of a cloud',
}

describe('the conformance suite of MCP, with authorization', () => {
  it.each(['stable', 'next'] as const)('has no scenario that nobody has looked at: %s', async (suite) => {
    const scenarios = (await listClientScenarios(suite)).filter((name) => name.startsWith('auth/'))
    expect(scenarios.length).toBeGreaterThan(20)
    const known = passed.filter(([of]) => of === suite).flatMap(([, , names]) => names)
    const unknown = scenarios.map((name) => name.slice('auth/'.length))
    expect(unknown.filter((name) => !known.includes(name) && !Object.hasOwn(left, name))).toEqual([])
  })

  const cases = passed.flatMap(([suite, revision, names]) =>
    names.map((name) => [name, revision ?? 'its own revision', suite, revision] as const),
  )
  it.concurrent.each(cases)(
    'passes: %s in %s of the suite %s [A.09]',
    async (name, _shown, suite, revision) => {
      const scenario = `auth/${name}`
      const { isPassed, said } = await runClientScenario({ suite, scenario, revision, client })
      expect(isPassed, said).toBe(true)
    },
    90_000,
  )
})
