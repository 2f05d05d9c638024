import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { CapabilityCache } from '../../providers/capability-cache.ts'

const server = 'https://a.test/v1'
const day = 24 * 3_600_000

describe('what is remembered of models', () => {
  it('is there for the next process, by server and model, in a file of the user alone [G.05]', async () => {
    const folder = await temporaryFolder('memory')
    const file = path.join(folder, 'models.json')
    const capabilityCache = new CapabilityCache(file)
    await Promise.all([
      capabilityCache.learn(server, 'm', { refusedFields: ['seed'], contextTokens: 4096 }),
      capabilityCache.learn(server, 'm', { refusedFields: ['stop'] }),
      capabilityCache.learn(server, 'other', { isGone: true }),
    ])
    const next = new CapabilityCache(file)
    expect(await next.recall(server, 'm')).toEqual({ refusedFields: ['seed', 'stop'], contextTokens: 4096 })
    expect(await next.recall('https://b.test/v1', 'm')).toEqual({})
    expect(await next.gone(server)).toEqual(['other'])
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    expect(await readdir(folder)).toEqual(['models.json'])
  })

  it('keeps what another process learned in between [G.05]', async () => {
    const file = path.join(await temporaryFolder('memory'), 'models.json')
    const [one, other] = [new CapabilityCache(file), new CapabilityCache(file)]
    await one.recall(server, 'a')
    await other.learn(server, 'b', { singleCalls: true })
    await one.learn(server, 'a', { singleCalls: true })
    expect(await new CapabilityCache(file).recall(server, 'b')).toEqual({ singleCalls: true })
  })

  it('is forgotten after a month, and never more than two hundred models [G.05]', async () => {
    const file = path.join(await temporaryFolder('memory'), 'models.json')
    await new CapabilityCache(file, () => 0).learn(server, 'old', { isGone: true })
    expect(await new CapabilityCache(file, () => 29 * day).recall(server, 'old')).toEqual({ isGone: true })
    expect(await new CapabilityCache(file, () => 31 * day).recall(server, 'old')).toEqual({})
    const capabilityCache = new CapabilityCache(file, () => day)
    for (let index = 0; index < 210; index += 1)
      await capabilityCache.learn(server, `m${index}`, { isGone: true })
    expect(JSON.parse(await readFile(file, 'utf8')).models).toHaveLength(200)
    expect(await capabilityCache.recall(server, 'm209')).toEqual({ isGone: true })
    expect(await capabilityCache.recall(server, 'm0')).toEqual({})
  })

  it.each([
    ['nothing', ''],
    ['no JSON', '{"version":1'],
    ['another version', '{"version":2,"models":[]}'],
    [
      'a field that no request can do without',
      `{"version":1,"models":[{"server":"${server}","model":"m","at":0,"said":{"refusedFields":["messages"]}}]}`,
    ],
  ])('counts as empty when the file holds %s [G.05]', async (_, text) => {
    const file = path.join(await temporaryFolder('memory'), 'models.json')
    await writeFile(file, text)
    const capabilityCache = new CapabilityCache(file)
    expect(await capabilityCache.recall(server, 'm')).toEqual({})
    await capabilityCache.learn(server, 'm', { singleCalls: true })
    expect(await new CapabilityCache(file).recall(server, 'm')).toEqual({ singleCalls: true })
  })

  it('lasts as long as the object where there is no folder to keep it [G.05]', async () => {
    const capabilityCache = new CapabilityCache(null)
    await capabilityCache.learn(server, 'm', { singleCalls: true })
    expect(await capabilityCache.recall(server, 'm')).toEqual({ singleCalls: true })
    const lost = new CapabilityCache('/nowhere/at/all/models.json')
    await lost.learn(server, 'm', { singleCalls: true })
    expect(await lost.recall(server, 'm')).toEqual({ singleCalls: true })
  })
})
