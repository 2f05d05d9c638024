// Three services of a fleet with state folders of their own, over HTTP, with PostgreSQL and a program in the place of QEMU.
// The first one carries runs out; callers ask the other two, which have none of them.
import { access, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { stripVTControlCharacters } from 'node:util'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { ServiceClient, type ServiceError } from '../../client/index.ts'
import { userName } from '../../host/cli/io.ts'
import { runCli } from '../../host/cli/main.ts'
import { encodeEntry } from '../../host/control/tar.ts'
import { parseFleetAddress } from '../../host/fleet/address.ts'
import { FleetMember } from '../../host/fleet-member.ts'
import { Host } from '../../host/host.ts'
import type { FeedItem } from '../../host/journal/run-feed.ts'
import { Service } from '../../host/service/service.ts'
import { Person } from '../../host/test/cli/support/person.ts'
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

/**
 * "hang" has no answer until it is released; "tell" and "write then stop" have a slow text that stops until all have heard
 * some; "ask" asks the person; others write a file.
 */
function answer({ messages }: Asked): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  const isBegun = messages.some(({ role }) => role === 'assistant')
  if (/\bdo write then stop\b/.test(asked) && isBegun)
    return { ...reply({ text: 'It is done.' }), beforePiece: () => isHeard.promise }
  if (/\bdo hang\b/.test(asked) && !released) return { before: 'hang', body: '' }
  if (/\bdo tell\b/.test(asked)) {
    const beforePiece = (piece: number) => (piece === 20 ? isHeard.promise : undefined)
    return { ...reply({ text: words }), pieceBytes: 300, pauseMs: 60, beforePiece }
  }
  if (isBegun) return reply({ text: 'It is done.' })
  if (/\bdo ask\b/.test(asked)) {
    const given = {
      question: 'Which format?',
      kind: 'choice',
      options: [{ value: 'csv' }, { value: 'json' }],
    }
    return reply({ calls: [{ id: 'call-1', name: 'ask_user', arguments: JSON.stringify(given) }] })
  }
  const command = 'echo made > made.txt'
  return reply({ calls: [{ id: 'call-1', name: 'run_bash', arguments: JSON.stringify({ command }) }] })
}

const modelEnv = () => ({
  ...{ CAISSON_LLM_URL: model.baseUrl, CAISSON_MODEL: 'scripted', CAISSON_LLM_KEY: 'sk-some-key' },
})

async function openNode(name: string, slots: number): Promise<Node> {
  const home = path.join(folder, `home-${name}`)
  await mkdir(home, { mode: 0o700 })
  const env = {
    ...process.env,
    ...{ HOME: home, CAISSON_HOME: home, CAISSON_CACHE: machine.cache },
    ...modelEnv(),
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
  readonly continue?: string
}

/** Started at a node that does not carry it out. */
async function start(
  { step: id = 'write', asks = false, sleepAfterMs, labels, ...where }: Wanted,
  at = 1,
): Promise<string> {
  const plan = {
    goal: id,
    steps: [{ id: id.replaceAll(' ', '-'), title: id, instructions: `do ${id}`, writes: ['made.txt'] }],
  }
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
  return (await node(at).client.call('createRun', { body })).id
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
  expect((await caisson('workspace', 'diff', run)).stderr).toContain(
    `${run} has not ended, so it has no changes yet; follow it to its end: caisson attach ${run}`,
  )
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

/** The command line of a host that carries no run out. */
const caissonAt = (at: number, directory?: string) =>
  commandsIn({ CAISSON_HOME: node(at).home, CAISSON_CACHE: machine.cache, ...modelEnv() }, directory)

async function eventsOf(run: string) {
  const { events } = await node(1).client.call('listEvents', { params: { run }, query: { limit: '1000' } })
  return events.map(({ event }) => event)
}

it('caisson run --fleet starts a run of the fleet, follows it, and applies its changes here; what the fleet refuses runs nowhere', async () => {
  const caisson = caissonAt(2, workspace)
  const task = ['run', '--fleet', '-w', workspace, 'please write'] as const
  const ran = await caisson(...task, '--apply')
  expect(ran).toMatchObject({ code: 0, stdout: expect.stringContaining('Applied 1 change.') })
  const run = /^Run (run-\S+) · journal head/m.exec(ran.stdout)?.[1] ?? ''
  expect(await node(1).client.call('getRun', { params: { run } })).toMatchObject({
    status: 'completed',
    applied: 1,
  })
  expect(await readFile(path.join(workspace, 'made.txt'), 'utf8')).toBe('made\n')
  expect(await caisson('workspace', 'undo', run)).toMatchObject({ code: 0 })
  const asJson = await caisson(...task, '--json')
  const lines = asJson.stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { source: string; runId: string })
  expect(lines.at(-1)).toMatchObject({ source: 'summary', changes: 1, apply: null })
  const left = await caisson(...task, '--detach')
  const [detached = ''] = /run-[0-9a-f]{20}/.exec(left.stdout) ?? []
  await expect.poll(() => statusOf(detached), waiting).toBe('completed')
  const continued = await caisson(...task, '--continue', detached)
  expect(continued).toMatchObject({ code: 5, stdout: expect.stringContaining('+made') })
  const [, next = ''] = /^Run (run-\S+) · journal head/m.exec(continued.stdout) ?? []
  expect(await node(1).client.call('getRun', { params: { run: next } })).toMatchObject({
    continues: detached,
  })
  const { home } = node(2)
  const other = await commandsIn({ CAISSON_HOME: home, CAISSON_CACHE: machine.cache })(...task)
  expect(other).toMatchObject({
    ...{ code: 1, stdout: '' },
    stderr: expect.stringMatching(/caisson: --fleet: the service refused: .* or run it without --fleet\n$/),
  })
}, 120_000)

it('caisson run --fleet follows a run that its own host carries out from its first moment on', async () => {
  const caisson = caissonAt(0, workspace)
  for (let round = 0; round < 5; round += 1) {
    const { stdout, stderr } = await caisson('run', '--fleet', '-w', workspace, 'please write', '--json')
    const lines = stdout.trim().split('\n')
    expect([stderr, JSON.parse(lines[0] ?? '')]).toMatchObject(['', { seq: 1, event: { type: 'run-start' } }])
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ source: 'summary', changes: 1, apply: null })
  }
}, 120_000)

it('the command line steers, pauses, continues and cancels a run at work on another host, under its own name', async () => {
  released = false
  const asked = () => model.asked.filter(({ text }) => text.includes('do hang')).length
  const before = asked()
  const caisson = caissonAt(2, workspace)
  const run = await start({ step: 'hang', workspace })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  await expect.poll(asked, waiting).toBeGreaterThan(before)
  const last = `caisson: last is ${run}: please hang\n`
  expect(await caisson('runs', 'steer', 'last', 'Use tabs.')).toEqual({
    ...{ code: 0, stderr: last },
    stdout: `${run}: message sent to the agent\n`,
  })
  // No host has a folder of it here yet, so its prefix is one of the fleet's list.
  expect(await caisson('runs', 'steer', run.slice(0, 18), 'Use tabs.', '--agent', 'tests')).toMatchObject({
    ...{ code: 1, stdout: '' },
    stderr: expect.stringContaining(`caisson: ${run}: no sub-agent root/tests is at work`),
  })
  expect(await caisson('runs', 'pause', run)).toMatchObject({
    ...{ code: 0, stderr: '' },
    stdout: expect.stringContaining(`caisson runs resume ${run}`),
  })
  expect(await caisson('runs', 'resume', run, '--take-over')).toMatchObject({
    ...{ code: 2, stdout: '' },
    stderr: expect.stringContaining(`caisson fleet move ${run}`),
  })
  expect(await caisson('runs', 'resume', run)).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: `${run}: the agent resumes\n`,
  })
  expect(await caisson('runs', 'cancel', run, '--now')).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: `${run}: cancelled\n`,
  })
  const acts = (await eventsOf(run)).filter(({ type }) => type.endsWith('-request'))
  expect(acts).toMatchObject([
    { type: 'steer-request', text: 'Use tabs.', by: 'caisson runs steer' },
    { type: 'pause-request', by: 'caisson runs pause' },
    { type: 'resume-request', by: 'caisson runs resume' },
    { type: 'cancel-request', by: 'caisson runs cancel' },
  ])
  const late = await caisson('runs', 'pause', run)
  expect(late).toMatchObject({ code: 1, stderr: expect.stringContaining(`caisson runs show ${run}`) })
  expect(await caisson('runs', 'rm', run)).toEqual({ code: 0, stdout: `removed ${run}\n`, stderr: '' })
  expect(await refusalOf(node(0).client.call('getRun', { params: { run } }))).toMatchObject({ status: 404 })
  expect(await caisson('runs', 'cancel', run)).toMatchObject({ code: 2, stdout: '' })
}, 120_000)

it('the command line cancels a run that waits in the queue, and continues one that sleeps; one that waits takes no message', async () => {
  const caisson = caissonAt(2)
  const queued = await start({ workspace, labels: ['gpu'] })
  const refused = await caisson('runs', 'steer', queued, 'Use tabs.')
  expect(refused.code).toBe(1)
  expect(refused.stderr).toContain(`${queued} is not at work; its status is queued`)
  expect(refused.stderr).toContain(`caisson runs cancel ${queued}`)
  const cancelled = await caisson('runs', 'cancel', queued)
  expect(cancelled).toEqual({ code: 0, stdout: `${queued}: cancelled\n`, stderr: '' })
  const sleeping = await start({ workspace, asks: true, sleepAfterMs: 200 })
  await expect.poll(() => statusOf(sleeping), waiting).toBe('sleeping')
  expect((await caisson('runs', 'pause', sleeping)).stderr).toContain(`caisson approvals list ${sleeping}`)
  expect(await caisson('runs', 'resume', sleeping, '--detach')).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: `${sleeping}: the next free host of the fleet continues it\n  watch:   caisson attach ${sleeping}\n`,
  })
  await expect
    .poll(async () => (await eventsOf(sleeping)).map(({ type }) => type), waiting)
    .toContain('run-resume')
  await expect.poll(() => statusOf(sleeping), waiting).toBe('sleeping')
  const following = caisson('runs', 'resume', sleeping)
  await expect
    .poll(async () => (await eventsOf(sleeping)).filter(({ type }) => type === 'run-resume').length, waiting)
    .toBe(2)
  // Between its start and the question that it asks again, nothing waits.
  await expect.poll(async () => (await caisson('approvals', 'deny', sleeping, 'a')).code, waiting).toBe(0)
  const followed = await following
  expect(followed).toMatchObject({
    code: 0,
    stdout: expect.stringContaining(`Run ${sleeping} · journal head`),
  })
  const other = await start({ workspace, asks: true, sleepAfterMs: 200 })
  await expect.poll(() => statusOf(other), waiting).toBe('sleeping')
  expect((await caisson('runs', 'cancel', other)).stdout).toBe(`${other}: cancelled\n`)
  expect(await statusOf(other)).toBe('cancelled')
}, 120_000)

it('the command line lists the questions of all hosts and answers them, at work or sleeping, once [S1.11]', async () => {
  const caisson = caissonAt(2)
  for (const sleepAfterMs of [undefined, 200]) {
    const sleeps = sleepAfterMs === undefined ? {} : { sleepAfterMs }
    const run = await start({ workspace, asks: true, ...sleeps })
    await expect.poll(() => statusOf(run), waiting).toBe(sleepAfterMs === undefined ? 'waiting' : 'sleeping')
    const listed = await caisson('approvals', 'list')
    const line = new RegExp(`^${run}  (\\S+)  .*asks? (?:to call|about) run_bash .*made.txt`, 'm')
    const approval = line.exec(listed.stdout)?.[1] ?? listed.stdout
    const json = (await caisson('approvals', 'list', run, '--json')).stdout
    const { digest } = JSON.parse(json)
    expect(JSON.parse(json)).toMatchObject({ runId: run, approvalId: approval, tool: 'run_bash' })
    const other = await caisson('approvals', 'allow', run, approval, '--digest', '0'.repeat(64))
    expect(other).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`caisson approvals list ${run} --json`),
    })
    const wrong = await caisson('approvals', 'answer', run, approval, 'yes')
    expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('caisson approvals allow') })
    const none = await caisson('approvals', 'deny', run, 'nothing')
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining(`pending: ${approval}`) })
    const given = ['approvals', 'allow', run, approval, '--digest', digest, '--scope', 'run']
    expect(await caisson(...given)).toEqual({
      ...{ code: 0, stderr: '' },
      stdout: `${run}: ${approval} answered\n`,
    })
    const again = await caisson('approvals', 'deny', run, approval)
    expect(again.code).toBe(1)
    expect(again.stderr).toMatch(/already allowed by .+; the first answer counts|has ended as completed/)
    await expect.poll(() => statusOf(run), waiting).toBe('completed')
    const decisions = (await eventsOf(run)).filter(({ type }) => type === 'approval-decision')
    expect(decisions).toMatchObject([{ by: 'person', name: userName(), decision: 'allow', scope: 'run' }])
  }
  const denied = await start({ workspace, asks: true })
  await expect.poll(() => statusOf(denied), waiting).toBe('waiting')
  expect((await caisson('approvals', 'deny', denied, 'a', '--hint', 'Do without.')).code).toBe(0)
  await expect.poll(() => statusOf(denied), waiting).toBe('completed')
  const decisions = (await eventsOf(denied)).filter(({ type }) => type === 'approval-decision')
  expect(decisions).toMatchObject([{ decision: 'deny', hint: 'Do without.' }])
}, 120_000)

it('the command line answers a question of an agent elsewhere, and revokes an answer for its run [S2.16 S1.11]', async () => {
  const caisson = caissonAt(2)
  const asking = await start({ step: 'ask', workspace })
  await expect.poll(() => statusOf(asking), waiting).toBe('waiting')
  const { stdout } = await caisson('approvals', 'list', asking)
  const [, approval = stdout] = /^run-\S+ {2}(\S+) {2}asks: Which format\? \(csv, json\)$/m.exec(stdout) ?? []
  const wrong = await caisson('approvals', 'answer', asking, approval, 'xml')
  expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('expected one of "csv", "json"') })
  expect((await caisson('approvals', 'answer', asking, approval, 'json')).code).toBe(0)
  await expect.poll(() => statusOf(asking), waiting).toBe('completed')
  const answered = (await eventsOf(asking)).find(({ type }) => type === 'approval-decision')
  expect(answered).toMatchObject({ answer: 'json', name: userName() })

  isHeard = Promise.withResolvers()
  const run = await start({ step: 'write then stop', workspace, asks: true })
  await expect.poll(() => statusOf(run), waiting).toBe('waiting')
  const allowed = await caisson('approvals', 'allow', run, 'a', '--scope', 'run')
  expect(allowed).toMatchObject({ code: 0, stderr: '' })
  await expect.poll(() => statusOf(run), waiting).toBe('running')
  const remembered = await caisson('approvals', 'remembered', run)
  const [, kept = remembered.stdout] =
    /^(\S+) {2}allowed by .+: every call of run_bash$/m.exec(remembered.stdout) ?? []
  expect(await caisson('approvals', 'revoke', run, kept)).toEqual({
    ...{ code: 0, stderr: '' },
    stdout: `${run}: the answer to ${kept} is revoked\n`,
  })
  expect((await caisson('approvals', 'remembered', run)).stdout).toContain('no answer')
  const revoked = (await eventsOf(run)).find(({ type }) => type === 'approval-revoke')
  expect(revoked).toEqual({ type: 'approval-revoke', approvalId: kept, by: userName() })
  await caisson('runs', 'cancel', run, '--now')
}, 120_000)

/** `caisson attach` at a terminal of the host "three". */
function attachAt(run: string): { readonly person: Person; readonly code: Promise<number> } {
  const person = new Person({ columns: 120, rows: 40 })
  const stdin = Object.assign(person.input, { isTTY: true, setRawMode: () => person.input })
  const stdout = Object.assign(person.output, { isTTY: true })
  const env = { CAISSON_HOME: node(2).home, CAISSON_CACHE: machine.cache }
  const io = { stdin, stdout, stderr: person.output, env, version: '0' }
  return { person, code: runCli(['attach', run], io) }
}

it('a person at a terminal follows a run of another host from the queue to its end, answers it and steers it [S1.11 V.08]', async () => {
  released = false
  isHeard = Promise.withResolvers()
  const asked = () => model.asked.filter(({ text }) => text.includes('do write then stop')).length
  const busy = [await start({ step: 'hang', workspace }), await start({ step: 'hang', workspace })]
  for (const other of busy) await expect.poll(() => statusOf(other), waiting).toBe('running')
  const run = await start({ step: 'write then stop', workspace, asks: true, sleepAfterMs: 1_500 })
  const { person, code } = attachAt(run)
  const sees = async (text: string) =>
    await expect.poll(() => stripVTControlCharacters(person.raw), waiting).toContain(text)
  await sees('it waits for a host of the fleet, at place 1 of 1')
  for (const other of busy) await caissonAt(2)('runs', 'cancel', other, '--now')
  await sees('Allow it?')
  // The question outlives the sleep of its run, whose answer has it continued.
  await expect.poll(() => statusOf(run), waiting).toBe('sleeping')
  const before = asked()
  person.type('y\r')
  await expect.poll(asked, waiting).toBeGreaterThan(before)
  person.type('Use tabs.')
  await sees('Use tabs.')
  person.type('\r')
  await sees('What should the agent know?')
  person.type('\r')
  await expect
    .poll(() => eventsOf(run), waiting)
    .toContainEqual(expect.objectContaining({ type: 'steer-request', text: 'Use tabs.' }))
  isHeard.resolve()
  expect(await code).toBe(0)
  await sees(`Run ${run} · journal head`)
  const events = await eventsOf(run)
  const decisions = events.filter(({ type }) => type === 'approval-decision')
  expect(decisions).toMatchObject([{ decision: 'allow', name: userName() }])
  expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(['run-sleep', 'run-resume']))
  const caisson = caissonAt(2)
  expect((await caisson('workspace', 'diff', run)).stdout).toContain('made.txt')
  const late = await caisson('attach', run)
  expect(late).toMatchObject({ code: 0, stdout: expect.stringContaining('It is done.') })
}, 120_000)

it('who leaves a run of another host leaves it at work, and lines of JSON follow and answer it', async () => {
  const run = await start({ workspace, asks: true })
  const { person, code } = attachAt(run)
  await expect.poll(() => stripVTControlCharacters(person.raw), waiting).toContain('Allow it?')
  person.type('\u0003')
  expect(await code).toBe(3)
  expect(person.raw).toContain(`Left ${run}, which continues.`)
  expect(await statusOf(run)).toBe('waiting')
  const [stdin, output] = [new PassThrough(), new PassThrough()]
  let said = ''
  output.setEncoding('utf8').on('data', (text: string) => (said += text))
  const env = { CAISSON_HOME: node(2).home, CAISSON_CACHE: machine.cache }
  const io = { stdin, stdout: output, stderr: new PassThrough().resume(), env, version: '0' }
  const ended = runCli(['attach', run, '--json'], io)
  const asked = /"type":"approval-request".*?"approvalId":"([^"]+)"/
  await expect.poll(() => said, waiting).toMatch(asked)
  stdin.write(`${JSON.stringify({ approvalId: asked.exec(said)?.[1], decision: 'allow', scope: 'once' })}\n`)
  expect(await ended).toBe(0)
  expect(JSON.parse(said.trimEnd().split('\n').at(-1) ?? '')).toMatchObject({
    ...{ source: 'summary', runId: run, outcome: 'completed' },
    journalHead: expect.stringMatching(/^[0-9a-f]{64}$/),
  })
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

it('the command line of a host where the run never was shows, explains, applies and undoes its changes, through the service', async () => {
  const caisson = commandsIn({ CAISSON_HOME: node(1).home, CAISSON_CACHE: machine.cache })
  const run = await startEnded({ workspace })
  const made = path.join(workspace, 'made.txt')
  expect((await caisson('runs', 'show', run)).stdout).toMatch(
    /\n\d+ events, as the fleet has them, head [0-9a-f]{64}\n/,
  )
  const diff = await caisson('workspace', 'diff', run)
  expect(diff).toMatchObject({ code: 0, stderr: '' })
  expect(diff.stdout).toMatch(/A made\.txt[\s\S]+\+made/)
  expect((await caisson('workspace', 'diff', run, '--patch')).stdout).toContain('+made')
  expect((await caisson('workspace', 'blame', run, 'made.txt')).stdout).toContain('made')
  expect(await caisson('workspace', 'show', run, 'made.txt')).toMatchObject({ code: 0, stdout: 'made\n' })
  expect(await caisson('workspace', 'apply', run, 'other.txt')).toMatchObject({ code: 2 })
  expect(await caisson('workspace', 'apply', run, 'made.txt')).toMatchObject({ code: 0 })
  expect(await readFile(made, 'utf8')).toBe('made\n')
  expect(await node(0).client.call('getRun', { params: { run } })).toMatchObject({ applied: 1 })
  const elsewhere = commandsIn({ CAISSON_HOME: node(2).home, CAISSON_CACHE: machine.cache })
  expect((await elsewhere('workspace', 'undo', run)).stderr).toContain(
    'were applied on the host two of the fleet',
  )
  const undone = await caisson('workspace', 'undo', run)
  expect(undone).toMatchObject({ code: 0, stdout: 'Restored 1 path.\n', stderr: '' })
  await expect(access(made)).rejects.toThrow()
  // The fleet knows it too.
  expect(await node(0).client.call('getRun', { params: { run } })).toMatchObject({ applied: 0 })
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
  released = false
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

it('the command line forks, rewinds, compares and merges runs of other hosts, and hosts of the fleet continue them', async () => {
  const caisson = caissonAt(2)
  const run = await startEnded({ workspace })
  const forked = await caisson('runs', 'fork', run, '--at', 'start', '--count', '2')
  expect(forked).toMatchObject({ code: 0, stderr: '' })
  const forks = [...forked.stdout.matchAll(/^(run-\S+) is a fork of/gm)].map(([, id]) => id ?? '')
  expect(forks).toHaveLength(2)
  for (const id of forks) {
    expect(forked.stdout).toContain(`watch: caisson attach ${id}`)
    await expect.poll(() => statusOf(id), waiting).toBe('completed')
  }
  const compared = await caisson('runs', 'compare', ...forks)
  expect(compared).toMatchObject({ code: 0, stdout: expect.stringContaining('made.txt') })
  const merged = await caisson('runs', 'merge', ...forks)
  expect(merged).toMatchObject({ code: 0, stdout: expect.stringContaining('has 1 change of 2 runs') })
  const [mergedId = ''] = merged.stdout.split(' ')
  expect(await statusOf(mergedId, 1)).toBe('completed')
  const rewound = await caisson('runs', 'rewind', run, 'Use tabs.', '--to', 'start')
  expect(rewound).toMatchObject({ code: 0, stdout: expect.stringContaining('It is done.') })
  const kept = await caisson('runs', 'fork', run, '--at', 'start', '--no-start', '--json')
  const [kid = ''] = (JSON.parse(kept.stdout) as { runIds: string[] }).runIds
  expect(await statusOf(kid, 1)).toBe('sleeping')
  await node(1).client.call('cancelRun', { params: { run: kid }, body: {} })
}, 120_000)

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
