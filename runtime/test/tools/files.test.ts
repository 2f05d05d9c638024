// read_file, write_file and list_files of the library: what they promise, and what hostile folders do to them.
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { Directory } from '#specs/node/directory.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import type { LLMToolCall } from '../../index.ts'
import { Walk } from '../../tools/walk.ts'
import { caller, readValue } from './support.ts'

describe('read_file', () => {
  it('pages through a file from line 1, and says how many lines there are [S2.15]', async () => {
    const folder = await temporaryFolder('read')
    writeFileSync(path.join(folder, 'f'), Array.from({ length: 2500 }, (_, at) => `${at + 1}\n`).join(''))
    const read = caller('read_file', folder)
    expect(readValue(await read({ filePath: 'f' }))).toMatchObject({
      filePath: 'f',
      offset: 1,
      totalLines: 2500,
      nextOffset: 1001,
    })
    expect(readValue(await read({ filePath: 'f', offset: 2499, limit: 5 }))).toMatchObject({
      content: '2499\n2500',
      nextOffset: null,
    })
    expect((await read({ filePath: 'f', offset: 2501 })).content).toContain('has 2500 lines')
  })

  it('takes path for filePath and numbers as text, and says so [S2.15] [S2.17]', async () => {
    const folder = await temporaryFolder('read')
    writeFileSync(path.join(folder, 'f'), 'a\nb\n')
    const result = await caller('read_file', folder)({ path: 'f', limit: '1' })
    expect(readValue(result)).toMatchObject({ content: 'a', nextOffset: 2 })
    expect(result.corrections).toEqual(['path: taken as filePath', 'limit: string taken as number'])
  })

  it('keeps a page within what a result may be, whatever is in the file [S2.15]', async () => {
    const folder = await temporaryFolder('read')
    writeFileSync(path.join(folder, 'f'), `${'\u0001"\\'.repeat(600)}\n`.repeat(500))
    const result = await caller('read_file', folder)({ filePath: 'f', limit: 5000 })
    expect(readValue(result)).toMatchObject({ totalLines: 500 })
    expect(result.content.length).toBeLessThan(256 * 1024)
  })
})

describe('write_file', () => {
  it('makes folders, replaces whole files and keeps their mode, or only creates [S2.15]', async () => {
    const folder = await temporaryFolder('write')
    const write = caller('write_file', folder)
    expect(readValue(await write({ filePath: 'a/b/c.sh', content: 'é' }))).toEqual({
      filePath: 'a/b/c.sh',
      created: true,
      bytes: 2,
    })
    chmodSync(path.join(folder, 'a/b/c.sh'), 0o750)
    expect(readValue(await write({ path: 'a/b/c.sh', content: 'x' }))).toMatchObject({ created: false })
    expect(statSync(path.join(folder, 'a/b/c.sh')).mode & 0o777).toBe(0o750)
    const refused = await write({ filePath: 'a/b/c.sh', content: 'y', mode: 'create' })
    expect(refused.content).toContain('exists already')
    expect(readFileSync(path.join(folder, 'a/b/c.sh'), 'utf8')).toBe('x')
    expect(readdirSync(path.join(folder, 'a/b'))).toEqual(['c.sh'])
  })

  it('is blocked where only reading is allowed, and asks where that is wanted [S2.15] [S2.10]', async () => {
    const folder = await temporaryFolder('write')
    const write = caller('write_file', folder)
    const args = { filePath: 'f', content: 'x' }
    for (const options of [
      { toolPermission: 'read' },
      { toolPermission: 'ask' },
      { toolPermission: 'ask', askPermission: () => false },
    ] as const)
      expect((await write(args, options)).ok).toBe(false)
    expect(readdirSync(folder)).toEqual([])
    expect((await write(args, { toolPermission: 'ask', askPermission: () => true })).ok).toBe(true)
    // What is asked about is what is done, whichever word the model has for it.
    const asked: unknown[] = []
    const look = (call: LLMToolCall): boolean => asked.push(JSON.parse(call.function.arguments)) > 1
    expect(
      (await write({ path: 'g', content: 'x' }, { toolPermission: 'ask', askPermission: look })).ok,
    ).toBe(false)
    expect((await write({ wrong: 1 }, { toolPermission: 'ask', askPermission: look })).ok).toBe(false)
    expect(asked).toEqual([{ filePath: 'g', content: 'x' }])
    expect(readdirSync(folder)).toEqual(['f'])
  })
})

describe('list_files', () => {
  it('lists a folder, or what lies below within its depth, filtered and sorted [S2.15]', async () => {
    const folder = await temporaryFolder('list')
    mkdirSync(path.join(folder, 'src/deep/er'), { recursive: true })
    mkdirSync(path.join(folder, 'node_modules/x'), { recursive: true })
    for (const name of ['b.txt', 'a.ts', '.hidden', 'src/c.ts', 'src/deep/d.ts', 'src/deep/er/e.ts'])
      writeFileSync(path.join(folder, name), 'xy')
    const list = caller('list_files', folder)
    const paths = async (args: object) => {
      const { entries, truncated } = readValue(await list(args)) as {
        entries: { path: string }[]
        truncated: boolean
      }
      return { paths: entries.map((entry) => entry.path), truncated }
    }
    expect(readValue(await list({})).entries).toEqual([
      { path: 'a.ts', type: 'file', sizeBytes: 2 },
      { path: 'b.txt', type: 'file', sizeBytes: 2 },
      { path: 'node_modules', type: 'directory' },
      { path: 'src', type: 'directory' },
    ])
    expect(await paths({ recursive: true, includePattern: '*.ts' })).toEqual({
      paths: ['a.ts', 'src/c.ts', 'src/deep/d.ts'],
      truncated: true,
    })
    expect(await paths({ recursive: true, maxDepth: 10, includePattern: 'src/**/*.ts' })).toEqual({
      paths: ['src/c.ts', 'src/deep/d.ts', 'src/deep/er/e.ts'],
      truncated: false,
    })
    expect((await paths({ includeHidden: true })).paths).toContain('.hidden')
    expect(await paths({ maxEntries: 2 })).toEqual({ paths: ['a.ts', 'b.txt'], truncated: true })
    expect((await list({ path: 'a.ts' })).content).toContain('not a directory')
  })

  it('says what it left out [S2.15]', async () => {
    const folder = await temporaryFolder('left-out')
    for (const below of ['.git/objects', 'node_modules/x', 'src/node_modules/y', 'src/deep'])
      mkdirSync(path.join(folder, below), { recursive: true })
    const list = caller('list_files', folder)
    const notes = async (args: object) => readValue(await list(args)).notes
    expect(await notes({})).toEqual(['left out: 1 name that begins with a dot'])
    expect(await notes({ includeHidden: true })).toBeUndefined()
    const closed =
      'not entered: .git, node_modules, src/node_modules; ask for one by its path to see what it holds'
    expect(await notes({ recursive: true, includeHidden: true })).toEqual([closed])
    expect(await notes({ path: 'node_modules', recursive: true })).toBeUndefined()
  })

  it('names no more of what it left out than a reader takes in [S2.15]', async () => {
    const folder = await temporaryFolder('left-out-many')
    for (let at = 0; at < 40; at++) mkdirSync(path.join(folder, `d${at}/.git`), { recursive: true })
    const list = caller('list_files', folder)
    const [note = ''] = readValue(await list({ recursive: true, includeHidden: true })).notes as string[]
    expect(note.split(', ')).toHaveLength(11)
    expect(note).toContain('30 more')
  })

  it('reads a bounded part of a folder, however many names it has, and says so [S2.15]', async () => {
    const folder = await temporaryFolder('many')
    for (let at = 0; at < 60; at++) writeFileSync(path.join(folder, `n${at}`), '')
    using top = Directory.openTrusted(folder)
    expect(top.listSome(60)).toMatchObject({ isWhole: true })
    const { signal } = new AbortController()
    const walk = new Walk({ maxDepth: 1, includeHidden: true, signal, namesMaxCount: 50 })
    const seen: string[] = []
    for await (const entry of walk.entries(top, '')) seen.push(entry.path)
    expect(seen).toHaveLength(50)
    expect(seen).toEqual(seen.toSorted())
    expect(walk).toMatchObject({
      truncated: true,
      notes: ['. has more than 50 entries; some of them are left out'],
    })
  })

  it.each([
    ['in the middle of a folder', 3],
    ['at the end of a folder', 4],
  ])('stops at its bound of entries and says so, also %s [S2.15]', async (_, entriesMaxCount) => {
    const folder = await temporaryFolder('bound')
    for (const name of ['a', 'b']) {
      mkdirSync(path.join(folder, name))
      for (const file of ['1', '2']) writeFileSync(path.join(folder, name, file), '')
    }
    using top = Directory.openTrusted(folder)
    const walked = async (options: { entriesMaxCount?: number }): Promise<[number, boolean]> => {
      const { signal } = new AbortController()
      const walk = new Walk({ maxDepth: 3, includeHidden: true, signal, ...options })
      let count = 0
      for await (const _ of walk.entries(top, '')) count++
      return [count, walk.truncated]
    }
    expect(await walked({ entriesMaxCount })).toEqual([entriesMaxCount, true])
    expect(await walked({ entriesMaxCount: 6 })).toEqual([6, false])
    expect(await walked({})).toEqual([6, false])
  })

  it('leaves what becomes a link meanwhile unentered [S2.09]', async () => {
    const folder = await temporaryFolder('race')
    const outside = await temporaryFolder('outside')
    writeFileSync(path.join(outside, 'secret'), 'x')
    mkdirSync(path.join(folder, 'sub'))
    using top = Directory.openTrusted(folder)
    const walk = new Walk({ maxDepth: 3, includeHidden: true, signal: new AbortController().signal })
    const seen: string[] = []
    for await (const entry of walk.entries(top, '')) {
      seen.push(entry.path)
      execFileSync('rm', ['-r', path.join(folder, 'sub')])
      symlinkSync(outside, path.join(folder, 'sub'))
    }
    expect(seen).toEqual(['sub'])
    expect(walk.notes).toEqual(['cannot read sub'])
  })
})

describe('the file tools', () => {
  it.each(['read_file', 'write_file', 'list_files', 'grep', 'shell_cmd'])(
    '%s never leaves the working directory [S2.09] [S2.15]',
    async (name) => {
      const folder = await temporaryFolder('inside')
      const outside = await temporaryFolder('outside')
      writeFileSync(path.join(outside, 'f'), 'secret')
      symlinkSync(outside, path.join(folder, 'link'))
      symlinkSync('/etc/passwd', path.join(folder, 'passwd'))
      const field = { list_files: 'path', grep: 'directoryPath', shell_cmd: 'directory' }[name] ?? 'filePath'
      const rest = {
        write_file: { content: 'x' },
        grep: { query: 'secret' },
        shell_cmd: { command: 'true' },
      }[name]
      const run = caller(name, folder)
      for (const target of [
        '..',
        '../x',
        `${outside}/f`,
        outside,
        'link',
        'link/f',
        'passwd',
        '/proc/self/environ',
        'a/../../x',
        'a\0b',
      ]) {
        const result = await run({ [field]: target, ...rest })
        expect(result, target).toMatchObject({ ok: false })
        expect(result.content, target).not.toContain('secret')
      }
      expect(readdirSync(outside)).toEqual(['f'])
      expect(readFileSync(path.join(outside, 'f'), 'utf8')).toBe('secret')
    },
  )

  it('refuse FIFOs and devices at once, and tell binary files from text [S2.15]', async () => {
    const folder = await temporaryFolder('odd')
    execFileSync('mkfifo', [path.join(folder, 'pipe')])
    writeFileSync(path.join(folder, 'binary'), Buffer.from([1, 2, 0, 3]))
    writeFileSync(path.join(folder, 'huge'), 'first\n')
    truncateSync(path.join(folder, 'huge'), 5 * 1024 * 1024)
    expect((await caller('read_file', folder)({ filePath: 'pipe' })).content).toContain('not_a_file')
    expect((await caller('write_file', folder)({ filePath: 'pipe', content: 'x' })).content).toContain(
      'not_a_file',
    )
    expect((await caller('read_file', folder)({ filePath: 'binary' })).content).toContain('binary_file')
    const found = readValue(await caller('grep', folder)({ query: 'first' }))
    expect(found).toMatchObject({ matches: [], filesSearched: 0 })
    expect(String(found.notes)).toContain('"huge" was passed over')
  })

  it('are not there without a working directory, nor in one that is gone [S2.09]', async () => {
    const without = await caller('read_file')({ filePath: 'f' })
    expect(without.content).toContain('there is no tool "read_file"')
    const gone = await caller('read_file', '/nowhere/at/all')({ filePath: 'f' })
    expect(gone.content).toContain('cannot open the directory')
  })
})
