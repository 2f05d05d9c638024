// Two `caisson serve --fleet` processes with state folders of their own: real host, real agent, HTTP, PostgreSQL, and a program
// in the place of QEMU. The one that has a run is lost, and the other finishes it.
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { type Asked, type ServerReply, startModelServer } from '#specs/testing/model-server.ts'
import { parseFleetAddress } from '../../host/fleet/address.ts'
import { Fleet } from '../../host/fleet/fleet.ts'
import { prepareFleet } from '../../host/fleet/prepare.ts'
import { cliPlace, type Place } from '../../host/test/support/cli.ts'
import { type InstalledMachine, installMachine } from '../recovery/machine/install.ts'
import { PostgresServer } from '../support/postgres.ts'
import { type ServedHost, serveHost } from './served-host.ts'

const waiting = { timeout: 90_000, interval: 100 }
let folder: string
let machine: InstalledMachine
let server: PostgresServer
let fleet: Fleet

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-serve-fleet-'))
  machine = await installMachine(folder)
  server = await PostgresServer.start()
  await prepareFleet(parseFleetAddress(server.address, 'the test'), undefined)
  fleet = await Fleet.look(parseFleetAddress(server.address, 'the test'), 'test')
}, 120_000)

afterAll(async () => {
  await fleet[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
}, 60_000)

const step = (id: string, fields: object = {}) => ({
  ...{ id, title: id, instructions: `do ${id}`, writes: [`${id}.txt`] },
  ...fields,
})
const plan = { goal: 'Reach out once', steps: [step('first'), step('second', { needs: ['first'] })] }

/** The model of the run, and a server outside that counts what reaches it. */
async function openWorld() {
  let [reached, released] = [0, false]
  const outside = createServer((_request, response) => {
    reached += 1
    response.end('reached outside')
  })
  outside.listen(0, '127.0.0.1')
  await once(outside, 'listening')
  onTestFinished(() => void outside.close())
  const { port } = outside.address() as AddressInfo
  const model = await startModelServer((asked) => answer(asked, port, released))
  onTestFinished(() => model[Symbol.asyncDispose]())
  return {
    ...{ model, port },
    reached: () => reached,
    release: () => {
      released = true
    },
  }
}

/** The second step has no answer until it is released. */
function answer({ messages }: Asked, port: number, released: boolean): ServerReply {
  const asked = messages.map(({ content }) => content ?? '').join('\n')
  const done = messages.filter(({ role }) => role === 'assistant').length
  const isSecond = /\bdo second\b/.test(asked)
  if (isSecond && !released) return { before: 'hang', body: '' }
  if (done > 0) return reply({ text: 'It is done.' })
  const command = isSecond ? 'echo two > second.txt' : reachOutside(port)
  return reply({ calls: [{ id: 'call-1', name: 'run_bash', arguments: JSON.stringify({ command }) }] })
}

const reachOutside = (port: number) =>
  [
    `address=\${http_proxy#http://}; address=\${address%/}`,
    `exec 3<>/dev/tcp/\${address%:*}/\${address#*:}`,
    `printf 'GET http://127.0.0.1:${port}/ HTTP/1.1\\r\\nhost: 127.0.0.1:${port}\\r\\nconnection: close\\r\\n\\r\\n' >&3`,
    "grep -o 'reached outside' <&3 > first.txt",
  ].join('; ')

async function openPlace(world: { readonly model: { readonly baseUrl: string } }): Promise<Place> {
  const { PATH = '' } = process.env
  const place = await cliPlace(
    { 'given.txt': 'given\n' },
    {
      ...{ CAISSON_LLM_URL: world.model.baseUrl, CAISSON_MODEL: 'scripted', CAISSON_LLM_KEY: 'sk-some-key' },
      ...{ CAISSON_CACHE: machine.cache, PATH: `${machine.programs}:${PATH}`, CAISSON_FLEET: server.address },
    },
  )
  return place
}

const serve = (workspace: string, place: Place) =>
  serveHost(place, { workspace, files: path.join(folder, 'blobs') })

it.each([
  ['is killed', 'SIGKILL'],
  ['is drained', 'SIGTERM'],
] as const)(
  'a run whose service %s behind a checkpoint is finished by another host, with each effect once',
  async (_, signal) => {
    const world = await openWorld()
    const places = [await openPlace(world), await openPlace(world)] as const
    const { workspace } = places[0]
    const hosts = [await serve(workspace, places[0]), await serve(workspace, places[1])]
    const [asked] = hosts
    if (asked === undefined) throw new Error('no host')
    const body = {
      ...{ prompt: plan.goal, workspace, plan: { from: plan as never } },
      egress: {
        rules: [
          { effect: 'allow' as const, host: '127.0.0.1', schemes: ['http' as const], ports: [world.port] },
        ],
      },
      vm: { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2 },
    }
    const { id } = await asked.client.call('createRun', { body, idempotencyKey: signal })
    const params = { run: id }
    // The same request to another host finds the run.
    const again = await hosts[1]?.client.call('createRun', { body, idempotencyKey: signal })
    expect(again?.id).toBe(id)
    const secondAsked = () => world.model.asked.some(({ text }) => text.includes('do second'))
    await expect.poll(secondAsked, waiting).toBe(true)
    const { hostId } = (await fleet.runs.head(id)) ?? {}
    const lost = hosts.findIndex((host) => host.hostId === hostId)
    const [victim, heir] = [hosts[lost], hosts[1 - lost]]
    const [lostPlace] = [places[lost]]
    if (victim === undefined || heir === undefined || lostPlace === undefined)
      throw new Error('nobody has the run')
    victim.process.child.kill(signal)
    const { code } = await victim.process.ended
    if (signal === 'SIGTERM')
      expect([code, victim.process.errors()]).toEqual([
        0,
        expect.stringContaining('other hosts of the fleet continue it'),
      ])
    world.release()
    const result = async (from: ServedHost) =>
      await from.client.call('getResult', { params, query: { waitMs: '1000' } }).catch(() => undefined)
    await expect
      .poll(() => result(heir), waiting)
      .toMatchObject({ outcome: 'completed', changes: { entries: 2 } })
    const { events } = await heir.client.call('listEvents', { params, query: { limit: '1000' } })
    const types = events.map(({ event }) => event.type)
    expect(types.filter((type) => type === 'run-end')).toHaveLength(1)
    expect(types.filter((type) => type === 'run-take')).toHaveLength(1)
    expect(types).toContain('run-resume')
    expect(world.reached()).toBe(1)
    // The other one reads the same, once it is there again.
    const restarted = await serve(workspace, lostPlace)
    const [one, other] = [await result(heir), await result(restarted)]
    expect(other).toEqual(one)
  },
  300_000,
)
