// Services of two hosts of a fleet over one PostgreSQL, with real requests and no VM.
import { mkdir, readdir } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, expect, it, onTestFinished, vi } from 'vitest'
import type { RunMetadata } from '#specs/protocol/host-event.ts'
import { RunLimits } from '#specs/protocol/task.ts'
import { RunResource } from '#specs/service/run-resources.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { DirectoryBlobs } from '../../host/fleet/blob-store.ts'
import { FleetBlobs } from '../../host/fleet/blobs.ts'
import { noteUse } from '../../host/fleet/caller-use.ts'
import { Fleet } from '../../host/fleet/fleet.ts'
import { prepareFleet } from '../../host/fleet/prepare.ts'
import { FleetMember, type FleetMemberOptions, Host } from '../../host/index.ts'
import { headOf, newDatabase, rowsBehind, takerOf } from '../../host/test/fleet/fleet-place.ts'
import { commandsIn } from '../../host/test/support/run-command.ts'
import { type Received, type ServedHost, serveHost } from '../service/support.ts'
import { PostgresServer } from '../support/postgres.ts'

let server: PostgresServer
const soon = { timeout: 30_000, interval: 50 }

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

interface Node extends ServedHost {
  readonly member: FleetMember
  start(body?: object, key?: string): Promise<Received>
  get(path: string): Promise<Received>
}

/** Services that only submit, unless they have slots. */
async function openFleet(...given: readonly Partial<FleetMemberOptions>[]) {
  const address = await newDatabase(server)
  const folder = await temporaryFolder('fleet-services')
  await prepareFleet(address, undefined)
  const fleet = await Fleet.look(address, '1')
  const nodes: Node[] = []
  const open = async (options: Partial<FleetMemberOptions>, index = nodes.length): Promise<Node> => {
    const member = await FleetMember.open({
      ...{ address, files: path.join(folder, 'files'), name: `host-${index + 1}`, version: '1', slots: 0 },
      warn: () => undefined,
      ...options,
    })
    const env = { CAISSON_HOME: path.join(folder, `home-${index}`) }
    const host = new Host({ env, fences: member, apiKeys: member.apiKeys })
    const served = await serveHost(host, { fleet: member })
    const json = { 'content-type': 'application/json' }
    const node: Node = {
      ...served,
      member,
      start: async (body = {}, key) =>
        await served.send('POST', '/v1/runs', {
          headers: key === undefined ? json : { ...json, authorization: `Bearer ${key}` },
          body: JSON.stringify({ prompt: 'Count', ...body }),
        }),
      get: async (of) => await served.send('GET', of),
    }
    nodes.push(node)
    return node
  }
  for (const options of given) await open(options)
  onTestFinished(async () => {
    for (const { service, member } of nodes) {
      await service.close()
      await member[Symbol.asyncDispose]()
    }
    await fleet[Symbol.asyncDispose]()
  })
  const [first, second = first] = nodes
  if (first === undefined || second === undefined) throw new Error('no host')
  return { fleet, first, second, address, folder, open }
}

it('shows the fleet, drains a host and moves a run for the owner and admins alone', async () => {
  const { first, second } = await openFleet({ facts: () => ({ labels: ['gpu'], freeMib: 1 }), slots: 2 }, {})
  const runId = idOf(await second.start({ vm: { memoryBytes: 2 ** 30 } }))
  const fleet = await second.get('/v1/fleet')
  expect(fleet.json).toMatchObject({
    hosts: [
      { name: 'host-1', slots: 2, isDraining: false, facts: { labels: ['gpu'] } },
      { name: 'host-2', slots: 0 },
    ],
    runs: { ended: 0 },
    signals: { unservable: { labels: 0 } },
  })
  const post = async (of: string, body: unknown, key?: string) =>
    await second.send('POST', of, {
      headers: {
        'content-type': 'application/json',
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      },
      body: JSON.stringify(body),
    })
  const drain = '/v1/fleet/hosts/host-1/drain'
  expect((await post(drain, {})).json).toMatchObject({ hosts: [{ name: 'host-1', isDraining: true }] })
  const move = `/v1/runs/${runId}/move`
  const drained = await post(move, { host: 'host-1' })
  expect([drained.status, drained.json]).toMatchObject([409, { code: 'not_possible_now' }])
  expect((await post(drain, { undo: true })).json).toMatchObject({ hosts: [{ isDraining: false }] })
  expect(await post(move, { host: 'host-1' })).toMatchObject({ status: 202, json: { runId } })
  const unknown = `/v1/runs/run-${'9'.repeat(20)}/move`
  for (const [of, body, status] of [
    [unknown, {}, 404],
    [move, { host: "' OR true --" }, 404],
    [move, { host: 'a\u0000b' }, 404],
    [move, { host: '' }, 400],
    [move, { other: 1 }, 400],
    ['/v1/fleet/hosts/nobody/drain', {}, 404],
    ['/v1/fleet/hosts/%00/drain', {}, 404],
    [drain, { undo: 'yes' }, 400],
  ] as const)
    expect([of, body, (await post(of, body)).status]).toEqual([of, body, status])
  const scopes = ['read', 'run', 'approve', 'apply', 'metrics'] as const
  const keys = await keysOf(first.member)
  const limited = await keys.create({ name: 'ci', scopes })
  const admin = await keys.create({ name: 'boss', scopes: ['admin'] })
  for (const of of [drain, move]) expect((await post(of, {}, limited.secret)).status).toBe(403)
  const headers = { authorization: `Bearer ${limited.secret}` }
  expect((await second.send('GET', '/v1/fleet', { headers })).status).toBe(403)
  expect((await post(move, {}, admin.secret)).status).toBe(202)
})

it('a run waits for a host with its labels, and metrics count it', async () => {
  const { first, second } = await openFleet({ facts: () => ({ labels: ['cpu'] }), slots: 3 }, {})
  const runId = idOf(await second.start({ requires: { labels: ['gpu', 'zone=eu'] } }))
  const { json } = await first.get(`/v1/runs/${runId}`)
  expect(json).toMatchObject({
    queue: { why: 'No host can serve it: host-1 has no label gpu, zone=eu.' },
  })
  expect((await second.start({ requires: { labels: ['a b'] } })).status).toBe(400)
  const { text } = await second.get('/metrics')
  for (const line of [
    'caisson_source_up{source="fleet"} 1',
    'caisson_fleet_hosts{state="taking"} 2',
    'caisson_fleet_waiting 1',
    'caisson_fleet_oldest_wait_seconds 0',
    'caisson_fleet_slots{state="free"} 3',
    'caisson_fleet_unservable{reason="labels"} 1',
  ])
    expect(text.split('\n')).toContain(line)
})

it('a service that is in no fleet says so', async () => {
  const served = await serveHost(new Host({ env: { CAISSON_HOME: await temporaryFolder('alone') } }))
  expect(await served.send('GET', '/v1/fleet')).toMatchObject({
    status: 409,
    json: { code: 'not_possible_now', detail: 'this service is in no fleet' },
  })
  const body = JSON.stringify({ prompt: 'Count', requires: { labels: ['gpu'] } })
  const started = await served.send('POST', '/v1/runs', {
    headers: { 'content-type': 'application/json' },
    body,
  })
  expect([started.status, started.json]).toMatchObject([
    400,
    { code: 'invalid_options', detail: 'requires: this service is in no fleet' },
  ])
})

/** As a person makes keys on any host. */
async function keysOf({ apiKeys }: FleetMember): Promise<Host['apiKeys']> {
  return new Host({ env: { CAISSON_HOME: await temporaryFolder('keys') }, apiKeys }).apiKeys
}

const idOf = ({ json }: Received) => (json as { id: string }).id

it('a run that waits says in which place and why, on every host', async () => {
  const { first, second, fleet } = await openFleet({}, {})
  const started = await first.start({ startWithinMs: 3_600_000, vm: { memoryBytes: 513 * 2 ** 20 } })
  expect(started).toMatchObject({ status: 201 })
  const { json } = await second.get(`/v1/runs/${idOf(started)}`)
  expect(json).toMatchObject({
    status: 'queued',
    queue: { place: 1, waiting: 1, priority: 'normal', why: 'No host that takes runs is seen.' },
  })
  const { startBy } = (json as { queue: { startBy: number } }).queue
  // As clients check it.
  expect(RunResource.safeParse(json).error).toBeUndefined()
  expect(Math.abs(startBy - Date.now() - 3_600_000)).toBeLessThan(60_000)
  const rows = await fleet.database.query(
    'SELECT requires FROM caisson.runs JOIN caisson.classes USING (class_id)',
  )
  expect(rows).toEqual([{ requires: { memoryMib: 513 } }])
})

it('a run that no host begins in time ends with queue_timeout on any host, and says so on all', async () => {
  const { first, second } = await openFleet({}, { slots: 1 })
  const runId = idOf(await first.start({ startWithinMs: 1 }))
  const result = async () => (await first.get(`/v1/runs/${runId}/result`)).json
  await expect.poll(result, soon).toMatchObject({ outcome: 'failed', reason: 'queue_timeout' })
  expect((await second.get(`/v1/runs/${runId}`)).json).toMatchObject({ status: 'failed' })
})

it('too many waiting runs are refused with the time until the next one starts', async () => {
  const { first, second } = await openFleet({ bounds: { maxWaiting: 2 } }, { bounds: { maxWaiting: 2 } })
  expect((await first.start()).status).toBe(201)
  expect((await second.start()).status).toBe(201)
  const refused = await first.start()
  expect([refused.status, refused.json]).toMatchObject([429, { code: 'queue_full' }])
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
})

it('a run that sleeps is continued where the queue has room, so that nobody fills it with forks', async () => {
  const bounds = { maxWaitingPerLane: 1 }
  const { first, second, fleet } = await openFleet({ bounds }, { bounds })
  const sleeping = idOf(await first.start())
  const sleep = async () =>
    await fleet.database.transaction(async (tx) => {
      await tx.query('UPDATE caisson.runs SET waits = true, tag = NULL WHERE run_id = $1', [sleeping])
      await fleet.jobs.remove(tx, sleeping)
    })
  await sleep()
  expect((await first.start()).status).toBe(201)
  const resume = async () => await second.send('POST', `/v1/runs/${sleeping}/resume`)
  const refused = await resume()
  expect([refused.status, refused.json]).toMatchObject([429, { code: 'queue_full' }])
  expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0)
  expect((await second.get(`/v1/runs/${sleeping}`)).json).toMatchObject({ status: 'sleeping' })
  expect(await fleet.jobs.counts()).toMatchObject({ waiting: 1 })
  await fleet.database.query('UPDATE caisson.runs SET tag = NULL, has_ended = true WHERE NOT waits')
  expect(await resume()).toMatchObject({ status: 202, json: { status: 'queued' } })
})

it('a workspace that goes along with a run is uploaded once the run can be submitted, and removed where the queue has no room', async () => {
  const { first, fleet, folder } = await openFleet({ bounds: { maxWaiting: 1 } })
  const earlier = idOf(await first.start())
  await fleet.database.query(
    `UPDATE caisson.runs SET outline = jsonb_set(outline, '{state,applied}', '1'), carried_by = 'host-1'
      WHERE run_id = $1`,
    [earlier],
  )
  const uploads = async () => {
    const rows = await fleet.database.query('SELECT upload_id FROM caisson.uploads')
    const folders = await readdir(path.join(folder, 'home-0', 'service', 'workspaces'))
    return [rows.length, folders.filter((name) => name.startsWith('workspace-')).length]
  }
  const put = vi.spyOn(FleetMember.prototype, 'storeUpload')
  const wrong = await first.start({ continue: earlier, tools: { deny: ['no_such_tool'] } })
  expect([wrong.status, put.mock.calls.length]).toEqual([400, 0])
  const refused = await first.start({ continue: earlier })
  expect([refused.status, refused.json]).toMatchObject([429, { code: 'queue_full' }])
  expect(put).toHaveBeenCalledTimes(1)
  expect(await uploads()).toEqual([0, 0])
})

it('a key of the command line is known by all hosts, and revoked on all within a second', async () => {
  const { first, second, address, folder } = await openFleet({}, {})
  const caisson = commandsIn({
    CAISSON_HOME: path.join(folder, 'elsewhere'),
    CAISSON_FLEET: address.connection,
  })
  const made = await caisson('serve', 'keys', 'create', 'ci', '--scope', 'read', '--json')
  const { secret, id } = JSON.parse(made.stdout) as { secret: string; id: string }
  const statuses = async () => {
    const headers = { authorization: `Bearer ${secret}` }
    const answers = [first, second].map(({ send }) => send('GET', '/v1/runs', { headers }))
    return (await Promise.all(answers)).map(({ status }) => status)
  }
  const { now } = performance
  let aheadMs = 0
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now.call(performance) + aheadMs)
  onTestFinished(() => clock.mockRestore())
  expect(await statuses()).toEqual([200, 200])
  expect((await caisson('serve', 'keys', 'list')).stdout).toContain(id)
  await caisson('serve', 'keys', 'revoke', 'ci')
  aheadMs = 1_000
  expect(await statuses()).toEqual([401, 401])
}, 60_000)

it("nobody works on the workspace of another caller's run by its path, whose end is the ID of the run", async () => {
  const { first, second, folder, fleet } = await openFleet({}, {})
  const keys = await keysOf(first.member)
  const scopes = ['read', 'run'] as const
  const [ana, ben] = [await keys.create({ name: 'ana', scopes }), await keys.create({ name: 'ben', scopes })]
  const runId = idOf(await first.start({}, ana.secret))
  const made = path.join(folder, 'home-1', 'service', 'workspaces', runId)
  await mkdir(made, { recursive: true })
  const refused = await second.start({ workspace: made }, ben.secret)
  expect([refused.status, refused.json]).toMatchObject([403, { code: 'workspace_refused' }])
  // The host that carries it out says where it works.
  await fleet.database.query(
    `UPDATE caisson.runs SET workspace = $2, outline = jsonb_set(outline, '{workspace}', to_jsonb($2::text))
      WHERE run_id = $1`,
    [runId, made],
  )
  expect((await second.start({ workspace: made }, ben.secret)).status).toBe(403)
  expect((await second.start({ workspace: made }, ana.secret)).status).toBe(201)
})

it('quotas of a key count over all hosts: runs at work, and tokens of the day', async () => {
  const { first, second, fleet } = await openFleet({}, {})
  const quotas = { maxRuns: 1, maxTokens: 100 }
  const { secret } = await (await keysOf(first.member)).create({ name: 'ci', scopes: ['run'], quotas })
  const runId = idOf(await first.start({}, secret))
  expect(await fleet.database.query('SELECT max_at_work AS max FROM caisson.lanes')).toEqual([{ max: 1 }])
  await noteUse(fleet.database, runId, { tokens: 60, costUsd: 0 })
  const limited = idOf(await second.start({}, secret))
  const [row] = await fleet.database.query<{ limits: unknown }>(
    `SELECT request #> '{start,request,limits}' AS limits FROM caisson.runs WHERE run_id = $1`,
    [limited],
  )
  expect(row?.limits).toMatchObject({ maxTokens: 40 })
  await noteUse(fleet.database, runId, { tokens: 100, costUsd: 0 })
  expect((await second.start({}, secret)).json).toMatchObject({ code: 'too_many_requests' })
  await fleet.database.query(
    `UPDATE caisson.runs SET tokens = 0, tag = NULL, host_id = 'some' WHERE run_id = $1`,
    [runId],
  )
  const refused = await second.start({}, secret)
  expect([refused.status, (refused.json as { detail: string }).detail]).toEqual([
    429,
    '1 runs of the key are at work, and it may have 1',
  ])
})

it('a run that waited while others used what its caller may use in a day ends instead of beginning', async () => {
  const { first, fleet, open } = await openFleet({})
  const quotas = { maxTokens: 100 }
  const { secret } = await (await keysOf(first.member)).create({ name: 'ci', scopes: ['run'], quotas })
  const [used, waiting] = [idOf(await first.start({}, secret)), idOf(await first.start({}, secret))]
  await noteUse(fleet.database, used, { tokens: 100, costUsd: 0 })
  await open({ slots: 1 })
  const result = async () => (await first.get(`/v1/runs/${waiting}/result`)).json
  await expect.poll(result, soon).toMatchObject({
    outcome: 'cancelled',
    message: 'cancelled by the service: the runs of the key have used its 100 tokens of today (UTC)',
  })
})

it.each([
  [60, 40],
  [100, 1],
])(
  'a run that continues has what is left of the day of its caller as its bound, as when others used %i of 100 tokens',
  async (used, maxTokens) => {
    const { first, fleet, open, folder } = await openFleet({})
    const { secret } = await (await keysOf(first.member)).create({
      ...{ name: 'ci', scopes: ['run'], quotas: { maxTokens: 100 } },
    })
    const [other, runId] = [idOf(await first.start({}, secret)), idOf(await first.start({}, secret))]
    // As a fork: it has lines and the limits of a run that had all of the day, and sleeps.
    const { runs, jobs, database } = fleet
    const hold = await runs.take(runId, await headOf(runs, runId), takerOf('one'))
    if (hold === undefined) throw new Error('the run was not taken')
    const blobs = new FleetBlobs(database, new DirectoryBlobs(path.join(folder, 'files')))
    const files = [{ name: 'run.json', ...(await blobs.put(() => Readable.from([Buffer.from('{}')]))) }]
    const [row] = await database.query<{ metadata: RunMetadata }>(
      'SELECT metadata FROM caisson.runs WHERE run_id = $1',
      [runId],
    )
    const begin = {
      type: 'run-start' as const,
      ...{ prompt: 'x', model: 'm', provider: 'none', directory: '/', ...row },
      limits: RunLimits.parse({ maxTokens: 100 }),
    } as const
    const lines = rowsBehind(runId, await headOf(runs, runId), [begin], Date.now())
    await runs.append(hold, lines, { files })
    await database.transaction(async (tx) => {
      await runs.release(hold, true, tx)
      await jobs.remove(tx, runId)
      await tx.query(`UPDATE caisson.runs SET tag = NULL, waits = true WHERE run_id = $1`, [other])
      await jobs.remove(tx, other)
    })
    const resumed = await first.send('POST', `/v1/runs/${runId}/resume`, {
      headers: { authorization: `Bearer ${secret}` },
    })
    expect(resumed.status).toBe(202)
    await noteUse(database, other, { tokens: used, costUsd: 0 })
    const resume = vi.spyOn(Host.prototype, 'resume')
    await open({ slots: 1 })
    await expect.poll(() => resume.mock.calls[0]).toMatchObject([runId, { limits: { maxTokens } }])
  },
)

it('uploads of a caller are bounded over all hosts, and one that is refused leaves nothing', async () => {
  const { first, second, fleet } = await openFleet({}, {})
  const { secret } = await (await keysOf(first.member)).create({ name: 'ci', scopes: ['run'] })
  const headers = { 'content-type': 'application/x-tar', authorization: `Bearer ${secret}` }
  const upload = async ({ send }: Node, body: Buffer) =>
    await send('POST', '/v1/workspaces', { headers, body })
  expect(await upload(first, Buffer.alloc(4_096, 'x'))).toMatchObject({ status: 400 })
  const kept = 'SELECT count(*)::integer AS count FROM caisson.blobs'
  expect(await fleet.database.query(kept)).toEqual([{ count: 0 }])
  const made = await upload(first, Buffer.alloc(1_024))
  expect(made).toMatchObject({ status: 201, json: { entries: 0 } })
  await fleet.database.query(
    `INSERT INTO caisson.uploads (upload_id, sha256, bytes)
     SELECT 'workspace-' || lpad(number::text, 20, '0') || right(upload_id, 12), sha256, bytes
       FROM caisson.uploads, generate_series(1, 99) AS number`,
  )
  const refused = await upload(second, Buffer.alloc(1_024))
  expect([refused.status, refused.json]).toMatchObject([429, { code: 'too_many_requests' }])
})

it('an uploaded workspace that the fleet no longer has is refused, since another host could not get it', async () => {
  const { first, fleet } = await openFleet({})
  const headers = { 'content-type': 'application/x-tar' }
  const { json } = await first.send('POST', '/v1/workspaces', { headers, body: Buffer.alloc(1_024) })
  const { id } = json as { id: string }
  // A day later; its folder is still on the host that got it.
  for (const table of ['uploads', 'blobs']) await fleet.database.query(`DELETE FROM caisson.${table}`)
  const refused = await first.start({ uploadedWorkspace: id })
  expect([refused.status, refused.json]).toMatchObject([
    404,
    {
      code: 'file_not_found',
      detail: expect.stringContaining(id),
      remedy: expect.stringContaining('upload'),
    },
  ])
  expect(await fleet.database.query('SELECT run_id FROM caisson.runs')).toEqual([])
})

it('rows of another form break neither the list of runs nor that of hosts for a client that checks them', async () => {
  const { first, second, fleet } = await openFleet({}, {})
  const runId = idOf(await first.start())
  const damaged = `run-${'a'.repeat(20)}`
  for (const [id, at, outline] of [
    ['../../../etc', 1, null],
    ['run-\u001b[31m<b>', 2, '{}'],
    [damaged, -5, '[1]'],
    [`run-${'b'.repeat(20)}`, '9000000000000000000', '{"startedAt": "soon"}'],
    [`run-${'c'.repeat(20)}`, 3, '"x"'],
  ])
    await fleet.database.query(
      `INSERT INTO caisson.runs (run_id, host_id, seq, bytes, begun_at, outline, metadata, questions)
       VALUES ($1, 'odd', 5, -7, $2, $3::jsonb, '[1]', 3)`,
      [id, at, outline],
    )
  await fleet.database.query(
    `INSERT INTO caisson.hosts (host_id, name, version, slots, facts)
     VALUES ('odd', repeat('<b>', 5000), '', -3, '{"labels": [1]}')`,
  )
  const { runs } = await second.client.call('listRuns', { query: {} })
  expect(runs.map(({ id }) => id)).toHaveLength(4)
  expect(runs.find(({ id }) => id === runId)).toMatchObject({ status: 'queued' })
  expect(runs.find(({ id }) => id === damaged)).toMatchObject({ status: 'damaged' })
  const { hosts } = await second.client.call('getFleet', {})
  expect(hosts.find(({ hostId }) => hostId === 'odd')).toMatchObject({ slots: 0, facts: { labels: [] } })
})

it('a caller reads no address of the database while it is away, and the owner and the log do', async () => {
  const { first, fleet } = await openFleet({})
  const { secret } = await (await keysOf(first.member)).create({ name: 'ci', scopes: ['read'] })
  const headers = { authorization: `Bearer ${secret}` }
  expect((await first.send('GET', '/v1/runs', { headers })).status).toBe(200)
  // As where the keys are known still.
  await fleet.database.query('ALTER TABLE caisson.runs RENAME TO away')
  await fleet.database.query(
    `CREATE FUNCTION caisson.fail() RETURNS SETOF caisson.away LANGUAGE plpgsql AS $$
       BEGIN RAISE EXCEPTION 'at 10.0.0.7' USING ERRCODE = '57P03'; END $$`,
  )
  await fleet.database.query('CREATE VIEW caisson.runs AS SELECT * FROM caisson.fail()')
  const asked = await first.send('GET', '/v1/runs', { headers })
  expect([asked.status, asked.json]).toMatchObject([503, { code: 'state_unavailable' }])
  expect(asked.text).not.toMatch(/postgres|10\.0\.0\.7/)
  expect(JSON.stringify(first.logged)).toContain('10.0.0.7')
  expect((await first.get('/v1/runs')).text).toContain('10.0.0.7')
})
