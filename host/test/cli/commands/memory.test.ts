// What a person does with memory, notes and skills at the command line, and with what a run proposes at its end.
import { chmod, mkdir, readdir, rename, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { stripVTControlCharacters } from 'node:util'
import { describe, expect, it } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { noteChoice, reviewNotes } from '../../../cli/commands/review-notes.ts'
import type { Io } from '../../../cli/io.ts'
import { runCli } from '../../../cli/main.ts'
import { RunLock } from '../../../workspace/run-lock.ts'
import { noteIdOf, proposed, proposingRunId, runThatProposed } from '../../support/proposals.ts'
import { Person } from '../support/person.ts'

async function place(events: readonly HostEvent[] = []) {
  const run = await runThatProposed(events)
  const caisson = async (...argv: string[]) => {
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const { env, directory } = run
    const io = { stdin: new PassThrough(), stdout, stderr, env, version: '0', directory }
    const code = await runCli(argv, io)
    stdout.end()
    stderr.end()
    return { code, stdout: await text(stdout), stderr: await text(stderr) }
  }
  return { ...run, caisson, at: ['-w', run.directory] as const }
}

/** An editor of the person's own, which changes the file by sed. */
async function editor(change: string): Promise<string> {
  const file = path.join(await temporaryFolder('editor'), 'my-editor')
  await writeFile(file, `#!/bin/sh\nsed -i '${change}' "$1"\n`)
  await chmod(file, 0o700)
  return file
}

describe('caisson memory', () => {
  it('adds, lists, shows, changes and removes notes of a workspace [S0.13]', async () => {
    const { caisson, at, env, host, directory } = await place()
    expect((await caisson('memory', 'list', ...at)).stdout).toContain('no notes for')
    expect((await caisson('memory', 'add', ' Use tabs\n', '--tag', 'style', ...at)).stdout).toMatch(
      /^kept as mem-/,
    )
    await caisson('memory', 'add', 'Red \u001b[31m\u202e text\nsecond line', ...at)
    const listed = (await caisson('memory', 'list', ...at)).stdout
    expect(listed).toContain('[style] Use tabs\n')
    expect(listed).toContain('Red \\e[31m\\u{202e} text\n')
    expect(listed).not.toContain('\u001b[31m')
    const [red, tabs] = await host.notes.ofWorkspace(directory)
    expect((await caisson('memory', 'show', red?.noteId.slice(4, 9) ?? '', ...at)).stdout).toContain(
      '    │ second line',
    )
    Object.assign(env, { EDITOR: await editor('s/tabs/spaces/') })
    expect((await caisson('memory', 'edit', tabs?.noteId ?? '', ...at)).code).toBe(0)
    expect((await host.notes.ofWorkspace(directory))[0]).toMatchObject({
      text: 'Use spaces',
      tags: ['style'],
    })
    Object.assign(env, { EDITOR: await editor('d') })
    expect((await caisson('memory', 'edit', tabs?.noteId ?? '', ...at)).stderr).toContain('the note is empty')
    expect((await caisson('memory', 'rm', red?.noteId ?? '', ...at)).stdout).toBe('1 note removed\n')
    expect(await host.notes.list()).toHaveLength(1)
    expect(await readdir(path.dirname(host.notes.file))).toEqual(['notes.jsonl'])
    for (const wrong of [
      ['show', 'mem-zz'],
      ['rm', 'x', 'y'],
      ['add', '  '],
      ['add', 'x'.repeat(5_000)],
    ])
      expect((await caisson('memory', ...wrong, ...at)).code, wrong.join(' ')).toBe(2)
  })

  it('does not undo an edit by adding the first words again [S0.13]', async () => {
    const { caisson, at, env, host, directory } = await place()
    await caisson('memory', 'add', 'Use tabs', ...at)
    const [note] = await host.notes.ofWorkspace(directory)
    expect((await caisson('memory', 'add', 'Use tabs', ...at)).stdout).toBe(`kept as ${note?.noteId}\n`)
    Object.assign(env, { EDITOR: await editor('s/tabs/spaces/') })
    await caisson('memory', 'edit', note?.noteId ?? '', ...at)
    const again = await caisson('memory', 'add', 'Use tabs', ...at)
    expect(again).toMatchObject({ code: 2, stdout: '' })
    expect(again.stderr).toContain(`now reads: Use spaces; to change it: caisson memory edit ${note?.noteId}`)
    expect((await host.notes.ofWorkspace(directory)).map(({ text }) => text)).toEqual(['Use spaces'])
  })

  it('says it where a note of the person seems to hold a secret [S0.13]', async () => {
    const { caisson, at, env } = await place()
    const secret = `sk-${'a1'.repeat(12)}`
    const added = await caisson('memory', 'add', secret, ...at)
    expect(added.code).toBe(0)
    expect(added.stderr).toContain('the note seems to contain an API key')
    expect(added.stderr).not.toContain(secret)
    expect((await caisson('memory', 'add', 'Use tabs', ...at)).stderr).toBe('')
    Object.assign(env, { EDITOR: await editor(`s/.*/${secret}/`) })
    const [, tabs] = (await caisson('memory', 'list', ...at)).stdout.match(/(mem-\S+) .* Use tabs/) ?? []
    expect((await caisson('memory', 'edit', tabs ?? '', ...at)).stderr).toContain(
      'the note seems to contain an API key',
    )
  })

  it('lists notes of all workspaces, and brings those of a folder that was moved along [S0.13]', async () => {
    const { caisson, at, directory } = await place()
    await caisson('memory', 'add', 'Use tabs', ...at)
    const moved = `${directory}-moved`
    await rename(directory, moved)
    expect((await caisson('memory', 'list', '-w', moved)).stdout).toContain('no notes for')
    expect((await caisson('memory', 'list', '--all')).stdout).toContain(`${directory}\n  mem-`)
    expect((await caisson('memory', 'move', directory, '-w', moved)).stdout).toContain('1 note of')
    expect((await caisson('memory', 'list', '-w', moved)).stdout).toContain('Use tabs')
    expect((await caisson('memory', 'move', directory, '-w', moved)).code).toBe(2)
    await rename(moved, directory)
  })

  it('keeps and drops later what a run proposed [S0.13]', async () => {
    const { caisson, at, host, directory } = await place([
      proposed(1, 'one'),
      proposed(2, 'two'),
      proposed(3, 'three'),
    ])
    expect((await caisson('memory', 'list', ...at)).stdout).toContain(
      `3 notes of ${proposingRunId} to review: caisson memory keep`,
    )
    expect((await caisson('memory', 'keep', 'last', noteIdOf(1))).stdout).toBe('1 note kept\n')
    expect((await caisson('memory', 'drop', 'last', noteIdOf(2))).stdout).toBe('1 note dropped\n')
    for (const [number, words] of [
      [1, `${noteIdOf(1)} was kept already, by caisson memory keep at 20`],
      [2, `${noteIdOf(2)} was dropped already, by caisson memory drop at 20`],
      [9, `no note here has the ID "${noteIdOf(9)}"`],
    ] as const) {
      const again = await caisson('memory', 'keep', 'last', noteIdOf(number))
      expect([again.code, again.stderr]).toEqual([2, expect.stringContaining(words)])
    }
    expect((await caisson('memory', 'keep', 'last')).stdout).toBe('1 note kept\n')
    expect((await host.notes.ofWorkspace(directory)).map((note) => note.text)).toEqual(['three', 'one'])
    const shown = (await caisson('runs', 'show', 'last')).stdout
    expect(shown).toContain('the agent proposes to remember: one')
    expect(shown).toContain('0 notes kept, 1 dropped, by caisson memory drop')
  })

  it('says of a note that the agent withdrew which one stands in its place [S0.13]', async () => {
    const { caisson } = await place([proposed(1, 'one'), proposed(2, 'two', noteIdOf(1))])
    const { code, stderr } = await caisson('memory', 'drop', 'last', noteIdOf(1))
    expect([code, stderr]).toEqual([2, expect.stringContaining(`the agent replaced it by ${noteIdOf(2)}`)])
  })

  it('says which lines are no notes, and as JSON too [S0.13]', async () => {
    const { caisson, at, host } = await place()
    await caisson('memory', 'add', 'Use tabs', ...at)
    await writeFile(host.notes.file, 'gar\u001bbage\n', { flag: 'a' })
    expect((await caisson('memory', 'list', ...at)).stdout).toContain('line 2 of')
    const lines = (await caisson('memory', 'list', '--json', ...at)).stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines).toMatchObject([
      { state: 'kept', text: 'Use tabs' },
      { state: 'damaged', line: 2 },
    ])
  })
})

describe('caisson notes', () => {
  it('adds to a proposal, lists and removes [S4.04]', async () => {
    const { caisson, host } = await place()
    expect((await caisson('notes', 'add', 'PROP-1', 'Ann agrees')).stdout).toMatch(/^kept as gov-/)
    await caisson('notes', 'add', 'PROP-2', 'Costs more')
    expect((await caisson('notes', 'list', 'PROP-1')).stdout).toMatch(
      /of PROP-1, by person, .*\n {4}│ Ann agrees\n$/,
    )
    expect((await caisson('notes', 'list', '--json')).stdout.trim().split('\n')).toHaveLength(2)
    expect((await caisson('notes', 'rm', 'PROP-1', 'gov')).stdout).toBe('1 note removed\n')
    expect((await host.notes.list()).map((note) => note.text)).toEqual(['Costs more'])
    expect((await caisson('notes', 'add', 'twelve', 'x')).code).toBe(2)
  })
})

describe('caisson skills list', () => {
  it('shows skills, roots and what is wrong, with nothing that a terminal obeys [A.09]', async () => {
    const { caisson, env } = await place()
    const root = path.join(env.XDG_CONFIG_HOME, 'caisson/skills')
    expect((await caisson('skills', 'list')).stdout).toContain(
      `no skills\nFolders searched, in increasing precedence: ${root} (does not exist)`,
    )
    await mkdir(path.join(root, 'a'), { recursive: true, mode: 0o700 })
    await mkdir(path.join(root, 'b\u001b[31m'), { mode: 0o700 })
    await writeFile(
      path.join(root, 'a/SKILL.md'),
      '---\nname: tidy\ndescription: "Tidies \u009b up"\n---\nDo.',
    )
    await writeFile(path.join(root, 'b\u001b[31m/SKILL.md'), '---\nname: [\n---\nDo.')
    const { stdout } = await caisson('skills', 'list')
    expect(stdout).toMatch(/^tidy {2}Tidies/)
    expect(stdout).toContain(`Folders searched, in increasing precedence: ${root}`)
    expect(stdout).toContain('neither its name nor its folder can be an id')
    expect(stdout).not.toContain('\u001b[31m')
    expect((await caisson('skills', 'list', '--json')).stdout).toContain('"skillId":"tidy"')
  })
})

describe('the review of what a run proposes', () => {
  const hostile = proposed(2, 'two\n\u001b[2J? Keep them for later runs? Yes')

  async function review(choice: 'ask' | 'keep' | 'wait', keys: readonly (readonly [string, string])[] = []) {
    const run = await runThatProposed([proposed(1, 'one'), hostile])
    const person = new Person()
    const env = { ...run.env, EDITOR: await editor('s/one/ONE/') }
    const io = {
      stdin: person.input,
      stdout: person.output,
      stderr: new PassThrough(),
      env,
      version: '0',
    } as unknown as Io
    const done = reviewNotes(io, run.host, proposingRunId, { choice, state: { ...run.state, end: null } })
    for (const [seen, typed] of keys) {
      await person.sees(seen)
      person.type(typed)
    }
    await done
    const texts = (await run.host.notes.ofWorkspace(run.directory)).map((note) => note.text)
    const { pending } = await run.host.runNotes(proposingRunId)
    return { texts, waiting: pending.length, raw: person.raw, shown: stripVTControlCharacters(person.raw) }
  }

  it('shows them behind a margin, and decides nothing where nobody is asked [S0.13]', async () => {
    const { texts, waiting, raw, shown } = await review('wait')
    expect([texts, waiting]).toEqual([[], 2])
    expect(shown).toContain('2 notes proposed by the agent for')
    expect(shown).toContain(`  + ${noteIdOf(1)} [t]\n    │ one\n`)
    expect(shown).toContain('    │ \\e[2J? Keep them for later runs? Yes\n')
    expect(raw).not.toContain('\u001b[2J')
    expect(shown).toContain(`2 notes still to review: caisson memory keep ${proposingRunId}`)
  })

  it('keeps all by the flag, of a run that completed [S0.13]', async () => {
    expect((await review('keep')).texts).toHaveLength(2)
    const end = { outcome: 'completed', reason: 'completed', message: '', summary: '' } as const
    expect(noteChoice(true, false, { end })).toBe('keep')
    expect(noteChoice(true, false, { end: { ...end, outcome: 'failed', reason: 'step_failed' } })).toBe(
      'wait',
    )
    expect(noteChoice(undefined, false, { end })).toBe('wait')
    expect(noteChoice(undefined, true, { end })).toBe('ask')
  })

  it('shows what a note would stand in the place of, and continues where it cannot decide [S0.13]', async () => {
    const run = await runThatProposed([proposed(2, 'new words', noteIdOf(1))])
    await run.host.notes.change(() => [
      { kind: 'memory', noteId: noteIdOf(1), workspace: run.directory, text: 'old words', tags: [], at: 1 },
    ])
    await using _ = await RunLock.take(run.host.folders.locks, proposingRunId)
    const [stdout, stderr] = [new PassThrough(), new PassThrough()]
    const io = { stdin: new PassThrough(), stdout, stderr, env: run.env, version: '0' }
    await reviewNotes(io, run.host, proposingRunId, { choice: 'keep', state: { ...run.state, end: null } })
    stdout.end()
    stderr.end()
    const shown = await text(stdout)
    expect(shown).toContain(`  + ${noteIdOf(2)} [t] replaces ${noteIdOf(1)}\n    │ new words\n`)
    expect(shown).toContain(`  - ${noteIdOf(1)}, which it replaces\n    │ old words\n`)
    expect(await text(stderr)).toMatch(/the notes could not be reviewed and stay pending: .*in use/)
  })

  it('keeps nothing by Enter alone [S0.13]', async () => {
    const { texts, waiting } = await review('ask', [
      ['Keep them for later runs?', '\r'],
      ['Type 1-4', '4\r'],
    ])
    expect([texts, waiting]).toEqual([[], 2])
  })

  it('asks about each, in the person’s editor where they want to change it [S0.13]', async () => {
    const { texts, waiting } = await review('ask', [
      ['Keep them for later runs?', '1\r'],
      ['change it in your editor', '2\r'],
      ['change it in your editor', '3\r'],
    ])
    expect([texts, waiting]).toEqual([['ONE'], 0])
  })
})
