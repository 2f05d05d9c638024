// The files of a fleet in a real S3 server, which checks signatures, and on a way to it with faults.
import { createHash, randomBytes } from 'node:crypto'
import { inspect } from 'node:util'
import { AwsClient } from 'aws4fetch'
import { afterAll, beforeAll, beforeEach, expect, it, vi } from 'vitest'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { FaultyWay, S3Server } from '../../../test/support/s3-server.ts'
import { collectBlobs } from '../../fleet/blob-collector.ts'
import type { Blob, Content } from '../../fleet/blob-store.ts'
import { FleetBlobs } from '../../fleet/blobs.ts'
import { FleetDatabase } from '../../fleet/database.ts'
import { S3Blobs, type S3BlobsOptions } from '../../fleet/s3-blobs.ts'
import { readS3Settings } from '../../fleet/s3-settings.ts'
import { newDatabase } from './fleet-place.ts'

const bucket = 'fleet-files'
const mib = 1024 * 1024
/** The least that S3 takes for a part. */
const partBytes = 5 * mib
let server: S3Server
let way: FaultyWay

beforeAll(async () => {
  server = await S3Server.start()
  const made = await plain('PUT', bucket)
  expect(made.status).toBe(200)
}, 60_000)

beforeEach(async () => {
  way = await FaultyWay.open(server.port)
  return () => way[Symbol.asyncDispose]()
})

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

/** A request of another client, without the faulty way. */
async function plain(method: string, at: string, body?: Uint8Array<ArrayBuffer>): Promise<Response> {
  const { accessKeyId, secretAccessKey } = server
  const client = new AwsClient({ accessKeyId, secretAccessKey, service: 's3', region: 'us-east-1' })
  return await client.fetch(`http://127.0.0.1:${server.port}/${at}`, {
    method,
    ...(body === undefined ? {} : { body }),
  })
}

async function openStore({
  env = {},
  address = `s3://${bucket}/runs/a`,
  ...options
}: { env?: Record<string, string>; address?: string } & S3BlobsOptions = {}): Promise<S3Blobs> {
  const settings = await readS3Settings(
    address,
    { HOME: '/nonexistent', ...server.envFor(way.port), ...env },
    'the test',
  )
  const patience = { tries: 3, firstMs: 5, mostMs: 20, idleMs: 2_000 }
  return new S3Blobs(settings, { partBytes, patience, ...options })
}

interface Given {
  readonly blob: Blob
  readonly bytes: Buffer
  readonly content: Content
}

/** A content that no other test has, in pieces. */
function newContent(size: number): Given {
  const bytes = randomBytes(size)
  const content: Content = async function* () {
    for (let at = 0; at < size; at += 300_000) yield bytes.subarray(at, at + 300_000)
  }
  return { bytes, content, blob: { sha256: createHash('sha256').update(bytes).digest('hex'), bytes: size } }
}

async function bytesOf(pieces: AsyncIterable<Buffer>): Promise<Buffer> {
  const found: Buffer[] = []
  for await (const piece of pieces) found.push(piece)
  return Buffer.concat(found)
}

async function errorOf(failing: Promise<unknown>): Promise<Error & { code?: string }> {
  const error = await failing.then(
    () => undefined,
    (seen: unknown) => seen,
  )
  if (!(error instanceof Error)) throw new Error('it did not fail')
  // Also of causes, as a log has them.
  for (const key of [server.secretAccessKey, server.accessKeyId])
    expect(inspect(error, { depth: 9 })).not.toContain(key)
  return error
}

it('keeps contents of each size, under the prefix, and removes them', async () => {
  const store = await openStore()
  for (const size of [0, 1, 1_000_000, partBytes, partBytes + 1, 12 * mib]) {
    const { blob, bytes, content } = newContent(size)
    expect(await store.has(blob.sha256, size)).toBe(false)
    await store.write(blob.sha256, blob, content)
    expect([await store.has(blob.sha256, size), await store.has(blob.sha256, size + 1)]).toEqual([
      true,
      false,
    ])
    expect((await bytesOf(store.read(blob.sha256, blob))).equals(bytes), `${size} bytes`).toBe(true)
    const place = `${bucket}/runs/a/${blob.sha256.slice(0, 2)}/${blob.sha256}`
    expect((await plain('HEAD', place)).status).toBe(200)
    await store.remove(blob.sha256)
    await store.remove(blob.sha256)
    expect((await plain('HEAD', place)).status).toBe(404)
  }
})

it('an upload that ends in its middle shows nothing and leaves nothing, and neither does another content', async () => {
  const store = await openStore()
  for (const size of [1_000, 12 * mib]) {
    const { blob, bytes } = newContent(size)
    const half: Content = async function* () {
      yield bytes.subarray(0, size - 10)
      throw new Error('the source ended')
    }
    const other: Content = async function* () {
      yield bytes.subarray(0, size - 1)
      yield Buffer.from([(bytes.at(-1) ?? 0) ^ 1])
    }
    await expect(store.write(blob.sha256, blob, half)).rejects.toThrow('the source ended')
    await expect(store.write(blob.sha256, blob, other)).rejects.toThrow('changed while it was stored')
    expect(await store.has(blob.sha256, size)).toBe(false)
  }
  expect(await (await plain('GET', `${bucket}?uploads`)).text()).not.toContain('<UploadId>')
})

it('the server refuses a body that was changed on its way', async () => {
  const { blob, bytes } = newContent(1_000)
  const { accessKeyId, secretAccessKey } = server
  const client = new AwsClient({ accessKeyId, secretAccessKey, service: 's3', region: 'us-east-1' })
  const headers = { 'x-amz-content-sha256': blob.sha256 }
  const at = `http://127.0.0.1:${server.port}/${bucket}/${blob.sha256}`
  const answer = await client.fetch(at, { method: 'PUT', headers, body: new Uint8Array(bytes.length) })
  expect(answer.status).toBe(400)
  expect((await plain('HEAD', `${bucket}/${blob.sha256}`)).status).toBe(404)
})

it('continues a download where its connection was cut or stalled, and begins an upload again', async () => {
  const store = await openStore()
  const { blob, bytes, content } = newContent(12 * mib)
  way.add(/^PUT .*partNumber=2/, { kind: 'cut-request', bytes: 100_000 })
  way.add(/^PUT .*partNumber=3/, { kind: 'lost-answer' })
  way.add(/^POST .*uploadId=/, { kind: 'lost-answer' })
  await store.write(blob.sha256, blob, content)
  expect(way.faults).toEqual([])
  expect(way.seen.filter((one) => /partNumber=/.test(one))).toHaveLength(5)
  way.add(/^GET /, { kind: 'cut-answer', bytes: 3 * mib })
  way.add(/^GET /, { kind: 'stall', bytes: 4 * mib })
  way.add(/^GET /, { kind: 'cut-answer', bytes: 0 })
  expect((await bytesOf(store.read(blob.sha256, blob))).equals(bytes)).toBe(true)
  expect(way.faults).toEqual([])
  const small = newContent(200_000)
  way.add(/^PUT /, { kind: 'cut-request', bytes: 1_000 })
  way.add(/^PUT /, { kind: 'lost-answer' })
  await store.write(small.blob.sha256, small.blob, small.content)
  expect((await bytesOf(store.read(small.blob.sha256, small.blob))).equals(small.bytes)).toBe(true)
})

it('gives a download up whose connection is cut again and again', async () => {
  const store = await openStore()
  const { blob, content } = newContent(100_000)
  await store.write(blob.sha256, blob, content)
  way.add(/^GET /, { kind: 'cut-answer', bytes: 0 }, 9)
  const error = await errorOf(bytesOf(store.read(blob.sha256, blob)))
  expect(error).toMatchObject({
    code: 'state_unavailable',
    message: expect.stringMatching(
      /^reading a file in s3:.* failed 3 times: .* after 0 of 100000 bytes; expected/,
    ),
    cause: expect.any(Error),
  })
})

it('waits while the store has too much to do, and says so when it has for too long', async () => {
  const store = await openStore()
  const { blob, content } = newContent(1_000)
  const body = '<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
  const slow = { kind: 'answer', status: 503, body, headers: { 'retry-after': '1' } } as const
  way.add(/^PUT /, slow, 2)
  await store.write(blob.sha256, blob, content)
  way.add(/^PUT /, slow, 3)
  const error = await errorOf(store.write(blob.sha256, blob, content))
  expect(error).toMatchObject({
    code: 'state_unavailable',
    message: expect.stringMatching(
      /^storing a file in s3:\/\/fleet-files\/runs\/a at .* failed 3 times: the store answered HTTP 503 \(SlowDown: Please reduce/,
    ),
    cause: expect.any(Error),
  })
  const gone = await openStore({ env: { AWS_ENDPOINT_URL_S3: 'http://127.0.0.1:1' } })
  expect(await errorOf(gone.has(blob.sha256, 1))).toMatchObject({
    code: 'state_unavailable',
    message: expect.stringMatching(/failed 3 times: .*; expected an answer of the store; check the endpoint/),
  })
})

it('says which key, bucket, region or clock is wrong, and never a key', async () => {
  const { blob, content } = newContent(1_000)
  const failing = async (what: Parameters<typeof openStore>[0]) => {
    const store = await openStore(what)
    await errorOf(store.has(blob.sha256, 1)).catch(() => undefined)
    return await errorOf(store.write(blob.sha256, blob, content))
  }
  const secret = 'another-secret'
  const wrongKey = await failing({ env: { AWS_SECRET_ACCESS_KEY: secret } })
  expect(wrongKey).toMatchObject({
    code: 'permission_denied',
    message: expect.stringMatching(
      /^storing a file in .*: expected a key that the store knows; .*SignatureDoesNotMatch/,
    ),
  })
  expect(inspect(wrongKey, { depth: 9 })).not.toContain(secret)
  expect(await failing({ env: { AWS_ACCESS_KEY_ID: 'test:nobody' } })).toMatchObject({
    code: 'permission_denied',
  })
  expect(await failing({ address: 's3://no-such-bucket' })).toMatchObject({
    code: 'invalid_options',
    message: expect.stringMatching(
      /expected the bucket no-such-bucket, which is not there; create the bucket/,
    ),
  })
  expect(await failing({ env: { AWS_REGION: 'eu-north-1' } })).toMatchObject({
    code: 'invalid_options',
    message: expect.stringMatching(/expected the bucket in eu-north-1; .*set AWS_REGION=us-east-1$/),
  })
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - 3_600_000 })
  const skewed = await failing({}).finally(() => vi.useRealTimers())
  expect(skewed).toMatchObject({
    code: 'state_unavailable',
    message: expect.stringMatching(/this host's differs by 3[56]\d\d s; set the clock of this host/),
  })
  // It is no failure that passes.
  expect(skewed.cause).toBeUndefined()
  // HEAD has no words; the reason is asked for.
  const head = await errorOf(
    (await openStore({ env: { AWS_SECRET_ACCESS_KEY: secret } })).has(blob.sha256, 1),
  )
  expect(head.message).toMatch(/^looking for a file in .*SignatureDoesNotMatch/)
})

it('refuses an object that was changed, of another size before it gives any of it', async () => {
  const store = await openStore()
  const { blob, bytes, content } = newContent(300_000)
  await store.write(blob.sha256, blob, content)
  const place = `${bucket}/runs/a/${blob.sha256.slice(0, 2)}/${blob.sha256}`
  await plain('PUT', place, new Uint8Array(bytes.length))
  expect(await errorOf(bytesOf(store.read(blob.sha256, blob)))).toMatchObject({
    code: 'state_corrupted',
    message: expect.stringMatching(/was changed or damaged: its digest is [0-9a-f]{64}/),
  })
  const given: Buffer[] = []
  for (const size of [299_999, 300_001]) {
    await plain('PUT', place, new Uint8Array(size))
    const reading = (async () => {
      for await (const piece of store.read(blob.sha256, blob)) given.push(piece)
    })()
    expect((await errorOf(reading)).message).toContain(`it has ${size} bytes instead of 300000`)
  }
  expect(given).toEqual([])
  await plain('DELETE', place)
  expect((await errorOf(bytesOf(store.read(blob.sha256, blob)))).message).toContain('it is missing')
})

it('a reader that needs no more ends its connection', async () => {
  const store = await openStore()
  const { blob, content } = newContent(4 * mib)
  await store.write(blob.sha256, blob, content)
  for await (const piece of store.read(blob.sha256, blob)) {
    expect(piece.length).toBeGreaterThan(0)
    break
  }
  expect(await store.has(blob.sha256, blob.bytes)).toBe(true)
})

it('a fleet stores a content once, reads it from another host, and removes it when nothing needs it', async () => {
  await using postgres = await PostgresServer.start()
  await using database = await FleetDatabase.open(await newDatabase(postgres))
  const [one, other] = [await openStore(), await openStore()]
  const { blob, bytes, content } = newContent(12 * mib)
  expect(await new FleetBlobs(database, one).put(content)).toEqual(blob)
  const uploads = () => way.seen.splice(0).filter((seen) => seen.startsWith('PUT')).length
  expect(uploads()).toBe(3)
  const blobs = new FleetBlobs(database, other)
  expect(await blobs.put(content)).toEqual(blob)
  expect(uploads()).toBe(0)
  expect((await bytesOf(blobs.get(blob))).equals(bytes)).toBe(true)
  await database.query("UPDATE caisson.blobs SET kept_until = now() - interval '1 s'")
  const collected = await Promise.all([one, other].map((store) => collectBlobs(database, store)))
  expect(collected.map(({ removed }) => removed).toSorted()).toEqual([0, 1])
  expect(await (await plain('GET', bucket)).text()).not.toContain(blob.sha256)
})
