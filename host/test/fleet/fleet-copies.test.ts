// Runs of other hosts, read on a host that has none of them: rows of a real database, and a folder of runs of its own.
import { existsSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import { hostExamples } from '#specs/node/event-examples.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { DirectoryBlobs } from '../../fleet/blob-store.ts'
import { FleetBlobs } from '../../fleet/blobs.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { describeSubmitted, listedOf, RunRows } from '../../fleet/run-rows.ts'
import type { Hold, StoredFile } from '../../fleet/run-table.ts'
import { FleetRuns } from '../../fleet-runs/fleet-runs.ts'
import { RunFold } from '../../journal/run-outline.ts'
import type { ApprovalBounds } from '../../journal/run-query.ts'
import { newRunId, RunStore } from '../../journal/run-store.ts'
import { nameOtherRuns } from '../../runs/other-runs.ts'
import { serviceWorkspaces } from '../../state/folders.ts'
import { headOf, newDatabase, noteOf, rowsBehind, takeNow } from './fleet-place.ts'

let server: PostgresServer
let fleet: Fleet
let runs: RunStore
let blobs: DirectoryBlobs

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

afterAll(() => server[Symbol.asyncDispose]())

beforeEach(async () => {
  const options = { name: 'reader', version: '1', slots: 0, warn: () => undefined }
  fleet = await Fleet.open(await newDatabase(server), options)
  const folder = await temporaryFolder('fleet-copies')
  blobs = new DirectoryBlobs(path.join(folder, 'blobs'))
  runs = new RunStore(
    { runs: path.join(folder, 'runs'), locks: path.join(folder, 'locks') },
    () => undefined,
    new FleetRuns(fleet, blobs).source,
  )
  return () => fleet[Symbol.asyncDispose]()
})

const start = { ...exampleOf('run-start'), prompt: 'sort the files', model: 'm-1', metadata: { team: 'red' } }

it('the journal of a run of another host is read through a copy that grows with it', async () => {
  const { runId, hold } = await newHeldRun()
  await write(hold, [start, noteOf('one')])
  expect((await runs.read(runId)).map(({ event }) => event.type)).toEqual(['run-start', 'vm-keep-failed'])
  const journal = await readFile(runs.paths(runId).journal, 'utf8')
  await write(hold, [noteOf('two')])
  expect((await runs.read(runId)).map(({ seq }) => seq)).toEqual([1, 2, 3])
  expect((await readFile(runs.paths(runId).journal, 'utf8')).startsWith(journal)).toBe(true)
  expect((await runs.fold(runId)).facts.prompt).toBe('sort the files')
  const streamed = []
  for await (const { seq } of runs.stream(runId)) streamed.push(seq)
  expect(streamed).toEqual([1, 2, 3])
})

it('many readers at once make one whole copy', async () => {
  const { runId, hold } = await newHeldRun()
  await write(hold, [start, ...Array.from({ length: 300 }, (_, at) => noteOf(`${at}`))])
  const read = await Promise.all(Array.from({ length: 8 }, () => runs.read(runId)))
  for (const events of read) expect(events).toHaveLength(301)
  const lines = (await readFile(runs.paths(runId).journal, 'utf8')).split('\n')
  expect(lines).toHaveLength(302)
})

it('a copy with a torn line, other lines or without a summary is made right', async () => {
  const { runId, hold } = await newHeldRun()
  await write(hold, [start, noteOf('one')])
  const events = await runs.read(runId)
  const { journal, directory } = runs.paths(runId)
  await writeFile(journal, `${await readFile(journal, 'utf8')}{"seq":3,`)
  expect(await runs.read(runId)).toEqual(events)
  const [first] = rowsBehind(runId, { seq: 0, hash: '0'.repeat(64) }, [start], 7)
  await writeFile(journal, `${first?.body}\n`)
  await writeFile(path.join(directory, 'summary.json'), '{')
  expect(await runs.read(runId)).toEqual(events)
})

it('what this host wrote of its own part after the lines of the fleet gives way to them', async () => {
  const { runId, hold } = await newHeldRun()
  await write(hold, [start, noteOf('one')])
  await runs.read(runId)
  const { journal } = runs.paths(runId)
  const [lost] = rowsBehind(runId, await headOf(fleet.runs, runId), [noteOf('never stored')])
  await writeFile(journal, `${await readFile(journal, 'utf8')}${lost?.body}\n`)
  await write(hold, [noteOf('stored')])
  expect((await runs.read(runId)).at(-1)?.event).toEqual(noteOf('stored'))
})

it('lists and pages have runs of all hosts by what their rows say, newest first', async () => {
  const made = []
  for (const at of [1, 2, 3, 4, 5]) {
    const { runId, hold } = await newHeldRun()
    await write(hold, [start], { at: at * 1_000 })
    made.unshift(runId)
  }
  expect((await runs.list()).map(({ id }) => id)).toEqual(made)
  const first = await runs.page({ limit: 2, filter: { metadata: { team: 'red' }, model: 'm-1' } })
  const second = await runs.page({ limit: 2, cursor: first.nextCursor ?? '' })
  const third = await runs.page({ limit: 2, cursor: second.nextCursor ?? '' })
  expect([first, second, third].flatMap((page) => page.runs.map(({ id }) => id))).toEqual(made)
  expect(third.nextCursor).toBeUndefined()
  expect(first.runs[0]).toMatchObject({
    status: 'running',
    prompt: 'sort the files',
    host: { id: 'other-1' },
  })
  expect(await runs.select({ metadata: { team: 'blue' } })).toEqual([])
  // No copy was made for that, and copies are listed once.
  expect(existsSync(runs.paths(made[0] ?? '').directory)).toBe(false)
  await runs.read(made[0] ?? '')
  expect(await runs.list()).toHaveLength(5)
})

it('who reviews changes with a conflict, or removes a run, reads no list of all runs of the fleet', async () => {
  const home = await temporaryFolder('fleet-copies-home')
  const { source } = new FleetRuns(fleet, blobs)
  const folders = { runs: path.join(home, 'runs'), locks: path.join(home, 'locks'), home }
  const store = new RunStore(folders, () => undefined, source)
  const workspace = path.join(serviceWorkspaces(home), 'workspace-of-a-run')
  const made: string[] = []
  for (const directory of ['/w', '/w', workspace, workspace]) {
    const { runId, hold } = await newHeldRun()
    await write(hold, [{ ...start, directory }, exampleOf('run-end')], { ends: true })
    await fleet.runs.release(hold, false)
    made.push(runId)
  }
  const [here = '', , removed = ''] = made
  for (const runId of [here, removed]) await store.read(runId)
  await mkdir(workspace, { recursive: true })
  const find = vi.spyOn(source, 'find')
  const held = [{ path: 'a', reason: 'it was changed' }]
  expect(await nameOtherRuns(held, { store, runId: removed, root: '/w', sinceMs: 0 })).toEqual(held)
  await store.remove(removed)
  expect(existsSync(workspace)).toBe(true)
  const asked = find.mock.calls.map(([{ ids, filter }]) => ids?.toSorted() ?? filter?.workspace)
  expect(asked).toEqual([[here, removed].toSorted(), workspace])
})

it('each status is found by the filter of its name', async () => {
  const submitted = newRunId()
  await fleet.database.transaction(async (tx) => {
    await fleet.runs.create(tx, submitted)
    await describeSubmitted(tx, submitted, { at: 1, prompt: 'wait', workspace: '/w', model: 'm' })
  })
  const { runId: running, hold } = await newHeldRun()
  await write(hold, [start])
  const { runId: waiting, hold: asked } = await newHeldRun()
  await write(asked, [start, exampleOf('approval-request')])
  const { runId: sleeping, hold: slept } = await newHeldRun()
  await write(slept, [start, exampleOf('approval-request'), exampleOf('run-sleep')])
  await fleet.runs.release(slept, true)
  const { runId: ended, hold: over } = await newHeldRun()
  const end = exampleOf('run-end')
  await write(over, [start, end], { ends: true })
  const found = { queued: submitted, running, waiting, sleeping, [end.outcome]: ended }
  for (const [status, id] of Object.entries(found)) {
    const listed = await runs.select({ status: status as 'queued' })
    expect(
      listed.map((run) => [run.id, run.status]),
      status,
    ).toEqual([[id, status]])
    expect((await runs.summary(id)).status).toBe(status)
  }
  expect(await runs.summary(submitted)).toMatchObject({ prompt: 'wait', workspace: '/w', host: null })
})

it('open questions of other hosts are listed without copies, and read with one', async () => {
  const { runId, hold } = await newHeldRun()
  const asked = exampleOf('approval-request')
  await write(hold, [start, asked])
  const listed = await runs.pendingApprovals()
  expect(listed).toMatchObject([{ runId, approval: { approvalId: asked.request.approvalId } }])
  expect(existsSync(runs.paths(runId).directory)).toBe(false)
  expect(await runs.pendingApprovals(runId)).toEqual(listed)
})

it('a list of questions reads the runs alone that it is about', async () => {
  const asked = exampleOf('approval-request')
  const ids: string[] = []
  for (const team of ['red', 'red', 'blue']) {
    const { runId, hold } = await newHeldRun()
    await write(hold, [{ ...start, metadata: { team } }, asked])
    ids.push(runId)
  }
  const find = vi.spyOn(RunRows.prototype, 'find')
  const listedIds = async (bounds: ApprovalBounds) =>
    (await runs.pendingApprovals(undefined, bounds)).map(({ runId }) => runId)
  expect((await listedIds({ metadata: { team: 'red' } })).sort()).toEqual(ids.slice(0, 2).sort())
  expect(await listedIds({ metadata: { team: 'green' } })).toEqual([])
  expect(await listedIds({ maxRuns: 2 })).toHaveLength(2)
  expect(await listedIds({ metadata: { team: 'blue' }, maxRuns: 2 })).toEqual(ids.slice(2))
  const read = await Promise.all(find.mock.results.map(async ({ value }) => (await value).length))
  expect(read).toEqual([2, 0, 2, 1])
})

it('a run is found by a prefix, and one that the fleet lacks is not', async () => {
  const { runId } = await newHeldRun()
  expect((await runs.find(runId.slice(0, 14))).runId).toBe(runId)
  expect((await runs.find(runId.slice(4, 14))).runId).toBe(runId)
  await expect(runs.find(newRunId())).rejects.toMatchObject({ code: 'run_not_found' })
  expect(await runs.has(runId)).toBe(true)
  expect(await runs.has(newRunId())).toBe(false)
})

it.each([
  ['is no JSON', "'{'"],
  ['is no event', `'{"seq":2}'`],
  ['has another message', "replace(body, 'one', 'two')"],
])('a line of a hostile host that %s is an error of its run alone', async (_, body) => {
  const { runId, hold } = await newHeldRun()
  const { runId: other, hold: held } = await newHeldRun()
  await write(hold, [start, noteOf('one')])
  await write(held, [start])
  await fleet.database.query(`UPDATE caisson.journal SET body = ${body} WHERE run_id = $1 AND seq = 2`, [
    runId,
  ])
  await expect(runs.read(runId)).rejects.toMatchObject({ code: 'state_corrupted' })
  await expect(runs.pendingApprovals(runId)).rejects.toMatchObject({ code: 'state_corrupted' })
  expect(await runs.read(other)).toHaveLength(1)
  expect(await runs.list()).toHaveLength(2)
})

it.each(['{}', '[]', '"text"', '17', '{"startedAt": 1}'])(
  'a run whose outline is %s is listed with its problem',
  async (outline) => {
    const { runId, hold } = await newHeldRun()
    await write(hold, [start])
    await fleet.database.query('UPDATE caisson.runs SET outline = $2::jsonb WHERE run_id = $1', [
      runId,
      outline,
    ])
    const [run] = await runs.list()
    expect(run).toMatchObject({ id: runId, status: 'damaged' })
    expect(run?.problem).toContain('outline')
    expect(await runs.summary(runId)).toMatchObject({ status: 'damaged' })
    expect(await runs.read(runId)).toHaveLength(1)
  },
)

it('damaged runs are found by their status, and pages continue behind them', async () => {
  const made: string[] = []
  for (const at of [1, 2, 3, 4]) {
    const { runId, hold } = await newHeldRun()
    await write(hold, [start], { at: at * 1_000 })
    made.unshift(runId)
  }
  const [, damaged = ''] = made
  const outline = { startedAt: 17 }
  await fleet.database.query('UPDATE caisson.runs SET outline = outline || $2::jsonb WHERE run_id = $1', [
    damaged,
    JSON.stringify(outline),
  ])
  expect((await runs.select({ status: 'damaged' })).map(({ id }) => id)).toEqual([damaged])
  expect((await runs.page({ limit: 1, filter: { status: 'damaged' } })).runs[0]?.problem).toContain(
    'when it began',
  )
  const first = await runs.page({ limit: 2, filter: { status: 'running' } })
  const second = await runs.page({ limit: 2, filter: { status: 'running' }, cursor: first.nextCursor ?? '' })
  expect([...first.runs, ...second.runs].map(({ id }) => id)).toEqual(made.filter((id) => id !== damaged))
  expect((await runs.those([damaged, made[0] ?? '', newRunId()])).map(({ id }) => id).toSorted()).toEqual(
    [damaged, made[0]].toSorted(),
  )
})

it('files of a run are fetched when they are read, and never its options', async () => {
  const { runId, hold } = await newHeldRun()
  const put = async (text: string) => ({
    ...(await new FleetBlobs(fleet.database, blobs).put(() => asPieces(text))),
  })
  const files = [
    { name: 'run.json', ...(await put('{"key":"secret"}')) },
    { name: 'exchanges.jsonl', ...(await put('recording')) },
    { name: 'changes.jsonl', ...(await put('changes')) },
  ]
  await write(hold, [start], { files })
  await runs.fetch(runId)
  const { directory, options, exchanges } = runs.paths(runId)
  expect(await readFile(path.join(directory, 'changes.jsonl'), 'utf8')).toBe('changes')
  expect(await readFile(exchanges, 'utf8')).toBe('recording')
  expect(existsSync(options)).toBe(false)
  await fleet.database.query('UPDATE caisson.runs SET files = $2 WHERE run_id = $1', [
    runId,
    JSON.stringify([{ ...files[0], name: '../../escape' }]),
  ])
  await expect(runs.fetch(runId)).rejects.toMatchObject({ code: 'state_corrupted' })
})

async function newHeldRun(): Promise<{ runId: string; hold: Hold }> {
  const runId = newRunId()
  await fleet.database.transaction((tx) => fleet.runs.create(tx, runId))
  return { runId, hold: await takeNow(fleet.runs, runId, 'other') }
}

/** As the host that has the run does. */
async function write(
  hold: Hold,
  events: readonly HostEvent[],
  {
    at,
    ...what
  }: { readonly at?: number; readonly ends?: boolean; readonly files?: readonly StoredFile[] } = {},
): Promise<void> {
  const { runId } = hold
  const rows = rowsBehind(runId, await headOf(fleet.runs, runId), events, at)
  const before = await fleet.database.query<{ body: string }>(
    'SELECT body FROM caisson.journal WHERE run_id = $1 ORDER BY seq',
    [runId],
  )
  const fold = new RunFold()
  let bytes = 0
  for (const { body } of [...before, ...rows]) {
    bytes += Buffer.byteLength(body) + 1
    const event = JSON.parse(body)
    fold.next(event, { seq: event.seq, hash: event.hash, bytes })
  }
  expect(listedOf(fold.outline)).not.toContain('\\u0000')
  await fleet.runs.append(hold, rows, { ...what, outline: fold.outline })
}

function exampleOf<Type extends HostEvent['type']>(type: Type): Extract<HostEvent, { type: Type }> {
  return { type, ...hostExamples[type][1] } as Extract<HostEvent, { type: Type }>
}

async function* asPieces(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text)
}
