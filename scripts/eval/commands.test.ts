import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../specs/testing/temporary-folder.ts'
import type { Attempt } from './attempts.ts'
import { runEval } from './commands.ts'
import { type Header, headerFor } from './header.ts'
import { ResultFolder } from './result-folder.ts'

/** `npm run eval` with these arguments, on a host in state folders of its own. */
async function evalIn(directory: string, argv: readonly string[], env: Record<string, string> = {}) {
  const [out, told]: [string[], string[]] = [[], []]
  const home = { HOME: directory, CAISSON_HOME: `${directory}/state`, XDG_CONFIG_HOME: `${directory}/config` }
  const code = await runEval(argv, {
    out: (text) => void out.push(text),
    tell: (text) => void told.push(text),
    env: { PATH: process.env.PATH, ...home, ...env },
    directory,
    signal: new AbortController().signal,
    endNow: new AbortController().signal,
  })
  return { code, out: out.join(''), told: told.join('\n') }
}

const attemptAt = (task: string, passed: boolean, more: Partial<Attempt> = {}): Attempt => ({
  ...{ task, attempt: 1, runId: 'run-1', model: 'caisson/offline', passed, problems: [], end: 'completed' },
  ...{ turns: 2, inputTokens: 900, outputTokens: 100, costUsd: 0, durationMs: 2_000, ...more },
})

/** An evaluation of the offline model that has these attempts. */
async function resultsIn(folder: string, attempts: readonly Attempt[], about: Partial<Header> = {}) {
  const header = await headerFor({
    ...{ provider: 'offline', model: 'caisson/offline', modelOption: null, effort: null, tries: 1 },
    tasks: attempts.map(({ task }) => task),
  })
  await using results = await ResultFolder.create(folder, { ...header, ...about })
  for (const attempt of attempts) await results.add(attempt)
  await results.report()
}

describe('npm run eval', () => {
  it.each([
    [['--tries', '0'], '--tries: expected a whole number'],
    [['--tries', '1001'], '--tries: expected at most 1000'],
    [['--parallel', '17'], '--parallel: expected at most 16'],
    [['--max-cost', '-1'], '--max-cost'],
    [['--effort', 'huge'], '--effort: expected one of none, low, medium, high'],
    [['--none'], '--none'],
    [['list'], 'unknown argument "list"'],
    [['--only', 'none'], 'no task none'],
    [['--tag', 'none', '--list'], 'no task has the tag none'],
    [['--resume', 'x', '--tries', '2'], '--tries cannot be given with --resume'],
    [['--resume', 'x'], 'has no evaluation'],
    [['compare', 'x'], 'expected two folders after compare'],
    [['compare', 'x', 'y', '--tries', '2'], 'expected two folders after compare'],
    [['compare', 'x', 'y'], 'has no evaluation'],
    [['--config', 'none.toml'], 'none.toml cannot be used'],
    [['--model', 'nobodys', '--only', 'config-ini'], 'nobodys'],
  ])('%j is refused with what is wrong', async (argv, message) => {
    const directory = await temporaryFolder('eval')
    const { code, told, out } = await evalIn(directory, argv)
    expect(told).toContain(message)
    expect([2, 4]).toContain(code)
    expect(out).toBe('')
    expect(existsSync(path.join(directory, 'eval-results'))).toBe(false)
  })

  it('lists tasks by name and tag', async () => {
    const { code, out } = await evalIn('/', ['--list', '--tag', 'sql,git'])
    expect(code).toBe(0)
    expect(out).toMatch(/^sql-query +\w+ +sql$/m)
    expect(out).toMatch(/^git-patch +\w+ +git$/m)
    expect(out).not.toContain('config-ini')
    const { out: json } = await evalIn('/', ['--list', '--only', 'git-patch', '--json'])
    expect(JSON.parse(json)).toEqual([{ name: 'git-patch', difficulty: expect.any(String), tags: ['git'] }])
  })

  it('never says what a file of settings has in a line that is wrong', async () => {
    const directory = await temporaryFolder('eval')
    writeFileSync(path.join(directory, 'c.toml'), 'key = sk-secret-1234\n')
    const { code, told } = await evalIn(directory, ['--config', 'c.toml'])
    expect(code).toBe(2)
    expect(told).not.toContain('sk-secret')
  })

  it('keeps the results of a folder that has some', async () => {
    const directory = await temporaryFolder('eval')
    await resultsIn(path.join(directory, 'one'), [attemptAt('config-ini', true)])
    const { code, told } = await evalIn(directory, ['--only', 'config-ini', '--out', 'one'])
    expect(code).toBe(2)
    expect(told).toContain('is not empty')
    expect(told).toContain('--resume')
  })

  it('compares two folders, or their reports: figures with intervals, and what each was made with [T.05]', async () => {
    const directory = await temporaryFolder('eval')
    const names = ['config-ini', 'config-json']
    const left = names.map((name) => attemptAt(name, false))
    await resultsIn(path.join(directory, 'old'), left, { tasksSha256: 'f'.repeat(64) })
    const right = names.map((name) => attemptAt(name, true, { turns: 5 }))
    await resultsIn(path.join(directory, 'new'), right, {
      provider: 'nvidia',
      model: 'some/model',
      effort: 'low',
    })
    const { code, out } = await evalIn(directory, ['compare', 'old', 'new/report.json'])
    expect(code).toBe(0)
    expect(out).toMatch(/^A: caisson\/offline, effort as the model does by itself, Caisson 0\.1\.0/m)
    expect(out).toMatch(/^B: some\/model, effort low/m)
    expect(out).toContain('The tasks or checks differ')
    expect(out).toContain('The offline model answers')
    expect(out).toContain('| turns | 2.0 (2.0 to 2.0) | 5.0 (5.0 to 5.0) | 3.0 (3.0 to 3.0) |')
    const asJson = JSON.parse((await evalIn(directory, ['compare', 'old', 'new', '--json'])).out)
    expect(asJson).toMatchObject({ equal: 0, betterInB: names, headers: [{}, { model: 'some/model' }] })
  })

  it('continues a killed evaluation: what is there stays, and its last half line is replaced [T.05]', async () => {
    const directory = await temporaryFolder('eval')
    const folder = path.join(directory, 'one')
    await resultsIn(folder, [attemptAt('config-ini', true)])
    appendFileSync(path.join(folder, 'attempts.jsonl'), '{"task":"config-json","att')
    await using results = await ResultFolder.open(folder)
    await results.add(attemptAt('config-json', false, { problems: ['\u202etext of an agent'] }))
    const lines = readFileSync(path.join(folder, 'attempts.jsonl'), 'utf8').trim().split('\n')
    expect(lines.map((line) => JSON.parse(line).task)).toEqual(['config-ini', 'config-json'])
    expect(lines[1]).not.toContain('\u202e')
    // One process at a time.
    await expect(ResultFolder.open(folder)).rejects.toThrow()
  })

  it('continues none that was started with other prompts, another model or other tasks [T.05]', async () => {
    const directory = await temporaryFolder('eval')
    await resultsIn(path.join(directory, 'one'), [attemptAt('config-ini', true)], {
      promptsSha256: '0'.repeat(64),
    })
    const { code, told } = await evalIn(directory, ['--resume', 'one'])
    expect(code).toBe(2)
    expect(told).toContain('its promptsSha256 was another one')
  })

  it('continues with the model as it was named, and makes nothing where all is there [T.05]', async () => {
    const directory = await temporaryFolder('eval')
    const about = { provider: 'mine', model: 'm', modelOption: 'mine/m', effort: 'low' } as const
    await resultsIn(path.join(directory, 'one'), [attemptAt('config-ini', true)], about)
    writeFileSync(path.join(directory, 'c.toml'), '[providers.mine]\nurl = "http://127.0.0.1:9/v1"\n')
    const resume = ['--resume', 'one', '--config', 'c.toml']
    const { code, out, told } = await evalIn(directory, resume)
    expect({ code, told }).toMatchObject({ code: 0 })
    expect(out).toContain('Evaluation: m, effort low')
    expect(out).toContain('| passed | 1 of 1 ')
    const other = await evalIn(directory, ['--resume', 'one'])
    expect(other.code).not.toBe(0)
  })

  it('says of damaged results where they are', async () => {
    const directory = await temporaryFolder('eval')
    const folder = path.join(directory, 'one')
    await resultsIn(folder, [attemptAt('config-ini', true)])
    writeFileSync(path.join(folder, 'attempts.jsonl'), '{}\n')
    const { code, told } = await evalIn(directory, ['compare', 'one', 'one'])
    expect(code).toBe(2)
    expect(told).toContain('line 1 is no attempt')
  })
})
