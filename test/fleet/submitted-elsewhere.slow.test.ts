// What callers submit to one `caisson serve --fleet` and another one carries out: uploads, runs without a workspace, content in
// the place of files, and runs that need another run. Real host and agent, a real S3 server, a program in the place of QEMU.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { AwsClient } from 'aws4fetch'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { ServiceClient } from '../../client/index.ts'
import { tarOf } from '../../host/test/archive/support.ts'
import { cliPlace, type Place } from '../../host/test/support/cli.ts'
import { type InstalledMachine, installMachine } from '../recovery/machine/install.ts'
import { PostgresServer } from '../support/postgres.ts'
import { S3Server } from '../support/s3-server.ts'
import { serveHost } from './served-host.ts'

let folder: string
let machine: InstalledMachine
let server: PostgresServer
let store: S3Server

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-fleet-machine-'))
  machine = await installMachine(folder)
  ;[server, store] = await Promise.all([PostgresServer.start(), S3Server.start()])
  const { accessKeyId, secretAccessKey } = store
  const client = new AwsClient({ accessKeyId, secretAccessKey, service: 's3', region: 'us-east-1' })
  await client.fetch(`http://127.0.0.1:${store.port}/runs`, { method: 'PUT' })
}, 120_000)

afterAll(async () => {
  await server[Symbol.asyncDispose]()
  await store[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

async function openPlace(): Promise<Place> {
  const PATH = `${machine.programs}:${process.env.PATH ?? ''}`
  return await cliPlace(
    { 'given.txt': 'given\n' },
    { CAISSON_CACHE: machine.cache, PATH, CAISSON_FLEET: server.address, ...store.envFor() },
  )
}

const vm = { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2 }
const create = 'Create notes.txt with the content "hello"'

/** Waits for the end. @returns the paths that it changed, with the host that has them */
async function changesOf(client: ServiceClient, run: string): Promise<string[]> {
  const params = { run }
  const ended = async () => {
    const { outcome, message } = await client.call('getResult', { params, query: { waitMs: '1000' } })
    return outcome === 'completed' ? outcome : message
  }
  await expect.poll(() => ended().catch(() => undefined), { timeout: 60_000 }).toBe('completed')
  return (await client.call('listChanges', { params })).changes.map((change) => change.path)
}

/** What the host with slots says of its machine. @returns its accelerator */
async function expectFacts(client: ServiceClient): Promise<string> {
  const factsOf = async () => (await client.call('getFleet', {})).hosts.find(({ slots }) => slots > 0)?.facts
  await expect.poll(async () => (await factsOf())?.accelerator, { timeout: 60_000 }).toMatch(/^(kvm|tcg)$/)
  const facts = await factsOf()
  expect(facts).toMatchObject({
    architecture: process.arch,
    image: expect.stringMatching(/^[0-9a-f]{16}-[0-9a-f]{16}$/),
  })
  return facts?.accelerator ?? ''
}

it('a host carries out what was submitted to another one, also what needs a run that a third one carried out', async () => {
  const [asked, first, second] = [await openPlace(), await openPlace(), await openPlace()]
  const { workspace } = asked
  const files = 's3://runs/of-the-test'
  const [{ client }, worker] = await Promise.all([
    serveHost(asked, { workspace, files, slots: 0 }),
    serveHost(first, { workspace, files }),
  ])
  const start = async (body: object) =>
    (await client.call('createRun', { body: { prompt: create, vm, ...body } as never })).id

  const accelerator = await expectFacts(client)
  const params = {
    run: await start({ workspace, requires: { accelerator: accelerator === 'kvm' ? 'tcg' : 'kvm' } }),
  }
  const waits = await client.call('getRun', { params })
  expect(waits.queue?.why).toContain(`has the accelerator ${accelerator}, not`)
  await client.call('cancelRun', { params, body: {} })
  const requires = { accelerator, architecture: process.arch, memoryBytes: 2 ** 20 }
  const plain = await start({ workspace, requires })
  expect(await changesOf(client, plain)).toEqual(['notes.txt'])
  const empty = await start({})
  expect(await changesOf(client, empty)).toEqual(['notes.txt'])
  const archive = Uint8Array.from(tarOf([['uploaded.txt', Buffer.from('foo\n')]]))
  const { id: uploadedWorkspace } = await client.call('createWorkspace', { body: archive })
  const prompt = 'Replace "foo" with "bar" in uploaded.txt'
  expect(await changesOf(client, await start({ prompt, uploadedWorkspace }))).toEqual(['uploaded.txt'])
  const contents = { 'given.txt': 'foo\n' }
  const inPlace = { prompt: 'Replace "foo" with "bar" in given.txt', workspace, files: { contents } }
  expect(await changesOf(client, await start(inPlace))).toEqual(['given.txt'])

  // The host that carried them out is gone.
  worker.process.child.kill('SIGTERM')
  await worker.process.ended
  await serveHost(second, { workspace, files })
  expect(await changesOf(client, await start({ workspace, plan: { from: plain } }))).toEqual(['notes.txt'])
  // What the earlier run left is on the disk of the workspace once it is applied.
  await client.call('applyChanges', { params: { run: plain }, body: { select: 'all' } })
  const more = { prompt: 'Replace "hello" with "bye" in notes.txt', workspace, continue: plain }
  expect(await changesOf(client, await start(more))).toEqual(['notes.txt'])
}, 200_000)
