// What people do and follow on a host that has not got the run: answers of several hosts at once, acts of the host that has
// it, and its deltas.
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { CaissonError } from '#specs/errors.ts'
import { hostExamples } from '#specs/node/event-examples.ts'
import type { HostEvent } from '#specs/protocol/event.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import type { FleetAddress } from '../../fleet/address.ts'
import { DirectoryBlobs } from '../../fleet/blob-store.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { FleetSecret } from '../../fleet/fleet-secret.ts'
import { hostChannel } from '../../fleet/lanes.ts'
import { describeSubmitted } from '../../fleet/run-rows.ts'
import type { Hold } from '../../fleet/run-table.ts'
import { type ActedRun, serveActs } from '../../fleet-runs/acts.ts'
import { DeltaSender } from '../../fleet-runs/deltas.ts'
import { FleetRuns } from '../../fleet-runs/fleet-runs.ts'
import { FleetRunHandle } from '../../fleet-runs/handle.ts'
import { Feed, type FeedItem } from '../../journal/run-feed.ts'
import { newRunId } from '../../journal/run-store.ts'
import { headOf, newDatabase, noteOf, rowsBehind } from './fleet-place.ts'

let server: PostgresServer
let nodes: Fleet[]
let blobs: DirectoryBlobs

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

afterAll(() => server[Symbol.asyncDispose]())

beforeEach(async () => {
  blobs = new DirectoryBlobs(await temporaryFolder('fleet-acts'))
  const address = await newDatabase(server)
  nodes = [await openNode(address, 'one'), await openNode(address, 'two'), await openNode(address, 'three')]
  return async () => {
    for (const node of nodes) await node[Symbol.asyncDispose]()
  }
}, 60_000)

const start = exampleOf('run-start')
const asked = exampleOf('approval-request')
const { approvalId } = asked.request
const yes = { decision: 'allow', scope: 'once' } as const

it('of answers of three hosts at once to a run that nobody has, one counts, and the run is queued', async () => {
  const runId = await newSleepingRun()
  const given = nodes.map((_, at) => handleOf(runId, at).answer(approvalId, yes, { by: `person ${at}` }))
  const results = await Promise.all(given)
  expect(results.filter(({ taken }) => taken)).toHaveLength(1)
  const others = results.filter(({ taken }) => !taken)
  expect(others).toMatchObject([{ reason: 'decided' }, { reason: 'decided' }])
  expect((await eventsOf(runId)).filter(({ type }) => type === 'approval-decision')).toHaveLength(1)
  expect(await headOf(node(0).runs, runId)).toMatchObject({ waits: false, hostId: null })
  expect((await node(0).jobs.counts()).waiting).toBe(1)
  expect(await new FleetRuns(node(1), blobs).source.run(runId)).toMatchObject({
    outline: { openApprovals: [] },
  })
})

it('an unknown question and an answer that it does not offer are refused as on one machine', async () => {
  const runId = await newSleepingRun()
  expect(await handleOf(runId, 0).answer('ap-none', yes)).toMatchObject({ taken: false, reason: 'unknown' })
  const odd = { decision: 'allow', scope: 'always' } as const
  expect(await handleOf(runId, 1).answer(approvalId, odd)).toMatchObject({ reason: 'not_offered' })
})

it('the host that has a run carries out what another one asks for, once, and its refusals reach who asked', async () => {
  const { runId } = await newHeldRun(0)
  const said: string[] = []
  serve(0, {
    steer: async (text, options) => void said.push(`${options?.by}: ${text}`),
    pause: async () => void said.push('pause'),
    cancel: async (options) => void said.push(`cancel ${options?.now}`),
    // It counts once the journal has it.
    watch: async function* () {
      yield* [start, exampleOf('cancel-request')].map((event) => ({ source: 'host', event }) as FeedItem)
    },
    resume: async () => {
      throw new CaissonError('not_possible_now', 'not paused')
    },
    answer: async () => ({ taken: false, reason: 'decided', message: 'somebody was faster' }),
  })
  const other = handleOf(runId, 1)
  await other.steer('use tabs', { by: 'ana' })
  await other.pause()
  await other.cancel({ now: true })
  expect(said).toEqual(['ana: use tabs', 'pause', 'cancel true'])
  await expect(other.resume()).rejects.toMatchObject({ code: 'not_possible_now', message: 'not paused' })
  expect(await other.answer(approvalId, yes)).toMatchObject({ taken: false, reason: 'decided' })
})

it('acts on one run that is about to begin keep none of another run waiting', async () => {
  const { runId: slow } = await newHeldRun(0)
  const { runId } = await newHeldRun(0)
  for (let count = 0; count < 120; count += 1) await node(1).acts.ask(slow, 'pause', {}, 'somebody')
  const said: string[] = []
  const run: ActedRun = { steer: async (text) => void said.push(text) }
  void serveActs(node(0), { runOf: (id) => (id === runId ? run : undefined), warn: () => undefined })
  const odd = 'a NUL \0 and half of a pair \ud800'
  await handleOf(runId, 1).steer(odd)
  expect(said).toEqual([odd])
})

it('an act that a killed host has begun and not ended is carried out by the next one', async () => {
  const { runId } = await newHeldRun(0)
  const steered = handleOf(runId, 1).steer('again', { by: 'ana' })
  await expect.poll(() => node(0).acts.open(node(0).hostId)).toHaveLength(1)
  const [act] = await node(0).acts.open(node(0).hostId)
  expect(await node(0).acts.begin(act?.actId ?? '', node(0).hostId)).toBe(true)
  // It is gone, and another host takes the run.
  await take(runId, 2)
  const said: string[] = []
  serve(2, { steer: async (text) => void said.push(text) })
  await steered
  expect(said).toEqual(['again'])
})

it('an act that the journal has is not carried out again by the next host', async () => {
  const { runId, hold } = await newHeldRun(0)
  const steered = handleOf(runId, 1).steer('once', { by: 'ana' })
  await expect.poll(() => node(0).acts.open(node(0).hostId)).toHaveLength(1)
  const [act] = await node(0).acts.open(node(0).hostId)
  await node(0).acts.begin(act?.actId ?? '', node(0).hostId)
  await write(hold, [{ type: 'steer-request', messageId: 'm-1', text: 'once', by: 'ana' }])
  await take(runId, 2)
  const said: string[] = []
  serve(2, { steer: async (text) => void said.push(text) })
  await steered
  expect(said).toEqual([])
})

it('an answer that its host took before it left the sleeping run counts as taken, and is not written twice', async () => {
  const { runId, hold } = await newHeldRun(0)
  await write(hold, [asked])
  const answered = handleOf(runId, 1).answer(approvalId, yes, { by: 'ana', via: 'http' })
  await expect.poll(() => node(0).acts.open(node(0).hostId)).toHaveLength(1)
  const [act] = await node(0).acts.open(node(0).hostId)
  await node(0).acts.begin(act?.actId ?? '', node(0).hostId)
  const decision = { ...exampleOf('approval-decision'), approvalId, by: 'person', name: 'ana', via: 'http' }
  await write(hold, [decision as HostEvent])
  await node(0).runs.release(hold, true)
  expect(await answered).toEqual({ taken: true })
  expect((await eventsOf(runId)).filter(({ type }) => type === 'approval-decision')).toHaveLength(1)
})

it('a run that a host has entered is free for people again once that host is gone', async () => {
  const left = { hostId: 'killed', name: 'killed' }
  const enter = async (runId: string) =>
    await node(0).runs.enter(runId, await headOf(node(0).runs, runId), left)
  const sleeping = await newSleepingRun()
  const hold = await enter(sleeping)
  if (hold === undefined) throw new Error('the run was not entered')
  await node(0).database.query(
    `INSERT INTO caisson.hosts (host_id, name, version, slots) VALUES ('killed', 'killed', '1', 1)`,
  )
  const runs = new FleetRuns(node(1), blobs)
  await expect(runs.wake(sleeping)).rejects.toMatchObject({ code: 'run_busy' })
  await node(0).database.query(
    `UPDATE caisson.hosts SET seen_at = now() - interval '21 seconds' WHERE host_id = 'killed'`,
  )
  expect(await handleOf(sleeping, 1).answer(approvalId, yes, { by: 'ana' })).toEqual({ taken: true })
  const late = rowsBehind(sleeping, await headOf(node(0).runs, sleeping), [noteOf('late')])
  await expect(node(0).runs.append(hold, late)).rejects.toMatchObject({ code: 'run_busy' })
  const paused = await newSleepingRun()
  await enter(paused)
  await runs.wake(paused)
  expect(await headOf(node(0).runs, paused)).toMatchObject({ waits: false, hostId: null })
  // It was killed between the last line and giving the run back.
  const { runId: ended, hold: last } = await newHeldRun(0)
  await write(last, [exampleOf('run-end')], true)
  await node(0).database.query(`UPDATE caisson.runs SET host_id = 'killed' WHERE run_id = $1`, [ended])
  await runs.source.remove(ended)
  expect(await node(0).runs.head(ended)).toBeUndefined()
})

it('a run without a host can be cancelled, also before its first line, and not steered', async () => {
  const runId = newRunId()
  await node(0).add(runId, { priority: 'normal', isContinued: false }, (tx) =>
    describeSubmitted(tx, runId, { at: 1, prompt: 'p', workspace: '/w', model: 'm' }),
  )
  await expect(handleOf(runId, 1).steer('x')).rejects.toMatchObject({ code: 'not_possible_now' })
  await handleOf(runId, 1).cancel({ by: 'ana' })
  expect((await eventsOf(runId)).map(({ type }) => type)).toEqual(['run-start', 'cancel-request', 'run-end'])
  expect(await headOf(node(0).runs, runId)).toMatchObject({ hasEnded: true, hostId: null })
  expect((await node(0).jobs.counts()).waiting).toBe(0)
  await expect(handleOf(runId, 2).cancel()).rejects.toMatchObject({ code: 'not_possible_now' })
})

it('a host hears any number of notices for it as one, and lists take any text', async () => {
  const { database, hostId, notices } = node(0)
  let [count, atOnce, atOnceMost] = [0, 0, 0]
  const forget = notices.on(hostId, async () => {
    count += 1
    atOnce += 1
    atOnceMost = Math.max(atOnceMost, atOnce)
    await node(0).hosts()
    atOnce -= 1
  })
  const since = performance.now()
  for (let sent = 0; sent < 500; sent += 1)
    await database.query('SELECT pg_notify($1, $2)', [hostChannel, hostId])
  await expect.poll(() => count).toBeGreaterThan(0)
  expect(atOnceMost).toBe(1)
  // One in a tenth of a second.
  expect(count).toBeLessThanOrEqual((performance.now() - since) / 100 + 2)
  forget()
  const { source } = new FleetRuns(node(1), blobs)
  for (const filter of [{ model: 'a\0' }, { workspace: '/a\0' }, { metadata: { a: '\ud800 \0' } }])
    expect(await source.find({ filter, limit: 1 })).toEqual([])
  const about = { at: 1, prompt: '\ud800\0', workspace: '/w', model: '\ud800', metadata: { a: '\udc00' } }
  const runId = newRunId()
  await node(0).add(runId, { priority: 'normal', isContinued: false }, (tx) =>
    describeSubmitted(tx, runId, about),
  )
  expect(await source.find({ filter: { metadata: { a: '\udc00' } }, limit: 2 })).toHaveLength(1)
})

it('a watcher gets each event from its number on once, across a restart of PostgreSQL', async () => {
  const { runId, hold } = await newHeldRun(0)
  await write(hold, [noteOf('2'), noteOf('3')])
  const seen: number[] = []
  const watched = (async () => {
    for await (const item of handleOf(runId, 1).watch({ from: 3 }))
      if (item.source !== 'delta') seen.push(item.seq)
  })()
  await expect.poll(() => seen).toEqual([3])
  await server.kill()
  await server.restart()
  await expect
    .poll(
      () =>
        write(hold, [noteOf('4')]).then(
          () => true,
          () => false,
        ),
      { timeout: 20_000 },
    )
    .toBe(true)
  await expect.poll(() => seen, { timeout: 20_000 }).toEqual([3, 4])
  await write(hold, [exampleOf('run-end')], true)
  await watched
  expect(seen).toEqual([3, 4, 5])
}, 60_000)

it('deltas reach who follows from another host, in pieces and behind their events, until it follows no more', async () => {
  const { runId, hold } = await newHeldRun(0)
  const feed = new Feed()
  new DeltaSender(node(0), (id) => (id === runId ? feed : undefined))
  const long = 'é"\u0000😀'.repeat(2_000)
  const watched = handleOf(runId, 1).watch({ from: 1 })
  const [items, text] = [[] as FeedItem[], () => textOf(items)]
  const followed = (async () => {
    for await (const item of watched) items.push(item)
  })()
  await expect.poll(() => feed.isWatched).toBe(true)
  // The third line is not in the fleet yet.
  for (const item of [eventOf(runId, 2), deltaOf(runId, 0, 'first '), eventOf(runId, 3)]) feed.push(item)
  feed.push(deltaOf(runId, 6, long))
  await write(hold, [noteOf('2')])
  await expect.poll(text).toBe('first ')
  await write(hold, [noteOf('3')])
  await expect.poll(text).toBe(`first ${long}`)
  expect(items.findIndex((item) => item.source === 'host' && item.seq === 3)).toBeLessThan(
    items.findIndex(
      (item) => item.source === 'delta' && item.delta.type === 'text-delta' && item.delta.offset > 5,
    ),
  )
  await watched.return?.()
  await followed
  await expect.poll(() => feed.isWatched).toBe(false)
})

it('of more deltas than a host may send, the newest come, and no round has more than its bound', async () => {
  const { runId } = await newHeldRun(0)
  const feed = new Feed()
  new DeltaSender(node(0), () => feed)
  const items: FeedItem[] = []
  const watched = handleOf(runId, 1).watch()
  void (async () => {
    for await (const item of watched) items.push(item)
  })()
  await expect.poll(() => feed.isWatched).toBe(true)
  const total = 3_000_000
  for (let at = 0; at < total; at += 10_000) feed.push(deltaOf(runId, at, 'x'.repeat(10_000)))
  const end = () =>
    items.reduce(
      (most, item) => Math.max(most, isText(item) ? item.delta.offset + item.delta.text.length : 0),
      0,
    )
  await expect.poll(end, { timeout: 10_000 }).toBe(total)
  expect(textOf(items).length).toBeLessThan(200_000)
  await watched.return?.()
})

it('the channel of a host has a name from the secret of the fleet, and what is no message is ignored', async () => {
  const { runId } = await newHeldRun(0)
  const feed = new Feed()
  new DeltaSender(node(0), () => feed)
  const secret = new FleetSecret(node(0).database)
  const channelOf = async ({ hostId }: Fleet) =>
    `caisson_${(await secret.hash('messages', hostId)).slice(0, 40)}`
  const own = await Promise.all(nodes.map(channelOf))
  expect(new Set(own).size).toBe(3)
  for (const { hostId } of nodes) for (const name of own) expect(name).not.toContain(hostId.slice(5))
  const wrong = [
    '',
    '{',
    'null',
    '{"type":"deltas","watchId":"x","items":[{}]}',
    '{"type":"follow","runId":1}',
  ]
  for (const name of own)
    for (const payload of wrong) await node(0).database.query('SELECT pg_notify($1, $2)', [name, payload])
  const watched = handleOf(runId, 2).watch({ from: 2 })
  const first = watched.next()
  await expect.poll(() => feed.isWatched).toBe(true)
  feed.push(deltaOf(runId, 0, 'here'))
  // The event before it is in the fleet, and was not asked for.
  expect((await first).value).toMatchObject({ source: 'delta', runId, delta: { text: 'here' } })
  await watched.return?.()
})

type TextItem = Extract<FeedItem, { source: 'delta' }> & {
  readonly delta: { readonly type: 'text-delta'; readonly offset: number; readonly text: string }
}

function isText(item: FeedItem): item is TextItem {
  return item.source === 'delta' && item.delta.type === 'text-delta'
}

function textOf(items: readonly FeedItem[]): string {
  return items
    .filter(isText)
    .map(({ delta }) => delta.text)
    .join('')
}

function deltaOf(runId: string, offset: number, text: string): FeedItem {
  const delta = { type: 'text-delta', stepId: 'one', turn: 1, offset, text } as const
  return { source: 'delta', runId, agentPath: 'root', delta }
}

/** As the host of the run has it in its feed. */
function eventOf(runId: string, seq: number): FeedItem {
  return {
    ...{ seq, at: 1, runId, prev: '', hash: '' },
    source: 'host',
    event: noteOf(String(seq)),
  } as FeedItem
}

async function openNode(address: FleetAddress, name: string): Promise<Fleet> {
  return await Fleet.open(address, { name, version: '1', slots: 0, warn: () => undefined })
}

function node(at: number): Fleet {
  const found = nodes[at]
  if (found === undefined) throw new Error(`there is no host ${at}`)
  return found
}

function handleOf(runId: string, at: number): FleetRunHandle {
  return new FleetRunHandle(node(at), new FleetRuns(node(at), blobs).source, runId)
}

function serve(at: number, run: ActedRun): void {
  void serveActs(node(at), { runOf: () => run, warn: () => undefined })
}

async function take(runId: string, at: number): Promise<Hold> {
  const { runs, hostId } = node(at)
  const hold = await runs.take(runId, await headOf(runs, runId), { hostId, name: `host ${at}`, message: 'm' })
  if (hold === undefined) throw new Error('the run was not taken')
  return hold
}

async function newHeldRun(at: number): Promise<{ runId: string; hold: Hold }> {
  const runId = newRunId()
  await node(at).database.transaction((tx) => node(at).runs.create(tx, runId))
  const hold = await take(runId, at)
  await write(hold, [start])
  return { runId, hold }
}

async function newSleepingRun(): Promise<string> {
  const { runId, hold } = await newHeldRun(0)
  await write(hold, [asked, exampleOf('run-sleep')])
  await node(0).runs.release(hold, true)
  return runId
}

async function write(hold: Hold, events: readonly HostEvent[], ends = false): Promise<void> {
  const { runs } = node(0)
  await runs.append(hold, rowsBehind(hold.runId, await headOf(runs, hold.runId), events), { ends })
}

async function eventsOf(runId: string): Promise<HostEvent[]> {
  const rows = await node(0).database.query<{ body: string }>(
    'SELECT body FROM caisson.journal WHERE run_id = $1 ORDER BY seq',
    [runId],
  )
  return rows.map(({ body }) => (JSON.parse(body) as { event: HostEvent }).event)
}

function exampleOf<Type extends HostEvent['type']>(type: Type): Extract<HostEvent, { type: Type }> {
  return { type, ...hostExamples[type][1] } as Extract<HostEvent, { type: Type }>
}
