// Lists of runs: what they read, and what they say after a crash.
import { execFileSync, spawnSync } from 'node:child_process'
import {
  type FileHandle,
  mkdir,
  open,
  readFile,
  rm,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises'
import path from 'node:path'
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { summaryFile } from '../../journal/journal-summary.ts'
import type { RunRecord } from '../../journal/run-record.ts'
import { RunStore } from '../../journal/run-store.ts'
import { beginRun } from '../support/begun-run.ts'
import { someCall } from '../support/run-at-work.ts'

const runIdOf = (number: number) => `run-${String(number).padStart(20, '0')}`

/** Runs that began and whose journals were closed. */
async function runsOf(count: number) {
  const home = await temporaryFolder('run-list')
  const env = { HOME: home, CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home }
  const host = new Host({ env })
  for (let number = 1; number <= count; number += 1) {
    const { record } = await beginRun(host, runIdOf(number), home)
    await record[Symbol.asyncDispose]()
  }
  return { host, env }
}

/** Runs at work with large journals, each with one decided approval and one that waits. */
async function runsThatAsk(count: number, journalBytes: number) {
  const home = await temporaryFolder('run-list')
  const host = new Host({ env: { CAISSON_HOME: path.join(home, 'state'), XDG_CONFIG_HOME: home } })
  const records = new Map<string, RunRecord>()
  for (let number = 1; number <= count; number += 1) {
    const runId = runIdOf(number)
    const { record } = await beginRun(host, runId, home)
    onTestFinished(() => record[Symbol.asyncDispose]())
    records.set(runId, record)
    await ask(record, 'decided')
    const text = 'x'.repeat(16_000)
    for (let n = 1; n * text.length < journalBytes; n += 1)
      await record.agent('root', n, { type: 'note', level: 'info', text })
    await ask(record, `ap-${number}`)
    await decide(record, 'decided')
  }
  return { host, records }
}

async function ask(record: RunRecord, approvalId: string): Promise<void> {
  const { runId: _, ...call } = { ...someCall, approvalId, tool: 'delete_file', arguments: '{"path":"a"}' }
  await record.host({ type: 'approval-request', kind: 'cooperative', request: call, digest: 'd'.repeat(64) })
}

async function decide(record: RunRecord, approvalId: string): Promise<void> {
  await record.host({ type: 'approval-decision', approvalId, decision: 'allow', scope: 'once', by: 'person' })
}

/** Counts what this process reads piece by piece, as it reads journals. */
async function countReads() {
  await using handle = await open('/dev/null')
  const read = vi.spyOn(Object.getPrototypeOf(handle) as FileHandle, 'read')
  return async () => {
    const pieces = await Promise.all(read.mock.results.map(({ value }) => value as { bytesRead: number }))
    return pieces.reduce((sum, { bytesRead }) => sum + bytesRead, 0)
  }
}

afterEach(() => void vi.restoreAllMocks())

describe('a list of pending approvals', () => {
  it('reads the lines of the requests, whatever else the journals hold [S2.16]', async () => {
    const { host, records } = await runsThatAsk(12, 1_500_000)
    const sizes = await Promise.all([...records].map(([id]) => stat(host.runs.paths(id).journal)))
    expect(sizes.reduce((sum, { size }) => sum + size, 0)).toBeGreaterThan(18_000_000)
    const read = await countReads()
    const waiting = await host.runs.pendingApprovals()
    expect(waiting.map(({ runId, approval }) => [runId, approval.approvalId])).toEqual(
      [...records.keys()].map((id, at) => [id, `ap-${at + 1}`]),
    )
    expect(waiting[0]?.approval).toMatchObject({ tool: 'delete_file', arguments: '{"path":"a"}' })
    // The requests are near the end; elsewhere a line costs one piece of 256 KiB.
    expect(await read()).toBeLessThan(12 * 4_000)
    expect((await host.runs.list()).map(({ pendingApprovals }) => pendingApprovals)).toEqual(
      Array.from({ length: 12 }, () => 1),
    )
    expect(await read()).toBeLessThan(12 * 4_000)
  })

  it('is complete with a summary that is older than the journal, missing or damaged [S2.16 S0.12]', async () => {
    const { host, records } = await runsThatAsk(1, 50_000)
    const [[runId, record] = expect.fail('no run')] = records
    const file = summaryFile(host.runs.paths(runId).journal)
    const ids = async () =>
      (await host.runs.pendingApprovals(runId)).map(({ approval }) => approval.approvalId)
    const older = await readFile(file, 'utf8')
    await ask(record, 'later')
    await decide(record, 'ap-1')
    const current = JSON.parse(await readFile(file, 'utf8'))
    const [asked] = current.outline.openApprovals
    const withOpen = (...open: object[]) =>
      JSON.stringify({ ...current, outline: { ...current.outline, openApprovals: open } })
    expect(await ids()).toEqual(['later'])
    for (const damaged of [
      older,
      '',
      '{"version":2,"se',
      withOpen({ ...asked, bytes: asked.bytes + 1 }),
      withOpen({ ...asked, bytes: 0, seq: 0, hash: '0'.repeat(64) }),
      withOpen({ ...asked, bytes: 1e9 }),
      withOpen({ ...asked, approvalId: 'other' }),
      withOpen(),
    ]) {
      await writeFile(file, damaged)
      expect(await ids(), damaged).toEqual(['later'])
    }
    await rm(file)
    expect(await ids()).toEqual(['later'])
    await record[Symbol.asyncDispose]()
    expect(await ids()).toEqual([])
  })
})

describe('a list of runs', () => {
  it('reads no journal that has a summary: neither the list, nor last, nor a beginning of an id', async () => {
    const { host, env } = await runsOf(3)
    const before = await host.runs.list()
    expect(before).toHaveLength(3)
    for (const { id } of before) {
      const { journal } = host.runs.paths(id)
      const { length } = await readFile(journal)
      // Of the same length, so that only a reader of its lines could notice.
      await writeFile(journal, Buffer.alloc(length, 0x20))
      await expect(host.runs.read(id)).rejects.toThrow(/journal/)
    }
    expect(await host.runs.list()).toEqual(before)
    expect((await host.runs.find('last', env.HOME)).runId).toBe(before[0]?.id)
    expect(await host.runs.summary(runIdOf(2))).toMatchObject({ prompt: 'p' })
  })

  it('makes a summary that is missing or damaged anew from the journal, once', async () => {
    const { host } = await runsOf(2)
    const before = await host.runs.list()
    const file = (number: number) => summaryFile(host.runs.paths(runIdOf(number)).journal)
    await rm(file(1))
    await writeFile(file(2), 'x')
    expect(await host.runs.list()).toEqual(before)
    for (const number of [1, 2])
      expect(JSON.parse(await readFile(file(number), 'utf8'))).toMatchObject({ seq: 1, closed: false })
  })

  it('names a summary that is too large, skips a file in place of a run, and lists the others [S0.12]', async () => {
    const { host } = await runsOf(2)
    await truncate(summaryFile(host.runs.paths(runIdOf(1)).journal), 3 * 1024 ** 3)
    await writeFile(host.runs.paths(runIdOf(3)).directory, 'a file in place of a run')
    const listed = new Map((await host.runs.list()).map(({ id, problem }) => [id, problem]))
    expect(listed.get(runIdOf(1))).toMatch(/has 3221225472 bytes; expected at most/)
    expect([...listed.keys()].sort()).toEqual([runIdOf(1), runIdOf(2)])
    expect(listed.get(runIdOf(2))).toBeUndefined()
  })

  it('names a FIFO, a device or a directory in place of a journal or a summary, and waits for none [S0.12 E.01]', async () => {
    const { host } = await runsOf(5)
    const places = [1, 2, 3].map((number) => host.runs.paths(runIdOf(number)).journal)
    const [fifo = '', device = '', directory = ''] = places
    const summary = summaryFile(host.runs.paths(runIdOf(4)).journal)
    for (const file of [...places, ...places.map(summaryFile), summary]) await rm(file)
    for (const file of [fifo, summary]) execFileSync('mkfifo', [file])
    await symlink('/dev/zero', device)
    await mkdir(directory)
    const listed = new Map((await host.runs.list()).map(({ id, problem }) => [id, problem]))
    expect(listed.get(runIdOf(5))).toBeUndefined()
    for (const number of [1, 2, 3]) {
      expect(listed.get(runIdOf(number))).toContain('is not a regular file')
      await expect(host.runs.read(runIdOf(number))).rejects.toMatchObject({ code: 'state_corrupted' })
      await expect(host.changes(runIdOf(number))).rejects.toMatchObject({ code: 'state_corrupted' })
    }
    expect(listed.has(runIdOf(4))).toBe(true)
  })

  it('names what is wrong with a journal that is gone, emptied or longer than it was [S0.12]', async () => {
    const { host } = await runsOf(3)
    const journal = (number: number) => host.runs.paths(runIdOf(number)).journal
    await rm(journal(1))
    await writeFile(journal(2), '')
    await writeFile(journal(3), `${await readFile(journal(3), 'utf8')}\0\0\0`)
    const problems = new Map((await host.runs.list()).map(({ id, problem }) => [id, problem]))
    expect(problems.get(runIdOf(1))).toMatch(/there is no journal .*caisson runs rm/)
    expect(problems.get(runIdOf(2))).toMatch(/lost lines/)
    expect(problems.get(runIdOf(3))).toMatch(/modified after it was closed/)
  })

  it.runIf(process.platform === 'linux')(
    'of far more runs than files may be open is complete',
    async () => {
      const { host, env } = await runsOf(120)
      const bin = path.join(import.meta.dirname, '../../cli/bin.ts')
      const child = spawnSync(
        'prlimit',
        ['--nofile=64:64', process.execPath, '--conditions=caisson-source', bin, 'runs', 'list', '--json'],
        { env: { ...process.env, ...env }, encoding: 'utf8', timeout: 60_000 },
      )
      expect(child.stderr).toBe('')
      const listed = child.stdout
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { problem?: string })
      expect(listed).toHaveLength(120)
      expect(listed.filter(({ problem }) => problem !== undefined)).toEqual([])
      expect(await host.runs.list()).toHaveLength(120)
    },
    90_000,
  )

  it('fails where a run cannot be looked at, and calls nothing damaged for it [S0.12]', async () => {
    const home = await temporaryFolder('run-list')
    const folders = { runs: path.join(home, 'runs'), locks: path.join(home, 'locks') }
    // A link to itself stands for a system that refuses.
    const directory = path.join(folders.runs, runIdOf(1))
    await mkdir(directory, { recursive: true, mode: 0o700 })
    await symlink('summary.json', path.join(directory, 'summary.json'))
    await expect(new RunStore(folders).list()).rejects.toThrow(/ELOOP/)
  })
})
