// `caisson serve --pool` with real VMs: an uploaded workspace, a run in a VM of the pool, and its changes as an archive.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { expect, it } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { encodeEnd, encodeEntry, encodePadding, TarReader } from '../../host/control/tar.ts'
import { cliPlace } from '../../host/test/support/cli.ts'

const waiting = { timeout: 120_000, interval: 250 }

it('an uploaded workspace is worked on in a VM that was ready, and its changes are downloaded [H.02 V.06]', async () => {
  const place = await cliPlace({})
  const service = place.start('serve', '--port', '0', '--pool', '1')
  await expect.poll(() => service.errors(), waiting).toContain('Keeps 1 VM ready')
  const baseUrl = /listens on (http:\S+)/.exec(service.errors())?.[1] ?? ''
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  const client = new ServiceClient({ baseUrl, token })
  const header = { path: 'old.txt', type: 'file', mode: 0o644, mtimeMs: 0, target: '', size: 4 } as const
  const body = Buffer.concat([encodeEntry(header), Buffer.from('old\n'), encodePadding(4), encodeEnd()])
  const { id: uploadedWorkspace } = await client.call('createWorkspace', { body })

  const prompt = 'Run the command `cat old.txt > new.txt; ln -s new.txt link`'
  const { id: run } = await client.call('createRun', { body: { prompt, uploadedWorkspace } })
  const params = { run }
  const result = () => client.call('getResult', { params, query: { waitMs: '60000' } }).catch(() => undefined)
  await expect.poll(result, waiting).toMatchObject({ outcome: 'completed', changes: { entries: 2 } })
  const { events } = await client.call('listEvents', { params, query: { limit: '10000' } })
  expect(events.find(({ event }) => event.type === 'vm-ready')?.event).toMatchObject({
    phasesMs: { pool: expect.any(Number) },
  })
  const archive = await client.call('getChangedFiles', { params })
  const reader = new TarReader(Readable.fromWeb(archive as never))
  const found: Record<string, string> = {}
  for (let entry = await reader.next(); entry !== null; entry = await reader.next())
    found[entry.path] = entry.type === 'link' ? entry.target : await text(reader.content())
  expect(found).toMatchObject({ 'files/new.txt': 'old\n', 'files/link': 'new.txt' })

  service.child.kill('SIGTERM')
  expect((await service.ended).code).toBe(0)
  expect(await place.leftovers()).toEqual([])
}, 240_000)
