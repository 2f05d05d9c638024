import { appendFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { encodeManifest } from '../../archive/format.ts'
import { Host } from '../../host.ts'
import { readImported } from '../../journal/imported.ts'
import { keepMoments, listMoments } from '../../journal/kept-moments.ts'
import { RunRecord } from '../../journal/run-record.ts'
import { readStoredRun } from '../../stored-run.ts'
import { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
import { runThatChanged } from '../support/changed-run.ts'
import {
  elsewhere,
  exported,
  imported,
  interruptedRun,
  membersOf,
  runId,
  tarOf,
  unzipped,
  zipped,
} from './support.ts'

it('an imported run with its disk is forked and rewound for the directory that was named [R.09, V.05]', async () => {
  const archive = await exported((await interruptedRun()).host)
  const { host, directory } = await elsewhere()
  await imported(host, archive, directory)
  const { runIds } = await host.fork(runId, { at: 'end', prompts: ['use tabs'] })
  const { runId: rewound } = await host.rewind(runId, { to: 'end' })
  for (const id of [...runIds, rewound]) {
    const fork = host.runs.paths(id)
    expect((await CheckpointDisk.open(fork.scratch)).sealed.at(-1)?.checkpoint).toBe('cp-1')
    expect((await readStoredRun(fork)).options.workspace).toBe(directory)
    // What its archive left out is needed for the fork, too.
    expect(await readImported(fork.directory)).toMatchObject({
      workspace: directory,
      withheld: { notes: { env: ['NOTES_TOKEN', 'LANG'] } },
    })
    expect(await host.runs.summary(id)).toMatchObject({ status: 'interrupted', forkedFrom: runId })
  }
  expect(await host.runs.summary(runId)).toMatchObject({ status: 'cancelled' })
})

it('an imported run without its disk is not forked, and the error says so [R.09, V.05]', async () => {
  const { host: from } = await runThatChanged({ 'a.txt': 'one\n' }, { 'a.txt': 'two\n' })
  const { host, directory } = await elsewhere()
  await imported(host, await exported(from), directory)
  await expect(host.fork(runId, { at: 'start' })).rejects.toMatchObject({
    code: 'not_possible_now',
    message: expect.stringContaining(`${runId} was imported without its disk, so it cannot be forked`),
  })
  expect(await host.runs.ids()).toEqual([runId])
})

/** A run that ended after its checkpoint, and keeps its disk. */
async function endedRun() {
  const place = await interruptedRun()
  await using record = await RunRecord.open(place.paths)
  const usage = { requests: 1, inputTokens: 1, outputTokens: 1, reasoningTokens: 0 }
  const end = { outcome: 'completed', reason: 'completed', message: '', summary: 'done' } as const
  await record.host({ type: 'run-end', ...end, usage, durationMs: 1 })
  await keepMoments(place.paths)
  return place
}

it('an imported run that had ended is forked and rewound as it is where it was made, and not continued [R.09, V.05]', async () => {
  const place = await endedRun()
  const archive = await exported(place.host)
  const { host, directory } = await elsewhere()
  expect(await imported(host, archive, directory)).toMatchObject({
    ...{ isNew: true, canContinue: false, withheld: { notes: { env: ['NOTES_TOKEN', 'LANG'] } } },
  })
  expect((await host.runs.summary(runId)).status).toBe('completed')
  const { runIds } = await host.fork(runId, { at: 'end', prompts: ['use tabs'] })
  const { runId: rewound } = await host.rewind(runId, { to: 'end' })
  for (const id of [...runIds, rewound]) {
    const fork = host.runs.paths(id)
    expect((await CheckpointDisk.open(fork.scratch)).sealed.at(-1)?.checkpoint).toBe('cp-1')
    expect((await readStoredRun(fork)).options.workspace).toBe(directory)
    expect(await host.runs.summary(id)).toMatchObject({ status: 'interrupted', forkedFrom: runId })
  }
  await expect(host.resume(runId)).rejects.toMatchObject({ code: 'not_possible_now' })
  // What it keeps is bounded and freed as that of every ended run, and goes into a further export.
  expect((await listMoments(host.runs)).map((kept) => kept.runId)).toEqual([runId])
  const again = await membersOf(unzipped(await exported(host)))
  expect([...again.keys()]).toEqual([...(await membersOf(unzipped(archive))).keys()])
  await host.runs.removeMoments(runId)
  expect([...(await membersOf(unzipped(await exported(host)))).keys()]).not.toContain('scratch/disk.json')
})

it('an ended run whose disk holds a key is exported without the disk, and a note says so [R.09, G.04]', async () => {
  const place = await endedRun()
  const key = 'env-key-0123456789abc'
  await appendFile(path.join(place.paths.moments, 'scratch/layer-0.qcow2'), key)
  const host = new Host({ env: { ...place.env, SOME_API_KEY: key } })
  const notes: string[] = []
  const tar = unzipped(await exported(host, runId, notes))
  expect(tar.includes(key)).toBe(false)
  const names = [...(await membersOf(tar)).keys()]
  expect(names.filter((name) => name.startsWith('scratch/') || name === 'run.json')).toEqual([])
  expect(notes.join()).toContain('the disk of the run holds a key or a secret of yours')
  const there = await elsewhere()
  await imported(there.host, await exported(host), there.directory)
  expect((await there.host.runs.summary(runId)).status).toBe('completed')
  await expect(there.host.fork(runId, { at: 'end' })).rejects.toThrow('was imported without its disk')
})

it('an archive of an ended run with a part of its disk is refused whole [R.09]', async () => {
  const archive = await exported((await endedRun()).host)
  const members = await membersOf(unzipped(archive))
  const { sha256: _, ...manifest } = JSON.parse(members.get('manifest.json')?.toString() ?? '')
  for (const missing of ['run.json', 'scratch/disk.json', 'scratch/base.raw', 'scratch/layer-0.qcow2']) {
    const left = manifest.members.filter(({ name }: { name: string }) => name !== missing)
    const rest = [...members].slice(1).filter(([name]) => name !== missing)
    const changed = zipped(
      tarOf([['manifest.json', encodeManifest({ ...manifest, members: left })], ...rest]),
    )
    const there = await elsewhere()
    await expect(imported(there.host, changed, there.directory), missing).rejects.toMatchObject({
      code: 'invalid_archive',
    })
    expect(await there.host.runs.ids()).toEqual([])
  }
})
