// Hooks behind a whole run that try to change it while its process still has it: by the command line and by the library.
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { JournalEvent } from '#specs/protocol/event.ts'
import { cliPlace } from '../support/cli.ts'
import { cliProgram } from '../support/cli-program.ts'
import { finish, readFiles, type TestBench, testBench } from '../support/runs.ts'

/** Below the home folder, where nobody else writes: hooks and a configuration may come from there. */
function privateFolder(): string {
  const folder = mkdtempSync(path.join(homedir(), '.caisson-hook-test-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** A configuration whose hook after a run applies the run and removes it; `said` has what came of both. */
function configureHook() {
  const folder = privateFolder()
  const [home, program, said] = ['home', 'after', 'said'].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ]
  const caisson = `CAISSON_HOME='${home}' '${process.execPath}' --conditions=caisson-source '${cliProgram}'`
  const lines = [
    '#!/bin/sh',
    `exec > '${said}' 2>&1`,
    ...['workspace apply "$CAISSON_RUN_ID" --all', 'runs rm "$CAISSON_RUN_ID"'].map(
      (command) => `${caisson} ${command}; echo "code $?"`,
    ),
  ]
  writeFileSync(program, `${lines.join('\n')}\n`)
  chmodSync(program, 0o755)
  mkdirSync(path.join(folder, 'caisson'), { mode: 0o700 })
  const hook = `[[hooks]]\npoint = "after-run"\ncommand = ["${program}"]\ntimeoutMs = 120000\n`
  writeFileSync(path.join(folder, 'caisson/config.toml'), hook, { mode: 0o600 })
  return { env: { CAISSON_HOME: home, XDG_CONFIG_HOME: folder }, said: () => readFileSync(said, 'utf8') }
}

/** Every line of the journal, its chain checked: `visit` compares each hash with the line. */
async function wholeJournal({ host }: TestBench, runId: string): Promise<JournalEvent[]> {
  const events: JournalEvent[] = []
  const reading = await host.runs.visit(runId, (event) => events.push(event))
  expect(reading).toMatchObject({ length: 'closed', tornBytes: 0 })
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, at) => at + 1))
  expect(events.slice(1).map(({ prev }) => prev)).toEqual(events.slice(0, -1).map(({ hash }) => hash))
  return events
}

describe('a hook after a run that applies or removes the run', () => {
  it('is refused by command and by library; the journal stays whole, and a later apply works [A.10 R.06 W.01]', async () => {
    const hook = configureHook()
    const before = { 'a.txt': 'a\n' }
    const bench = await testBench(before, hook.env)
    const refused: unknown[] = []
    const attempt = (work: Promise<unknown>) =>
      work.then(
        () => refused.push('it was done'),
        (error: unknown) => refused.push(error),
      )
    const run = await bench.start('Run the command `echo b > a.txt; echo c > c.txt`', {
      extensions: {
        hooks: [
          {
            point: 'after-run',
            name: 'apply',
            run: async ({ runId }) => {
              await attempt(bench.host.changes(runId).then((changes) => changes.apply('all')))
              await attempt(bench.host.undo(runId))
              await attempt(bench.host.runs.remove(runId))
            },
          },
        ],
      },
    })
    const { state } = await finish(run)
    const inUse = `${run.id} is in use by process ${process.pid}; wait until it ends or cancel it, then try again`
    expect(refused).toEqual(
      Array.from({ length: 3 }, () => expect.objectContaining({ code: 'run_busy', message: inUse })),
    )
    expect(hook.said()).toBe(`caisson: ${inUse}\ncode 4\n`.repeat(2))
    expect(state).toMatchObject({ end: { outcome: 'completed' }, changes: { entries: 2 }, applied: null })
    expect(await readFiles(bench.workspace)).toEqual(before)

    const events = await wholeJournal(bench, run.id)
    const types = events.map(({ event }) => event.type)
    expect(types.slice(-3)).toEqual(['hook-end', 'hook-end', 'run-end'])
    expect(types.filter((type) => type === 'run-end')).toHaveLength(1)
    expect(types.filter((type) => /^(apply|undo)-/.test(type))).toEqual([])
    expect(events.at(-1)?.hash).toBe(run.journalHead)

    const place = await cliPlace({}, hook.env)
    const applied = await place.run('workspace', 'apply', run.id, '--all')
    expect(applied).toMatchObject({ code: 0, stdout: expect.stringContaining('Applied 2 changes.') })
    expect(await readFiles(bench.workspace)).toEqual({ 'a.txt': 'b\n', 'c.txt': 'c\n' })
    const later = await wholeJournal(bench, run.id)
    expect(later.slice(0, events.length)).toEqual(events)
    expect(later.slice(events.length).map(({ event }) => event)).toEqual([
      expect.objectContaining({ type: 'apply-start' }),
      expect.objectContaining({ type: 'apply-end', applied: 2, paths: ['a.txt', 'c.txt'] }),
    ])
    expect(events.find(({ event }) => event.type === 'changes-ready')?.event).toMatchObject({
      entries: 2,
      paths: [
        { path: 'a.txt', kind: 'modified', added: 1, removed: 1 },
        { path: 'c.txt', kind: 'added', added: 1, removed: 0 },
      ],
    })
    await bench.host.undo(run.id)
    const [undone] = (await wholeJournal(bench, run.id)).slice(-1)
    expect(undone?.event).toMatchObject({ type: 'undo-end', restored: 2 })
    expect(undone?.event).toHaveProperty('paths', expect.arrayContaining(['a.txt', 'c.txt']))
  }, 400_000)
})
