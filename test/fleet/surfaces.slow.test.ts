// Three services of a fleet with state folders of their own, over HTTP, with PostgreSQL and a program in the place of QEMU.
// The first one carries runs out; callers ask the other two, which have none of them.
import { access, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { ServiceClient, type ServiceError } from '../../client/index.ts'
import { encodeEntry } from '../../host/control/tar.ts'
import { parseFleetAddress } from '../../host/fleet/address.ts'
import { FleetMember } from '../../host/fleet-member.ts'
import { Host } from '../../host/host.ts'
import type { FeedItem } from '../../host/journal/run-feed.ts'
import { Service } from '../../host/service/service.ts'
import { commandsIn } from '../../host/test/support/run-command.ts'
import { type InstalledMachine, installMachine } from '../recovery/machine/install.ts'
import { PostgresServer } from '../support/postgres.ts'

interface Node extends AsyncDisposable {
  readonly host: Host
  readonly client: ServiceClient
  readonly home: string
}

const waiting = { timeout: 60_000, interval: 100 }
let folder: string
let machine: InstalledMachine
let server: PostgresServer
let model: Awaited<ReturnType<typeof startModelServer>>
let nodes: Node[]
let workspace: string
let released = false
/** When everybody who follows the step "tell" has some of its text. */
let isHeard = Promise.withResolvers<void>()

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-surfaces-'))
  machine = await installMachine(folder)
  // QEMU is looked for in that of the process.
  vi.stubEnv('PATH', `${machine.programs}:${process.env.PATH ?? ''}`)
  server = await PostgresServer.start()
  model = await startModelServer((asked) => answer(asked))
  workspace = path.join(folder, 'workspace')
  await mkdir(workspace)
  await writeFile(path.join(workspace, 'given.txt'), 'given\n')
  nodes = [await openNode('one', 2), await openNode('two', 0), await openNode('three', 0)]
}, 120_000)

afterAll(async () => {
  vi.unstubAllEnvs()
  for (const node of nodes) await node[Symbol.asyncDispose]()
  await model[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
}, 90_000)

/** Of the step "tell". */
const words = Array.from({ length: 60 }, (_, at) => `word ${at} 😀 `)

/** "hang" has no answer until it is released; "tell" a slow text that stops until all have heard some; others write a file. */
function answer({ messages }: Asked): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  if (/\bdo hang\b/.test(asked) && !released) return { before: 'hang', body: '' }
  if (/\bdo tell\b/.test(asked)) {
    const beforePiece = (piece: number) => (piece === 20 ? isHeard.promise : undefined)
    return { ...reply({ text: words }), pieceBytes: 300, pauseMs: 60, beforePiece }
  }
  if (messages.some(({ role }) => role === 'assistant')) return reply({ text: 'It is done.' })
  const command = 'echo made > made.txt'
  return reply({ calls: [{ id: 'call-1', name: 'run_bash', arguments: JSON.stringify({ command }) }] })
}

async function openNode(name: string, slots: number): Promise<Node> {
  const home = path.join(folder, `home-${name}`)
  await mkdir(home, { mode: 0o700 })
  const env = {
    ...process.env,
    ...{ HOME: home, CAISSON_HOME: home, CAISSON_CACHE: machine.cache },
    ...{ CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted', CAISSON_LLM_KEY: 'sk-some-key' },
  }
  const member = await FleetMember.open({
    ...{ address: parseFleetAddress(server.address, 'the test'), files: path.join(folder, 'blobs') },
    ...{ name, version: 'test', slots, warn: () => undefined },
  })
  const host = new Host({ env, fences: member })
  const service = await Service.start({
    host,
    fleet: member,
    // As of the command line of the tests.
    version: '0',
    port: 0,
    workspaces: [workspace],
  })
  const token = (await readFile(service.tokenFile, 'utf8')).trim()
  const close = async () => {
    await service.close()
    await host.close()
    await member[Symbol.asyncDispose]()
  }
  const client = new ServiceClient({ baseUrl: service.url, token })
  return { host, client, home, [Symbol.asyncDispose]: close }
}

function node(at: number): Node {
  const found = nodes[at]
  if (found === undefined) throw new Error(`there is no node ${at}`)
  return found
}

interface Wanted {
  readonly step?: string
  readonly workspace?: string
  readonly uploadedWorkspace?: string
  readonly asks?: boolean
  readonly sleepAfterMs?: number
  readonly labels?: string[]
}

/** Started at a node that does not carry it out. */
async function start({
  step: id = 'write',
  asks = false,
  sleepAfterMs,
  labels,
  ...where
}: Wanted): Promise<string> {
  const plan = { goal: id, steps: [{ id, title: id, instructions: `do ${id}`, writes: ['made.txt'] }] }
  const rules = asks ? [{ effect: 'ask' as const, tool: 'run_bash' }] : []
  const body = {
    ...{ prompt: `please ${id}`, plan: { from: plan as never }, ...where },
    approvals: { rules },
    ...(labels === undefined ? {} : { requires: { labels } }),
    vm: {
      ...{ memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2 },
      ...(sleepAfterMs === undefined ? {} : { sleepAfterMs }),
    },
  }
  return (await node(1).client.call('createRun', { body })).id
}

const statusOf = async (run: string, at = 1) =>
  (await node(at).client.call('getRun', { params: { run } })).status

async function startEnded(wanted: Wanted): Promise<string> {
  const run = await start(wanted)
  await expect.poll(() => statusOf(run), waiting).toBe('completed')
  return run
}

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

/** What the service says of a request that it refuses. */
async function refusalOf(request: Promise<unknown>) {
  const error = await request.then(
    () => undefined,
    (thrown: unknown) => thrown as ServiceError,
  )
  const { status, code, detail, remedy } = error?.problem ?? {}
  return { status, code, detail, remedy }
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

it('events are followed from a number on over a restart of PostgreSQL, each once', async () => {
  released = false
  const run = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  const seen: number[] = []
  const followed = (async () => {
    for await (const item of node(2).client.events(run, { from: 2 }))
      if (item.source !== 'delta') seen.push(item.seq)
  })()
  await expect.poll(() => seen.length, waiting).toBeGreaterThan(0)
  await server.kill()
  await server.restart()
  released = true
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
  isHeard = Promise.withResolvers()
  const run = await start({ step: 'tell', workspace })
  const client = (at: number) => readText(node(at).client.events(run))
  const [first, other] = [client(0), client(2)]
  const handle = await vi.waitUntil(async () => await node(0).host.attach(run), waiting)
  const own = readText(handle.watch())
  await expect.poll(() => other.text.length, waiting).toBeGreaterThan(0)
  const late = client(1)
  for (const reader of [own, first, late])
    await expect.poll(() => reader.text.length, waiting).toBeGreaterThan(0)
  isHeard.resolve()
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
    await expect.poll(() => statusOf(run, 0), { ...waiting, interval: 20 }).toBe('waiting')
    const handle = await node(0).host.attach(run)
    for await (const item of handle?.watch() ?? [])
      if (item.source === 'host' && item.event.type === 'run-sleep') break
    await node(at).client.call('cancelRun', { params: { run }, body: {} })
    await expect.poll(() => statusOf(run, 2), waiting).toBe('cancelled')
  }
}, 120_000)

it('a run at work elsewhere is steered, paused, continued and cancelled', async () => {
  released = false
  const asked = () => model.asked.filter(({ text }) => text.includes('do hang')).length
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
  released = false
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
  released = true
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

it('the command line beside a service of the fleet lists and shows runs of all hosts, and says who has one or why it waits', async () => {
  released = false
  const caisson = commandsIn({ CAISSON_HOME: node(2).home, CAISSON_CACHE: machine.cache })
  const run = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  // A host may have it before its first line.
  const listed = async () => (await caisson('runs', 'list', '--filter', 'status=running')).stdout
  await expect.poll(listed, waiting).toMatch(new RegExp(`${run}  .+please hang · on host one`))
  const show = async () => await caisson('runs', 'show', run)
  await expect.poll(async () => (await show()).stdout, waiting).toContain(`Run in ${workspace}`)
  const shown = await show()
  expect(shown.stdout).not.toContain('Interrupted')
  expect(shown.stdout).toMatch(/\nthe host one of the fleet carries it out since /)
  const json = await caisson('runs', 'show', run, '--json')
  expect(JSON.parse(json.stdout.split('\n')[0] ?? '')).toMatchObject({
    runId: run,
    event: { type: 'run-start' },
  })
  const queued = await start({ workspace, labels: ['gpu'] })
  const why = await caisson('runs', 'show', queued)
  expect(why.stdout).toMatch(/queued .+please write/)
  expect(why.stdout).toContain('No host can serve it: one has no label gpu')
  const last = await caisson('runs', 'list', '--last', '1', '--json')
  expect(JSON.parse(last.stdout)).toMatchObject({ id: queued, status: 'queued', host: null })
  expect(await caisson('runs', 'show', 'run-00000000000000000000')).toMatchObject({ code: 2 })
  for (const each of [run, queued])
    await node(2).client.call('cancelRun', { params: { run: each }, body: { now: true } })
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
  'changes to a workspace that is %s are applied on a host that makes it',
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
  released = false
  const run = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  const asked = async () => {
    const { events } = await node(1).client.call('listEvents', { params: { run }, query: { limit: '1000' } })
    return events.map(({ event }) => event.type)
  }
  await expect.poll(asked, waiting).toContain('step-start')
  const params = { run }
  const forked = await node(1).client.call('forkRun', { params, body: { at: 'now' } })
  expect(forked).toMatchObject({ step: 'now', runIds: [expect.anything()] })
  const stored = await node(2).client.call('forkRun', { params, body: { at: 'hang' } })
  expect(await statusOf(run)).toBe('running')
  const rewound = await node(2).client.call('rewindRun', { params, body: { to: 'hang', prompt: 'use tabs' } })
  await expect.poll(() => statusOf(run), waiting).toBe('cancelled')
  released = true
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
  released = false
  const busy = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(busy), waiting).toBe('running')
  expect(await refusalOf(node(2).client.call('removeRun', { params: { run: busy } }))).toMatchObject({
    ...{ status: 409, detail: `${busy} has not ended, so it is not removed` },
    remedy: expect.stringContaining('cancel it first'),
  })
  await node(2).client.call('cancelRun', { params: { run: busy }, body: { now: true } })
  await expect.poll(() => statusOf(busy), waiting).toBe('cancelled')
}, 120_000)
