import { existsSync } from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { ApiKeys } from '../../api-keys/api-keys.ts'
import { parseFleetAddress } from '../../fleet/address.ts'
import { ApiKeyRows } from '../../fleet/api-key-rows.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { resolveFolders } from '../../state/folders.ts'

it('all nodes know the keys of a fleet, refuse a revoked one within a second, and any while the database is away', async () => {
  await using server = await PostgresServer.start()
  const address = parseFleetAddress(server.address, 'the test')
  const folder = await temporaryFolder('fleet-keys')
  const openNode = async (name: string) => {
    const database = await FleetDatabase.open(address)
    const folders = resolveFolders({ CAISSON_HOME: path.join(folder, name) })
    return { database, folders, keys: new ApiKeys(folders, Date.now, new ApiKeyRows(database)) }
  }
  const [one, two] = await Promise.all([openNode('one'), openNode('two')])
  const options = { name: 'ci', scopes: ['read'], quotas: { maxRuns: 2 } } as const
  const { key, secret } = await one.keys.create(options)
  expect(await two.keys.recognize(secret)).toEqual(key)
  expect(await two.keys.list()).toEqual([key])
  expect(await two.keys.isValid(key.id)).toBe(true)
  expect(await two.keys.recognize(`${secret.slice(0, -1)}!`)).toBeNull()
  expect(existsSync(path.join(folder, 'one', 'api-keys.json'))).toBe(false)
  expect(one.keys.file).not.toContain('password')
  // What the database has leads to no secret.
  expect(JSON.stringify(await one.database.query('SELECT * FROM caisson.api_keys'))).not.toContain(secret)
  await expect(two.keys.create(options)).rejects.toThrow(/has the name ci already/)
  const made = await Promise.allSettled(
    Array.from({ length: 8 }, (_, index) =>
      (index % 2 ? one : two).keys.create({ ...options, name: 'same' }),
    ),
  )
  expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
  const since = performance.now()
  expect(await one.keys.revoke('ci')).toEqual(key)
  expect(await one.keys.recognize(secret)).toBeNull()
  await expect.poll(() => two.keys.recognize(secret), { timeout: 5_000, interval: 20 }).toBeNull()
  expect(performance.now() - since).toBeLessThan(3_000)
  await server.kill()
  await new Promise((resolve) => setTimeout(resolve, 600))
  await expect(two.keys.recognize(secret)).rejects.toMatchObject({ code: 'state_unavailable' })
  for (const { database } of [one, two]) await database[Symbol.asyncDispose]()
}, 60_000)
