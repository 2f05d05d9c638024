import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import { failure } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { ModelHolds } from '../../providers/model-holds.ts'
import { RequestQueue } from '../../providers/queue.ts'
import { customProvider, startGateway } from '../support/gateway.ts'
import { stateFolders } from '../support/state-folders.ts'

const server = 'https://models.test/v1'
const emptyQueue = () => new RequestQueue({ maxConcurrent: 1, requestsPerMinute: null })
const holdsFolders = () => stateFolders('holds')

it('other processes learn which models of a key a server holds back, and for how long [G.05]', async () => {
  const folders = await holdsFolders()
  const one = new ModelHolds(folders)
  await one.keep(server, 'sk-secret', 'busy', { heldMs: 60_000, limitedMs: 0 })
  await one.keep(server, 'sk-secret', 'limited', { heldMs: 600_000, limitedMs: 5 * 3_600_000 })
  await one.keep(server, 'sk-secret', 'brief', { heldMs: 500, limitedMs: 0 })
  const queue = emptyQueue()
  const other = new ModelHolds(folders)
  await other.tell(queue, `${server}/`, 'sk-secret')
  expect(queue.heldMs('busy')).toBeGreaterThan(50_000)
  expect([queue.limitedMs('busy'), queue.heldMs('brief'), queue.heldMs('another')]).toEqual([0, 0, 0])
  expect(queue.limitedMs('limited')).toBeGreaterThan(4 * 3_600_000)
  const ofOtherKey = emptyQueue()
  await other.tell(ofOtherKey, server, 'sk-other')
  await other.tell(ofOtherKey, 'https://other.test/v1', 'sk-secret')
  expect(ofOtherKey.heldMs('busy')).toBe(0)

  expect(await readFile(one.file, 'utf8')).not.toContain('sk-secret')
  expect((await stat(one.file)).mode & 0o777).toBe(0o600)
  expect((await readdir(folders.home)).toSorted()).toEqual(['locks', 'model-holds.json'])
})

it.each(['', '{', '{"version":1,"holds":[{"key":"x"}]}', '{"version":2,"holds":[]}'])(
  'a file of holds that cannot be read holds nothing back, and is written anew: %s [G.05]',
  async (text) => {
    const folders = await holdsFolders()
    const holds = new ModelHolds(folders)
    await writeFile(holds.file, text)
    const queue = emptyQueue()
    await holds.tell(queue, server, null)
    expect(queue.heldMs('busy')).toBe(0)
    await holds.keep(server, null, 'busy', { heldMs: 5_000, limitedMs: 0 })
    await new ModelHolds(folders).tell(queue, server, null)
    expect(queue.heldMs('busy')).toBeGreaterThan(1_000)
  },
)

it('no file can hold a model for more than ten minutes, or where it cannot be written stop a request [G.05]', async () => {
  const folders = await holdsFolders()
  const holds = new ModelHolds(folders)
  await holds.keep(server, null, 'busy', { heldMs: 10 ** 12, limitedMs: 0 })
  const queue = emptyQueue()
  await new ModelHolds(folders).tell(queue, server, null)
  expect(queue.heldMs('busy')).toBeLessThanOrEqual(600_000)
  await new ModelHolds({ home: '/nowhere', locks: '/nowhere' }).keep(server, null, 'busy', {
    heldMs: 5_000,
    limitedMs: 0,
  })
})

it('a hold written before the clock was set back is not renewed by its readers [G.05]', async () => {
  const folders = await holdsFolders()
  const holds = new ModelHolds(folders)
  await holds.keep(server, null, 'busy', { heldMs: 5_000, limitedMs: 0 })
  const stored = JSON.parse(await readFile(holds.file, 'utf8'))
  stored.holds[0].heldUntil += 365 * 24 * 3_600_000
  await writeFile(holds.file, JSON.stringify(stored))
  const queue = emptyQueue()
  await new ModelHolds(folders).tell(queue, server, null)
  expect(queue.heldMs('busy')).toBe(0)
  await holds.keep(server, null, 'other', { heldMs: 5_000, limitedMs: 0 })
  expect(JSON.parse(await readFile(holds.file, 'utf8')).holds).toHaveLength(1)
})

it('the holds that several processes learn at the same moment are all kept [G.05]', async () => {
  const folders = await holdsFolders()
  const models = Array.from({ length: 8 }, (_, at) => `m${at}`)
  const hold = { heldMs: 60_000, limitedMs: 0 }
  await Promise.all(models.map((model) => new ModelHolds(folders).keep(server, null, model, hold)))
  const queue = emptyQueue()
  await new ModelHolds(folders).tell(queue, server, null)
  expect(models.filter((model) => queue.heldMs(model) === 0)).toEqual([])
})

it.each(['1e15', '1e300', '-5', 'Fri, 01 Jan 9999 00:00:00 GMT', '0x7fffffff'])(
  'a server that asks for a pause of %s neither breaks the error nor the file of holds [G.05]',
  async (retryAfter) => {
    const modelHolds = new ModelHolds(await holdsFolders())
    await modelHolds.keep(server, null, 'other', { heldMs: 60_000, limitedMs: 0 })
    const refusal = { ...failure(429, 'Rate limit reached'), headers: { 'retry-after': retryAfter } }
    await using refusing = await startModelServer([refusal, refusal, refusal])
    const short = { queueTimeoutMs: 200 }
    await using gateway = await startGateway(customProvider(refusing.baseUrl), {
      modelHolds,
      timeouts: short,
    })
    expect(await gateway.request()).toMatchObject({ status: 429 })
    expect(JSON.stringify(gateway.reported)).not.toMatch(/e\+\d/)
    const queue = emptyQueue()
    await modelHolds.tell(queue, server, null)
    expect(queue.heldMs('other')).toBeGreaterThan(1_000)
  },
)

it('a run asks no server that refused another process, and says until when [G.05]', async () => {
  const modelHolds = new ModelHolds(await holdsFolders())
  await using refusing = await startModelServer([failure(429, 'Rate limit reached, try again in 5 hours')])
  await using first = await startGateway(customProvider(refusing.baseUrl), { modelHolds })
  expect(await first.request()).toMatchObject({ code: 'limit_model' })
  // Another address has a queue of its own in this process, as another process would.
  const elsewhere = refusing.baseUrl.replace('127.0.0.1', 'localhost')
  const stored = JSON.parse(await readFile(modelHolds.file, 'utf8'))
  expect(stored.holds).toHaveLength(1)
  await modelHolds.keep(elsewhere, customProvider(elsewhere).key?.reveal() ?? null, 'test/model', {
    heldMs: 600_000,
    limitedMs: 3_600_000,
  })
  await using second = await startGateway(customProvider(elsewhere), { modelHolds })
  expect(await second.request()).toMatchObject({ status: 429, code: 'limit_model' })
  expect(refusing.asked).toHaveLength(1)
})
