// A fleet's PostgreSQL with TLS on a port of this machine: which certificates a host accepts, and what it says of others.
import { chmod, copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { Authority, type Signed } from '../../../test/support/certificates.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { parseFleetAddress } from '../../fleet/address.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { Fleet } from '../../fleet/fleet.ts'

let folder: string
let authority: Authority
let other: Authority
let server: PostgresServer
let port: number
let client: Signed

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-tls-'))
  authority = await Authority.create(folder, 'authority')
  other = await Authority.create(folder, 'other')
  client = await authority.sign({ name: 'worker' })
  const trusted = await authority.sign({ name: 'database', altNames: 'DNS:localhost' })
  ;[server, port] = await atFreePort((free) => startServer(trusted, free))
  await using owner = await FleetDatabase.open(parseFleetAddress(server.address, 'the test'))
  await owner.query("CREATE ROLE worker LOGIN SUPERUSER; CREATE ROLE plain LOGIN PASSWORD 'secret-word'")
  await owner.query('GRANT USAGE ON SCHEMA caisson TO plain; GRANT SELECT ON caisson.form TO plain')
}, 60_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

/** With TLS alone; `worker` needs a certificate, `plain` a password. */
async function startServer({ cert, key }: Signed, listensOn: number): Promise<PostgresServer> {
  return await PostgresServer.start({
    settings: [
      ...['listen_addresses=127.0.0.1', `port=${listensOn}`, 'ssl=on', 'ssl_ca_file=ca.crt'],
      ...['ssl_cert_file=its.crt', 'ssl_key_file=its.key'],
    ],
    prepare: async (data) => {
      await copyFile(cert, path.join(data, 'its.crt'))
      await copyFile(key, path.join(data, 'its.key'))
      await chmod(path.join(data, 'its.key'), 0o600)
      await copyFile(authority.cert, path.join(data, 'ca.crt'))
      const rules = [
        'local all all trust',
        'hostssl all worker 127.0.0.1/32 cert',
        'hostssl all plain 127.0.0.1/32 scram-sha-256',
      ]
      await writeFile(path.join(data, 'pg_hba.conf'), `${rules.join('\n')}\n`)
    },
  })
}

const addressOf = (options: Readonly<Record<string, string>>, host = 'localhost', at = port) =>
  parseFleetAddress(`postgres://${host}:${at}/postgres?${new URLSearchParams(options)}`, 'the test')

/** What a host says that cannot use the address. */
async function refusal(address: ReturnType<typeof addressOf>): Promise<string> {
  const error = await FleetDatabase.open(address).then(
    async (database) => {
      await database[Symbol.asyncDispose]()
      return new Error('it was accepted')
    },
    (thrown: unknown) => thrown as Error,
  )
  const { message, stack, cause } = error
  expect(`${message} ${stack} ${cause}`).not.toContain('secret-word')
  return `${(error as { code?: string }).code}: ${message}`
}

const full = { sslmode: 'verify-full', user: 'plain', password: 'secret-word' }

it('a host checks the certificate of the database, and jobs and notices use the same connection rules', async () => {
  const address = addressOf({
    sslmode: 'verify-full',
    user: 'worker',
    sslrootcert: authority.cert,
    ...filesOf(client),
  })
  await using fleet = await Fleet.open(address, { name: 'a', version: '1', slots: 1, warn: () => undefined })
  const used = await fleet.database.query<{ ssl: boolean; name: string }>(
    `SELECT ssl, client_dn AS name FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = 'worker'`,
  )
  expect(used.length).toBeGreaterThan(1)
  expect(new Set(used.map(({ ssl, name }) => `${ssl} ${name}`))).toEqual(new Set(['true /CN=worker']))
})

it('require and verify-ca are as strict as verify-full, also with the compatible modes of the driver', async () => {
  for (const sslmode of ['require', 'verify-ca', 'verify-full']) {
    const more = { ...full, sslmode, uselibpqcompat: 'true' }
    await (await FleetDatabase.open(addressOf({ ...more, sslrootcert: authority.cert })))[
      Symbol.asyncDispose
    ]()
    expect(await refusal(addressOf({ ...more, sslrootcert: other.cert }))).toMatch(/is not trusted/)
    // 127.0.0.1 is no name of the certificate.
    expect(await refusal(addressOf({ ...more, sslrootcert: authority.cert }, '127.0.0.1'))).toMatch(
      /^state_unavailable: .* is not trusted: .*use a host name of the certificate in the address/,
    )
  }
})

it('says what to do about an authority that it does not know', async () => {
  const name =
    /^state_unavailable: .* is not trusted: .*; name the authority .*sslrootcert=FILE in the address/
  expect(await refusal(addressOf(full))).toMatch(name)
  expect(await refusal(addressOf({ ...full, sslrootcert: other.cert }))).toMatch(name)
})

it('says that the certificate of the database has expired', async () => {
  const validity = ['20200101000000Z', '20200102000000Z'] as const
  const expired = await authority.sign({ name: 'database', altNames: 'DNS:localhost', validity })
  const [started, at] = await atFreePort((free) => startServer(expired, free))
  await using late = started
  expect(late.address).toContain('owner')
  expect(await refusal(addressOf({ ...full, sslrootcert: authority.cert }, 'localhost', at))).toMatch(
    /^state_unavailable: .* is not trusted: certificate has expired; renew the certificate of the database/,
  )
})

it('says that a certificate of the host is missing, is of another authority or for another user', async () => {
  const asWorker = { sslmode: 'verify-full', user: 'worker', sslrootcert: authority.cert }
  expect(await refusal(addressOf(asWorker))).toMatch(
    /^permission_denied: .*; name a certificate for the user of the address: sslcert=FILE and sslkey=FILE/,
  )
  const another = await authority.sign({ name: 'another' })
  expect(await refusal(addressOf({ ...asWorker, ...filesOf(another) }))).toMatch(
    /^permission_denied: .*name a certificate/,
  )
  const unknown = await other.sign({ name: 'worker' })
  expect(await refusal(addressOf({ ...asWorker, ...filesOf(unknown) }))).toMatch(
    /the database refused the certificate of this host: check sslcert, sslkey and its ssl_ca_file/,
  )
})

it('names a file that cannot be read, or is missing beside its other half', async () => {
  expect(await refusal(addressOf({ ...full, sslrootcert: '/missing.crt' }))).toMatch(
    /^invalid_options: sslrootcert of the fleet cannot be read: .*\/missing\.crt/,
  )
  expect(await refusal(addressOf({ ...full, sslcert: client.cert }))).toMatch(
    /only one of sslcert and sslkey/,
  )
})

it('says that the database takes no connection without TLS, and that one has none', async () => {
  expect(await refusal(addressOf({ user: 'plain', sslmode: 'disable' }))).toMatch(/use sslmode=verify-full/)
  const [started, at] = await atFreePort((free) =>
    PostgresServer.start({ settings: ['listen_addresses=127.0.0.1', `port=${free}`] }),
  )
  await using plain = started
  expect(plain.address).toContain('owner')
  expect(await refusal(addressOf(full, 'localhost', at))).toMatch(
    /is not trusted: .*set ssl=on in the database/,
  )
})

it('refuses modes that protect nothing and do not say so', () => {
  for (const sslmode of ['allow', 'prefer', 'no-verify', 'verify_full', ''])
    expect(() => addressOf({ sslmode }, 'db.example.com'), sslmode).toThrow(
      /write sslmode=verify-full or sslmode=disable/,
    )
})

function filesOf({ cert, key }: Signed) {
  return { sslcert: cert, sslkey: key }
}

/** @param start is called again where another program takes the port before the server has it */
async function atFreePort(
  start: (port: number) => Promise<PostgresServer>,
): Promise<[server: PostgresServer, port: number]> {
  for (let tries = 1; ; tries += 1) {
    const free = await freePort()
    try {
      return [await start(free), free]
    } catch (error) {
      if (tries === 5 || !/Address already in use/.test(String(error))) throw error
    }
  }
}

async function freePort(): Promise<number> {
  const listener = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => listener.once('listening', resolve))
  const address = listener.address()
  await new Promise((resolve) => listener.close(resolve))
  if (address === null || typeof address === 'string') throw new Error('no port')
  return address.port
}
