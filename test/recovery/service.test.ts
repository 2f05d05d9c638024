// What the next service does with runs of one that was killed, with a program in the place of QEMU.
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { ServiceClient } from '../../client/index.ts'
import { Host } from '../../host/host.ts'
import { RunRecord } from '../../host/journal/run-record.ts'
import { cliPlace, type Place } from '../../host/test/support/cli.ts'
import { type InstalledMachine, installMachine } from './machine/install.ts'

const waiting = { timeout: 60_000, interval: 100 }
let folder: string
let machine: InstalledMachine

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-restart-'))
  machine = await installMachine(folder)
}, 120_000)

afterAll(async () => await rm(folder, { recursive: true, force: true }))

async function serve(place: Place) {
  const process = place.start('serve', '--port', '0', '--allow-workspace', place.workspace)
  const url = () => /listens on (http:\S+)/.exec(process.errors())?.[1]
  await expect.poll(url, waiting).toBeTruthy()
  const token = (await readFile(path.join(place.home, 'service/token'), 'utf8')).trim()
  return { ...process, client: new ServiceClient({ baseUrl: url() ?? '', token }) }
}

const step = (id: string) => ({ id, title: id, instructions: `do ${id}` })

it('a run that was cancelled before its service was killed ends in the next one, with its changes [R.01 H.02]', async () => {
  let asked = 0
  // The second step has no answer.
  await using model = await startModelServer(() => {
    asked += 1
    const call = { id: 'call-1', name: 'write_file', arguments: '{"path":"made.txt","content":"made\\n"}' }
    if (asked > 2) return { before: 'hang', body: '' }
    return reply(asked === 1 ? { calls: [call] } : { text: 'It is written.' })
  })
  const PATH = `${machine.programs}:${process.env.PATH ?? ''}`
  const env = {
    CAISSON_CACHE: machine.cache,
    PATH,
    CAISSON_LLM_URL: model.baseUrl,
    CAISSON_MODEL: 'scripted',
  }
  const place = await cliPlace({ 'given.txt': 'given\n' }, env)
  const first = await serve(place)
  const { id } = await first.client.call('createRun', {
    body: {
      ...{ prompt: 'Write made.txt', workspace: place.workspace },
      plan: { from: { goal: 'g', steps: [step('one'), step('two')] } as never },
      vm: { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2 },
    },
  })
  const params = { run: id }
  const hasCheckpoint = async () => {
    const { events } = await first.client.call('listEvents', { params, query: { limit: '1000' } })
    const types = events.map(({ event }) => event.type)
    return types.lastIndexOf('checkpoint') > types.indexOf('tool-end') && types.includes('tool-end')
  }
  await expect.poll(() => asked, waiting).toBe(3)
  await expect.poll(hasCheckpoint, waiting).toBe(true)
  first.child.kill('SIGKILL')
  await once(first.child, 'close')
  // It had journaled the cancel as its last line.
  const { runs } = new Host({ env: { CAISSON_HOME: place.home } })
  {
    await using record = await RunRecord.open(runs.paths(id))
    await record.host({ type: 'cancel-request', by: 'ada' })
  }

  const second = await serve(place)
  const ended = await second.client.call('getResult', { params, query: { waitMs: '60000' } })
  expect(ended).toMatchObject({ outcome: 'cancelled', changes: { entries: 1 } })
  expect(ended.message).toContain('cancelled by ada')
  expect(asked).toBeLessThanOrEqual(4)
  second.child.kill('SIGTERM')
  await second.ended
}, 180_000)
