import { existsSync } from 'node:fs'
import path from 'node:path'
import pg from 'pg'
import { expect, it } from 'vitest'
import { PostgresServer } from '../../../test/support/postgres.ts'

it('a server of a test keeps what was committed over a kill, and leaves no file', async () => {
  const server = await PostgresServer.start()
  const place = new URL(server.address).searchParams.get('host') ?? ''
  try {
    await query(server.address, 'CREATE TABLE kept AS SELECT 1 AS one')
    await server.kill()
    await expect(query(server.address, 'SELECT 1')).rejects.toThrow()
    await server.restart()
    expect(await query(server.address, 'SELECT one FROM kept')).toEqual([{ one: 1 }])
  } finally {
    await server[Symbol.asyncDispose]()
  }
  expect(existsSync(path.join(place, 'data'))).toBe(false)
})

async function query(connectionString: string, text: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString })
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}
