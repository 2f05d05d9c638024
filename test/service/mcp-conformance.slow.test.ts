// The official conformance suite of MCP against the server as it is. Many scenarios need tools, resources and prompts of the
// suite's own, which this server does not have; they fail by name, with the reason.
import { execFile } from 'node:child_process'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host/index.ts'
import type { McpHttpOptions } from '../../host/mcp-server/index.ts'
import { runAtWork } from '../../host/test/support/run-at-work.ts'
import { holderOf } from './keys-support.ts'
import { createSuiteServer } from './mcp-suite-server.ts'
import { type Revision, startMcp } from './mcp-support.ts'
import { serveHost } from './support.ts'

const suite = path.join(import.meta.dirname, '../../node_modules/mcp-conformance-next/dist/index.js')

const passed: Readonly<Record<Revision, readonly string[]>> = {
  '2025-11-25': [
    'dns-rebinding-protection',
    'ping',
    'resources-list',
    'server-initialize',
    'server-session-lifecycle',
    'server-sse-multiple-streams',
    'server-sse-polling',
    'tools-list',
  ],
  '2026-07-28': [
    'dns-rebinding-protection',
    'http-header-validation',
    'input-required-result-ignore-extra-params',
    'input-required-result-missing-input-response',
    'input-required-result-unsupported-methods',
    'input-required-result-validate-input',
    'resources-list',
    'sep-2164-resource-not-found',
    'server-sse-multiple-streams',
    'tasks-status-notifications',
    'tools-list',
  ],
}

/** Beginnings of the names of those that fail, and why. */
const left: Readonly<Record<string, string>> = {
  'tools-call-': "calls the suite's own tools",
  'input-required-result-': "calls the suite's own tools",
  'elicitation-sep': "calls the suite's own tools",
  'tasks-': "calls the suite's own tools; the tasks of this server are tested in mcp-runs.test.ts",
  'json-schema-2020-12': "lists the suite's own tool",
  'http-custom-header-server-validation': "calls the suite's own tool",
  'server-stateless': '24 checks pass; 4 need diagnostic tools of the suite',
  'resources-read-': "reads the suite's own resources",
  'resources-templates-read': "reads the suite's own resources",
  'resources-subscribe': 'there are no subscriptions: get_run waits',
  'resources-unsubscribe': 'there are no subscriptions: get_run waits',
  'prompts-': 'there are no prompts',
  caching: '6 checks pass; 1 is of prompts, and there are none',
  'completion-complete': 'there is nothing to complete',
  'logging-set-level': 'there is no logging: the revision of 2026 removed it',
}

/** What fails with the tools of the suite as well, and why. */
const ofSuite: Readonly<Record<Revision, Readonly<Record<string, string>>>> = {
  '2025-11-25': {
    'resources-subscribe': 'the server of the SDK has no subscriptions of single resources; get_run waits',
    'resources-unsubscribe': 'as resources-subscribe',
  },
  '2026-07-28': {
    'input-required-result-capability-check': 'the tools of the suite ask whatever the client can show',
    'server-stateless': 'needs diagnostic tools of the suite for 4 of 28 checks',
    ...Object.fromEntries(
      [
        ...['capability-negotiation', 'dispatch-and-envelope', 'lifecycle', 'mrtr-composition', 'mrtr-input'],
        ...['request-headers', 'request-state-removal', 'required-task-error', 'wire-fields'],
      ].map((name) => [`tasks-${name}`, 'tasks are runs of Caisson: mcp-runs.test.ts tests them']),
    ),
  },
}

it.each(Object.keys(passed) as Revision[])(
  'the scenarios for servers of %s that apply pass, and each other one has its reason [H.03]',
  async (revision) => {
    const { code, stdout } = await runSuite(await startOpenServer(), revision)
    const results = [...stdout.matchAll(/^([✓✗]) ([\w.-]+): \d+ passed/gm)].map(([, mark, name = '']) => ({
      name,
      isPassed: mark === '✓',
    }))
    expect(results.length, stdout.slice(-2_000)).toBeGreaterThan(30)
    const names = (isPassed: boolean) =>
      results.filter((result) => result.isPassed === isPassed).map(({ name }) => name)
    expect(names(true).toSorted()).toEqual(passed[revision])
    expect(names(false).filter((name) => !Object.keys(left).some((head) => name.startsWith(head)))).toEqual(
      [],
    )
    expect(code).toBe(1)
    expect(stdout).not.toMatch(/✗ wire-schema-valid|WireSchemaValid.*FAILURE/)
  },
  180_000,
)

it.each(Object.keys(ofSuite) as Revision[])(
  'the HTTP side and its states pass the scenarios of %s with the tools of the suite [H.03]',
  async (revision) => {
    const { stdout } = await runSuite(await startOpenServer(createSuiteServer), revision)
    const failed = [...stdout.matchAll(/^✗ ([\w.-]+): \d+ passed/gm)].map(([, name = '']) => name)
    expect(failed.toSorted()).toEqual(Object.keys(ofSuite[revision]).toSorted())
  },
  180_000,
)

/** An MCP server behind a proxy that adds a key, since the suite sends none. */
async function startOpenServer(create?: McpHttpOptions['create']): Promise<string> {
  const run = await runAtWork()
  const host = new Host({ env: run.env })
  const served = await serveHost(host)
  const { secret } = await holderOf(host, served, 'suite')
  const { hostname, port } = new URL(
    (await startMcp(served.service.url, create === undefined ? {} : { create })).url,
  )
  const proxy = createServer((incoming, outgoing) => {
    const { url: at = '/', method = 'GET', headers } = incoming
    const given = { ...headers, authorization: `Bearer ${secret}` }
    const sent = request({ hostname, port, path: at, method, headers: given }, (response) => {
      outgoing.writeHead(response.statusCode ?? 502, response.headers)
      response.pipe(outgoing)
    })
    sent.once('error', () => outgoing.destroy())
    outgoing.once('close', () => sent.destroy())
    incoming.pipe(sent)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', () => resolve()))
  onTestFinished(() => {
    proxy.close()
    proxy.closeAllConnections()
  })
  return `http://localhost:${(proxy.address() as AddressInfo).port}/mcp`
}

async function runSuite(url: string, revision: Revision): Promise<{ code: number; stdout: string }> {
  // The suite writes its results to where it is.
  const cwd = await temporaryFolder('conformance')
  const argv = [suite, 'server', '--url', url, '--requirements', revision, '--timeout', '30000', '-o', cwd]
  const settings = {
    cwd,
    timeout: 150_000,
    maxBuffer: 64 * 1024 * 1024,
    env: { ...process.env, NO_COLOR: '1' },
  }
  return await promisify(execFile)(process.execPath, argv, settings).then(
    ({ stdout }) => ({ code: 0, stdout }),
    (failed: { code?: number; stdout?: string }) => ({
      code: failed.code ?? -1,
      stdout: failed.stdout ?? '',
    }),
  )
}
