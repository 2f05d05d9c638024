// What becomes of a run's changes after it, in its journal and for whoever called.
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { ownChanges } from '../../cli/commands/changes-of-run.ts'
import { type ApplyChoice, reviewAndApply } from '../../cli/commands/review-changes.ts'
import { runsShow } from '../../cli/commands/runs.ts'
import { runCli } from '../../cli/main.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { changedRunId, runThatChanged } from '../support/changed-run.ts'

type ChangedRun = Awaited<ReturnType<typeof runThatChanged>>

async function said(run: ChangedRun, work: (io: Parameters<typeof runsShow>[0]) => Promise<number>) {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  const code = await work({ stdin, stdout, stderr, env: run.env, version: '0', directory: run.directory })
  stdout.end()
  stderr.end()
  return { code, text: await text(stdout), error: await text(stderr) }
}

const headOf = async ({ host }: ChangedRun) => (await host.runs.read(changedRunId)).at(-1)?.hash

describe('what is applied by name', () => {
  it('counts changes that are in place or were not chosen, in the right number [H.01 W.01]', async () => {
    const before = { 'a.txt': 'a', 'b.txt': 'b', 'c.txt': 'c' }
    const run = await runThatChanged(before, { 'a.txt': 'A', 'b.txt': 'B', 'c.txt': 'C' })
    const apply = (...names: string[]) =>
      said(run, (io) => runCli(['workspace', 'apply', 'last', ...names], io))
    const first = await apply('a.txt')
    expect(first.code).toBe(0)
    expect(first.text).toContain('Applied 1 change.\n  2 more changes not chosen\n')
    expect(first.text).not.toContain('b.txt')
    expect((await apply('a.txt')).text).toContain('Applied 0 changes.\n1 change was already in place.\n')
    const rest = await apply('--all')
    expect(rest.text).toContain('Applied 2 changes.\n1 change was already in place.\n')
    expect(rest).toMatchObject({ code: 0 })
  })
})

describe('the exit code of an apply by name', () => {
  it('is 0 when the named paths are in place, whatever became of the others [H.01 W.01]', async () => {
    const flagged = { '.vscode/tasks.json': '{}', 'src/.envrc': 'x' }
    const before = { 'a.txt': 'a', 'b.txt': 'b', 'src/c.txt': 'c' }
    const after = { 'a.txt': 'A', 'b.txt': 'B', 'src/c.txt': 'C', ...flagged }
    const run = await runThatChanged(before, after)
    await writeFile(path.join(run.directory, 'b.txt'), 'in the way')
    const codeOf = async (...names: string[]) =>
      (await said(run, (io) => runCli(['workspace', 'apply', changedRunId, ...names], io))).code
    expect(await codeOf('a.txt', 'src/c.txt')).toBe(0)
    expect(await codeOf('a.txt')).toBe(0)
    // Something in the directory needs its own name, and a conflict is not applied.
    expect([await codeOf('src'), await codeOf('b.txt'), await codeOf('--all')]).toEqual([5, 5, 5])
    expect(await codeOf('src/.envrc')).toBe(0)
  })
})

describe('a path that no change has', () => {
  it('is a usage error that names it, before anything is applied [H.01 W.01]', async () => {
    const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'A' })
    for (const paths of [['nope.md'], ['a.txt', 'nope.md/'], ['./nope.md', 'a.txt']]) {
      const { code, error } = await said(run, (io) => runCli(['workspace', 'apply', 'last', ...paths], io))
      expect([code, error]).toEqual([2, expect.stringMatching(/no change .*"nope\.md".*nothing was applied/)])
      expect(error).toContain(`caisson workspace diff ${changedRunId}`)
    }
    expect(await readFile(path.join(run.directory, 'a.txt'), 'utf8')).toBe('a')
    expect(await headOf(run)).toBe(run.head)
    const changes = await run.host.changes(changedRunId)
    await expect(changes.apply({ paths: ['missing'] })).rejects.toMatchObject({ code: 'invalid_options' })
  })
})

describe('a selection that is none', () => {
  it('is refused with a code, before anything is applied [E.01 W.01]', async () => {
    const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'A' })
    const changes = await run.host.changes(changedRunId)
    const refused = { code: 'invalid_options' }
    for (const selection of [null, 1, 'a.txt', {}, { paths: 'a.txt' }, { paths: [1] }, undefined])
      await expect(changes.apply(selection as never)).rejects.toMatchObject(refused)
    for (const options of [null, 1, { signal: {} }]) {
      await expect(changes.apply('all', options as never)).rejects.toMatchObject(refused)
      await expect(changes.undo(options as never)).rejects.toMatchObject(refused)
    }
    const notes = await run.host.runNotes(changedRunId)
    await expect(notes.decide({} as never, 'x')).rejects.toMatchObject(refused)
    await expect(notes.decide(new Map(), 1 as never)).rejects.toMatchObject(refused)
    expect(await readFile(path.join(run.directory, 'a.txt'), 'utf8')).toBe('a')
  })
})

describe('runs rm', () => {
  it('removes nothing where one of the names is no run [H.01]', async () => {
    const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'A' })
    const remove = (...names: string[]) => said(run, (io) => runCli(['runs', 'rm', ...names], io))
    expect(await remove('last', 'run-ffff')).toMatchObject({
      ...{ code: 2, text: '' },
      error: expect.stringContaining('no run has the ID "run-ffff"'),
    })
    expect(await remove('last', changedRunId)).toMatchObject({ code: 0, text: `removed ${changedRunId}\n` })
  })
})

describe('the journal of a run', () => {
  it('keeps its head when nothing was applied or undone, and shows both heads when something was [W.01]', async () => {
    const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'b' })
    const changes = await run.host.changes(changedRunId)
    await writeFile(path.join(run.directory, 'a.txt'), 'in the way')
    expect(await changes.apply('all')).toMatchObject({ applied: [], conflicts: [{ path: 'a.txt' }] })
    expect(await changes.undo()).toEqual({ restored: [], conflicts: [], appliedNow: 0, problems: [] })
    expect(await headOf(run)).toBe(run.head)
    const before = await said(run, (io) => runsShow(io, 'last', {}))
    expect(before.text).toContain(`4 events, journal intact, head ${run.head}\n`)

    await writeFile(path.join(run.directory, 'a.txt'), 'a')
    expect(await changes.apply('all')).toMatchObject({ applied: ['a.txt'] })
    const now = await headOf(run)
    expect(now).not.toBe(run.head)
    const after = await said(run, (io) => runsShow(io, 'last', {}))
    expect(after.text).toContain(`6 events, journal intact, head ${now}\n`)
    expect(after.text).toContain(`4 events at the end of the run, head ${run.head}\n`)
    expect(await changes.apply('all')).toMatchObject({ applied: [], already: ['a.txt'] })
    expect(await headOf(run)).toBe(now)
  })

  it('gets the end of an apply that broke off, when it is repeated [W.01]', async () => {
    const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'b' })
    {
      await using record = await RunRecord.open(run.host.runs.paths(changedRunId))
      await record.host({ type: 'apply-start', paths: 1, sha256: '0'.repeat(64) })
    }
    await writeFile(path.join(run.directory, 'a.txt'), 'b')
    await (await run.host.changes(changedRunId)).apply('all')
    expect((await run.host.runs.read(changedRunId)).at(-1)?.event.type).toBe('apply-end')
  })
})

describe('the hint at a conflict', () => {
  it('names the command of the shell, in a conversation its own [H.01 W.07]', async () => {
    const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'b' })
    await writeFile(path.join(run.directory, 'a.txt'), 'mine')
    const apply = async (within: object) =>
      (await said(run, (io) => runCli(['workspace', 'apply', 'last', '--all'], { ...io, ...within }))).text
    const shell = `caisson workspace merge ${changedRunId} PATH`
    expect(await apply({})).toContain(`To merge a path in conflict: ${shell}\n`)
    const text = await apply({ conversation: { told: new Set() } })
    expect(text).toContain('To merge a path in conflict: /merge PATH\n')
    expect(text).not.toContain('caisson workspace')
  })
})

describe('changes that nobody applied', () => {
  const state = {
    end: { outcome: 'completed', reason: 'completed', message: '', summary: '' },
    heldBack: null,
  } as const

  it('are no failure where no apply was requested, and are one where nobody said so [H.01 W.01]', async () => {
    const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'b' })
    const codeOf = async (choice: ApplyChoice) =>
      (
        await said(run, async (io) =>
          reviewAndApply(io, await ownChanges(run.host, changedRunId), { choice, state }),
        )
      ).code
    expect([await codeOf(false), await codeOf('nobody')]).toEqual([0, 5])
    await writeFile(path.join(run.directory, 'a.txt'), 'in the way')
    expect(await codeOf(true)).toBe(5)
    await writeFile(path.join(run.directory, 'a.txt'), 'a')
    expect(await codeOf(true)).toBe(0)
  })
})
