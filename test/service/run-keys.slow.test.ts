// A service that is killed between the start of a run and its answer: the same request finds the one run that began.
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { ServiceClient } from '../../client/index.ts'
import { Host } from '../../host/index.ts'
import type { CliProcess, Place } from '../../host/test/support/cli.ts'
import { heldRuns, placeOf } from './queue-support.ts'

async function serve(place: Place): Promise<{ process: CliProcess; client: ServiceClient }> {
  const process = place.start('serve', '--port', '0', '--parallel-runs', '1')
  const url = () => /listens on (http:\S+)/.exec(process.errors())?.[1]
  await expect.poll(url, { timeout: 60_000 }).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  return { process, client: new ServiceClient({ baseUrl: url() ?? '', token }) }
}

/** Moments of the kill: before anything of the run is there, at its folder, at its first line, and after the answer. */
const moments = ['request', 'folder', 'journal', 'answer'] as const

it('a service that is killed anywhere between request and answer starts one run for a key [S4.13, R.01]', async () => {
  const held = await heldRuns()
  const place = await placeOf(held)
  const runs = path.join(place.home, 'runs')
  const namesIn = async (folder: string) => await readdir(folder).catch((): string[] => [])
  const known = new Map<string, string>()
  let { process, client } = await serve(place)
  const host = new Host({ env: place.env })
  // It has the only place, so that others wait, and a restart needs no VM for them.
  const { id: first } = await client.call('putRun', { params: { key: 'first' }, body: { prompt: 'x' } })
  await expect.poll(held.begun).toEqual([first])
  for (const moment of moments) {
    const key = `at-${moment}`
    const request = { params: { key }, body: { prompt: moment } }
    const before = new Set(await namesIn(runs))
    const killed = once(process.child, 'close')
    const answer = client.call('putRun', request).catch(() => undefined)
    const isReached = async (): Promise<boolean> => {
      const made = (await namesIn(runs)).find((name) => !before.has(name))
      if (moment === 'folder') return made !== undefined
      return made !== undefined && (await namesIn(path.join(runs, made))).includes('journal.jsonl')
    }
    if (moment === 'answer') await answer
    else if (moment !== 'request') while (!(await isReached()));
    process.child.kill('SIGKILL')
    await killed
    await answer
    if (moment === 'request') await host.cancel(first)
    ;({ process, client } = await serve(place))
    const again = await Promise.all([1, 2, 3].map(() => client.call('putRun', request)))
    expect(new Set(again.map(({ id }) => id)).size).toBe(1)
    known.set(key, again[0]?.id ?? '')
    const journaled = (await host.runs.list()).filter(({ status }) => status !== 'damaged')
    const ofKey = journaled.filter(({ prompt }) => prompt === moment)
    expect([moment, ofKey.map(({ id }) => id)]).toEqual([moment, [known.get(key)]])
  }
  for (const [key, id] of known) expect((await client.call('getRun', { params: { run: key } })).id).toBe(id)
  process.child.kill('SIGKILL')
  await once(process.child, 'close')
  for (const run of known.values()) await host.cancel(run).catch(() => undefined)
}, 240_000)
