// Who stores files and who removes them, interleaved at every step, with a real database.
import { createHash } from 'node:crypto'
import { readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest'
import { hasCode } from '#specs/errors.ts'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { perTier } from '#specs/testing/tier.ts'
import { PostgresServer } from '../../../test/support/postgres.ts'
import { claimSome, collectBlobs, forgetSome, markRemoved } from '../../fleet/blob-collector.ts'
import { type Blob, type BlobStore, type Content, DirectoryBlobs } from '../../fleet/blob-store.ts'
import { BlobsGone, FleetBlobs, referTo } from '../../fleet/blobs.ts'
import { FleetDatabase, type Queries } from '../../fleet/database.ts'
import { newDatabase, newRun } from './fleet-place.ts'

let server: PostgresServer
let database: FleetDatabase
let folder: string
let store: DirectoryBlobs
let blobs: FleetBlobs

beforeAll(async () => {
  server = await PostgresServer.start()
}, 60_000)

beforeEach(async () => {
  database = await FleetDatabase.open(await newDatabase(server))
  folder = await temporaryFolder('blobs')
  store = new DirectoryBlobs(folder)
  blobs = new FleetBlobs(database, store)
  return () => database[Symbol.asyncDispose]()
})

afterAll(async () => {
  await server[Symbol.asyncDispose]()
})

const contentOf = (text: string): Content =>
  async function* () {
    yield Buffer.from(text.slice(0, 1))
    yield Buffer.from(text.slice(1))
  }

async function textOf(blob: Blob): Promise<string> {
  const pieces: Buffer[] = []
  for await (const piece of blobs.get(blob)) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}

async function refer(runId: string, ...digests: string[]): Promise<void> {
  await database.transaction((tx) => referTo(tx, runId, 'files', digests))
}

async function endLeases(): Promise<void> {
  await database.transaction(async (tx) => {
    const rows = await tx.query<{ sha256: string }>(
      'SELECT sha256 FROM caisson.blobs ORDER BY sha256 FOR NO KEY UPDATE',
    )
    await tx.query(
      `UPDATE caisson.blobs SET kept_until = now() - interval '1 s' WHERE sha256 = ANY ($1::text[])`,
      [rows.map(({ sha256 }) => sha256)],
    )
  })
}

/** Names of all objects in the store. */
async function objects(): Promise<string[]> {
  const found: string[] = []
  for (const name of await readdir(folder)) found.push(...(await readdir(path.join(folder, name))))
  return found.sort()
}

/** What a run refers to is there, whole. */
async function requireReferred(): Promise<void> {
  const rows = await database.query<{ sha256: string; bytes: string }>(
    'SELECT DISTINCT sha256, bytes FROM caisson.run_blobs JOIN caisson.blobs USING (sha256)',
  )
  for (const { sha256, bytes } of rows) await textOf({ sha256, bytes: Number(bytes) })
}

/** All rows and objects go once nothing needs them. */
async function requireAllGo(): Promise<void> {
  await database.query('DELETE FROM caisson.run_blobs')
  await endLeases()
  await collectBlobs(database, store)
  await database.query('UPDATE caisson.removed_blobs SET due_at = now()')
  await collectBlobs(database, store)
  expect(await objects()).toEqual([])
  for (const table of ['blobs', 'removed_blobs'])
    expect(await database.query(`SELECT * FROM caisson.${table}`)).toEqual([])
}

/** Like {@link FleetBlobs}, with a hook before and after each statement, and in the middle of each upload. */
function steppedBlobs(onStep: (step: string) => Promise<void>): FleetBlobs {
  const queries: Queries = {
    query: async <Row extends object>(text: string, values?: readonly unknown[]) => {
      const what = text.trim().split(/\s+/).slice(0, 3).join(' ')
      await onStep(`before ${what}`)
      const rows = await database.query<Row>(text, values)
      await onStep(`after ${what}`)
      return rows
    },
  }
  const stepped: BlobStore = {
    shown: store.shown,
    has: (name, bytes) => store.has(name, bytes),
    read: (name, blob) => store.read(name, blob),
    remove: (name) => store.remove(name),
    write: async (name, blob, content) => {
      await onStep('before the upload')
      await store.write(name, blob, async function* () {
        for await (const piece of content()) {
          yield piece
          await onStep('within the upload')
        }
      })
      await onStep('after the upload')
    },
  }
  return new FleetBlobs(queries, stepped)
}

/** Stores a content for a run, and has the run refer to it; again when it was removed meanwhile. */
async function storeFor(runId: string, text: string, through = blobs): Promise<Blob> {
  for (;;) {
    const blob = await through.put(contentOf(text))
    try {
      await refer(runId, blob.sha256)
      return blob
    } catch (error) {
      if (!(error instanceof BlobsGone)) throw error
    }
  }
}

it('a content that is there is not uploaded again, and one that its store has lost is', async () => {
  const steps: string[] = []
  const stepped = steppedBlobs(async (step) => void steps.push(step))
  const uploads = () => steps.splice(0).filter((step) => step === 'after the upload').length
  const blob = await stepped.put(contentOf('content'))
  expect(uploads()).toBe(1)
  expect(await stepped.put(contentOf('content'))).toEqual(blob)
  expect(await stepped.put(contentOf('content'), blob)).toEqual(blob)
  expect(uploads()).toBe(0)
  await rm(folder, { recursive: true })
  await stepped.put(contentOf('content'), blob)
  expect(uploads()).toBe(1)
  expect(await textOf(blob)).toBe('content')
})

it('a digest of an earlier time that is not of the content any more is taken again', async () => {
  const { sha256 } = await blobs.put(contentOf('before'))
  await endLeases()
  await collectBlobs(database, store)
  const blob = await blobs.put(contentOf('behind'), { sha256, bytes: 6 })
  expect(blob.sha256).toBe(createHash('sha256').update('behind').digest('hex'))
  expect(await textOf(blob)).toBe('behind')
})

it('an upload that can be read once alone is kept as long as it was asked for, and leaves no draft', async () => {
  const drafts = await temporaryFolder('drafts')
  const day = 24 * 3_600_000
  const blob = await blobs.putStream(contentOf('upload')(), drafts, day)
  expect(await textOf(blob)).toBe('upload')
  const failing = (async function* () {
    yield Buffer.from('begun')
    throw new Error('the connection ended')
  })()
  await expect(blobs.putStream(failing, drafts, day)).rejects.toThrow('the connection ended')
  expect(await readdir(drafts)).toEqual([])
  await database.query("UPDATE caisson.blobs SET kept_until = kept_until - interval '23 hours'")
  expect(await collectBlobs(database, store)).toEqual({ forgotten: 0, removed: 0 })
})

it('a content stays while a run refers to it, and for the grace time after that', async () => {
  const runId = await newRun(database)
  const first = await storeFor(runId, 'first')
  await endLeases()
  expect(await collectBlobs(database, store)).toEqual({ forgotten: 0, removed: 0 })
  // A run that refers to others keeps the ones before for a host that is reading them.
  const second = await storeFor(runId, 'second')
  expect(await collectBlobs(database, store)).toEqual({ forgotten: 0, removed: 0 })
  expect(await textOf(first)).toBe('first')
  await endLeases()
  expect(await collectBlobs(database, store)).toEqual({ forgotten: 1, removed: 1 })
  await expect(textOf(first)).rejects.toMatchObject({ code: 'state_corrupted' })
  expect(await textOf(second)).toBe('second')
  await requireAllGo()
})

it('a run cannot refer to what was never stored, and its transaction stores nothing then', async () => {
  const runId = await newRun(database)
  const blob = await blobs.put(contentOf('content'))
  await database.query("INSERT INTO caisson.blobs VALUES ($1, 1, $1, false, now() + interval '1 hour')", [
    'a'.repeat(64),
  ])
  for (const digest of ['a'.repeat(64), 'b'.repeat(64)])
    await expect(refer(runId, blob.sha256, digest)).rejects.toThrow(BlobsGone)
  expect(await database.query('SELECT * FROM caisson.run_blobs')).toEqual([])
})

/** Steps of one upload without anybody else: their number bounds the interleavings. */
async function stepsOfUpload(): Promise<number> {
  let count = 0
  const onStep = async () => {
    count += 1
  }
  await steppedBlobs(onStep).put(contentOf('counted'))
  await requireAllGo()
  return count
}

it('a collector at any step of an upload, whose lease has ended, takes nothing that a run refers to', async () => {
  const count = await stepsOfUpload()
  expect(count).toBe(7)
  for (let at = 1; at <= count; at += 1) {
    const runId = await newRun(database)
    let step = 0
    const stepped = steppedBlobs(async () => {
      step += 1
      if (step !== at) return
      // As if this host was frozen for longer than its lease.
      await endLeases()
      await collectBlobs(database, store)
    })
    const blob = await storeFor(runId, 'content', stepped)
    expect(await textOf(blob), `step ${at}`).toBe('content')
    await requireAllGo()
  }
})

it('an upload of the same content at any step of a collector is kept', async () => {
  const steps: readonly ((names: string[]) => Promise<void>)[] = [
    async () => void (await database.transaction(forgetSome)),
    async (names) => void names.push(...(await claimSome(database))),
    async ([name]) => void (name !== undefined && (await store.remove(name))),
    async ([name]) => void (name !== undefined && (await markRemoved(database, name))),
  ]
  for (let at = 0; at <= steps.length; at += 1) {
    const runId = await newRun(database)
    await blobs.put(contentOf('content'))
    await endLeases()
    const names: string[] = []
    let blob: Blob | undefined
    for (const [index, step] of steps.entries()) {
      if (index === at) blob = await storeFor(runId, 'content')
      await step(names)
    }
    blob ??= await storeFor(runId, 'content')
    expect(await textOf(blob), `step ${at}`).toBe('content')
    // A collector that was frozen before it removed the object.
    for (const name of names) await store.remove(name)
    expect(await textOf(blob), `step ${at}`).toBe('content')
    await requireAllGo()
  }
})

it('a collector within its transaction makes a reference wait, which then is refused or kept', async () => {
  for (const isCommitted of [true, false]) {
    const runId = await newRun(database)
    const blob = await blobs.put(contentOf('content'))
    await endLeases()
    let isOver = false
    const failure = new Error('the collector ended')
    let referring: Promise<unknown> | undefined
    const collecting = database.transaction(async (tx) => {
      expect(await forgetSome(tx)).toBe(1)
      referring = refer(runId, blob.sha256).catch((error: unknown) => error)
      void referring.then(() => {
        isOver = true
      })
      await sleep(100)
      expect(isOver).toBe(false)
      if (!isCommitted) throw failure
    })
    if (isCommitted) await collecting
    else await expect(collecting).rejects.toThrow('the collector ended')
    if (isCommitted) expect(await referring).toBeInstanceOf(BlobsGone)
    else expect(await referring).toBeUndefined()
    await requireReferred()
    await requireAllGo()
  }
})

it('a reference within its transaction is not overtaken by a collector', async () => {
  const runId = await newRun(database)
  const blob = await blobs.put(contentOf('content'))
  await endLeases()
  await database.transaction(async (tx) => {
    await referTo(tx, runId, 'files', [blob.sha256])
    expect(await collectBlobs(database, store)).toEqual({ forgotten: 0, removed: 0 })
  })
  expect(await collectBlobs(database, store)).toEqual({ forgotten: 0, removed: 0 })
  expect(await textOf(blob)).toBe('content')
})

it('an object whose collector died is removed by another one, and one that came late at the second removal', async () => {
  await blobs.put(contentOf('content'))
  const [name = ''] = await objects()
  await endLeases()
  await database.transaction(forgetSome)
  // A collector claims it and dies.
  expect(await claimSome(database)).toEqual([name])
  expect((await collectBlobs(database, store)).removed).toBe(0)
  await database.query('UPDATE caisson.removed_blobs SET due_at = now()')
  expect((await collectBlobs(database, store)).removed).toBe(1)
  expect(await objects()).toEqual([])
  const sha256 = createHash('sha256').update('content').digest('hex')
  await store.write(name, { sha256, bytes: 7 }, contentOf('content'))
  await requireAllGo()
})

/** mulberry32: the same numbers for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

it('any order of uploads, references, ended leases and collectors keeps what runs refer to', async () => {
  for (let seed = 1; seed <= perTier(4, 60); seed += 1) {
    const random = randomOf(seed)
    const pick = (below: number) => Math.floor(random() * below)
    const pause = async () => void (random() < 0.5 && (await sleep(pick(4))))
    const through = steppedBlobs(pause)
    const uploader = async () => {
      const runId = await newRun(database)
      for (let round = 0; round < 6; round += 1) {
        const texts = [`text ${pick(3)}`, `text ${pick(3)}`]
        const stored = await Promise.all(texts.map((text) => through.put(contentOf(text))))
        await pause()
        const referred = await refer(runId, ...stored.map(({ sha256 }) => sha256)).then(
          () => true,
          (error: unknown) => {
            if (error instanceof BlobsGone) return false
            throw error
          },
        )
        await pause()
        if (!referred) continue
        for (const [index, blob] of stored.entries())
          expect(await textOf(blob), `seed ${seed}`).toBe(texts[index])
      }
    }
    let isOver = false
    const collector = async () => {
      while (!isOver) {
        await endLeases()
        await pause()
        await collectBlobs(database, store)
        await database.query('UPDATE caisson.removed_blobs SET due_at = now() WHERE random() < 0.5')
      }
    }
    const collecting = [collector(), collector()]
    try {
      await Promise.all([uploader(), uploader(), uploader()])
    } finally {
      isOver = true
      await Promise.all(collecting)
    }
    await requireReferred()
    await requireAllGo()
  }
}, 120_000)

it('a digest that is none reaches no store', async () => {
  await expect(textOf({ sha256: '../secret', bytes: 1 })).rejects.toThrow()
  const missing = textOf({ sha256: 'c'.repeat(64), bytes: 1 }).catch((error: unknown) => error)
  expect(hasCode(await missing, 'state_corrupted')).toBe(true)
})
