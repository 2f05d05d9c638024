// Lists by the index are those that the summaries give, whatever changed the runs.
import { rm, truncate, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { HostEvent } from '#specs/protocol/event.ts'
import { noUsage } from '#specs/protocol/task.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { HostIndex } from '../../database/host-index.ts'
import { Host } from '../../host.ts'
import type { RunQuery } from '../../journal/run-query.ts'
import { RunStore } from '../../journal/run-store.ts'
import { prepareFolders } from '../../state/folders.ts'
import { beginRun } from '../support/begun-run.ts'

const idOf = (digit: number | string) => `run-${`${digit}`.repeat(20)}`
const end: HostEvent = {
  type: 'run-end',
  ...{ outcome: 'failed', reason: 'internal', message: '', summary: '' },
  ...{ usage: noUsage, durationMs: 1 },
}

/** A host's runs, read with an index and without one. Call it from within a test. */
async function twoLists() {
  const home = await temporaryFolder('run-index')
  const host = new Host({ env: { HOME: home, CAISSON_HOME: path.join(home, 'state') } })
  await prepareFolders(host.folders)
  const file = path.join(host.folders.home, 'index.sqlite')
  const warnings: string[] = []
  const index = await HostIndex.open(file, (warning) => warnings.push(warning))
  onTestFinished(() => index[Symbol.dispose]())
  const indexed = new RunStore(host.folders, () => index)
  const same = async (query: RunQuery = {}) => {
    const page = await indexed.page(query)
    expect(page).toEqual(await host.runs.page(query))
    return page
  }
  const make = async (id: string, metadata = {}, isEnded = true) => {
    const { record } = await beginRun(host, id, `/work/${id.slice(-1)}`, metadata)
    if (isEnded) await record.host(end)
    await record[Symbol.asyncDispose]()
    return host.runs.paths(id)
  }
  return { host, index, indexed, file, same, make, warnings }
}

describe('lists by the index', () => {
  it('are those of the summaries: filters, pages, damaged runs and changes of other processes [S4.12]', async () => {
    const { host, indexed, same, make } = await twoLists()
    expect((await same()).runs).toEqual([])
    for (const digit of [1, 2, 3, 4, 5, 6, 7])
      await make(
        idOf(digit),
        digit % 2 === 0 ? { ticket: 'T-1' } : { ticket: 'T-2', 'caisson.owner': 'ada' },
        digit < 6,
      )
    const damaged = await make(idOf(8))
    await truncate(damaged.journal, 20)
    for (const query of [
      {},
      { filter: { status: 'failed' } },
      { filter: { status: 'interrupted' } },
      { filter: { status: 'damaged' } },
      { filter: { metadata: { ticket: 'T-1' } } },
      { filter: { metadata: { ticket: 'T-2', 'caisson.owner': 'ada' }, status: 'failed' } },
      { filter: { metadata: { __proto__: 'x', ticket: "'; DROP TABLE runs; --" } } },
      { filter: { workspace: '/work/3' } },
      { filter: { model: 'm' } },
      { filter: { model: 'other' } },
    ] as RunQuery[])
      await same(query)
    for (const filter of [{}, { status: 'failed' } as const, { status: 'interrupted' } as const]) {
      const seen: string[] = []
      for (let cursor: string | undefined; ; ) {
        const page = await same({ filter, limit: 2, ...(cursor === undefined ? {} : { cursor }) })
        seen.push(...page.runs.map(({ id }) => id))
        cursor = page.nextCursor
        if (cursor === undefined) break
      }
      expect(seen).toEqual((await indexed.select(filter)).map(({ id }) => id))
    }
    // Other processes write, end and remove runs.
    const { record } = await beginRun(host, idOf(9), '/work/9')
    expect((await same()).runs.find(({ id }) => id === idOf(9))).toMatchObject({ status: 'running' })
    await record.host({ type: 'queue-start', priority: 'low' })
    expect((await same({ filter: { status: 'queued' } })).runs).toMatchObject([{ id: idOf(9) }])
    await record.host({ type: 'queue-end', waitedMs: 1 })
    await record.host(end)
    await record[Symbol.asyncDispose]()
    expect((await same({ filter: { status: 'failed' } })).runs).toHaveLength(6)
    await host.runs.remove(idOf(1))
    await rm(damaged.directory, { recursive: true })
    expect((await same()).runs).toHaveLength(7)
  })

  it('do without a row that is damaged, and without an index that fails [S4.12]', async () => {
    const { file, same, make, warnings } = await twoLists()
    await make(idOf(1))
    await make(idOf(2))
    await same()
    const other = new DatabaseSync(file)
    other.exec(`UPDATE runs SET outline = '{"startedAt":"never"}' WHERE id = '${idOf(1)}'`)
    expect((await same()).runs).toHaveLength(2)
    other.exec('DROP TABLE runs')
    other.close()
    expect((await same()).runs).toHaveLength(2)
    expect(warnings).toHaveLength(1)
  })

  it('do not depend on who made the summary anew [S4.12]', async () => {
    const { same, make } = await twoLists()
    const { directory } = await make(idOf(1))
    await same()
    await writeFile(path.join(directory, 'summary.json'), 'no JSON')
    await same()
    await rm(path.join(directory, 'summary.json'))
    expect((await same({ filter: { status: 'failed' } })).runs).toHaveLength(1)
  })
})
