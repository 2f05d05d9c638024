// Runs with several models, whole, host and agent, with a program in the place of QEMU: which model answered is kept.
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { failure, reply } from '#specs/testing/model-replies.ts'
import { type ModelServer, startModelServer } from '#specs/testing/model-server.ts'
import type { ConfigInput } from '../../host/config/schema.ts'
import { Host, type RunOptions } from '../../host/host.ts'
import { type InstalledMachine, installMachine } from './machine/install.ts'

let folder: string
let machine: InstalledMachine

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-models-'))
  machine = await installMachine(folder)
  process.env.PATH = `${machine.programs}:${process.env.PATH}`
}, 120_000)

afterAll(async () => await rm(folder, { recursive: true, force: true, maxRetries: 5 }))

const vm: RunOptions['vm'] = { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2, start: 'cold' }
const limited = failure(429, 'Rate limit reached, try again in 5 hours')
const write = reply({ calls: [{ name: 'write_file', arguments: { path: 'note.txt', content: 'a note\n' } }] })

async function placeOf(name: string) {
  const place = path.join(folder, name)
  const workspace = path.join(place, 'work')
  await mkdir(workspace, { recursive: true })
  const open = (config: ConfigInput): Host =>
    new Host({
      env: { ...process.env, CAISSON_HOME: path.join(place, 'home'), CAISSON_CACHE: machine.cache },
      config,
    })
  return { workspace, open }
}

/** @param address of this machine: each has a queue of its own, in which other limits hold */
const providersOf = (servers: Readonly<Record<string, ModelServer>>, address = '127.0.0.1') =>
  Object.fromEntries(
    Object.entries(servers).map(([name, { baseUrl }]) => [
      name,
      { url: baseUrl.replace('127.0.0.1', address), models: [`${name}-*`] },
    ]),
  )

it('a run that continues elsewhere, and its replay, keep the answers of a fallback [S3.06 R.01 G.05]', async () => {
  let isLimited = true
  await using own = await startModelServer(() => limited)
  await using other = await startModelServer(({ messages }) => {
    if (!messages.some(({ role }) => role === 'tool')) return write
    return isLimited ? limited : reply({ text: 'I wrote note.txt.' })
  })
  const { workspace, open } = await placeOf('fallback')
  await using host = open({ providers: providersOf({ own, other }) })
  const run = await host.run({
    prompt: 'Write note.txt.',
    model: 'own-1',
    fallback: ['other-1'],
    workspace,
    vm,
    onNotes: () => undefined,
  })
  expect(await run.result()).toMatchObject({ outcome: 'failed', reason: 'model_unreachable' })

  isLimited = false
  const asked = other.asked.length
  await using later = open({ providers: providersOf({ own, other }, 'localhost') })
  const resumed = await later.resume(run.id, { onNotes: () => undefined })
  expect(await resumed.result()).toMatchObject({ outcome: 'completed', summary: 'I wrote note.txt.' })
  // The first answer is not asked for again.
  expect(other.asked).toHaveLength(asked + 1)
  const ends = async (runId: string) =>
    (await later.runs.read(runId)).flatMap(({ event }) =>
      event.type === 'model-end' && event.error === undefined ? [event.fallback] : [],
    )
  expect((await ends(run.id)).filter((model) => model !== 'other-1')).toEqual([])

  const paid = [own.asked.length, other.asked.length]
  const replay = await later.replay(run.id)
  expect(await replay.result()).toMatchObject({ isSame: true, difference: null })
  expect((await ends(replay.run.id)).filter((model) => model !== 'other-1')).toEqual([])
  expect([own.asked.length, other.asked.length]).toEqual(paid)
})
