import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { text } from 'node:stream/consumers'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { openDatabase } from '../../database/database.ts'
import { HostIndex } from '../../database/host-index.ts'
import { migrations } from '../../database/migrations.ts'

const fileOf = async () => path.join(await temporaryFolder('index'), 'index.sqlite')
const versionOf = (database: DatabaseSync) => database.prepare('PRAGMA user_version').get()?.user_version
const row = { runId: 'run-1', lane: 'a', priority: 'normal' }

describe('the database of a host', () => {
  it('is made for this user alone, brought to the newest form, and opened again [S4.12]', async () => {
    const file = await fileOf()
    const first = await openDatabase(file)
    expect([versionOf(first.database), first.warning]).toEqual([migrations.length, undefined])
    first.database.exec("INSERT INTO lanes VALUES ('a', 1)")
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect(statSync(`${file}-wal`).mode & 0o777).toBe(0o600)
    first.database.close()
    const second = await openDatabase(file)
    expect(second.database.prepare('SELECT * FROM lanes').all()).toHaveLength(1)
    second.database.close()
  })

  it('prints nothing of its own to standard error [S4.12]', async () => {
    const file = await fileOf()
    const module = path.join(import.meta.dirname, '../../database/database.ts')
    const code = `const { openDatabase } = await import(${JSON.stringify(module)}); await openDatabase(${JSON.stringify(file)})`
    const child = spawn(process.execPath, ['--conditions=caisson-source', '--input-type=module', '-e', code])
    const [errors, [exit]] = await Promise.all([text(child.stderr), once(child, 'close')])
    expect([errors, exit]).toEqual(['', 0])
  })

  it.each([
    ['no database', () => 'this is no database, but a text that is long enough to be one'.repeat(100)],
    ['cut off', (whole: Buffer) => whole.subarray(0, 5_000)],
    ['overwritten in the middle', (whole: Buffer) => Buffer.from(whole).fill(0xab, 4_096, 20_000)],
  ])('that is %s is set aside and made anew, with a warning [S4.12]', async (_, damage) => {
    const file = await fileOf()
    const first = await openDatabase(file)
    first.database.exec("INSERT INTO lanes VALUES ('a', 1); PRAGMA wal_checkpoint(TRUNCATE)")
    first.database.close()
    writeFileSync(file, damage(readFileSync(file)))
    const { database, warning } = await openDatabase(file)
    expect(warning).toContain('is damaged')
    expect(warning).toContain('made anew from the journals')
    expect(existsSync(`${file}.damaged`)).toBe(true)
    expect(database.prepare('SELECT * FROM lanes').all()).toEqual([])
    database.close()
  })

  it('of a newer version, held by another program, or no file is refused with what to do [S4.12]', async () => {
    const file = await fileOf()
    const { database } = await openDatabase(file)
    database.exec('PRAGMA user_version = 99')
    await expect(openDatabase(file)).rejects.toMatchObject({
      code: 'version_mismatch',
      message: expect.stringContaining('remove the file'),
    })
    database.exec('PRAGMA user_version = 0; BEGIN IMMEDIATE')
    await expect(openDatabase(file)).rejects.toMatchObject({
      code: 'state_unavailable',
      message: expect.stringContaining('another program holds the index'),
    })
    database.exec('ROLLBACK')
    database.close()
    const link = await fileOf()
    symlinkSync(file, link)
    await expect(openDatabase(link)).rejects.toMatchObject({ code: 'state_unavailable' })
  })
})

describe('an index that fails while it is used', () => {
  it('is warned of once, and whoever asks does without it [S4.12]', async () => {
    const file = await fileOf()
    const warnings: string[] = []
    using index = await HostIndex.open(file, (warning) => warnings.push(warning))
    expect(index.queue((table) => table.add(row))).toBe(1)
    const other = new DatabaseSync(file)
    other.exec('DROP TABLE queue')
    other.close()
    expect(index.queue((table) => table.add(row))).toBeUndefined()
    expect(index.runs((table) => table.stamps())).toBeUndefined()
    expect(warnings).toEqual([expect.stringContaining('is not used any more')])
  })

  it('is used again after another process has written [S4.12]', async () => {
    const file = await fileOf()
    const warnings: string[] = []
    using index = await HostIndex.open(file, (warning) => warnings.push(warning))
    const other = new DatabaseSync(file)
    other.exec('BEGIN IMMEDIATE')
    expect(index.queue((table) => table.add(row))).toBeUndefined()
    other.exec('ROLLBACK')
    other.close()
    expect(index.queue((table) => table.add(row))).toBe(1)
    expect(warnings).toEqual([])
  })
})

describe('the order of waiting runs', () => {
  it('is kept: a run that waits again keeps its position, and lanes when they were served [S4.12]', async () => {
    const file = await fileOf()
    const fail = (warning: string) => expect.fail(warning)
    {
      using index = await HostIndex.open(file, fail)
      expect(
        ['run-1', 'run-2', 'run-3'].map((runId) => index.queue((t) => t.add({ ...row, runId }))),
      ).toEqual([1, 2, 3])
      index.queue((table) => table.begin('run-3', 'b', 4))
    }
    using index = await HostIndex.open(file, fail)
    expect(index.queue((table) => table.add({ ...row, runId: 'run-2' }))).toBe(2)
    expect(index.queue((table) => table.add({ ...row, runId: 'run-3' }))).toBeGreaterThan(3)
    expect(index.queue((table) => table.served())).toEqual(new Map([['b', 4]]))
    index.queue((table) => table.keepOnly(new Set(['run-2', 'run-3'])))
    expect([...(index.queue((table) => table.positions()) ?? [])]).toEqual([
      ['run-2', 2],
      ['run-3', expect.any(Number)],
    ])
    index.queue((table) => table.begin('run-2', 'c', 2_000))
    expect(index.queue((table) => table.served())).toEqual(new Map([['c', 2_000]]))
  })
})
