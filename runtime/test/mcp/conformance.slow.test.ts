// MCP's own conformance suites against our client, of both revisions: the scenarios without authorization. Those with
// it are in test/mcp-sign-in/, where the host adds the token. What is new in a later suite is looked at.
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { listClientScenarios, runClientScenario, type Suite } from '../../../test/support/conformance.ts'

const client = path.join(import.meta.dirname, 'support/conformance-client.ts')

/** Scenarios that pass, by suite and revision. */
const passed: readonly (readonly [Suite, string, readonly string[]])[] = [
  ['stable', '2025-11-25', ['initialize', 'tools_call', 'elicitation-sep1034-client-defaults', 'sse-retry']],
  [
    'next',
    '2025-11-25',
    [
      ...['initialize', 'tools_call', 'elicitation-sep1034-client-defaults', 'sse-retry'],
      'json-schema-2020-12-preservation',
    ],
  ],
  [
    'next',
    '2026-07-28',
    [
      ...['tools_call', 'request-metadata', 'sep-2322-client-request-state', 'http-standard-headers'],
      ...['http-custom-headers', 'http-invalid-tool-headers', 'json-schema-ref-no-deref'],
      'json-schema-2020-12-preservation',
    ],
  ],
]
/** Beginnings of the names of those that do not apply, and why. */
const left: Readonly<Record<string, string>> = {
  'auth/': 'with authorization: test/mcp-sign-in/',
  'sep-2640-':
    'an extension for skills of servers; skills come from folders of the user and of the workspace',
}

describe('the conformance suite of MCP', () => {
  it.each(['stable', 'next'] as const)('has no scenario that nobody has looked at: %s', async (suite) => {
    const scenarios = await listClientScenarios(suite)
    expect(scenarios.length).toBeGreaterThan(20)
    const known = passed.filter(([of]) => of === suite).flatMap(([, , names]) => names)
    const unknown = scenarios.filter(
      (name) => !known.includes(name) && !Object.keys(left).some((head) => name.startsWith(head)),
    )
    expect(unknown).toEqual([])
  })

  const cases = passed.flatMap(([suite, revision, names]) =>
    names.map((name) => [name, revision, suite] as const),
  )
  it.each(cases)(
    'passes: %s in %s of the suite %s [S2.12] [A.09]',
    async (scenario, revision, suite) => {
      const { isPassed, said } = await runClientScenario({ suite, scenario, revision, client })
      expect(isPassed, said).toBe(true)
    },
    90_000,
  )
})
