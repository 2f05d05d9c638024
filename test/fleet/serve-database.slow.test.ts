// `caisson serve --fleet` while its database is away: it starts with an error, and ends in time.
import { afterAll, beforeAll, expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { cliPlace } from '../../host/test/support/cli.ts'
import { PostgresServer } from '../support/postgres.ts'
import { serveHost } from './served-host.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await PostgresServer.start()
}, 120_000)

afterAll(() => server[Symbol.asyncDispose]())

it('a service of a fleet that cannot start ends', async () => {
  const place = await cliPlace({}, { CAISSON_FLEET: server.address })
  const files = await temporaryFolder('fleet-files')
  const { code, stderr } = await place.run('serve', '--address', '0.0.0.0', '--fleet-files', files)
  expect([code, stderr]).toEqual([expect.any(Number), expect.stringContaining('TLS')])
  expect(code).not.toBe(0)
}, 60_000)

it('a service whose database is away says so once, ends in time, and does not start again', async () => {
  const place = await cliPlace({}, { CAISSON_FLEET: server.address })
  const files = await temporaryFolder('fleet-files')
  const { process: served } = await serveHost(place, { workspace: place.workspace, files })
  await server.kill()
  const linesOf = (text: string) =>
    served
      .errors()
      .split('\n')
      .filter((line) => line.includes(text))
  await expect.poll(() => linesOf('does not answer').length, { timeout: 20_000 }).toBeGreaterThan(1)
  const began = performance.now()
  served.child.kill('SIGTERM')
  const { code, stderr } = await served.ended
  expect([code, stderr]).toEqual([0, expect.stringContaining('Ends (SIGTERM)')])
  expect(performance.now() - began).toBeLessThan(40_000)
  const messages = linesOf('does not answer').map((line) => (JSON.parse(line) as { message: string }).message)
  expect(new Set(messages).size).toBe(messages.length)
  const again = await place.run('serve', '--port', '0', '--fleet-files', files)
  expect([again.code, again.stderr]).toEqual([
    4,
    expect.stringContaining('start the database, or check the address'),
  ])
  expect(again.stderr).not.toContain('listens')
}, 120_000)
