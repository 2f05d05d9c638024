import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { labelsOf, nameOf } from '../../cli/commands/fleet-environment.ts'
import type { FleetAddress } from '../../fleet/address.ts'
import { Fleet, type FleetOptions } from '../../fleet/fleet.ts'
import { newRunId } from '../../journal/run-store.ts'
import { commandsIn } from '../support/run-command.ts'
import { headOf, newDatabase } from './fleet-place.ts'

let server: PostgresServer
let address: FleetAddress
let fleet: (...given: string[]) => ReturnType<ReturnType<typeof commandsIn>>
const start = { priority: 'normal', isContinued: false } as const
const soon = { timeout: 20_000 }

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

beforeEach(async () => {
  address = await newDatabase(server)
  const caisson = commandsIn({
    CAISSON_HOME: await temporaryFolder('home'),
    CAISSON_FLEET: address.connection,
  })
  fleet = (...given) => caisson('fleet', ...given)
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

async function openHost(name: string, options: Partial<FleetOptions> = {}): Promise<Fleet> {
  return await Fleet.open(address, { name, version: '1', slots: 1, warn: () => undefined, ...options })
}

/** Has each run until the run is asked to leave. */
async function hold(host: Fleet): Promise<void> {
  await host.work(async (_, { lost, leave }) => {
    const over = AbortSignal.any([lost, leave])
    if (!over.aborted) await new Promise((resolve) => over.addEventListener('abort', resolve, { once: true }))
    return 'again'
  })
}

it('fleet hosts shows accelerator, image and labels, and which hosts drain or are gone; fleet drain --undo undoes a drain', async () => {
  const facts = () =>
    ({
      labels: ['gpu', 'zone=eu'],
      architecture: 'x64',
      accelerator: 'kvm',
      image: '0123456789abcdef-fedcba9876543210',
    }) as const
  await using first = await openHost('first', { facts: () => ({ ...facts(), labels: [...facts().labels] }) })
  const gone = await openHost('gone')
  await gone[Symbol.asyncDispose]()
  const { stdout, code } = await fleet('drain', 'first')
  expect([code, stdout]).toEqual([0, `first (${first.hostId}) takes no more runs; it has none\n`])
  const listed = await fleet('hosts')
  expect(listed.stdout).toMatch(
    /first +1 +draining +0 +1 +\d+ s ago +x64 kvm +01234567-fedcba98 +gpu,zone=eu/,
  )
  expect(listed.stdout).toMatch(/gone +1 +gone /)
  expect((await fleet('status')).stdout).toMatch(/hosts: +1, 1 draining\nslots: +0 free of 0\n/)
  expect((await fleet('drain', first.hostId, '--undo')).stdout).toContain('takes runs again')
  expect((await fleet('hosts')).stdout).toMatch(/first +1 +takes runs/)
  const unknown = await fleet('drain', "x' OR true --")
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('the fleet has no host')])
})

it('fleet move brings a run to another host, and refuses what it cannot move', async () => {
  await using first = await openHost('first')
  await hold(first)
  const runId = newRunId()
  await first.add(runId, start)
  const holder = async () => (await headOf(first.runs, runId)).hostId
  await expect.poll(holder, soon).toBe(first.hostId)
  await using second = await openHost('second')
  await hold(second)
  const moved = await fleet('move', runId, 'second')
  expect(moved).toMatchObject({
    code: 0,
    stdout: `second takes ${runId} after its next checkpoint, at the latest in 30 s\n`,
  })
  await expect.poll(holder, soon).toBe(second.hostId)
  const back = await fleet('move', runId, '--json')
  expect(JSON.parse(back.stdout)).toEqual({ runId, state: 'moving' })
  await expect.poll(holder, soon).toBe(first.hostId)
  expect(await fleet('move', newRunId())).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/the fleet has no run .+; expected a whole ID/),
  })
  expect(await fleet('move', runId, 'nobody')).toMatchObject({ code: 2 })
})

it('fleet status counts by reason what no host can serve', async () => {
  await using host = await openHost('first', { facts: () => ({ architecture: 'x64' }) })
  const runId = newRunId()
  await host.add(runId, { ...start, requires: { labels: ['gpu'] } })
  expect((await fleet('status')).stdout).toMatch(
    /wait for a host: +1\n(.+\n)+no host can serve:\n {2}no host has their labels: 1\n/,
  )
  const { signals } = JSON.parse((await fleet('status', '--json')).stdout)
  expect(signals).toMatchObject({ waiting: 1, unservable: { labels: 1, memory: 0 }, slots: { free: 1 } })
})

it('--fleet-labels are names, or names with a value, between commas: each once and in order', () => {
  expect(labelsOf('')).toEqual([])
  expect(labelsOf('zone=a, gpu,gpu ,disk=ssd/nvme')).toEqual(['disk=ssd/nvme', 'gpu', 'zone=a'])
  const many = Array.from({ length: 33 }, (_, at) => `n${at}`).join(',')
  for (const wrong of [',', 'gpu,', '=a', '-x', 'a b', 'a=b=c', 'a;b', 'ü', 'x'.repeat(64), 'a\u0000', many])
    expect(() => labelsOf(wrong), wrong).toThrow(/^--fleet-labels: .+ cannot be used; pass at most 32/)
})

it('--fleet-name is a name of letters, digits and . _ -, and needs a fleet', async () => {
  for (const name of ['a', 'gpu-2', 'db.example.com', 'x'.repeat(63)]) expect(nameOf(name)).toBe(name)
  for (const wrong of ['', '-a', 'a b', 'a,b', 'ü', 'a\u0000', 'x'.repeat(64)])
    expect(() => nameOf(wrong), wrong).toThrow(/^--fleet-name: .+ cannot be used; pass 1 to 63/)
  const caisson = commandsIn({ CAISSON_HOME: await temporaryFolder('home') })
  const alone = await caisson('serve', '--port', '0', '--fleet-name', 'a')
  expect(alone).toMatchObject({ code: 2 })
  expect(alone.stderr).toMatch(/--fleet-name need a fleet; pass --fleet or --fleet-file too/)
})
