/** Runs the official conformance suites of MCP against a client: the stable line, and the next one with 2026-07-28. */
import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const modules = path.join(import.meta.dirname, '../../node_modules')

export type Suite = 'stable' | 'next'

const files: Readonly<Record<Suite, string>> = {
  stable: path.join(modules, '@modelcontextprotocol/conformance/dist/index.js'),
  next: path.join(modules, 'mcp-conformance-next/dist/index.js'),
}

/** All scenarios for clients, by name. */
export async function listClientScenarios(suite: Suite): Promise<string[]> {
  const { stdout } = await run(process.execPath, [files[suite], 'list'])
  const [, ofClients = ''] = stdout.split('Client scenarios')
  const [own = ''] = ofClients.split('\n\n')
  return [...own.matchAll(/^\s+- (\S+)/gm)].map(([, name = '']) => name)
}

interface Scenario {
  readonly suite: Suite
  readonly scenario: string
  /** For the next suite. Absent: the scenario has its own, as in the stable suite. */
  readonly revision: string | undefined
  /** File of the client, in TypeScript. */
  readonly client: string
}

/** Whether every check of a scenario passed, and what the suite said. */
export async function runClientScenario({
  suite,
  scenario,
  revision,
  client,
}: Scenario): Promise<{ isPassed: boolean; said: string }> {
  // The suite writes its results to where it is.
  const cwd = await mkdtemp(path.join(tmpdir(), 'caisson-conformance-'))
  const command = `${process.execPath} --conditions=caisson-source ${client}`
  const argv = [files[suite], 'client', '--command', command, '--scenario', scenario, '--timeout', '30000']
  const version = suite === 'next' && revision !== undefined ? ['--spec-version', revision] : []
  try {
    const { stdout, stderr } = await run(process.execPath, [...argv, ...version], {
      cwd,
      timeout: 60_000,
    }).catch((failed: Error & { stdout?: string; stderr?: string }) => ({
      stdout: failed.stdout ?? '',
      stderr: failed.stderr || failed.message,
    }))
    const said = `${stdout}\n${stderr}`
    return { isPassed: /OVERALL: PASSED/.test(said), said }
  } finally {
    await rm(cwd, { recursive: true, force: true })
  }
}
