// Images through a whole run, host and agent: named in the task and read by the agent, to models that see and that do not.
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { dataUrl, jpeg, png } from '#specs/testing/images.ts'
import { reply } from '#specs/testing/model-replies.ts'
import { startModelServer } from '#specs/testing/model-server.ts'
import { Host } from '../../host/host.ts'
import { type InstalledMachine, installMachine } from './machine/install.ts'

const mockup = png(640, 480)
const photo = jpeg(32, 16)
const urls = [dataUrl('image/png', mockup), dataUrl('image/jpeg', photo)]
let folder: string
let machine: InstalledMachine

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'caisson-images-'))
  machine = await installMachine(folder)
  process.env.PATH = `${machine.programs}:${process.env.PATH}`
}, 120_000)

afterAll(async () => await rm(folder, { recursive: true, force: true, maxRetries: 5 }))

/** A run on a model of this id that reads `photo.jpg`; what its server and its journal heard. */
async function runWith(model: string) {
  await using server = await startModelServer(({ text }) =>
    text.includes('"role":"tool"')
      ? reply({ text: 'A window and a photo.' })
      : reply({ calls: [{ id: 'call_1', name: 'read_file', arguments: { path: 'photo.jpg' } }] }),
  )
  const place = path.join(folder, model)
  const workspace = path.join(place, 'work')
  await mkdir(workspace, { recursive: true })
  await writeFile(path.join(workspace, 'mockup.png'), mockup)
  await writeFile(path.join(workspace, 'photo.jpg'), photo)
  // What the person names is copied though it is ignored.
  await writeFile(path.join(workspace, '.gitignore'), '*.png\n')
  const env = { ...process.env, CAISSON_HOME: path.join(place, 'home'), CAISSON_CACHE: machine.cache }
  await using host = new Host({
    env,
    config: { providers: { own: { url: server.baseUrl, models: [model] } } },
  })
  const vm = { memoryBytes: 256 * 1024 ** 2, diskBytes: 64 * 1024 ** 2, start: 'cold' } as const
  const prompt = 'Say what is on the images.'
  const run = await host.run({
    prompt,
    model,
    workspace,
    images: ['mockup.png'],
    vm,
    onNotes: () => undefined,
  })
  expect(await run.result()).toMatchObject({ outcome: 'completed', summary: 'A window and a photo.' })
  const asked = server.asked.map(({ text }) => text)
  const replay = await (await host.replay(run.id)).result()
  return {
    asked,
    askedLater: server.asked.length - asked.length,
    events: (await host.runs.read(run.id)).map(({ event }) => event),
    replay,
    recording: await readFile(path.join(place, 'home', 'runs', run.id, 'exchanges.jsonl'), 'utf8'),
  }
}

const count = (text: string, part: string) => text.split(part).length - 1

describe('images', () => {
  it('reach a model that sees, and journal and recording hold each once at most [G.09] [G.06]', async () => {
    const { asked, askedLater, events, replay, recording } = await runWith('gpt-4o')
    expect(urls.map((url) => count(asked[0] ?? '', url))).toEqual([1, 0])
    expect(urls.map((url) => count(asked.at(-1) ?? '', url))).toEqual([1, 1])
    expect(asked[0]).toContain('mockup.png: PNG image, 640x480 pixels')
    expect(urls.map((url) => count(recording, url))).toEqual([1, 1])
    expect(JSON.stringify(events)).not.toContain('base64')
    const shown = { type: 'image/jpeg', width: 32, height: 16, sizeBytes: photo.length }
    expect(events[0]).toMatchObject({ images: [{ path: 'mockup.png', image: { width: 640, height: 480 } }] })
    expect(events.find(({ type }) => type === 'tool-end')).toMatchObject({ image: shown })
    expect(askedLater).toBe(0)
    expect(replay).toMatchObject({ isSame: true, difference: null })
  })

  it('become notes for a model that cannot see [G.09]', async () => {
    const { asked } = await runWith('some-model')
    expect(urls.map((url) => count(asked.at(-1) ?? '', url))).toEqual([0, 0])
    expect(count(asked.at(-1) ?? '', 'this model cannot see images')).toBe(2)
  })
})
