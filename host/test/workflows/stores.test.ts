import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { FolderWorkflowStore } from '../../workflows/folder-store.ts'
import { SqliteWorkflowStore } from '../../workflows/sqlite-store.ts'
import { digestOf } from '../../workflows/workflow-file.ts'
import { storeMaxCount, storeTimeoutMs, type WorkflowStore } from '../../workflows/workflow-store.ts'
import { WorkflowError, WorkspaceManager } from '../../workflows/workspace-manager.ts'

const textOf = (name: string, version = '1', says = 'hello'): string =>
  JSON.stringify({
    [`${name}@${version}#details`]: { steps: [{ id: 'a' }] },
    [`${name}@${version}@step-a#details`]: { chat: [{ role: 'user', content: says }] },
  })

const kinds: readonly [string, (home: string) => WorkflowStore][] = [
  ['a folder', (home) => new FolderWorkflowStore(path.join(home, 'store'))],
  ['SQLite', (home) => new SqliteWorkflowStore(path.join(home, 'store', 'workflows.sqlite'))],
]

async function fileWith(text: string | Buffer, home?: string): Promise<string> {
  const file = path.join(home ?? (await temporaryFolder('publish')), 'a.json')
  await writeFile(file, text)
  return file
}

it('a store of the application without the function to remove says so [S3.07]', async () => {
  const store: WorkflowStore = { get: async () => null, list: async () => [], put: async () => undefined }
  await expect(new WorkspaceManager({ store }).remove('A@1')).rejects.toMatchObject({
    code: 'invalid_options',
    message: expect.stringContaining('this store of workflows removes none'),
  })
})

describe.each(kinds)('a store in %s', (_, open) => {
  it('gives what was published, by name, version and digest, also to another process [S3.07]', async () => {
    const home = await temporaryFolder('store')
    const manager = new WorkspaceManager({ store: open(home) })
    expect(await manager.listStored()).toEqual([])
    await expect(manager.load('A@1')).rejects.toThrow(/no workflow "A@1"/)
    const text = textOf('B c', '2.0-rc')
    const stored = await manager.publish(await fileWith(text))
    expect(stored).toEqual({ name: 'B c', version: '2.0-rc', sha256: digestOf(text) })
    await manager.publish(await fileWith(textOf('A')))
    expect(await open(home).get('B c', '2.0-rc')).toBe(text)
    const other = new WorkspaceManager({ store: open(home) })
    expect(await other.load('B c@2.0-rc')).toMatchObject({ agent: 'B c', version: '2.0-rc' })
    expect((await other.listStored()).map(({ name }) => name)).toEqual(['A', 'B c'])
    expect(await open(home).get('B c', '2')).toBeNull()
  })

  it('never changes a version: the same content may come again, other content is refused [S3.07]', async () => {
    const home = await temporaryFolder('store')
    const manager = new WorkspaceManager({ store: open(home) })
    const first = await manager.publish(await fileWith(textOf('A')))
    expect(await manager.publish(await fileWith(textOf('A')))).toEqual(first)
    await expect(manager.publish(await fileWith(textOf('A', '1', 'other')))).rejects.toThrow(
      /A@1 is published with other content \(SHA-256 [0-9a-f]{64}\); publish this under a new version/,
    )
    const store = open(home)
    await store.put({ name: 'A', version: '1', sha256: digestOf('x'), text: 'x' })
    expect(await store.get('A', '1')).toBe(textOf('A'))
  })

  it('removes what no other workflow uses, and then takes other content under the name [S3.07]', async () => {
    const home = await temporaryFolder('store')
    const manager = new WorkspaceManager({ store: open(home) })
    const user = JSON.stringify({
      'User@1#details': { steps: [{ id: 'a' }, { id: 'b' }] },
      'User@1@step-a#details': { workflow: { from: 'A@1' } },
      'User@1@step-b#details': { from: 'B@1@step-a' },
    })
    for (const text of [textOf('A'), textOf('A', '2'), textOf('B'), user])
      await manager.publish(await fileWith(text))
    for (const used of ['A@1', 'B@1'])
      await expect(manager.remove(used)).rejects.toThrow(
        `User@1 of the store uses ${used}; remove that first`,
      )
    await manager.remove('User@1')
    await manager.remove('A@1')
    expect((await manager.listStored()).map(({ name, version }) => `${name}@${version}`)).toEqual([
      'A@2',
      'B@1',
    ])
    await manager.publish(await fileWith(textOf('A', '1', 'other')))
    await expect(manager.remove('User@1')).rejects.toThrow(
      'the store has no workflow "User@1"; caisson workflow list shows',
    )
    await expect(manager.remove('../A')).rejects.toThrow('must be AGENT@VERSION')
  })

  it('has one content where many publish at once, and refuses the others [S3.07]', async () => {
    const home = await temporaryFolder('store')
    const count = perTier(8, 40)
    const files = await Promise.all(
      Array.from({ length: count }, async (__, n) => await fileWith(textOf('A', '1', `content ${n}`))),
    )
    const ends = await Promise.allSettled(
      files.map(async (file) => await new WorkspaceManager({ store: open(home) }).publish(file)),
    )
    const taken = ends.filter(({ status }) => status === 'fulfilled')
    const refused = ends.filter((end) => end.status === 'rejected')
    expect(taken).toHaveLength(1)
    for (const { reason } of refused) expect(reason.message).toMatch(/is published with other content/)
    expect(await open(home).list()).toMatchObject([{ name: 'A', version: '1' }])
  })

  it.each(['../A', '/etc/passwd', '..', '.', 'a\\b', 'a/b'])(
    'refuses the name %j before anything is written [S3.07]',
    async (name) => {
      const home = await temporaryFolder('store')
      const manager = new WorkspaceManager({ store: open(home) })
      for (const text of [textOf(name), textOf('A', name)])
        await expect(manager.publish(await fileWith(text))).rejects.toThrow(/cannot be published/)
      expect(await readdir(home)).toEqual([])
      await expect(manager.load(`${name}@1`)).rejects.toBeInstanceOf(WorkflowError)
      // What the application puts itself stays inside, too.
      await open(home).put({ name, version: '1', sha256: digestOf('x'), text: 'x' })
      expect(await readdir(home)).toEqual(['store'])
    },
  )

  it('publishes only what can run from the store alone [S3.07]', async () => {
    const home = await temporaryFolder('store')
    const manager = new WorkspaceManager({ store: open(home) })
    const using = (from: string) =>
      JSON.stringify({
        'U@1#details': { steps: [{ id: 'a' }] },
        'U@1@step-a#details': { workflow: { from } },
      })
    const beside = await temporaryFolder('beside')
    await writeFile(path.join(beside, 'b.workflow.json'), textOf('B'))
    for (const [from, why] of [
      ['b.workflow.json', /is not AGENT@VERSION/],
      ['B@1', /no workflow "B@1": the store has none/],
      ['U@1', /no workflow "U@1"/],
    ] as const)
      await expect(manager.publish(await fileWith(using(from), beside))).rejects.toThrow(why)
    expect(await manager.listStored()).toEqual([])
    await manager.publish(path.join(beside, 'b.workflow.json'))
    await expect(manager.publish(await fileWith(using('B@1')))).resolves.toMatchObject({ name: 'U' })
  })
})

describe('a store in SQLite', () => {
  it('takes one publisher of several processes [S3.07]', async () => {
    const home = await temporaryFolder('store')
    const file = path.join(home, 'workflows.sqlite')
    const [store, manager] = ['sqlite-store', 'workspace-manager'].map((name) =>
      JSON.stringify(path.join(import.meta.dirname, `../../workflows/${name}.ts`)),
    )
    const publish = async (n: number): Promise<string> => {
      const own = await fileWith(textOf('A', '1', `content ${n}`))
      const code = `const { SqliteWorkflowStore } = await import(${store}); const { WorkspaceManager } = await import(${manager});
const one = new WorkspaceManager({ store: new SqliteWorkflowStore(${JSON.stringify(file)}) })
process.stdout.write(await one.publish(${JSON.stringify(own)}).then(() => 'published', (error) => error.message))`
      const argv = ['--conditions=caisson-source', '--input-type=module', '-e', code]
      const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'], timeout: 60_000 })
      const said = child.stdout.toArray()
      await once(child, 'close')
      return Buffer.concat(await said).toString()
    }
    const said = await Promise.all(Array.from({ length: perTier(4, 12) }, (_, n) => publish(n)))
    expect(said.filter((one) => one === 'published')).toHaveLength(1)
    for (const one of said) expect(one).toMatch(/^published$|is published with other content/)
  }, 120_000)

  it('is for this user alone, and leaves no other file [S3.07]', async () => {
    const home = await temporaryFolder('store')
    const store = new SqliteWorkflowStore(path.join(home, 'deep/workflows.sqlite'))
    await new WorkspaceManager({ store }).publish(await fileWith(textOf('A')))
    expect((await stat(store.file)).mode & 0o777).toBe(0o600)
    expect((await stat(path.dirname(store.file))).mode & 0o777).toBe(0o700)
    expect(await readdir(path.dirname(store.file))).toEqual(['workflows.sqlite'])
  })

  it.each([
    ['no database', () => Buffer.from('this is no database, but a text that is long enough'.repeat(100))],
    ['cut off', (whole: Buffer) => whole.subarray(0, 5_000)],
    ['overwritten in the middle', (whole: Buffer) => Buffer.from(whole).fill(0xab, 4_096, 12_000)],
  ])('that is %s is refused with what to do, and stays as it is [S3.07]', async (_, damage) => {
    const store = new SqliteWorkflowStore(path.join(await temporaryFolder('store'), 'workflows.sqlite'))
    const manager = new WorkspaceManager({ store })
    await manager.publish(await fileWith(textOf('A', '1', 'long '.repeat(2_000))))
    const damaged = damage(await readFile(store.file))
    await writeFile(store.file, damaged)
    const refusal = {
      code: 'state_corrupted',
      message: expect.stringMatching(/the store of workflows .* is damaged/),
      remedy: expect.stringContaining('restore it from a copy'),
    }
    await expect(manager.load('A@1')).rejects.toMatchObject(refusal)
    await expect(manager.listStored()).rejects.toMatchObject(refusal)
    await expect(manager.publish(await fileWith(textOf('B')))).rejects.toMatchObject(refusal)
    expect(await readFile(store.file)).toEqual(damaged)
  })

  it('refuses a text that is not what was published, a newer form, and a file that another program holds [S3.07]', async () => {
    const store = new SqliteWorkflowStore(path.join(await temporaryFolder('store'), 'workflows.sqlite'))
    const manager = new WorkspaceManager({ store })
    await manager.publish(await fileWith(textOf('A')))
    const database = new DatabaseSync(store.file)
    database.prepare('UPDATE workflows SET text = ?').run(textOf('A', '1', 'changed'))
    await expect(manager.load('A@1')).rejects.toMatchObject({
      code: 'state_corrupted',
      message: expect.stringContaining('is not what was published'),
    })
    await manager.remove('A@1')
    expect(await manager.listStored()).toEqual([])
    database.exec('BEGIN EXCLUSIVE')
    await expect(manager.publish(await fileWith(textOf('B')))).rejects.toMatchObject({
      code: 'state_unavailable',
      message: expect.stringContaining('another program holds the store of workflows'),
    })
    database.exec('ROLLBACK; PRAGMA user_version = 9')
    await expect(manager.load('A@1')).rejects.toMatchObject({ code: 'version_mismatch' })
    database.close()
  })

  it('takes no more than it can list [S3.07]', async () => {
    const store = new SqliteWorkflowStore(path.join(await temporaryFolder('store'), 'workflows.sqlite'))
    const manager = new WorkspaceManager({ store })
    await manager.publish(await fileWith(textOf('A')))
    const database = new DatabaseSync(store.file)
    const insert = database.prepare("INSERT INTO workflows VALUES (?, '1', ?, 'x', 0)")
    database.exec('BEGIN')
    for (let n = 1; n < storeMaxCount; n++) insert.run(`w${n}`, digestOf('x'))
    database.exec('COMMIT')
    database.close()
    await expect(manager.publish(await fileWith(textOf('B')))).rejects.toThrow(/takes no more/)
    await expect(manager.publish(await fileWith(textOf('A')))).resolves.toMatchObject({ name: 'A' })
    expect(await manager.listStored()).toHaveLength(storeMaxCount)
  })
})

describe('a store in a folder', () => {
  it('finds files by their content, whatever their names, and leaves no part of one [S3.07]', async () => {
    const folder = await temporaryFolder('store')
    await writeFile(path.join(folder, 'any.workflow.yaml'), textOf('A'))
    await writeFile(path.join(folder, 'broken.workflow.json'), '{')
    const manager = new WorkspaceManager({ store: new FolderWorkflowStore(folder) })
    expect(await manager.listStored()).toMatchObject([{ name: 'A', version: '1' }])
    await manager.publish(await fileWith(textOf('A')))
    await manager.publish(await fileWith(textOf('B')))
    expect((await readdir(folder)).toSorted()).toEqual([
      'B@1.workflow.json',
      'any.workflow.yaml',
      'broken.workflow.json',
    ])
    await writeFile(path.join(folder, 'again.workflow.json'), textOf('A'))
    await expect(manager.load('A@1')).rejects.toThrow(/"A@1" is in again\.workflow\.json and in any/)
    await mkdir(path.join(folder, 'C@1.workflow.json'))
    await expect(manager.publish(await fileWith(textOf('C')))).rejects.toMatchObject({
      code: 'state_unavailable',
      message: expect.stringContaining('does not have C@1 afterwards'),
    })
    await expect(manager.publish(await fileWith(textOf('ä'.repeat(100))))).rejects.toThrow(/too long/)
  })
})

describe('a store of the application', () => {
  afterEach(() => void vi.useRealTimers())

  const storeWith = (parts: Partial<Record<keyof WorkflowStore, unknown>>): WorkspaceManager =>
    new WorkspaceManager({
      store: {
        get: async () => null,
        list: async () => [],
        put: async () => undefined,
        ...parts,
      } as WorkflowStore,
    })

  it.each([
    ['throws', () => Promise.reject(new Error('no network')), /failed \(get\): no network/],
    [
      'throws at once',
      () => {
        throw new TypeError('x is undefined')
      },
      /failed \(get\): x is undefined/,
    ],
    ['gives no text', async () => ({ text: 'x' }), /A@1 of the store is not text/],
    ['gives half a character', async () => '\ud800', /is not text/],
    ['gives no workflow', async () => 'hello', /A@1 of the store cannot run/],
    ['gives another workflow', async () => textOf('B'), /A@1 of the store is the workflow B@1/],
    ['gives another version', async () => textOf('A', '2'), /A@1 of the store is the workflow A@2/],
    ['gives too much', async () => 'x'.repeat(3 * 1024 * 1024), /is longer than/],
    ['gives a deep text', async () => '['.repeat(400_000), /cannot run/],
  ])('that %s ends with an error that says so [S3.07]', async (_, get, why) => {
    await expect(storeWith({ get }).load('A@1')).rejects.toThrow(why)
    await expect(storeWith({ get }).publish(await fileWith(textOf('A')))).rejects.toThrow(why)
  })

  it('that does not answer is given up [S3.07]', async () => {
    const file = await fileWith(textOf('A'))
    for (const [parts, work] of [
      [{ get: () => new Promise(() => undefined) }, (one: WorkspaceManager) => one.load('A@1')],
      [{ list: () => new Promise(() => undefined) }, (one: WorkspaceManager) => one.listStored()],
      [{ put: () => new Promise(() => undefined) }, (one: WorkspaceManager) => one.publish(file)],
    ] as const) {
      vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
      const settled = expect(work(storeWith(parts))).rejects.toMatchObject({
        code: 'state_unavailable',
        message: expect.stringContaining('no answer within'),
      })
      await vi.waitUntil(() => vi.getTimerCount() > 0, { timeout: 10_000 })
      await vi.advanceTimersByTimeAsync(storeTimeoutMs)
      await settled
      vi.useRealTimers()
    }
  })

  it.each([
    ['no list', null],
    ['what is no workflow', [{ name: 'A' }]],
    ['a name of several lines', [{ name: 'A\nB', version: '1', sha256: digestOf('x') }]],
    ['too many', Array.from({ length: storeMaxCount + 1 }, () => null)],
  ])('that lists %s is refused [S3.07]', async (_, list) => {
    await expect(storeWith({ list: async () => list }).listStored()).rejects.toThrow(
      /returned no list of workflows/,
    )
  })

  it('that keeps other content, or nothing, is noticed by its publisher [S3.07]', async () => {
    const file = await fileWith(textOf('A'))
    await expect(storeWith({}).publish(file)).rejects.toThrow(/does not have A@1 afterwards/)
    let asked = 0
    const get = async () => (asked++ === 0 ? null : textOf('A', '1', 'other'))
    await expect(storeWith({ get }).publish(file)).rejects.toThrow(/is published with other content/)
  })

  it.each([null, 5, {}, { get: () => null, list: () => null }])('is refused as %j [H.01]', (store) => {
    expect(() => new WorkspaceManager({ store: store as unknown as WorkflowStore })).toThrow(
      /expected a store of workflows/,
    )
  })
})
