import { readFileSync } from 'node:fs'
import path from 'node:path'
import { execa } from 'execa'
import { describe, expect, it } from 'vitest'

const root = path.join(import.meta.dirname, '../..')
const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  scripts: Readonly<Record<string, string>>
}
const TIMEOUT_MS = 500_000

/** Runs a script of package.json as npm does, without npm, so that a process that stays is this script's own. */
async function runScript(name: string, ...args: string[]): Promise<{ stdout: string; stderr: string }> {
  const [check, started = ''] = (scripts[name] ?? '').split(' && ')
  expect(check).toBe('node scripts/check-node.mjs')
  const [program, ...given] = started.split(' ')
  expect(program).toBe('node')
  const ended = await execa(process.execPath, [...given, ...args], {
    cwd: root,
    reject: false,
    timeout: TIMEOUT_MS,
  })
  // Its last lines alone: the message of an ExecaError begins with the progress, and a report cuts its end.
  expect(ended.exitCode, ended.stderr.slice(-2_000)).toBe(0)
  return ended
}

const benchmarks = Object.keys(scripts).filter((name) => name.startsWith('bench:'))

describe('benchmarks of package.json', () => {
  it.each(benchmarks)('%s --quick prints one object of figures and ends by itself', async (name) => {
    const figures = JSON.parse((await runScript(name, '--json', '--quick')).stdout) as Record<string, unknown>
    expect(Object.keys(figures).length).toBeGreaterThan(3)
    expect(JSON.stringify(figures)).toContain('"p50":')
  })

  it('measure the agent, durability, a fleet, the model client, the service, the tools and the VM', () => {
    expect(benchmarks.toSorted()).toEqual([
      ...[
        'bench:agent',
        'bench:durability',
        'bench:fleet',
        'bench:llm',
        'bench:service',
        'bench:tools',
        'bench:vm',
      ],
    ])
  })
})
