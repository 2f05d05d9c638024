// The API of a fleet at nodes that do not carry a run out.
import { access, mkdir, readdir, readFile, rm, symlink } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { expect, it, vi } from 'vitest'
import type { ServiceError } from '../../client/index.ts'
import { encodeEntry } from '../../host/control/tar.ts'
import type { FeedItem } from '../../host/journal/run-feed.ts'
import {
  eventsOf,
  model,
  node,
  nodes,
  refusalOf,
  restartDatabase,
  start,
  startEnded,
  statusOf,
  useThreeNodes,
  waiting,
  words,
  workspace,
} from './three-nodes.ts'

useThreeNodes()

function tarOf(name: string, content: string): Blob {
  const data = Buffer.from(content)
  const entry = {
    path: name,
    type: 'file' as const,
    mode: 0o644,
    mtimeMs: 0,
    size: data.byteLength,
    target: '',
  }
  const padding = Buffer.alloc((512 - (data.byteLength % 512)) % 512)
  return new Blob([Buffer.concat([encodeEntry(entry), data, padding, Buffer.alloc(1024)])])
}

it('a run of another host is shown, listed in pages, waited for, and read event by event', async () => {
  const run = await start({ workspace })
  const { client } = node(1)
  const params = { run }
  const shown = await client.call('getRun', { params, query: { waitMs: '60000', until: 'end' } })
  expect(shown).toMatchObject({ status: 'completed', prompt: 'please write' })
  const result = await client.call('getResult', { params, query: { waitMs: '10000' } })
  expect(result).toMatchObject({ outcome: 'completed', changes: { entries: 1 } })
  for (const at of [0, 2]) expect(await node(at).client.call('getResult', { params })).toEqual(result)
  const all = (await client.call('listEvents', { params, query: { limit: '1000' } })).events
  const some = await client.call('listEvents', { params, query: { from: '3', limit: '2' } })
  expect(some.events.map(({ seq }) => seq)).toEqual([3, 4])
  expect((await node(0).client.call('listEvents', { params, query: { limit: '1000' } })).events).toEqual(all)
  const other = await startEnded({ workspace })
  const filter = { workspace, status: 'completed', limit: '1' }
  const first = await client.call('listRuns', { query: filter })
  const second = await client.call('listRuns', { query: { ...filter, cursor: first.nextCursor ?? '' } })
  expect([...first.runs, ...second.runs].map(({ id }) => id)).toEqual([other, run])
  expect((await client.call('listRuns', { query: { status: 'failed' } })).runs).toEqual([])
}, 120_000)

it('whoever starts a run waits for its end at once, also where the same host takes it', async () => {
  const { client } = node(0)
  const plan = {
    goal: 'write',
    steps: [{ id: 'write', title: 'write', instructions: 'do write', writes: ['made.txt'] }],
  }
  for (let round = 0; round < 3; round += 1) {
    const body = { prompt: 'please write', plan: { from: plan as never }, workspace }
    const vm = { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2 }
    const { id } = await client.call('createRun', { body: { ...body, vm } })
    const params = { run: id }
    const result = await client.call('getResult', { params, query: { waitMs: '60000' } })
    expect(result).toMatchObject({ runId: id, outcome: 'completed' })
  }
}, 120_000)

it('events are followed from a number on over a restart of PostgreSQL, each once', async () => {
  model.hold()
  const run = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  const seen: number[] = []
  const followed = (async () => {
    for await (const item of node(2).client.events(run, { from: 2 }))
      if (item.source !== 'delta') seen.push(item.seq)
  })()
  await expect.poll(() => seen.length, waiting).toBeGreaterThan(0)
  await restartDatabase()
  model.release()
  await followed
  const { events } = await node(0).client.call('listEvents', {
    params: { run },
    query: { from: '2', limit: '1000' },
  })
  expect(seen).toEqual(events.map(({ seq }) => seq))
  expect(events.at(-1)?.event).toMatchObject({ type: 'run-end', outcome: 'completed' })
}, 120_000)

it('what a model writes is followed at nodes that do not carry the run out, also by one that comes late', async ({
  annotate,
}) => {
  model.startTelling()
  const run = await start({ step: 'tell', workspace })
  const client = (at: number) => readText(node(at).client.events(run))
  const [first, other] = [client(0), client(2)]
  const handle = await vi.waitUntil(async () => await node(0).host.attach(run), waiting)
  const own = readText(handle.watch())
  await expect.poll(() => other.text.length, waiting).toBeGreaterThan(0)
  const late = client(1)
  for (const reader of [own, first, late])
    await expect.poll(() => reader.text.length, waiting).toBeGreaterThan(0)
  model.finishTelling()
  await Promise.all([own, first, other, late].map(({ ended }) => ended))
  // What came in the last quarter of a second before the turn ended is in its event alone.
  for (const { text, afterEnd } of [own, first, other, late]) {
    expect(text.length).toBeGreaterThan(words.join('').length / 2)
    expect(words.join('').startsWith(text)).toBe(true)
    expect(afterEnd).toBe(0)
  }
  const ownAt = (length: number) => own.times.find(([has]) => has >= length)?.[1] ?? Number.NaN
  const lags = other.times.map(([length, at]) => Math.round(at - ownAt(length))).sort((a, b) => a - b)
  await annotate(`lag of a delta at another node, ms: ${lags.join(', ')}`)
}, 120_000)

/** What a reader sees of the text while it is written. */
function readText(items: AsyncIterable<FeedItem>) {
  const read = { text: '', times: [] as [number, number][], afterEnd: 0, ended: Promise.resolve() }
  read.ended = (async () => {
    let hasEnded = false
    for await (const item of items) {
      if (item.source === 'agent' && item.event.type === 'turn-end') hasEnded = true
      if (item.source !== 'delta' || item.delta.type !== 'text-delta') continue
      if (hasEnded) read.afterEnd += 1
      expect(item.delta.offset).toBe(read.text.length)
      read.text += item.delta.text
      read.times.push([read.text.length, performance.now()])
    }
  })()
  return read
}

it('consume once: of answers from three nodes at once to a run at work, and to one that sleeps, one counts [R.01]', async () => {
  for (const sleepAfterMs of [undefined, 200]) {
    const run = await start({
      workspace,
      asks: true,
      ...(sleepAfterMs === undefined ? {} : { sleepAfterMs }),
    })
    const wanted = sleepAfterMs === undefined ? 'waiting' : 'sleeping'
    await expect.poll(() => statusOf(run, 2), waiting).toBe(wanted)
    const { approvals } = await node(1).client.call('listApprovals', { query: {} })
    const approval = approvals.find(({ runId }) => runId === run)?.approval.approvalId ?? ''
    const given = nodes.map(async ({ client }) =>
      client.call('answerApproval', {
        params: { run, approval },
        body: { decision: 'allow', scope: 'once' },
      }),
    )
    const settled = await Promise.allSettled(given)
    expect(settled.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    for (const one of settled)
      if (one.status === 'rejected')
        // The run may have ended by the time that it comes.
        expect((one.reason as ServiceError).problem).toMatchObject({
          status: 409,
          code: expect.stringMatching(/^(decided|not_possible_now)$/),
        })
    await expect.poll(() => statusOf(run, 2), waiting).toBe('completed')
  }
}, 120_000)

it('a run that is going to sleep is cancelled, by its own host and by another', async () => {
  for (const at of [0, 1, 0, 1]) {
    const run = await start({ workspace, asks: true, sleepAfterMs: 200 })
    const handle = await vi.waitUntil(() => node(0).host.attach(run), waiting)
    for await (const item of handle.watch())
      if (item.source === 'host' && item.event.type === 'run-sleep') break
    await node(at).client.call('cancelRun', { params: { run }, body: {} })
    await expect.poll(() => statusOf(run, 2), waiting).toBe('cancelled')
  }
}, 120_000)

it('a run at work elsewhere is steered, paused, continued and cancelled', async () => {
  model.hold()
  const asked = () => model.asks('hang')
  const before = asked()
  const run = await start({ step: 'hang', workspace })
  const params = { run }
  const { client } = node(1)
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  await expect.poll(asked, waiting).toBeGreaterThan(before)
  await client.call('sendMessage', { params, body: { text: 'Use tabs.' } })
  await client.call('pauseRun', { params })
  await client.call('unpauseRun', { params })
  expect(await refusalOf(client.call('resumeRun', { params }))).toMatchObject({
    status: 409,
    code: 'run_busy',
  })
  await node(2).client.call('cancelRun', { params, body: { now: true } })
  await expect.poll(() => statusOf(run), waiting).toBe('cancelled')
  const { events } = await client.call('listEvents', { params, query: { limit: '1000' } })
  const types = events.map(({ event }) => event.type)
  expect(types).toEqual(
    expect.arrayContaining(['steer-request', 'pause-request', 'resume-request', 'cancel-request']),
  )
}, 120_000)

it('a run that waits in the queue, or sleeps, is cancelled by any node', async () => {
  model.hold()
  const busy = [await start({ step: 'hang', workspace }), await start({ step: 'hang', workspace })]
  for (const run of busy) await expect.poll(() => statusOf(run), waiting).toBe('running')
  const queued = await start({ workspace })
  expect(await statusOf(queued)).toBe('queued')
  await node(2).client.call('cancelRun', { params: { run: queued }, body: {} })
  expect(await statusOf(queued, 0)).toBe('cancelled')
  expect(
    await refusalOf(node(1).client.call('cancelRun', { params: { run: queued }, body: {} })),
  ).toMatchObject({
    status: 409,
  })
  model.release()
  for (const run of busy) await node(2).client.call('cancelRun', { params: { run }, body: { now: true } })
  for (const run of busy) await expect.poll(() => statusOf(run), waiting).not.toBe('running')
  const sleeping = await start({ workspace, asks: true, sleepAfterMs: 200 })
  await expect.poll(() => statusOf(sleeping), waiting).toBe('sleeping')
  await node(2).client.call('cancelRun', { params: { run: sleeping }, body: {} })
  expect(await statusOf(sleeping)).toBe('cancelled')
}, 120_000)

it('a run that sleeps is queued by a resume at any node, once', async () => {
  const run = await start({ workspace, asks: true, sleepAfterMs: 200 })
  await expect.poll(() => statusOf(run), waiting).toBe('sleeping')
  const tried = await Promise.allSettled(
    nodes.map(async ({ client }) => client.call('resumeRun', { params: { run } })),
  )
  expect(tried.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
  await expect
    .poll(async () => {
      const { events } = await node(1).client.call('listEvents', {
        params: { run },
        query: { limit: '1000' },
      })
      return events.filter(({ event }) => event.type === 'run-resume').length
    }, waiting)
    .toBe(1)
  await node(2).client.call('cancelRun', { params: { run }, body: { now: true } })
  await expect.poll(() => statusOf(run), waiting).toBe('cancelled')
}, 120_000)

it('changes are read, explained, fetched and applied where the run never was, and undone there alone', async () => {
  const run = await startEnded({ workspace })
  const params = { run }
  const { client } = node(1)
  const { changes } = await client.call('listChanges', { params })
  expect(changes).toMatchObject([{ path: 'made.txt' }])
  expect(await client.call('getPatch', { params })).toContain('+made')
  const blamed = await client.call('blameLines', { params, query: { path: 'made.txt' } })
  expect(blamed.lines).toHaveLength(1)
  const archive = await client.call('getChangedFiles', { params })
  expect((await buffer(archive as never)).includes('made')).toBe(true)
  const applied = await client.call('applyChanges', { params, body: { select: 'all' } })
  expect(applied).toMatchObject({ applied: ['made.txt'] })
  expect(await readFile(path.join(workspace, 'made.txt'), 'utf8')).toBe('made\n')
  expect(await node(0).client.call('getRun', { params })).toMatchObject({ applied: 1 })
  for (const at of [0, 2])
    expect(await refusalOf(node(at).client.call('undoChanges', { params }))).toEqual({
      ...{ status: 409, code: 'not_possible_now' },
      detail: `the changes of ${run} were applied on the host two of the fleet`,
      remedy: expect.stringContaining('send the request to the service of two'),
    })
  expect(await client.call('undoChanges', { params })).toMatchObject({ restored: ['made.txt'] })
  await expect(access(path.join(workspace, 'made.txt'))).rejects.toThrow()
}, 120_000)

it.each(['empty', 'uploaded'] as const)(
  'changes to a workspace that is %s are applied on a host that makes it, and a run that continues has them',
  async (kind) => {
    const uploaded =
      kind === 'uploaded'
        ? await node(1).client.call('createWorkspace', { body: tarOf('given.txt', 'given\n') as never })
        : undefined
    const run = await startEnded(uploaded === undefined ? {} : { uploadedWorkspace: uploaded.id })
    const { client, home } = node(2)
    const { directory } = await client.call('listChanges', { params: { run } })
    expect(directory.startsWith(home)).toBe(true)
    const applied = await client.call('applyChanges', { params: { run }, body: { select: 'all' } })
    expect(applied).toMatchObject({ applied: ['made.txt'], conflicts: [] })
    expect(await readFile(path.join(directory, 'made.txt'), 'utf8')).toBe('made\n')
    expect(await refusalOf(start({ continue: run }))).toMatchObject({
      status: 409,
      detail: `what was applied of ${run} is not on this host alone; the host three of the fleet wrote to it last`,
      remedy: 'send the request to the host that applied all of it, or name a workspace',
    })
    // It makes the same file again, which is no change.
    const next = { run: await start({ continue: run }, 2) }
    await expect.poll(() => statusOf(next.run), waiting).toBe('completed')
    expect((await client.call('listChanges', { params: next })).changes).toEqual([])
    await client.call('undoChanges', { params: { run } })
    expect(await startEnded({ continue: run })).toMatch(/^run-/)
  },
  120_000,
)

it('runs are compared, merged, traced, exported and replayed where they never were', async () => {
  const [one, other] = [await startEnded({ workspace }), await startEnded({ workspace })]
  const { client, host } = node(2)
  const compared = await client.call('compareRuns', { query: { runs: `${one},${other}` as never } })
  expect(compared.paths).toMatchObject([{ path: 'made.txt' }])
  const merged = await client.call('mergeRuns', { body: { runs: [one, other] } })
  expect(merged).toMatchObject({ entries: 1, conflicts: [] })
  // It is a run of the fleet.
  const ofMerged = { params: { run: merged.runId ?? '' } }
  expect(await node(0).client.call('getRun', ofMerged)).toMatchObject({ status: 'completed' })
  const { changes } = await node(1).client.call('listChanges', ofMerged)
  expect(changes).toMatchObject([{ path: 'made.txt' }])
  expect(await host.trace(one)).toMatchObject([{ tool: 'run_bash' }])
  const archive = new PassThrough()
  const [, written] = await Promise.all([host.exportRun(one, archive), buffer(archive)])
  expect(written.length).toBeGreaterThan(1_000)
  const replay = await host.replay(one)
  expect(await replay.result()).toMatchObject({ isSame: true, difference: null })
}, 120_000)

it('a directory that was exchanged for a link before its run began is refused by each host, as the run says', async () => {
  model.hold()
  const [project, other] = [path.join(workspace, 'project'), path.join(workspace, 'other')]
  for (const directory of [project, other]) await mkdir(directory)
  const busy = [await start({ step: 'hang', workspace }), await start({ step: 'hang', workspace })]
  for (const run of busy) await expect.poll(() => statusOf(run), waiting).toBe('running')
  const run = await start({ workspace: project })
  await rm(project, { recursive: true })
  await symlink(other, project)
  for (const each of busy)
    await node(1).client.call('cancelRun', { params: { run: each }, body: { now: true } })
  await expect.poll(() => statusOf(run), waiting).toBe('failed')
  const { message } = await node(1).client.call('getResult', { params: { run } })
  expect(message).toContain(`the workspace "${project}" is a link, or below one: it leads to "${other}"`)
  expect(await readdir(other)).toEqual([])
}, 120_000)

it.each([0, 1])(
  'forks and rewound runs that node %i makes are runs of the fleet, which any node wakes and a host continues',
  async (at) => {
    const run = await startEnded({ workspace })
    const params = { run }
    const { client } = node(at)
    const { runIds } = await client.call('forkRun', {
      params,
      body: { at: 'write', count: 2, prompts: ['use tabs'] },
    })
    const { runIds: fromStart } = await client.call('forkRun', { params, body: { at: 'start' } })
    const { runId: rewound } = await client.call('rewindRun', { params, body: { to: 'write' } })
    const all = [...runIds, ...fromStart, rewound]
    for (const id of all) {
      const shown = await node(2).client.call('getRun', { params: { run: id } })
      expect(shown).toMatchObject({ status: 'sleeping', forkedFrom: run, prompt: 'please write' })
      const woken = await Promise.allSettled(
        nodes.map(async (one) => await one.client.call('resumeRun', { params: { run: id } })),
      )
      expect(woken.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    }
    for (const id of all) {
      await expect.poll(() => statusOf(id, 1), waiting).toBe('completed')
      const { changes } = await node(2).client.call('listChanges', { params: { run: id } })
      expect(changes).toMatchObject([{ path: 'made.txt' }])
    }
    expect(await refusalOf(client.call('resumeRun', { params }))).toMatchObject({
      status: 409,
      detail: `${run} has ended`,
    })
  },
  120_000,
)

it('a run at work elsewhere is forked at this moment and rewound by any node, also one that sleeps', async () => {
  model.hold()
  const run = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  await expect
    .poll(async () => (await eventsOf(run)).map(({ type }) => type), waiting)
    .toContain('step-start')
  const params = { run }
  const forked = await node(1).client.call('forkRun', { params, body: { at: 'now' } })
  expect(forked).toMatchObject({ step: 'now', runIds: [expect.anything()] })
  const stored = await node(2).client.call('forkRun', { params, body: { at: 'hang' } })
  expect(await statusOf(run)).toBe('running')
  const rewound = await node(2).client.call('rewindRun', { params, body: { to: 'hang', prompt: 'use tabs' } })
  await expect.poll(() => statusOf(run), waiting).toBe('cancelled')
  model.release()
  for (const id of [...forked.runIds, ...stored.runIds, rewound.runId]) {
    await node(2).client.call('resumeRun', { params: { run: id } })
    await expect.poll(() => statusOf(id), waiting).toBe('completed')
  }
  const sleeping = await start({ workspace, asks: true, sleepAfterMs: 200 })
  await expect.poll(() => statusOf(sleeping), waiting).toBe('sleeping')
  const next = await node(2).client.call('rewindRun', { params: { run: sleeping }, body: { to: 'write' } })
  expect(await statusOf(sleeping)).toBe('cancelled')
  await node(1).client.call('resumeRun', { params: { run: next.runId } })
  await expect.poll(() => statusOf(next.runId), waiting).toBe('sleeping')
  await node(1).client.call('cancelRun', { params: { run: next.runId }, body: {} })
}, 120_000)

it('a run is removed by any node, and then no node has it, also none with a copy', async () => {
  const run = await startEnded({ workspace })
  const params = { run }
  for (const { client } of nodes) await client.call('listChanges', { params })
  await node(2).client.call('removeRun', { params })
  for (const { client } of nodes) {
    expect(await refusalOf(client.call('getRun', { params }))).toMatchObject({ status: 404 })
    expect(await refusalOf(client.call('listEvents', { params }))).toMatchObject({ status: 404 })
    expect(await refusalOf(client.call('listChanges', { params }))).toMatchObject({ status: 404 })
  }
  model.hold()
  const busy = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(busy), waiting).toBe('running')
  expect(await refusalOf(node(2).client.call('removeRun', { params: { run: busy } }))).toMatchObject({
    ...{ status: 409, detail: `${busy} has not ended, so it is not removed` },
    remedy: expect.stringContaining('cancel it first'),
  })
  await node(2).client.call('cancelRun', { params: { run: busy }, body: { now: true } })
  await expect.poll(() => statusOf(busy), waiting).toBe('cancelled')
}, 120_000)
