import { expect, it } from 'vitest'
import { readImported } from '../../journal/imported.ts'
import { readStoredRun } from '../../stored-run.ts'
import { CheckpointDisk } from '../../vm/checkpoints/checkpoint-disk.ts'
import { runThatChanged } from '../support/changed-run.ts'
import { elsewhere, exported, imported, interruptedRun, runId } from './support.ts'

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
