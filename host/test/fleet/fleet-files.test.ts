import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { type Blob, DirectoryBlobs } from '../../fleet/blob-store.ts'
import type { ReadRow } from '../../fleet/journal-rows.ts'
import { restoreRun } from '../../fleet-runs/files.ts'
import { newRunId, RunStore } from '../../journal/run-store.ts'

async function* noRows(): AsyncGenerator<ReadRow> {}

async function openPlace() {
  const folder = await temporaryFolder('fleet-files')
  const store = new DirectoryBlobs(path.join(folder, 'blobs'))
  const runs = new RunStore({ runs: path.join(folder, 'runs'), locks: path.join(folder, 'locks') })
  return { folder, store, paths: runs.paths(newRunId()) }
}

/** The files of a fleet without its database: each is there under its digest. */
function blobsIn(store: DirectoryBlobs) {
  return { get: (blob: Blob) => store.read(blob.sha256, blob) }
}

async function put(store: DirectoryBlobs, text: string): Promise<Blob> {
  const bytes = Buffer.from(text)
  const blob = { sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.length }
  await store.write(blob.sha256, blob, async function* () {
    yield bytes
  })
  return blob
}

it('makes the folder of a run of the listed files alone', async () => {
  const { store, paths } = await openPlace()
  const files = [{ name: 'run.json', ...(await put(store, '{}')) }]
  await restoreRun(paths, { files, rows: noRows() }, blobsIn(store))
  expect((await readdir(paths.directory)).toSorted()).toEqual(['journal.jsonl', 'run.json'])
  expect(await readFile(paths.options, 'utf8')).toBe('{}')
})

it('refuses a list of the database that names no files of a run', async () => {
  const { folder, store, paths } = await openPlace()
  const blob = await put(store, 'content')
  const lists: Record<string, unknown> = {
    'a path that leads out': [{ name: '../../out', ...blob }],
    'the journal': [{ name: 'journal.jsonl', ...blob }],
    'a name twice': [
      { name: 'run.json', ...blob },
      { name: 'run.json', ...blob },
    ],
    'more bytes than such a file has': [{ name: 'run.json', ...blob, bytes: 2 ** 40 }],
    'a disk without a size': [{ name: 'scratch/base.raw', ...blob }],
    'a disk that is too large': [{ name: 'scratch/base.raw', ...blob, fileBytes: 2 ** 50 }],
    'a size where there is none': [{ name: 'run.json', ...blob, fileBytes: 7 }],
    'a disk whose content has another form': [{ name: 'scratch/base.raw', ...blob, fileBytes: 4_096 }],
    'no digest': [{ name: 'run.json', ...blob, sha256: '../secret' }],
    'no list': { name: 'run.json' },
  }
  for (const [what, files] of Object.entries(lists)) {
    const restoring = restoreRun(paths, { files, rows: noRows() }, blobsIn(store))
    await expect(restoring, what).rejects.toMatchObject({ code: 'state_corrupted' })
  }
  expect((await readdir(folder)).toSorted()).toEqual(['blobs', 'runs'])
})
