// `caisson workspace` while another process works on the same run or directory, and interrupted: real processes, no VM.
import { chmodSync, cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { commandHook } from '../../hooks/command-hook.ts'
import { RunHooks } from '../../hooks/run-hooks.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { changedRunId, runThatChanged } from '../support/changed-run.ts'
import { type CliProcess, cliPlace } from '../support/cli.ts'
import { cliProgram } from '../support/cli-program.ts'
import { snapshot } from '../workspace/support.ts'

/** So many that a process is caught in the midst of them. */
const names = Array.from({ length: 400 }, (_, at) => `f${String(at).padStart(4, '0')}`)
const filesOf = (content: string) => Object.fromEntries(names.map((name) => [name, content]))

async function manyChanges() {
  const run = await runThatChanged(filesOf('a'), filesOf('b'))
  const was = snapshot(run.directory)
  const place = await cliPlace({}, run.env)
  const [first, last] = [names[0], names.at(-1)].map((name) => path.join(run.directory, name ?? ''))
  return { ...run, was, place, first: first ?? '', last: last ?? '' }
}

/** Stops the process as soon as one of the files has this content. */
async function stopAt(
  { child, ended }: CliProcess,
  files: readonly string[],
  content: string,
): Promise<void> {
  let hasEnded = false
  void ended.then(() => {
    hasEnded = true
  })
  while (!files.some((file) => readFileSync(file, 'utf8') === content)) {
    if (hasEnded) throw new Error(`ended before a file was changed: ${JSON.stringify(await ended)}`)
    await sleep(2)
  }
  child.kill('SIGSTOP')
}

describe('two undos of one run from two state folders', () => {
  it('happen one after the other, and the directory is exact [R.06 R.07 W.01 W.06]', async () => {
    const { host, env, directory, was, place, first, last } = await manyChanges()
    await (await host.changes(changedRunId)).apply('all')
    expect(readFileSync(first, 'utf8')).toBe('b')
    const copied = path.join(await temporaryFolder('copied-state'), 'state')
    cpSync(env.CAISSON_HOME, copied, { recursive: true })
    const other = await cliPlace({}, { ...env, CAISSON_HOME: copied })
    const undo = place.start('workspace', 'undo', changedRunId)
    await stopAt(undo, [first, last], 'a')
    const waiting = other.start('workspace', 'undo', changedRunId)
    await sleep(1_000)
    expect(waiting.child.exitCode).toBeNull()
    const atRest = snapshot(directory)
    await sleep(200)
    expect(snapshot(directory)).toEqual(atRest)
    undo.child.kill('SIGCONT')
    expect(await undo.ended).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`Restored ${names.length} paths`),
    })
    expect(await waiting.ended).toMatchObject({ code: 0 })
    expect(snapshot(directory)).toEqual(was)
  }, 120_000)
})

describe('caisson workspace apply', () => {
  it('says what it applied when it is interrupted, and continues when it is called again [R.07 W.01]', async () => {
    const { directory, place, first, last } = await manyChanges()
    const apply = place.start('workspace', 'apply', changedRunId, '--all')
    await stopAt(apply, [first], 'b')
    apply.child.kill('SIGINT')
    apply.child.kill('SIGCONT')
    const { code, signal, stdout } = await apply.ended
    expect([code, signal]).toEqual([5, null])
    expect(stdout).toMatch(/Applied \d[\d,]*/i)
    expect(stdout).toContain('Stopped before the end')
    expect(stdout).toContain('interrupted by SIGINT')
    expect(readFileSync(last, 'utf8')).toBe('a')
    expect((await place.run('workspace', 'apply', changedRunId, '--all')).code).toBe(0)
    for (const name of names) expect(readFileSync(path.join(directory, name), 'utf8')).toBe('b')
  }, 120_000)

  it('is refused as in use from a hook after the run, whose journal stays whole [R.06 A.10]', async () => {
    const run = await runThatChanged({ 'a.txt': 'a' }, { 'a.txt': 'b' })
    const folder = await temporaryFolder('hook')
    const [program, said] = [path.join(folder, 'after'), path.join(folder, 'said')]
    const variables = Object.entries(run.env).map(([name, value]) => `${name}='${value}'`)
    writeFileSync(
      program,
      `#!/bin/sh\nenv ${variables.join(' ')} '${process.execPath}' --conditions=caisson-source '${cliProgram}' workspace apply "$CAISSON_RUN_ID" --all > '${said}' 2>&1\necho "code $?" >> '${said}'\n`,
    )
    chmodSync(program, 0o755)
    {
      await using record = await RunRecord.open(run.host.runs.paths(changedRunId))
      const hooks = new RunHooks({
        runId: changedRunId,
        hooks: [commandHook({ point: 'after-run', command: [program] }, process.env)],
        note: (event) => record.host(event),
        ask: () => Promise.reject(new Error('nobody asks')),
      })
      const end = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
      const { prompt, changes } = { prompt: 'p', changes: record.state.changes }
      await hooks.ask('after-run', { prompt, directory: run.directory, ...end, changes })
      hooks.close()
    }
    expect(existsSync(said)).toBe(true)
    expect(readFileSync(said, 'utf8')).toMatch(/is in use by process \d+.*\ncode [1-9]/s)
    expect(readFileSync(path.join(run.directory, 'a.txt'), 'utf8')).toBe('a')
    const events = await run.host.runs.read(changedRunId)
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, at) => at + 1))
    expect(events.at(-1)?.event).toMatchObject({ type: 'hook-end', point: 'after-run' })
    expect(await (await run.host.changes(changedRunId)).apply('all')).toMatchObject({ applied: ['a.txt'] })
  }, 120_000)
})
