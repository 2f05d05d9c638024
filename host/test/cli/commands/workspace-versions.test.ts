// The other side of a conflict, as a person gets it from the command line.
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { runCli } from '../../../cli/main.ts'
import { changedRunId, runThatChanged } from '../../support/changed-run.ts'

const lines = (...changed: [number, string][]) =>
  Array.from({ length: 12 }, (_, at) => changed.find(([line]) => line === at)?.[1] ?? `line ${at}`).join('\n')

async function place() {
  const large = 'x'.repeat(9_000)
  const before = { 'a.txt': lines(), 'b.txt': lines(), 'gone.txt': 'g', 'large.txt': large, bin: 'b\0' }
  const after = {
    'a.txt': lines([2, 'of the run']),
    'b.txt': lines([5, 'of the run']),
    'large.txt': `${large}\nof the run\n`,
    bin: 'c\0',
    'new.txt': 'n\n',
  }
  const run = await runThatChanged(before, after)
  const file = (name: string) => path.join(run.directory, name)
  const mine = { 'a.txt': lines([9, 'mine']), 'b.txt': lines([5, 'mine']), bin: 'm\0' }
  for (const [name, content] of Object.entries(mine)) writeFileSync(file(name), content)
  const caisson = async (...argv: string[]) => {
    const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
    const { env, directory } = run
    const code = await runCli(['workspace', ...argv], { stdin, stdout, stderr, env, version: '0', directory })
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { ...run, file, caisson, mine, before, after }
}

describe('the other side of a conflict', () => {
  it('is merged three ways into a new file; markers are left where both changed a line [W.07]', async () => {
    const { caisson, file, mine } = await place()
    const merged = await caisson('merge', 'last', 'a.txt')
    expect(merged).toMatchObject({ code: 0, stdout: expect.stringContaining('no conflict is left') })
    const beside = file(`a.txt.caisson-${changedRunId}`)
    expect(readFileSync(beside, 'utf8')).toBe(lines([2, 'of the run'], [9, 'mine']))
    const again = await caisson('merge', 'last', 'a.txt')
    expect(again).toMatchObject({ code: 2, stderr: expect.stringContaining('--output FILE') })
    const conflict = await caisson('merge', 'last', 'b.txt', '--output', 'merged.txt')
    expect(conflict).toMatchObject({ code: 5, stdout: expect.stringContaining('1 conflict to resolve') })
    const marked = readFileSync(file('merged.txt'), 'utf8')
    expect(marked).toContain(`<<<<<<< yours\nmine\n=======\nof the run\n>>>>>>> ${changedRunId}\n`)
    for (const [name, content] of Object.entries(mine)) expect(readFileSync(file(name), 'utf8')).toBe(content)
    const binary = await caisson('merge', 'last', 'bin')
    expect(binary).toMatchObject({ code: 1, stderr: expect.stringContaining('is binary') })
  })

  it('is printed or written to a new file, as the run made it or as it went in, and never over another file [W.07]', async () => {
    const { caisson, file, before, after } = await place()
    for (const name of ['a.txt', 'large.txt'] as const) {
      expect(await caisson('show', 'last', name)).toMatchObject({ code: 0, stdout: after[name] })
      expect(await caisson('show', 'last', name, '--base')).toMatchObject({ code: 0, stdout: before[name] })
    }
    expect(await caisson('show', 'last', 'a.txt', '--output', 'theirs.txt')).toMatchObject({
      code: 0,
      stdout: '',
    })
    expect(readFileSync(file('theirs.txt'), 'utf8')).toBe(after['a.txt'])
    expect((await caisson('show', 'last', 'b.txt', '--output', 'theirs.txt')).code).toBe(2)
    expect(readFileSync(file('theirs.txt'), 'utf8')).toBe(after['a.txt'])
    expect(await caisson('show', 'last', 'gone.txt')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('the run deleted it'),
    })
    expect((await caisson('show', 'last', 'nothing.txt')).code).toBe(2)
  })

  it('is a patch that git applies, of the paths that are named [W.07]', async () => {
    const { caisson, file, directory, after } = await place()
    const patch = await caisson('diff', 'last', 'a.txt', 'new.txt', 'gone.txt', '--patch')
    expect(patch.code).toBe(0)
    expect(patch.stdout).not.toContain('b.txt')
    execFileSync('git', ['apply', '-'], { cwd: directory, input: patch.stdout })
    expect(readFileSync(file('a.txt'), 'utf8')).toBe(after['a.txt'])
    expect(readFileSync(file('new.txt'), 'utf8')).toBe('n\n')
    expect(existsSync(file('gone.txt'))).toBe(false)
    expect((await caisson('diff', 'last', 'b.txt')).stdout).not.toContain('a.txt')
    expect((await caisson('diff', 'last', 'missing')).code).toBe(2)
  })
})
