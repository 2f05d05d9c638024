import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { failure } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { ModelHolds } from '../../providers/model-holds.ts'
import { RequestQueue } from '../../providers/queue.ts'
import { customProvider, startGateway } from '../support/gateway.ts'

const server = 'https://models.test/v1'
const emptyQueue = () => new RequestQueue({ maxConcurrent: 1, requestsPerMinute: null })
const holdsFile = async () => path.join(await temporaryFolder('holds'), 'model-holds.json')

it('other processes learn which models of a key a server holds back, and for how long [G.05]', async () => {
  const file = await holdsFile()
  const one = new ModelHolds(file)
  await one.keep(server, 'sk-secret', 'busy', { heldMs: 60_000, limitedMs: 0 })
  await one.keep(server, 'sk-secret', 'limited', { heldMs: 600_000, limitedMs: 5 * 3_600_000 })
  await one.keep(server, 'sk-secret', 'brief', { heldMs: 500, limitedMs: 0 })
  const queue = emptyQueue()
  const other = new ModelHolds(file)
  await other.tell(queue, `${server}/`, 'sk-secret')
  expect(queue.heldMs('busy')).toBeGreaterThan(50_000)
  expect([queue.limitedMs('busy'), queue.heldMs('brief'), queue.heldMs('another')]).toEqual([0, 0, 0])
  expect(queue.limitedMs('limited')).toBeGreaterThan(4 * 3_600_000)
  const ofOtherKey = emptyQueue()
  await other.tell(ofOtherKey, server, 'sk-other')
  await other.tell(ofOtherKey, 'https://other.test/v1', 'sk-secret')
  expect(ofOtherKey.heldMs('busy')).toBe(0)

  expect(await readFile(file, 'utf8')).not.toContain('sk-secret')
  expect((await stat(file)).mode & 0o777).toBe(0o600)
  expect(await readdir(path.dirname(file))).toEqual(['model-holds.json'])
})

it.each(['', '{', '{"version":1,"holds":[{"key":"x"}]}', '{"version":2,"holds":[]}'])(
  'a file of holds that cannot be read holds nothing back, and is written anew: %s [G.05]',
  async (text) => {
    const file = await holdsFile()
    await writeFile(file, text)
    const queue = emptyQueue()
    const holds = new ModelHolds(file)
    await holds.tell(queue, server, null)
    expect(queue.heldMs('busy')).toBe(0)
    await holds.keep(server, null, 'busy', { heldMs: 5_000, limitedMs: 0 })
    await new ModelHolds(file).tell(queue, server, null)
    expect(queue.heldMs('busy')).toBeGreaterThan(1_000)
  },
)

it('no file can hold a model for more than ten minutes, or where it cannot be written stop a request [G.05]', async () => {
  const file = await holdsFile()
  const holds = new ModelHolds(file)
  await holds.keep(server, null, 'busy', { heldMs: 10 ** 12, limitedMs: 0 })
  const queue = emptyQueue()
  await new ModelHolds(file).tell(queue, server, null)
  expect(queue.heldMs('busy')).toBeLessThanOrEqual(600_000)
  await new ModelHolds('/nowhere/holds.json').keep(server, null, 'busy', { heldMs: 5_000, limitedMs: 0 })
})

it('a run asks no server that refused another process, and says until when [G.05]', async () => {
  const modelHolds = new ModelHolds(await holdsFile())
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
