import { readdir, readFile, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { CapabilityCache } from '../../providers/capability-cache.ts'
import { stateFolders } from '../support/state-folders.ts'

const server = 'https://a.test/v1'
const fileOf = ({ home }: { readonly home: string }) => path.join(home, 'models.json')
const day = 24 * 3_600_000

describe('what is remembered of models', () => {
  it('is there for the next process, by server and model, in a file of the user alone [G.05]', async () => {
    const folders = await stateFolders('memory')
    const capabilityCache = new CapabilityCache(folders)
    await Promise.all([
      capabilityCache.learn(server, 'm', { refusedFields: ['seed'], contextTokens: 4096 }),
      capabilityCache.learn(server, 'm', { refusedFields: ['stop'] }),
      capabilityCache.learn(server, 'other', { isGone: true }),
    ])
    const next = new CapabilityCache(folders)
    expect(await next.recall(server, 'm')).toEqual({ refusedFields: ['seed', 'stop'], contextTokens: 4096 })
    expect(await next.recall('https://b.test/v1', 'm')).toEqual({})
    expect(await next.gone(server)).toEqual(['other'])
    expect((await stat(fileOf(folders))).mode & 0o777).toBe(0o600)
    expect((await readdir(folders.home)).toSorted()).toEqual(['locks', 'models.json'])
    expect(await readdir(folders.locks)).toEqual([])
  })

  it('keeps what another process learned in between [G.05]', async () => {
    const folders = await stateFolders('memory')
    const [one, other] = [new CapabilityCache(folders), new CapabilityCache(folders)]
    await one.recall(server, 'a')
    await other.learn(server, 'b', { singleCalls: true })
    await one.learn(server, 'a', { singleCalls: true })
    expect(await new CapabilityCache(folders).recall(server, 'b')).toEqual({ singleCalls: true })
  })

  it('is forgotten after a month, and never more than two hundred models [G.05]', async () => {
    const folders = await stateFolders('memory')
    await new CapabilityCache(folders, () => 0).learn(server, 'old', { isGone: true })
    expect(await new CapabilityCache(folders, () => 29 * day).recall(server, 'old')).toEqual({ isGone: true })
    expect(await new CapabilityCache(folders, () => 31 * day).recall(server, 'old')).toEqual({})
    const entries = Array.from({ length: 200 }, (_, at) => ({
      ...{ server, model: `m${200 - at}`, at: day - at },
      said: { isGone: true },
    }))
    await writeFile(fileOf(folders), JSON.stringify({ version: 1, models: entries }))
    const capabilityCache = new CapabilityCache(folders, () => day)
    await capabilityCache.learn(server, 'm201', { isGone: true })
    expect(JSON.parse(await readFile(fileOf(folders), 'utf8')).models).toHaveLength(200)
    expect(await capabilityCache.recall(server, 'm201')).toEqual({ isGone: true })
    expect(await capabilityCache.recall(server, 'm1')).toEqual({})
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
    const folders = await stateFolders('memory')
    await writeFile(fileOf(folders), text)
    const capabilityCache = new CapabilityCache(folders)
    expect(await capabilityCache.recall(server, 'm')).toEqual({})
    await capabilityCache.learn(server, 'm', { singleCalls: true })
    expect(await new CapabilityCache(folders).recall(server, 'm')).toEqual({ singleCalls: true })
  })

  it('lasts as long as the object where there is no folder to keep it [G.05]', async () => {
    const capabilityCache = new CapabilityCache(null)
    await capabilityCache.learn(server, 'm', { singleCalls: true })
    expect(await capabilityCache.recall(server, 'm')).toEqual({ singleCalls: true })
    const lost = new CapabilityCache({ home: '/nowhere/at/all', locks: '/nowhere/at/all' })
    await lost.learn(server, 'm', { singleCalls: true })
    expect(await lost.recall(server, 'm')).toEqual({ singleCalls: true })
  })
})
