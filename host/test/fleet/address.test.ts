import { writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { parseFleetAddress, readFleetAddress } from '../../fleet/address.ts'

const secret = 'hunter2%21'
const withPassword = `postgres://caisson:${secret}@localhost:5432/runs`

it('takes an address from the command line, a file or the environment, in this order', async () => {
  const file = path.join(await temporaryFolder(), 'address')
  await writeFile(file, 'postgres://localhost/file\n# a comment\n')
  const env = { CAISSON_FLEET: 'postgres://localhost/env' }
  const argument = 'postgres://localhost/argument'
  const read = async (source: object) => (await readFleetAddress({ env, ...source }))?.shown
  expect(await read({ argument, file })).toBe('postgres://localhost/argument')
  expect(await read({ file })).toBe('postgres://localhost/file')
  expect(await read({})).toBe('postgres://localhost/env')
  expect(await readFleetAddress({ env: { CAISSON_FLEET: '' } })).toBeUndefined()
})

it('shows an address without its password', async () => {
  const inFile = await readFleetAddress({ env: { CAISSON_FLEET: withPassword } })
  expect(inFile).toEqual({
    connection: withPassword,
    shown: 'postgres://caisson@localhost:5432/runs',
    secrets: [secret, 'hunter2!'],
  })
  const inQuery = parseFleetAddress(`postgresql:///runs?host=/run/pg&user=me&password=${secret}`, 'x')
  expect(inQuery.shown).toBe('postgresql://me@/run/pg/runs')
})

it('refuses a password in the command line without repeating it', async () => {
  const forms = [
    withPassword,
    `postgres://localhost/runs?password=${secret}&x=1`,
    `postgres://:${secret}@localhost/x`,
  ]
  for (const argument of forms) {
    const error = await readFleetAddress({ argument, env: {} }).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({
      code: 'invalid_options',
      message: expect.stringMatching(/--fleet holds a password.*PGPASSFILE.*--fleet-file/s),
    })
    expect(String(error)).not.toContain('hunter2')
  }
})

it('refuses what is no address of PostgreSQL without repeating it', async () => {
  for (const text of [
    `mysql://me:${secret}@host/x`,
    `postgres://me:${secret}@a b/`,
    `host=x password=${secret}`,
  ]) {
    const error = await readFleetAddress({ env: { CAISSON_FLEET: text } }).catch((thrown: unknown) => thrown)
    expect(error).toMatchObject({
      code: 'invalid_options',
      message: expect.stringContaining('CAISSON_FLEET'),
    })
    expect(String(error)).not.toContain('hunter2')
  }
})

it('refuses a connection over a network that does not say how it is protected', async () => {
  expect(() => parseFleetAddress('postgres://db.example.com/runs', 'CAISSON_FLEET')).toThrow(
    /does not say how the connection to db\.example\.com is protected; add \?sslmode=verify-full/,
  )
  expect(() => parseFleetAddress('postgres:///runs?host=db.example.com', 'CAISSON_FLEET')).toThrow(/sslmode/)
  for (const host of ['localhost', '127.0.0.1', '[::1]'])
    expect(parseFleetAddress(`postgres://${host}/runs`, 'x').secrets).toEqual([])
  expect(parseFleetAddress('postgres://db.example.com/runs?sslmode=verify-full', 'x').shown).toBe(
    'postgres://db.example.com/runs',
  )
})

it('judges the host and the passwords that the driver takes, of options that are there twice too', () => {
  expect(() =>
    parseFleetAddress('postgres:///runs?host=localhost&host=db.example.com', 'CAISSON_FLEET'),
  ).toThrow(/the connection to db\.example\.com is protected/)
  const twice = parseFleetAddress(`postgres://localhost/x?password=first&password=${secret}`, 'x')
  expect(twice.secrets).toEqual(['first', 'hunter2!'])
  expect(parseFleetAddress('postgres://localhost/x?password=50%25zz', 'x').secrets).toEqual(['50%zz'])
})

it('refuses an address without a host, which PGHOST would choose', () => {
  expect(() => parseFleetAddress('postgres:///runs', 'CAISSON_FLEET')).toThrow(
    /CAISSON_FLEET names no host; expected postgres:\/\/USER@HOST:PORT\/DATABASE/,
  )
})

it('refuses a percent sign that encodes nothing without repeating the password', () => {
  for (const text of ['postgres://me:hunter2%zz@localhost/x', 'postgres://localhost%zz/x']) {
    let error: unknown
    try {
      parseFleetAddress(text, 'CAISSON_FLEET')
    } catch (thrown) {
      error = thrown
    }
    expect(error, text).toMatchObject({ code: 'invalid_options' })
    expect(String(error)).not.toContain('hunter2')
  }
})

it('names a file that cannot be read', async () => {
  await expect(readFleetAddress({ file: '/nowhere/address', env: {} })).rejects.toThrow(
    '--fleet-file /nowhere/address cannot be read: it does not exist',
  )
})
