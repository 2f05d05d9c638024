// The model keys of a fleet: hosts with the same key share its rate and its pauses.
import { afterAll, beforeAll, expect, it } from 'vitest'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import type { FleetAddress } from '../../fleet/address.ts'
import { Fleet } from '../../fleet/fleet.ts'
import { customProvider, startGateway, testKey } from '../support/gateway.ts'
import { newDatabase } from './fleet-place.ts'

let server: PostgresServer
let address: FleetAddress

beforeAll(async () => {
  server = await PostgresServer.start()
  address = await newDatabase(server)
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

const open = async (name: string, place = address) =>
  await Fleet.open(place, { name, version: '1', slots: 0, warn: () => undefined })

it('two hosts with the same key send no more requests in a minute than its rate, and hosts with another key are not counted', async () => {
  await using one = await open('one')
  await using two = await open('two')
  await using models = await startModelServer(() => reply({ text: 'yes' }))
  const provider = { ...customProvider(models.baseUrl), requestsPerMinute: 20, maxConcurrent: 20 }
  const timeouts = { queueTimeoutMs: 12_000 }
  await using first = await startGateway(provider, { sharedKeys: one.keys, timeouts })
  await using second = await startGateway(provider, { sharedKeys: two.keys, timeouts })
  let accepted = 0
  // As many as a run may have open, one behind the other, until one waits for too long.
  const askOn = async (gateway: typeof first) => {
    while ((await gateway.request()).status === 200) accepted += 1
  }
  await Promise.all([first, second].flatMap((gateway) => [askOn(gateway), askOn(gateway), askOn(gateway)]))
  expect(models.asked.length).toBe(accepted)
  expect(accepted).toBeLessThanOrEqual(20)
  // What a host has leased and does not use is lost.
  expect(accepted).toBeGreaterThanOrEqual(16)
  const other = { ...customProvider(models.baseUrl, 'nvapi-other-0123456789abcdef'), requestsPerMinute: 20 }
  await using third = await startGateway(other, { sharedKeys: two.keys, timeouts })
  expect(await third.request()).toMatchObject({ status: 200 })
  const rows = await one.database.query('SELECT * FROM caisson.model_keys')
  expect(rows).toHaveLength(2)
  expect(JSON.stringify(rows)).not.toContain(testKey)
}, 60_000)

it('a refusal with Retry-After that one host sees holds the others, also those that wait already', async () => {
  await using one = await open('one')
  await using two = await open('two')
  await using models = await startModelServer((_, index) =>
    index === 0
      ? { ...failure(429, 'too many'), headers: { 'content-type': 'application/json', 'retry-after': '3' } }
      : reply({ text: 'yes' }),
  )
  const provider = customProvider(models.baseUrl)
  await using first = await startGateway(provider, { sharedKeys: one.keys })
  await using second = await startGateway(provider, { sharedKeys: two.keys })
  const since = performance.now()
  const refused = first.request()
  await expect.poll(async () => (await two.database.query('SELECT FROM caisson.model_holds')).length).toBe(1)
  const held = second.request()
  await second.waitsFor('pause')
  expect(models.asked).toHaveLength(1)
  expect((await held).status).toBe(200)
  expect(performance.now() - since).toBeGreaterThan(2_500)
  expect((await refused).status).toBe(200)
}, 60_000)

it('while the database is away a host sends its share', async () => {
  await using own = await PostgresServer.start()
  const place = await newDatabase(own)
  await using one = await open('one', place)
  await using two = await open('two', place)
  await using models = await startModelServer(() => reply({ text: 'yes' }))
  const provider = { ...customProvider(models.baseUrl), requestsPerMinute: 8, maxConcurrent: 20 }
  const timeouts = { queueTimeoutMs: 9_000 }
  await using first = await startGateway(provider, { sharedKeys: one.keys, timeouts })
  await using second = await startGateway(provider, { sharedKeys: two.keys, timeouts })
  expect((await second.request()).status).toBe(200)
  expect((await first.request()).status).toBe(200)
  await own[Symbol.asyncDispose]()
  const answers = await Promise.all(Array.from({ length: 8 }, () => first.request()))
  // Half of the rate; one was sent before.
  expect(answers.filter(({ status }) => status === 200).length).toBe(3)
}, 90_000)
