import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { type Blob, DirectoryBlobs } from '../../fleet/blob-store.ts'
import type { ReadRow } from '../../fleet/journal-rows.ts'
import { restoreRun } from '../../fleet-files.ts'
import { newRunId, RunStore } from '../../journal/run-store.ts'

async function* noRows(): AsyncGenerator<ReadRow> {}

async function openPlace() {
  const folder = await temporaryFolder('fleet-files')
  const blobs = new DirectoryBlobs(path.join(folder, 'blobs'))
  const runs = new RunStore({ runs: path.join(folder, 'runs'), locks: path.join(folder, 'locks') })
  return { folder, blobs, paths: runs.paths(newRunId()) }
}

async function put(blobs: DirectoryBlobs, text: string): Promise<Blob> {
  return await blobs.put(
    (async function* () {
      yield Buffer.from(text)
    })(),
  )
}

it('makes the folder of a run of the listed files alone', async () => {
  const { blobs, paths } = await openPlace()
  const files = [{ name: 'run.json', ...(await put(blobs, '{}')) }]
  await restoreRun(paths, { files, rows: noRows() }, blobs)
  expect((await readdir(paths.directory)).toSorted()).toEqual(['journal.jsonl', 'run.json'])
  expect(await readFile(paths.options, 'utf8')).toBe('{}')
})

it('refuses a list of the database that names no files of a run', async () => {
  const { folder, blobs, paths } = await openPlace()
  const blob = await put(blobs, 'content')
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
    const restoring = restoreRun(paths, { files, rows: noRows() }, blobs)
    await expect(restoring, what).rejects.toMatchObject({ code: 'state_corrupted' })
  }
  expect((await readdir(folder)).toSorted()).toEqual(['blobs', 'runs'])
})
