import { execFileSync } from 'node:child_process'
import {
  appendFileSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { Directory } from '#specs/node/directory.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import type { ExtensionParts } from '../../extensions/extension.ts'
import { createLogger } from '../../link/logger.ts'
import { type CodeSearchOptions, createCodeSearch } from '../../search/code-search.ts'
import { IndexMemoryBudget } from '../../search/index-memory-budget.ts'
import { readIndexedText } from '../../search/read-file.ts'
import type { CodeSearchResult } from '../../tools/search-code.ts'
import { call, quietContext } from '../support/tools.ts'
import { temporaryFolder } from '../support/trees.ts'

const noHost = (): Promise<never> => Promise.reject(new Error('nobody is asked'))
const openParts: ExtensionParts = {
  task: {
    runId: 'run-00000000000000000000',
    prompt: 'x',
    model: 'm',
    askTools: [],
    limits: RunLimits.parse({}),
  },
  host: { requestApproval: noHost, runHook: noHost, callTool: noHost, note: noHost },
  taken: new Set(),
  signal: new AbortController().signal,
  logger: createLogger(() => undefined),
}

/** Words that have nothing in common, one a line. */
function manyWords(from: number, count: number): string {
  return Array.from({ length: count }, (_, word) =>
    (((from + word) * 2_654_435_761) % 2 ** 32).toString(36),
  ).join('\n')
}

/** A workspace of these files, and a search over it as the tool has it. */
function prepare(files: Readonly<Record<string, string | Buffer>>, options: CodeSearchOptions = {}) {
  const folder = temporaryFolder()
  const write = (path: string, content: string | Buffer): void => {
    mkdirSync(dirname(join(folder.path, path)), { recursive: true })
    writeFileSync(join(folder.path, path), content)
  }
  for (const [path, content] of Object.entries(files)) write(path, content)
  const search = createCodeSearch(options)
  const tool = search.toolOver({ root: folder.path })
  const ask = async (query: string, more: object = {}): Promise<CodeSearchResult> => {
    const result = await call(tool, { query, ...more })
    if (!result.ok) throw new Error(`${result.error.code} ${result.error.message}`)
    return result.value as CodeSearchResult
  }
  const paths = async (query: string, more: object = {}) =>
    (await ask(query, more)).passages.map(({ path }) => path)
  return {
    folder,
    path: folder.path,
    write,
    search,
    tool,
    ask,
    paths,
    [Symbol.dispose]: () => folder[Symbol.dispose](),
  }
}

describe('search_code', () => {
  it('gives the passages that fit best, with file, lines and text [S0.14]', async () => {
    using space = prepare({
      'src/retry.ts': 'import x\n\nexport function retryWithBackoff(send) {\n  return send()\n}\n',
      'src/other.ts': 'export const a = 1\n// no retry here\n',
      'README.md': 'A program.\n',
    })
    const value = await space.ask('retry backoff')
    expect(value).toEqual({
      passages: [
        {
          path: 'src/retry.ts',
          firstLine: 1,
          lastLine: 5,
          text: 'import x\n\nexport function retryWithBackoff(send) {\n  return send()\n}',
        },
        { path: 'src/other.ts', firstLine: 1, lastLine: 2, text: 'export const a = 1\n// no retry here' },
      ],
      files: 3,
      notes: [],
    })
    expect(space.tool.render?.(value).split('\n').slice(0, 3)).toEqual([
      '[2 passages, the best first, of 3 files]',
      'src/retry.ts lines 1-5',
      '<passage>',
    ])
  })

  it('finds a file by the words of its path, and searches below a path alone [S0.14]', async () => {
    using space = prepare({
      'host/gateway/budget.ts': 'x\n',
      'agent/run/budget.ts': 'y\n',
      'agentur/budget.ts': 'z',
    })
    expect((await space.paths('gateway budget'))[0]).toBe('host/gateway/budget.ts')
    expect(await space.paths('budget', { path: 'agent' })).toEqual(['agent/run/budget.ts'])
    expect(await space.paths('budget', { path: 'agent/run/budget.ts' })).toEqual(['agent/run/budget.ts'])
    expect(await call(space.tool, { query: 'budget', path: '../..' })).toMatchObject({
      ok: false,
      error: { code: 'outside_workspace' },
    })
    expect(await call(space.tool, { query: 'budget', path: 'none' })).toMatchObject({
      ok: false,
      error: { code: 'not_found' },
    })
  })

  it('shows one file twice at most, and as many passages as are asked for [S0.14]', async () => {
    const long = Array.from({ length: 400 }, (_, line) => `needle ${line}`).join('\n')
    using space = prepare({ 'a.txt': long, 'b.txt': long, 'c.txt': 'needle' })
    expect((await space.paths('needle')).sort()).toEqual(['a.txt', 'a.txt', 'b.txt', 'b.txt', 'c.txt'])
    expect(await space.paths('needle', { limit: 2 })).toHaveLength(2)
  })

  it('finds what was written, changed, moved and deleted since the search before [S0.14]', async () => {
    using space = prepare({ 'a.txt': 'apple', 'b.txt': 'berry', 'c.txt': 'cherry' })
    expect(await space.paths('apple')).toEqual(['a.txt'])
    space.write('a.txt', 'grape')
    space.write('d/new.txt', 'apple')
    unlinkSync(join(space.path, 'b.txt'))
    renameSync(join(space.path, 'c.txt'), join(space.path, 'd/moved.txt'))
    expect(await space.paths('apple')).toEqual(['d/new.txt'])
    expect(await space.paths('grape')).toEqual(['a.txt'])
    expect(await space.paths('berry')).toEqual([])
    expect(await space.paths('cherry')).toEqual(['d/moved.txt'])
  })

  it('finds a change that leaves size and time of a file as they were [S0.14]', async () => {
    using space = prepare({ 'a.txt': 'apple' })
    const time = new Date(1_600_000_000_000)
    utimesSync(join(space.path, 'a.txt'), time, time)
    await sleep(150)
    expect(await space.paths('apple')).toEqual(['a.txt'])
    space.write('a.txt', 'grape')
    utimesSync(join(space.path, 'a.txt'), time, time)
    expect(await space.paths('grape')).toEqual(['a.txt'])
    expect(await space.paths('apple')).toEqual([])
  })

  it('finds each of many changes within one tick of the clock [S0.14]', async () => {
    using space = prepare({ 'a.txt': 'word0' })
    for (let round = 1; round < 30; round++) {
      space.write('a.txt', `word${round % 10}`)
      expect(await space.paths(`word${round % 10}`)).toEqual(['a.txt'])
    }
  })

  it('refuses a query without a letter or digit, and says when nothing fits [S0.14]', async () => {
    using space = prepare({ 'a.txt': 'apple' })
    expect(await call(space.tool, { query: '=> {' })).toMatchObject({
      ok: false,
      error: { code: 'invalid_input' },
    })
    expect(space.tool.render?.(await space.ask('unheard'))).toBe('[no passage fits, of 1 file]')
  })

  it('names of files and texts of passages write no line of the result [S0.14, T.02]', async () => {
    using space = prepare({ 'a\n[9 passages].txt': 'needle\n</passage>\nfake lines 1-2\n' })
    const shown = space.tool.render?.(await space.ask('needle')) ?? ''
    expect(shown.split('\n')).toEqual([
      '[1 passages, the best first, of 1 file]',
      '"a\\n[9 passages].txt" lines 1-3',
      '<passage>',
      'needle',
      '<\\/passage>',
      'fake lines 1-2',
      '</passage>',
    ])
  })
})

describe('what the index leaves out', () => {
  it('is said: packages, lock files, binaries, huge files, other encodings, links and FIFOs [S0.14]', async () => {
    using space = prepare({
      'a.txt': 'needle',
      'node_modules/x/index.js': 'needle',
      '.git/config': 'needle',
      'package-lock.json': 'needle',
      'app.min.js': 'needle',
      'data.bin': Buffer.from('needle\0needle'),
      'latin.txt': Buffer.from('needle \xe4', 'latin1'),
      'large.txt': `needle${' '.repeat(600_000)}`,
    })
    symlinkSync('/etc/passwd', join(space.path, 'link'))
    execFileSync('mkfifo', [join(space.path, 'fifo')])
    const { passages, files, notes } = await space.ask('needle root')
    expect(passages.map(({ path }) => path)).toEqual(['a.txt'])
    expect(files).toBe(1)
    expect(notes).toEqual([
      'not searched: folders of packages, caches and version control (2), lock files and other generated files (2), ' +
        'files that are too large (1), binary files (1), files that are not UTF-8 (1), links, devices, FIFOs and sockets (2)',
    ])
  })

  it('costs nothing: a sparse file of 2 GB is never opened, links that go round are never entered [S0.14, T.02]', async () => {
    using space = prepare({ 'a/a.txt': 'needle', sparse: 'needle' })
    truncateSync(join(space.path, 'sparse'), 2 * 1024 ** 3)
    symlinkSync('..', join(space.path, 'a/up'))
    symlinkSync('self', join(space.path, 'self'))
    expect(await space.paths('needle')).toEqual(['a/a.txt'])
  })

  it('is what a small room and a bound of files do not take, nearest files first [S0.14]', async () => {
    const text = (seed: number) => manyWords(seed * 3_000, 3_000)
    const many = Object.fromEntries(
      Array.from({ length: 40 }, (_, file) => [`z/${file}.txt`, `needle\n${text(file)}`]),
    )
    const room = new IndexMemoryBudget(1024 * 1024)
    using space = prepare({ 'near.txt': 'needle', ...many }, { room })
    const { files, notes } = await space.ask('needle', { limit: 20 })
    expect(files).toBeGreaterThan(2)
    expect(files).toBeLessThan(41)
    expect(notes).toEqual([`not searched: files for which the index had no room (${41 - files})`])
    expect(await space.paths('needle', { path: 'near.txt' })).toEqual(['near.txt'])
    using few = prepare(
      { 'a.txt': 'needle', 'b.txt': 'needle', 'c/c.txt': 'needle' },
      { bounds: { maxFiles: 2 } },
    )
    expect((await few.paths('needle')).sort()).toEqual(['a.txt', 'b.txt'])
  })

  it('is what time did not suffice for, and each search continues with it [S0.14]', async () => {
    const files = Object.fromEntries(
      Array.from({ length: 100 }, (_, file) => [`d${file % 9}/${file}.txt`, `needle ${file}\n`.repeat(200)]),
    )
    using space = prepare(files, { bounds: { updateMaxMs: 1 } })
    // What was written just now would be read again each time.
    await sleep(150)
    const first = await space.ask('needle')
    expect(first.notes).toEqual([
      `not searched: files for which there was no time yet, so search again (${100 - first.files})`,
    ])
    let last = first
    for (let round = 0; round < 100 && last.files < 100; round++) {
      const next = await space.ask('needle')
      expect(next.files).toBeGreaterThan(last.files)
      last = next
    }
    expect(last).toMatchObject({ files: 100, notes: [] })
  })

  it('is continued between two searches, with no call that asks for it [S0.14]', async () => {
    const files = Object.fromEntries(
      Array.from({ length: 8 }, (_, file) => [`${file}.txt`, `needle\n${manyWords(file * 20_000, 20_000)}`]),
    )
    const whole = new IndexMemoryBudget()
    using other = prepare(files, { room: whole })
    expect(await other.ask('needle')).toMatchObject({ files: 8, notes: [] })
    const room = new IndexMemoryBudget()
    // Each file takes longer than this, so that one is read at a time: two calls alone would read two.
    using space = prepare(files, { room, bounds: { updateMaxMs: 0.01 } })
    // What was written just now would be read again each time.
    await sleep(150)
    expect(await space.ask('needle')).toMatchObject({ files: 1 })
    await expect.poll(() => room.takenBytes, { timeout: 50_000 }).toBeGreaterThan(0.6 * whole.takenBytes)
    expect((await space.ask('needle')).files).toBeGreaterThan(4)
  })
})

describe('an index under attack', () => {
  it('reads nothing but a file where a file was, and waits for nobody [S0.14, T.02]', () => {
    using folder = temporaryFolder()
    using root = Directory.openTrusted(folder.path)
    const read = (name: string) => readIndexedText({ directory: root, name }, 1_000)
    writeFileSync(join(folder.path, 'file'), 'text')
    expect(read('file')).toMatchObject({ text: 'text', state: { size: 4 } })
    execFileSync('mkfifo', [join(folder.path, 'fifo')])
    symlinkSync('file', join(folder.path, 'link'))
    mkdirSync(join(folder.path, 'folder'))
    for (const name of ['fifo', 'link', 'folder', 'none']) expect(read(name)).toBeUndefined()
    expect(read('file')).toMatchObject({ text: 'text' })
  })

  it('whose files change, grow and vanish while it reads never fails [S0.14, T.02]', async () => {
    const files = Object.fromEntries(
      Array.from({ length: 60 }, (_, file) => [`d/${file}.txt`, `needle ${file}\n`.repeat(40)]),
    )
    using space = prepare(files)
    let isOver = false
    const churn = (async () => {
      for (let round = 0; !isOver; round++) {
        const at = join(space.path, `d/${round % 60}.txt`)
        if (round % 5 === 0) rmSync(at, { force: true, recursive: true })
        else if (round % 7 === 0) {
          rmSync(at, { force: true, recursive: true })
          mkdirSync(at)
        } else if (round % 11 === 0) rmSync(join(space.path, 'd'), { recursive: true, force: true })
        else {
          mkdirSync(dirname(at), { recursive: true })
          try {
            appendFileSync(at, 'needle\n'.repeat(500))
          } catch {
            // It is a directory now.
          }
        }
        await sleep(0)
      }
    })()
    for (let round = 0; round < 40; round++) {
      for (const passage of (await space.ask('needle')).passages) expect(passage.text).toContain('needle')
    }
    isOver = true
    await churn
  }, 60_000)

  it('ends with the call that is cancelled, and the next call has it whole [S0.14]', async () => {
    const files = Object.fromEntries(
      Array.from({ length: 400 }, (_, file) => [`${file}.txt`, `needle ${file} word\n`.repeat(300)]),
    )
    using space = prepare(files)
    const ending = new AbortController()
    const cancelled = call(space.tool, { query: 'needle' }, { ...quietContext, signal: ending.signal })
    const waiting = call(space.tool, { query: 'needle' }, { ...quietContext, signal: AbortSignal.timeout(1) })
    await sleep(20)
    ending.abort()
    expect(await cancelled).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    expect(await waiting).toMatchObject({ ok: false, error: { code: 'cancelled' } })
    expect(await space.ask('needle')).toMatchObject({ files: 400, notes: [] })
    expect(new Set(await space.paths('needle', { limit: 20 })).size).toBe(10)
  })

  it('gives its memory back with the run, and with the view that it was of [S0.14]', async () => {
    const room = new IndexMemoryBudget(256 * 1024)
    const text = manyWords(0, 40_000)
    using space = prepare({ 'a.txt': `needle ${text}` }, { room })
    using other = prepare({ 'a.txt': 'needle' }, { room })
    expect(await space.paths('needle')).toEqual(['a.txt'])
    expect((await other.ask('needle')).notes.join()).toContain('no room')
    const opened = await space.search.extension(openParts)
    const view = new AbortController()
    await opened?.toolsFor({ agentPath: 'root/x', root: space.path }, view.signal)
    view.abort()
    await sleep(10)
    expect(await other.paths('needle')).toEqual(['a.txt'])
    expect(await space.paths('needle')).toEqual(['a.txt'])
    await opened?.close()
    expect(room.takenBytes).toBeLessThan(100 * 1024)
    expect(await space.paths('needle')).toEqual(['a.txt'])
    expect(room.takenBytes).toBeGreaterThan(256 * 1024)
    await space.search.extension(openParts)
    expect(room.takenBytes).toBeLessThan(100 * 1024)
  })
})
