// The log of `caisson serve` as a process of its own: each line of it that is no greeting is JSON.
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { heldRuns, placeOf } from './queue-support.ts'

it('warnings of a run, and of Node, are lines of the log, each once [H.02]', async () => {
  const held = await heldRuns()
  const place = await placeOf(held)
  const warning = path.join(place.workspace, 'warning.mjs')
  await writeFile(warning, `process.on('SIGUSR2', () => process.emitWarning('a library warns'))\n`)
  place.env.NODE_OPTIONS = `--import ${warning}`
  const service = place.start('serve', '--port', '0')
  const url = () => /listens on (http:\S+)/.exec(service.errors())?.[1]
  await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  const client = new ServiceClient({ baseUrl: url() ?? '', token })
  for (const prompt of ['one', 'two'])
    await client.call('createRun', { body: { prompt, limits: { maxCostUsd: 1 } } })
  service.child.kill('SIGUSR2')
  const logged = () =>
    service
      .errors()
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line))
      .filter(({ level }) => level === 'warn')
  await expect
    .poll(logged, { timeout: 30_000 })
    .toMatchObject([
      { message: expect.stringContaining('No model key is set') },
      { message: expect.stringContaining('maxCostUsd') },
      { message: 'a library warns', name: 'Warning' },
    ])
  expect(service.errors()).not.toContain('(node:')
  await held.release()
  service.child.kill('SIGTERM')
  await once(service.child, 'close')
})
