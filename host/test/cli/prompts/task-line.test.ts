// The line of a conversation: history, completion, pasted lines, and the file of the history.
import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { LineHistory } from '../../../cli/prompts/line-history.ts'
import { complete, readTaskLine } from '../../../cli/prompts/task-line.ts'
import { Person } from '../support/person.ts'

const run = promisify(execFile)

const read = (person: Person, history: string[] = []) =>
  readTaskLine({ stdin: person.input, stdout: person.output }, '> ', {
    history,
    commands: ['/diff'],
    folder: '.',
  })

describe('the line of a conversation', () => {
  it('is one task also when several lines are pasted [H.01]', async () => {
    const person = new Person()
    const line = read(person)
    person.type('first\rsecond\rthird')
    expect(await line).toEqual({ kind: 'line', text: 'first\nsecond\nthird' })
  })

  it('asks the terminal to mark what is pasted, and begins nothing before Enter then [H.01]', async () => {
    const person = new Person()
    const line = read(person)
    await person.sees('> ')
    expect(person.raw).toContain('\u001b[?2004h')
    person.type('\u001b[200~first\rsecond\u001b[201~')
    await new Promise((resolve) => setTimeout(resolve, 200))
    person.type(' and more\r')
    expect(await line).toEqual({ kind: 'line', text: 'first\nsecond and more' })
    expect(person.raw).toContain('\u001b[?2004l')
  })

  it('brings back earlier lines, is cleared by Ctrl-C and left by Ctrl-D [H.01]', async () => {
    const person = new Person()
    const line = read(person, ['newest', 'older'])
    person.type('\u001b[A\u001b[A')
    await person.sees('older')
    person.type('\r')
    expect(await line).toEqual({ kind: 'line', text: 'older' })
    const cleared = read(person)
    person.type('half a ta\u0003')
    expect(await cleared).toEqual({ kind: 'cleared', wasEmpty: false })
    const left = read(person)
    person.type('\u0004')
    expect(await left).toEqual({ kind: 'left' })
  })

  it('completes commands, paths after @ and arguments of commands, and no name that could move the cursor [H.01]', async () => {
    const folder = await temporaryFolder('completion')
    await mkdir(path.join(folder, 'src'))
    for (const name of ['src/main.ts', 'setup.cfg', '.hidden', 's\u001b[2J'])
      await writeFile(path.join(folder, name), '')
    const found = async (line: string) => (await complete(line, ['/diff', '/undo'], folder))[0]
    expect(await found('/d')).toEqual(['/diff'])
    expect(await found('fix @s')).toEqual(['@setup.cfg', '@src/'])
    expect(await found('fix @src/m')).toEqual(['@src/main.ts'])
    expect(await found('/diff s')).toEqual(['setup.cfg', 'src/'])
    expect(await found('fix s')).toEqual([])
    expect(await found('fix @no/such/')).toEqual([])
  })
})

describe('the history of a conversation', () => {
  it('is private and bounded, keeps each line once, and none that begins with a blank [H.01]', async () => {
    const file = path.join(await temporaryFolder('history'), 'state', 'history')
    const history = await LineHistory.open(file)
    for (const line of ['one', ' secret', 'two', 'one', 'x'.repeat(3_000), 'three\nfour'])
      await history.add(line)
    expect(history.entries).toEqual(['three four', 'one', 'two'])
    expect((await LineHistory.open(file)).entries).toEqual(history.entries)
    expect(await readFile(file, 'utf8')).toBe('two\none\nthree four\n')
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    await writeFile(file, Array.from({ length: 900 }, (_, at) => `line ${at}`).join('\n'))
    expect((await LineHistory.open(file)).entries).toHaveLength(500)
  })

  it('loses no line of conversations that write at the same moment [H.01]', async () => {
    const file = path.join(await temporaryFolder('history'), 'history')
    const module = path.join(import.meta.dirname, '../../../cli/prompts/line-history.ts')
    const script = `
      const { LineHistory } = await import(process.argv[1])
      const history = await LineHistory.open(process.argv[2])
      for (let at = 0; at < 40; at += 1) await history.add(process.argv[3] + ' ' + at)`
    const program = ['--conditions=caisson-source', '--input-type=module', '-e', script, module, file]
    await Promise.all(['a', 'b', 'c'].map((name) => run(process.execPath, [...program, name])))
    const { entries } = await LineHistory.open(file)
    expect(entries.toSorted()).toEqual(
      ['a', 'b', 'c'].flatMap((name) => Array.from({ length: 40 }, (_, at) => `${name} ${at}`)).sort(),
    )
    expect(await readdir(path.dirname(file))).toEqual(['history'])
  })

  it('writes a line later that it could not write at once [H.01]', async () => {
    const folder = await temporaryFolder('history')
    const file = path.join(folder, 'state', 'history')
    const history = await LineHistory.open(file)
    await writeFile(path.join(folder, 'state'), 'a file where the folder belongs')
    await history.add('one')
    await history.add('two')
    expect(history.entries).toEqual(['two', 'one'])
    await rm(path.join(folder, 'state'))
    await history.add('three')
    expect(await readFile(file, 'utf8')).toBe('one\ntwo\nthree\n')
  })
})
