// Lists of runs by what the application said of them, in parts.
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { Host } from '../../host.ts'
import { readFilters } from '../../journal/run-query.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { prepareFolders } from '../../state/folders.ts'
import { runStart } from '../support/run-values.ts'

/** Ended runs, one millisecond after the other, each with a ticket and one of two tenants. */
async function hostWithRuns(count: number): Promise<Host> {
  const host = new Host({ env: { CAISSON_HOME: await temporaryFolder('query'), PATH: process.env.PATH } })
  await prepareFolders(host.folders)
  for (let index = 0; index < count; index += 1) {
    const runId = `run-${String(index).padStart(20, '0')}`
    await using record = await RunRecord.open(await host.runs.create(runId), { now: () => 1_000 + index })
    const metadata = { tenant: index % 2 === 0 ? 'acme' : 'umbrella', ticket: `T-${index}` }
    await record.host({ ...runStart, metadata })
  }
  return host
}

describe('a page of runs', () => {
  it('has the newest first, says where the next begins, and all pages have each run once [H.01]', async () => {
    const { runs } = await hostWithRuns(7)
    const seen: string[] = []
    let cursor: string | undefined
    do {
      const page = await runs.page({ limit: 3, ...(cursor === undefined ? {} : { cursor }) })
      seen.push(...page.runs.map(({ metadata }) => metadata?.ticket ?? ''))
      cursor = page.nextCursor
    } while (cursor !== undefined)
    expect(seen).toEqual(['T-6', 'T-5', 'T-4', 'T-3', 'T-2', 'T-1', 'T-0'])
  })

  it('has only runs with the status and the metadata of the filter [H.01]', async () => {
    const { runs } = await hostWithRuns(4)
    const ticketsOf = async (filter: object) =>
      (await runs.page({ filter })).runs.map(({ metadata }) => metadata?.ticket)
    expect(await ticketsOf({ metadata: { tenant: 'acme' } })).toEqual(['T-2', 'T-0'])
    expect(await ticketsOf({ metadata: { tenant: 'acme', ticket: 'T-2' } })).toEqual(['T-2'])
    expect(await ticketsOf({ metadata: { constructor: 'x' } })).toEqual([])
    expect(await ticketsOf({ status: 'interrupted' })).toHaveLength(4)
    expect(await ticketsOf({ status: 'completed' })).toEqual([])
  })

  it('has a fork where it was made, although its journal starts with the other run; it is the last of its directory [H.01 V.05]', async () => {
    const host = await hostWithRuns(4)
    const runId = 'run-00000000000000000fff'
    {
      await using record = await RunRecord.open(await host.runs.create(runId), { now: () => 1_000 })
      const forkedFrom = { runId: 'run-00000000000000000000', checkpointId: null, step: 'start', at: 1_002 }
      await record.host({
        ...runStart,
        metadata: { ticket: 'fork' },
        forkedFrom: { ...forkedFrom, by: 'me' },
      })
    }
    const ticketsOf = async (cursor: string | undefined) => {
      const page = await host.runs.page({ limit: 2, ...(cursor === undefined ? {} : { cursor }) })
      return { tickets: page.runs.map(({ metadata }) => metadata?.ticket), next: page.nextCursor }
    }
    const first = await ticketsOf(undefined)
    const second = await ticketsOf(first.next)
    const third = await ticketsOf(second.next)
    expect([first, second, third].map(({ tickets }) => tickets)).toEqual([
      ['T-3', 'T-2'],
      ['fork', 'T-1'],
      ['T-0'],
    ])
    expect((await host.runs.list())[2]).toMatchObject({ id: runId, startedAt: 1_000, forkedAt: 1_002 })
    await host.runs.remove('run-00000000000000000003')
    await host.runs.remove('run-00000000000000000002')
    expect(await host.runs.find('last', runStart.directory)).toMatchObject({ runId })
  })

  it('refuses a query of another form by the name of the field [H.01]', async () => {
    const { runs } = await hostWithRuns(0)
    await expect(runs.page({ cursor: 'x' })).rejects.toThrow('cursor')
    await expect(runs.page({ limit: 0 })).rejects.toThrow('limit')
    await expect(runs.page({ filter: { state: 'x' } as never })).rejects.toThrow('filter.state')
    expect(() => readFilters(['color=red'])).toThrow('expected status=STATUS')
    expect(readFilters(['status=running', 'metadata=a=b=c'])).toEqual({
      status: 'running',
      metadata: { a: 'b=c' },
    })
    expect(readFilters(['workspace=../app'], '/home/me/docs')).toEqual({ workspace: '/home/me/app' })
  })
})
