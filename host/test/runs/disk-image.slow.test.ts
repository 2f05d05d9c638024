import path from 'node:path'
import { expect, it } from 'vitest'
import { temporaryFolder } from '#specs/testing/temporary-folder.ts'
import { writeDiskImage } from '../../image/disk-image.ts'
import { testBench } from '../support/runs.ts'

it('carries out a task in a VM that boots from the one disk that Packer made [V.07]', async () => {
  const bench = await testBench({ 'a.txt': 'one\ntwo\n' })
  const image = await bench.host.image()
  const disk = path.join(await temporaryFolder('disk'), 'caisson.qcow2')
  await writeDiskImage({ image, out: disk })
  const { run, state } = await bench.run('Run the command `sort -r a.txt > b.txt`', {
    vm: { disk: { disk, format: 'qcow2' } },
  })
  expect(state.end).toMatchObject({ outcome: 'completed' })
  const changes = await bench.host.changes(run.id)
  expect((await changes.review()).map((item) => [item.path, item.change])).toEqual([['b.txt', 'added']])
})
