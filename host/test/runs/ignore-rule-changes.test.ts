// Ignore rules that a run changed, and what of the directory the next VM sees.
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { askRules } from '../../cli/prompts/ignore-rules-prompt.ts'
import { scanFolders } from '../../runs/added-folders.ts'
import { KeptRules } from '../../runs/ignore-rule-changes.ts'
import { prepareWorkspace } from '../../runs/prepare.ts'
import { Person } from '../cli/support/person.ts'
import { beginRun } from '../support/begun-run.ts'
import { changedRunId, runThatChanged } from '../support/changed-run.ts'
import type { Sketch } from '../workspace/support.ts'

const rules = 'private/\n*.key.txt\n'
const base: Sketch = { '.gitignore': rules, 'a.txt': 'a' }

/** A directory with ignored files in which a run changed `after`, all of it applied. */
async function applied(after: Sketch, before: Sketch = base) {
  const run = await runThatChanged(before, after)
  await mkdir(path.join(run.directory, 'private'))
  await writeFile(path.join(run.directory, 'private/customers.csv'), 'x')
  await writeFile(path.join(run.directory, 'my.key.txt'), 'x')
  await (await run.host.changes(changedRunId)).apply('all')
  return run
}

type ChangedRun = Awaited<ReturnType<typeof applied>>
let runs = 0

/** What goes into the next VM. */
async function nextRun({ host, directory }: ChangedRun, acceptIgnoreRules = false, include: string[] = []) {
  const runId = `run-${String(++runs).padStart(20, '0')}`
  const begun = await beginRun(host, runId, directory)
  await using record = begun.record
  const plan = { folders: host.folders, directory, include, runId, acceptIgnoreRules }
  await using prepared = await prepareWorkspace(plan, record, new AbortController().signal)
  const { entries, leftOut } = prepared.manifest
  const events = (await host.runs.read(runId)).map((line) => line.event)
  return { taken: [...entries.keys()], leftOut, ready: events.find(({ type }) => type === 'workspace-ready') }
}

const held = ({ host, directory }: ChangedRun) => host.heldByRules(directory)

describe('ignore rules that a run changed', () => {
  it.each<[string, Sketch]>([
    ['are emptied', { ...base, '.gitignore': '' }],
    ['are deleted', { 'a.txt': 'a' }],
    ['are negated', { ...base, '.gitignore': `${rules}!private/\n!my.key.txt\n` }],
  ])('let nothing new into the next VM when they %s [W.02]', async (_, after) => {
    const run = await applied(after)
    const next = await nextRun(run)
    expect(next.taken).not.toContain('private/customers.csv')
    expect(next.taken).not.toContain('my.key.txt')
    const reasons = Object.fromEntries(next.leftOut.map(({ path: name, reason }) => [name, reason]))
    expect(reasons).toMatchObject({ 'private/': 'rules_changed', 'my.key.txt': 'rules_changed' })
    expect(next.ready).toMatchObject({ examples: [{ reason: 'rules_changed' }, { reason: 'rules_changed' }] })
    expect(await held(run)).toEqual({ runs: [changedRunId], paths: ['my.key.txt', 'private/'] })
  })

  it('hold in .git/info/exclude and in directories below alike [W.02]', async () => {
    const before: Sketch = {
      '.git/HEAD': 'ref: refs/heads/main\n',
      '.git/info/exclude': 'private/\n',
      '.gitignore': '*.key.txt\n',
      'deep/a': 'a',
      'sub/.gitignore': 'secret.txt\n',
    }
    const { 'sub/.gitignore': _, ...rest } = before
    const run = await applied(
      { ...rest, '.git/info/exclude': '', 'sub/a': 'a', 'deep/.gitignore': '!n.key.txt\n' },
      before,
    )
    await writeFile(path.join(run.directory, 'deep/n.key.txt'), 'x')
    await writeFile(path.join(run.directory, 'sub/secret.txt'), 'x')
    expect((await held(run)).paths).toEqual(['deep/n.key.txt', 'private/', 'sub/secret.txt'])
  })

  it('let in what a person accepts, then and later, or names for one run [W.02]', async () => {
    const run = await applied({ ...base, '.gitignore': '' })
    expect((await nextRun(run, false, ['my.key.txt'])).taken).toContain('my.key.txt')
    expect((await nextRun(run)).taken).not.toContain('my.key.txt')
    expect((await nextRun(run, true)).taken).toContain('private/customers.csv')
    expect((await nextRun(run)).taken).toContain('private/customers.csv')
    expect(await held(run)).toEqual({ runs: [], paths: [] })
  })

  it('are no matter when a person changes rules by hand, before or after a run does [W.02]', async () => {
    const run = await applied({ ...base, '.gitignore': 'private/\n*.key.txt\nbuild/\n' })
    await writeFile(path.join(run.directory, '.gitignore'), 'build/\n')
    expect((await nextRun(run)).taken).toContain('private/customers.csv')
    expect(await held(run)).toMatchObject({ paths: [] })

    const mixed = await applied({ ...base, '.gitignore': '*.key.txt\n' })
    await writeFile(path.join(mixed.directory, '.gitignore'), 'dist/\n')
    // The run let the folder in, the person the file.
    expect((await held(mixed)).paths).toEqual(['private/'])
  })

  it('are as before where the run is undone, and where the person restores them [W.02 W.01]', async () => {
    const run = await applied({ ...base, '.gitignore': '' })
    await (await run.host.changes(changedRunId)).undo()
    expect(await readFile(path.join(run.directory, '.gitignore'), 'utf8')).toBe(rules)
    expect(await new KeptRules(run.host.folders).of(run.directory)).toEqual([])
    const restored = await applied({ ...base, '.gitignore': '' })
    await writeFile(path.join(restored.directory, '.gitignore'), rules)
    expect(await held(restored)).toMatchObject({ paths: [] })
  })

  it('stay as strict over many runs, whose changes are joined [W.02]', async () => {
    const run = await applied({ ...base, '.gitignore': '' })
    const kept = new KeptRules(run.host.folders)
    for (let at = 0; at < 30; at++)
      await kept.add(run.directory, {
        runId: `run-${String(at).padStart(20, 'a')}`,
        files: [{ path: '.gitignore', before: `x${at}\n`, after: `x${at + 1}\n` }],
      })
    expect(await kept.of(run.directory)).toHaveLength(10)
    expect((await held(run)).paths).toEqual(['my.key.txt', 'private/'])
  })

  it('hold in a directory below or above it too, as workspace and as a further folder [W.02 W.08]', async () => {
    const before: Sketch = {
      'sub/.gitignore': 'secret.txt\n',
      'sub/.git/info/exclude': 'more.txt\n',
      'b.txt': 'b',
    }
    const run = await applied({ 'sub/.gitignore': '', 'sub/.git/info/exclude': '', 'b.txt': 'b' }, before)
    const below = path.join(run.directory, 'sub')
    const above = path.dirname(run.directory)
    await (await run.host.changes(changedRunId)).apply({ paths: ['sub/.git/info/exclude'] })
    for (const name of ['secret.txt', 'more.txt']) await writeFile(path.join(below, name), 'x')
    expect((await run.host.heldByRules(below)).paths).toEqual(['more.txt', 'secret.txt'])
    const leftOf = async (root: string) => {
      const named = [{ name: 'x', root }]
      const scans = await scanFolders(named, run.host.folders, new AbortController().signal)
      if (!scans.ok) throw new Error(scans.error.message)
      return scans.value.flatMap(({ scan }) =>
        scan.leftOut.filter(({ reason }) => reason === 'rules_changed'),
      )
    }
    expect((await leftOf(below)).map(({ path: name }) => name)).toEqual(['more.txt', 'secret.txt'])
    const seenAbove = (await new KeptRules(run.host.folders).of(above)).flatMap(({ files }) => files)
    const name = path.basename(run.directory)
    expect(seenAbove.map((file) => file.path)).toContain(`${name}/sub/.gitignore`)
    // What a person accepts for the directory below holds in the one around it.
    await new KeptRules(run.host.folders).accept(below)
    expect((await held(run)).paths).toEqual([])
    expect(await leftOf(below)).toEqual([])
  })

  it('are asked about at a terminal, with the paths; only a yes lets them in [W.02 H.01]', async () => {
    const run = await applied({ ...base, '.gitignore': '' })
    const answers: Record<string, boolean> = {}
    for (const typed of ['n', 'y', '\u001b']) {
      const person = new Person()
      Object.assign(person.input, { isTTY: true, setRawMode: () => person.input })
      const io = {
        stdin: person.input,
        stdout: person.output,
        stderr: person.output,
        env: run.env,
        version: '0',
      }
      const asked = askRules(io as never, run.host, run.directory, 25)
      await expect.poll(() => person.listens, { interval: 5 }).toBe(true)
      person.type(typed === '\u001b' ? typed : `${typed}\r`)
      answers[typed] = await asked
      expect(person.raw).toContain('private/')
    }
    expect(answers).toEqual({ n: false, y: true, '\u001b': false })
    await rm(path.join(run.directory, 'private'), { recursive: true })
    await rm(path.join(run.directory, 'my.key.txt'))
    const nobody = new Person()
    const io = {
      stdin: nobody.input,
      stdout: nobody.output,
      stderr: nobody.output,
      env: run.env,
      version: '0',
    }
    expect(await askRules(io as never, run.host, run.directory, 25)).toBe(false)
    expect(nobody.raw).toBe('')
  })
})
